//! Options of a mount, and the features that the kernel granted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

/// Use of an optional feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Use it if the kernel and the privileges allow it.
    #[default]
    Auto,
    /// Fail the mount if it is not available.
    On,
    /// Never use it.
    Off,
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            other => Err(format!("`{other}` is none of auto, on, off")),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// Time for which the kernel keeps names, attributes and listings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Coherence {
    /// Until the file system reports a change, or for a limited time if it does not report any.
    #[default]
    Auto,
    /// Until the file system reports a change; fail the mount if it does not report any.
    Watch,
    /// For a limited time.
    Timeout,
    /// Nothing bypasses the file system: chosen by `Auto` and `Watch`, not given.
    Private,
}

impl FromStr for Coherence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "watch" => Ok(Self::Watch),
            "timeout" => Ok(Self::Timeout),
            other => Err(format!("`{other}` is none of auto, watch, timeout")),
        }
    }
}

/// Opener of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Opens {
    /// Each open is a request.
    #[default]
    Daemon,
    /// The kernel opens files by itself and keeps their data; read-only mounts.
    Kernel,
}

impl FromStr for Opens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "daemon" => Ok(Self::Daemon),
            "kernel" => Ok(Self::Kernel),
            other => Err(format!("`{other}` is none of daemon, kernel")),
        }
    }
}

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountConfig {
    /// First column of `/proc/mounts`.
    pub source: String,
    /// Appended to the type: `fuse.SUBTYPE`.
    pub subtype: String,
    /// Largest write and read request in bytes; `None` asks for the kernel's limit.
    pub io_unit_bytes: Option<u32>,
    /// Kernel writeback cache.
    pub writeback: Switch,
    /// Kernel passthrough of file data to [`vfs::FileSystem::backing_file`].
    pub passthrough: Switch,
    /// Requests over io_uring instead of `/dev/fuse` reads and writes.
    pub uring: Switch,
    /// Direct I/O on the FUSE side: reads and writes skip the kernel's page cache. `Auto`: files opened for writing,
    /// unless the writeback cache is in use; `On`: all files; `Off`: only files opened with `O_APPEND`.
    pub direct_io: Switch,
    /// Worker threads; `None` chooses by the number of processors.
    pub threads: Option<u16>,
    /// Longest time that a worker polls `/dev/fuse` for a request before it sleeps, at most [`crate::POLL_MAX`]; zero: it
    /// sleeps at once. `None`: 20 us where a second processor can send requests meanwhile.
    pub poll: Option<Duration>,
    /// Read-only mount.
    pub read_only: bool,
    /// Other users may access the mount.
    pub allow_other: bool,
    /// The file system shows real owners, modes and ACLs, and the kernel checks them. Off: it shows mapped ids (`uid=`,
    /// `gid=`, `umask=`), with which ACLs make no sense.
    pub posix_acl: bool,
    /// Time that the kernel may cache attributes.
    pub attr_ttl: Duration,
    /// Time that the kernel may cache names.
    pub entry_ttl: Duration,
    /// Use of reports of changes that bypass the file system, by which the kernel may cache for longer.
    pub coherence: Coherence,
    /// Opener of files. `Kernel` needs `read_only`, and a kernel that checks permissions.
    pub opens: Opens,
    /// Further generic mount options for the kernel (`nosuid`, `nodev`, `noexec`, `noatime`, `sync`, `dirsync` ...).
    pub kernel_options: Vec<String>,
}

impl MountConfig {
    /// Whether the kernel checks permissions (`default_permissions`) before it sends a request.
    ///
    /// A mount that only its own unprivileged user may access leaves the checks to the host, which applies them to the
    /// same user anyway: otherwise the kernel would fetch a directory's attributes after each change in it. A
    /// privileged daemon must not rely on the host, which allows it more than its callers.
    pub(crate) fn kernel_checks_permissions(&self) -> bool {
        self.allow_other || !self.posix_acl || rustix::process::geteuid().is_root()
    }
}

/// Open files that skip the kernel's page cache on the FUSE side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// Files opened for appending: the offset of their data is known only once it is written.
    Off,
    /// Files opened for writing.
    Writers,
    /// All files.
    On,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// `read(2)` and `writev(2)` on `/dev/fuse`.
    Device,
    /// io_uring commands.
    IoUring,
}

/// Features that the kernel granted; `Display` prints one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Negotiated {
    /// Protocol version the kernel speaks, major and minor.
    pub kernel_protocol: (u32, u32),
    /// Largest write request in bytes.
    pub write_bytes_max: u32,
    /// Largest read-ahead in bytes.
    pub readahead_bytes_max: u32,
    /// Kernel writeback cache.
    pub writeback: bool,
    /// Kernel passthrough.
    pub passthrough: bool,
    /// Transport in use.
    pub transport: Transport,
    /// Files whose data skips the kernel's page cache on the FUSE side; irrelevant under passthrough.
    pub direct_io: DirectIo,
    /// The file system clears setuid and capability bits itself, which saves a request per write.
    pub kill_privileges: bool,
    /// Time for which names, attributes and listings are kept; not [`Coherence::Auto`].
    pub coherence: Coherence,
    /// Opener of files.
    pub opens: Opens,
    /// The kernel accepts a refused OPENDIR.
    #[serde(skip)]
    pub directory_handles_are_optional: bool,
    /// Worker threads.
    pub threads: u16,
    /// Longest polling for a request, nanoseconds; 0: workers sleep at once.
    pub poll_ns: u64,
    /// Features requested with `auto` that are not in use, each with the reason.
    pub not_granted: Vec<String>,
}

impl fmt::Display for Negotiated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on_off = |on: bool| if on { "on" } else { "off" };
        write!(
            formatter,
            "FUSE {}.{}, requests to {} KiB, passthrough {}, writeback cache {}, direct I/O {}, transport {}, {} threads",
            self.kernel_protocol.0,
            self.kernel_protocol.1,
            self.write_bytes_max / 1024,
            on_off(self.passthrough),
            on_off(self.writeback),
            match self.direct_io {
                DirectIo::Off => "off",
                DirectIo::Writers => "for writers",
                DirectIo::On => "on",
            },
            match self.transport {
                Transport::Device => "/dev/fuse",
                Transport::IoUring => "io_uring",
            },
            self.threads,
        )?;
        if self.opens == Opens::Kernel {
            write!(formatter, ", files opened by the kernel")?;
        }
        for reason in &self.not_granted {
            write!(formatter, "\n  not in use: {reason}")?;
        }
        Ok(())
    }
}

/// Errors of mounting and of a session.
#[derive(Debug, Error)]
pub enum MountError {
    /// `/dev/fuse` can't be opened.
    #[error(
        "/dev/fuse can't be opened; load the fuse module (`modprobe fuse`) or give this process access to the device"
    )]
    NoDevice {
        /// The host's error.
        source: std::io::Error,
    },
    /// mount(2) failed.
    #[error("{}: mount failed", mountpoint.display())]
    Mount {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// The flags of a mount could not be changed.
    #[error("{}: remount failed", mountpoint.display())]
    Remount {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// fusermount3 is missing or refused.
    #[error("{}: fusermount3 did not mount: {reason}", mountpoint.display())]
    Fusermount {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// Its error output, or the reason why it could not be started.
        reason: String,
    },
    /// A daemon died and left its mount behind.
    #[error("{}: a dead FUSE mount is in the way; remove it with `tidegate unmount {}`", mountpoint.display(), mountpoint.display())]
    DeadMount {
        /// The mountpoint.
        mountpoint: PathBuf,
    },
    /// The mountpoint can't be used.
    #[error("{}: not usable as a mountpoint", mountpoint.display())]
    Mountpoint {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// A required feature is not available.
    #[error("{feature} can't be had: {reason}")]
    Demanded {
        /// The option and its value.
        feature: String,
        /// The reason.
        reason: String,
    },
    /// The kernel's first message is malformed, or the connection failed.
    #[error("FUSE session failed while {doing}")]
    Protocol {
        /// The step that failed.
        doing: &'static str,
        /// The host's error.
        source: std::io::Error,
    },
    /// The connection was aborted while files were open.
    #[error(
        "the connection was aborted (`umount -f`, or its file in /sys/fs/fuse/connections) and the mount taken away; what \
         programs had not handed over by then is lost"
    )]
    Aborted,
    /// A request panicked: a defect of the program.
    #[error(
        "a request panicked in thread {worker}, and the mount was ended; what was acknowledged before is written where that \
         is still possible"
    )]
    Panicked {
        /// Name of the thread.
        worker: String,
    },
}
