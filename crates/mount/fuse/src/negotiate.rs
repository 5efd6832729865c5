//! The INIT exchange: features requested from the kernel, and the result.

use std::time::Duration;

use zerocopy::FromBytes;

use crate::abi::{InitIn, InitOut, MAJOR, MINOR, MINOR_OLDEST, init};
use crate::config::{Coherence, DirectIo, MountConfig, MountError, Negotiated, Opens, Switch, Transport};
use crate::mount;
use crate::mount_sync::MountSync;
use crate::poll;

/// Page size, the unit of `max_pages`.
pub const PAGE_BYTES: u32 = 4096;
/// Limit of background requests (read-ahead, writeback) before the kernel throttles.
const BACKGROUND_MAX: u16 = 64;
/// Requested read-ahead; the kernel may grant less.
const READAHEAD_BYTES: u32 = 1 << 20;

/// Properties of this process and machine that decide about features, read once before INIT.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// `fs.fuse.max_pages_limit`, or the fixed limit of kernels without it.
    pub pages_max: u16,
    /// `CAP_SYS_ADMIN` is effective.
    pub administrator: bool,
    /// `/sys/module/fuse/parameters/enable_uring`.
    pub uring_enabled: bool,
    /// Processors that can be online.
    pub processors: u16,
}

impl Surroundings {
    /// Reads them from the host.
    pub fn ask() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let pages: u32 = read("/proc/sys/fs/fuse/max_pages_limit")
            .trim()
            .parse()
            .unwrap_or(256);
        let effective = read("/proc/self/status")
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok())
            .unwrap_or(0);
        const CAP_SYS_ADMIN: u32 = 21;
        Self {
            pages_max: u16::try_from(pages).unwrap_or(u16::MAX),
            administrator: effective & (1 << CAP_SYS_ADMIN) != 0,
            uring_enabled: read("/sys/module/fuse/parameters/enable_uring").trim() == "Y",
            processors: std::thread::available_parallelism()
                .map_or(1, |count| u16::try_from(count.get()).unwrap_or(u16::MAX)),
        }
    }
}

/// Answers the kernel's INIT: returns the reply to send and the negotiated features.
pub fn answer(
    body: &[u8],
    config: &MountConfig,
    surroundings: &Surroundings,
) -> Result<(InitOut, Negotiated), MountError> {
    let protocol = |message: String| MountError::Protocol {
        doing: "reading the kernel's INIT",
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, message),
    };
    // Older kernels send a shorter structure; missing fields are zero.
    let mut padded = [0; size_of::<InitIn>()];
    let length = body.len().min(padded.len());
    padded[..length].copy_from_slice(&body[..length]);
    let (asked, _) = InitIn::read_from_prefix(&padded).map_err(|_| protocol("no structure".to_owned()))?;
    if asked.major != MAJOR || asked.minor < MINOR_OLDEST {
        return Err(protocol(format!(
            "the kernel speaks FUSE {}.{}, this build needs {MAJOR}.{MINOR_OLDEST} or newer (Linux 5.4)",
            asked.major, asked.minor
        )));
    }
    let high = if u64::from(asked.flags) & init::INIT_EXT != 0 {
        asked.flags2
    } else {
        0
    };
    let offered = u64::from(asked.flags) | (u64::from(high) << 32);
    let mut not_granted = Vec::new();
    if config.opens == Opens::Kernel {
        check_opens(config, offered)?;
    }
    let passthrough = choose(
        "passthrough",
        config.passthrough,
        if offered & init::PASSTHROUGH == 0 {
            Err("this kernel has no FUSE passthrough (Linux 6.9 and newer have)")
        } else if !surroundings.administrator {
            Err("it needs CAP_SYS_ADMIN")
        } else if config.writeback == Switch::On {
            Err("writeback=on was asked for, and the kernel has one or the other")
        } else if config.opens == Opens::Kernel {
            Err("with open=kernel no open reaches the daemon, which would hand a file to the kernel")
        } else if mount::sync_of(&config.kernel_options) == MountSync::All {
            // The kernel passes the flags of each write and descriptor on to the backing file, but not those of the
            // mount.
            Err("with the option sync each write has to be synced, which the kernel leaves to the daemon")
        } else {
            Ok(())
        },
        &mut not_granted,
    )?;
    let writeback = config.writeback == Switch::On;
    if config.writeback == Switch::Auto && !passthrough {
        not_granted.push(
            "writeback: it hides changes made to the source behind the mount (writeback=on accepts that)"
                .to_owned(),
        );
    }
    let direct_io = match config.direct_io {
        Switch::Auto if writeback || config.opens == Opens::Kernel => DirectIo::Off,
        Switch::Auto => DirectIo::Writers,
        Switch::On => DirectIo::On,
        Switch::Off => DirectIo::Off,
    };
    let uring = choose(
        "uring",
        config.uring,
        if offered & init::OVER_IO_URING == 0 {
            Err(if surroundings.uring_enabled {
                "this kernel has no FUSE over io_uring (Linux 6.14 and newer have)"
            } else {
                "not enabled in the kernel (echo Y > /sys/module/fuse/parameters/enable_uring)"
            })
        } else {
            Ok(())
        },
        &mut not_granted,
    )?;
    // Not READDIRPLUS_AUTO: a directory's reader nearly always looks at its files next, and a request for each of them
    // costs far more than unused attributes. Not ATOMIC_O_TRUNC: with it, an O_TRUNC open of a running program
    // truncates the file before the kernel detects that the program is running (ETXTBSY), and the program dies of
    // SIGBUS.
    let mut wanted = init::ASYNC_READ
        | init::DONT_MASK
        | init::HAS_IOCTL_DIR
        | init::AUTO_INVAL_DATA
        | init::DO_READDIRPLUS
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::ABORT_ERROR
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::NO_OPEN_SUPPORT
        | init::NO_OPENDIR_SUPPORT
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    let pages = match config.io_unit_bytes {
        Some(bytes) => u16::try_from(bytes / PAGE_BYTES)
            .unwrap_or(u16::MAX)
            .min(surroundings.pages_max)
            .max(1),
        None => surroundings.pages_max,
    };
    for (want, flag) in [
        (
            config.posix_acl && config.kernel_checks_permissions(),
            init::POSIX_ACL,
        ),
        (passthrough, init::PASSTHROUGH),
        (writeback, init::WRITEBACK_CACHE),
        (uring, init::OVER_IO_URING),
        (pages > 1, init::BIG_WRITES),
    ] {
        if want {
            wanted |= flag;
        }
    }
    let granted = wanted & offered;
    let words = (
        u32::try_from(granted & u64::from(u32::MAX)).expect("32 bits are left"),
        u32::try_from(granted >> 32).expect("32 bits are left"),
    );
    let threads = config
        .threads
        .unwrap_or_else(|| surroundings.processors.clamp(2, 8))
        .max(1);
    let poll = match config.poll {
        _ if uring => Duration::ZERO,
        Some(limit) => limit.min(poll::LIMIT_MAX),
        None if surroundings.processors > 1 => poll::LIMIT,
        None => Duration::ZERO,
    };
    let readahead_bytes_max = READAHEAD_BYTES
        .min(asked.max_readahead)
        .max(u32::from(pages) * PAGE_BYTES);
    let out = InitOut {
        major: MAJOR,
        minor: MINOR.min(asked.minor),
        max_readahead: readahead_bytes_max,
        flags: words.0,
        flags2: words.1,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: u32::from(pages) * PAGE_BYTES,
        time_gran: 1,
        max_pages: pages,
        max_stack_depth: u32::from(passthrough),
        ..InitOut::default()
    };
    let negotiated = Negotiated {
        kernel_protocol: (asked.major, asked.minor),
        write_bytes_max: out.max_write,
        readahead_bytes_max,
        writeback,
        passthrough,
        transport: if uring {
            Transport::IoUring
        } else {
            Transport::Device
        },
        direct_io,
        kill_privileges: granted & init::HANDLE_KILLPRIV_V2 != 0,
        coherence: Coherence::Timeout,
        opens: config.opens,
        directory_handles_are_optional: offered & init::NO_OPENDIR_SUPPORT != 0,
        threads,
        poll_ns: u64::try_from(poll.as_nanos()).expect("it is at most a millisecond"),
        not_granted,
    };
    Ok((out, negotiated))
}

/// Refuses [`Opens::Kernel`] where an open has an effect beside its descriptor.
fn check_opens(config: &MountConfig, offered: u64) -> Result<(), MountError> {
    let reason = if !config.read_only {
        "files that are only read can do without the daemon: it needs a read-only mount (ro)"
    } else if !config.kernel_checks_permissions() {
        "on an ordinary user's own mount the host checks permissions, at each open"
    } else if config.direct_io == Switch::On {
        "with direct_io=on the kernel keeps no data"
    } else if offered & init::NO_OPEN_SUPPORT == 0 {
        "this kernel opens no file by itself"
    } else {
        return Ok(());
    };
    Err(MountError::Demanded {
        feature: "open=kernel".to_owned(),
        reason: reason.to_owned(),
    })
}

/// Decides whether a feature is used: an obstacle is noted for `auto` and an error for `on`.
fn choose(
    feature: &'static str,
    switch: Switch,
    possible: Result<(), &'static str>,
    not_granted: &mut Vec<String>,
) -> Result<bool, MountError> {
    match (switch, possible) {
        (Switch::Off, _) => Ok(false),
        (Switch::Auto | Switch::On, Ok(())) => Ok(true),
        (Switch::Auto, Err(reason)) => {
            not_granted.push(format!("{feature}: {reason}"));
            Ok(false)
        }
        (Switch::On, Err(reason)) => Err(MountError::Demanded {
            feature: format!("{feature}=on"),
            reason: reason.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zerocopy::IntoBytes;

    use super::*;

    fn config() -> MountConfig {
        MountConfig {
            source: String::new(),
            subtype: String::new(),
            io_unit_bytes: None,
            writeback: Switch::Auto,
            passthrough: Switch::Auto,
            uring: Switch::Auto,
            direct_io: Switch::Auto,
            threads: None,
            poll: None,
            read_only: false,
            allow_other: false,
            posix_acl: true,
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            coherence: Coherence::Timeout,
            opens: Opens::Daemon,
            kernel_options: Vec::new(),
        }
    }

    fn kernel(minor: u32, flags: u64) -> InitIn {
        InitIn {
            major: 7,
            minor,
            max_readahead: 128 << 10,
            flags: u32::try_from(flags & u64::from(u32::MAX)).unwrap(),
            flags2: u32::try_from(flags >> 32).unwrap(),
            unused: [0; 11],
        }
    }

    const ROOT: Surroundings = Surroundings {
        pages_max: 256,
        administrator: true,
        uring_enabled: false,
        processors: 2,
    };

    #[test]
    fn root_on_a_recent_kernel_gets_passthrough_and_no_writeback_beside_it() {
        let all = init::PASSTHROUGH | init::WRITEBACK_CACHE | init::INIT_EXT | init::POSIX_ACL;
        let (out, negotiated) = answer(kernel(45, all).as_bytes(), &config(), &ROOT).unwrap();
        assert!(negotiated.passthrough && !negotiated.writeback);
        assert_eq!(out.max_stack_depth, 1);
        assert_eq!(u64::from(out.flags) & init::WRITEBACK_CACHE, 0);
        assert_eq!(negotiated.write_bytes_max, 1 << 20);
    }

    #[test]
    fn a_mount_with_sync_has_no_passthrough_as_nothing_would_sync_its_writes() {
        let all = init::PASSTHROUGH | init::INIT_EXT;
        for (words, expected) in [
            (&["sync"][..], false),
            (&["sync", "noatime", "async"], true),
            (&["async", "sync"], false),
            (&["dirsync"], true),
        ] {
            let config = MountConfig {
                kernel_options: words.iter().map(|word| (*word).to_owned()).collect(),
                ..config()
            };
            let (_, negotiated) = answer(kernel(45, all).as_bytes(), &config, &ROOT).unwrap();
            assert_eq!(negotiated.passthrough, expected, "{words:?}");
        }
    }

    #[test]
    fn an_ordinary_user_is_told_why_passthrough_is_not_in_use() {
        let user = Surroundings {
            administrator: false,
            ..ROOT
        };
        let all = init::PASSTHROUGH | init::WRITEBACK_CACHE | init::INIT_EXT;
        let (_, negotiated) = answer(kernel(45, all).as_bytes(), &config(), &user).unwrap();
        assert!(!negotiated.passthrough && !negotiated.writeback);
        assert_eq!(negotiated.direct_io, DirectIo::Writers);
        assert!(
            negotiated
                .not_granted
                .iter()
                .any(|reason| reason.contains("CAP_SYS_ADMIN"))
        );
        let demanded = MountConfig {
            passthrough: Switch::On,
            ..config()
        };
        let error = answer(kernel(45, all).as_bytes(), &demanded, &user).unwrap_err();
        assert_eq!(
            error.to_string(),
            "passthrough=on can't be had: it needs CAP_SYS_ADMIN"
        );
    }

    #[test]
    fn the_kernel_opens_files_of_read_only_mounts_only_and_without_passthrough() {
        let all = init::PASSTHROUGH | init::INIT_EXT | init::NO_OPEN_SUPPORT;
        let by_kernel = MountConfig {
            opens: Opens::Kernel,
            read_only: true,
            // The kernel then checks permissions, as for root.
            allow_other: true,
            ..config()
        };
        let (_, negotiated) = answer(kernel(45, all).as_bytes(), &by_kernel, &ROOT).unwrap();
        assert!(!negotiated.passthrough && negotiated.direct_io == DirectIo::Off);
        let refused = [
            MountConfig {
                read_only: false,
                ..by_kernel.clone()
            },
            MountConfig {
                direct_io: Switch::On,
                ..by_kernel.clone()
            },
            MountConfig {
                passthrough: Switch::On,
                ..by_kernel.clone()
            },
        ];
        for config in refused {
            let error = answer(kernel(45, all).as_bytes(), &config, &ROOT).unwrap_err();
            assert!(error.to_string().contains("can't be had"), "{error}");
        }
        let old = all & !init::NO_OPEN_SUPPORT;
        assert!(answer(kernel(45, old).as_bytes(), &by_kernel, &ROOT).is_err());
    }

    #[test]
    fn a_4_kib_unit_is_one_page_a_request() {
        let small = MountConfig {
            io_unit_bytes: Some(4096),
            ..config()
        };
        let (out, _) = answer(kernel(45, init::MAX_PAGES).as_bytes(), &small, &ROOT).unwrap();
        assert_eq!((out.max_pages, out.max_write), (1, 4096));
    }

    #[test]
    fn an_old_or_strange_kernel_is_refused_by_name() {
        let error = answer(kernel(23, 0).as_bytes(), &config(), &ROOT).unwrap_err();
        assert!(error.to_string().contains("FUSE"), "{error}");
        assert!(answer(&[], &config(), &ROOT).is_err());
    }
}
