//! What a mount asks for, and what the kernel granted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

/// A feature that is used where it can be, always, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Where the kernel and the privileges allow it.
    #[default]
    Auto,
    /// The mount fails when it is not available.
    On,
    /// Never.
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

/// How a file system is to be mounted.
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
    /// where the writeback cache is not in use; `On`: all files; `Off`: those opened with `O_APPEND`.
    pub direct_io: Switch,
    /// Worker threads; `None` chooses by the number of processors.
    pub threads: Option<u16>,
    /// Read-only mount.
    pub read_only: bool,
    /// Other users may enter.
    pub allow_other: bool,
    /// Owners, modes and ACLs are as the file system says, and the kernel checks them. Off: the file system shows
    /// mapped ids (`uid=`, `gid=`, `umask=`) and ACLs make no sense.
    pub posix_acl: bool,
    /// How long the kernel may trust attributes.
    pub attr_ttl: Duration,
    /// How long the kernel may trust names.
    pub entry_ttl: Duration,
    /// More generic mount options for the kernel (`nosuid`, `nodev`, `noexec`, `noatime`, `sync`, `dirsync` ...).
    pub kernel_options: Vec<String>,
}

impl MountConfig {
    /// Whether the kernel checks permissions (`default_permissions`) before it asks.
    ///
    /// A mount that only its own ordinary user may enter leaves that to the host, which checks the same user again
    /// anyway: the kernel would otherwise ask for a directory's attributes after each change in it. A privileged
    /// daemon must not, since the host lets it do more than its callers may.
    pub(crate) fn kernel_checks_permissions(&self) -> bool {
        self.allow_other || !self.posix_acl || rustix::process::geteuid().is_root()
    }
}

/// Which open files skip the kernel's page cache on the FUSE side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectIo {
    /// Those opened for appending: where their data goes is known only when it is there.
    Off,
    /// Those opened for writing.
    Writers,
    /// All.
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

/// What the kernel granted; `Display` prints one line.
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
    /// Files whose data skips the kernel's page cache on the FUSE side; does not matter under passthrough.
    pub direct_io: DirectIo,
    /// setuid and capability bits are dropped by the file system, without a question for each write.
    pub kill_privileges: bool,
    /// Worker threads.
    pub threads: u16,
    /// Features asked for with `auto` that are not in use, each with the reason.
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
        for reason in &self.not_granted {
            write!(formatter, "\n  not in use: {reason}")?;
        }
        Ok(())
    }
}

/// Why a mount failed.
#[derive(Debug, Error)]
pub enum MountError {
    /// `/dev/fuse` can't be opened.
    #[error(
        "/dev/fuse can't be opened; load the fuse module (`modprobe fuse`) or give this process access to the device"
    )]
    NoDevice {
        /// What the host said.
        source: std::io::Error,
    },
    /// mount(2) failed.
    #[error("{}: mount failed", mountpoint.display())]
    Mount {
        /// Where.
        mountpoint: PathBuf,
        /// What the host said.
        source: std::io::Error,
    },
    /// The flags of a mount could not be changed.
    #[error("{}: remount failed", mountpoint.display())]
    Remount {
        /// Where.
        mountpoint: PathBuf,
        /// What the host said.
        source: std::io::Error,
    },
    /// fusermount3 is missing or refused.
    #[error("{}: fusermount3 did not mount: {reason}", mountpoint.display())]
    Fusermount {
        /// Where.
        mountpoint: PathBuf,
        /// What it printed, or why it could not be run.
        reason: String,
    },
    /// A daemon died here and left its mount.
    #[error("{}: a dead FUSE mount is in the way; remove it with `tidegate unmount {}`", mountpoint.display(), mountpoint.display())]
    DeadMount {
        /// Where.
        mountpoint: PathBuf,
    },
    /// The mountpoint can't be used.
    #[error("{}: not usable as a mountpoint", mountpoint.display())]
    Mountpoint {
        /// Where.
        mountpoint: PathBuf,
        /// What the host said.
        source: std::io::Error,
    },
    /// A feature was demanded with `on` and can't be had.
    #[error("{feature}=on can't be had: {reason}")]
    Demanded {
        /// The option.
        feature: &'static str,
        /// Why not.
        reason: String,
    },
    /// The kernel's first message made no sense, or the session broke.
    #[error("FUSE session failed while {doing}")]
    Protocol {
        /// What was going on.
        doing: &'static str,
        /// What the host said.
        source: std::io::Error,
    },
    /// Somebody cut the connection while files were open.
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
        /// The thread.
        worker: String,
    },
}
