//! Reasons why a mount can't be found, asked or removed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::document::ReadError;

/// Error about a mount or its daemon.
#[derive(Debug, Error)]
pub enum MountedError {
    /// The kernel's table can't be read.
    #[error("/proc/self/mountinfo can't be read")]
    Table(#[source] io::Error),
    /// The current folder was removed, so no relative path means anything.
    #[error("{}: the current folder is gone", path.display())]
    NoCurrentFolder {
        /// The relative path.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The parent of a mount point does not exist.
    #[error("{} can't be found", path.display())]
    NotFound {
        /// The mount point.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// There is no mount at the path.
    #[error("{}: nothing is mounted here", .0.display())]
    NothingMounted(PathBuf),
    /// The mount belongs to another program.
    #[error("{}: this is a mount of type {kind}, not of tidegate", mountpoint.display())]
    Foreign {
        /// The mount point.
        mountpoint: PathBuf,
        /// Type of the mount.
        kind: String,
    },
    /// A mount of tidegate is at the mount point already.
    #[error(
        "{at}: {} is mounted here already{process}; unmount it first with `tidegate unmount {at}`, or mount over it with --over",
        source_folder.display(),
        at = mountpoint.display()
    )]
    Taken {
        /// The mount point.
        mountpoint: PathBuf,
        /// Source of the mount.
        source_folder: PathBuf,
        /// The serving process, if it is known: ` (process 7)`.
        process: String,
    },
    /// The daemon can't be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The daemon does not answer, so that its end can't be waited for.
    #[error(
        "nothing was unmounted, because the daemon's writes can't be waited for; --lazy removes the mount all the same"
    )]
    Silent(#[source] ReadError),
    /// The mount is in use.
    #[error("{at}: files are open or a process works inside; find it with `lsof +f -- {at}`, or use --lazy", at = .0.display())]
    Busy(PathBuf),
    /// The kernel refuses to unmount.
    #[error("{} can't be unmounted", mountpoint.display())]
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// Error of the kernel.
        source: rustix::io::Errno,
    },
    /// The helper for ordinary users does not exist.
    #[error("fusermount3 can't be run; it is in the package fuse3")]
    NoHelper(#[source] io::Error),
    /// The helper for ordinary users refuses to unmount.
    #[error("{} can't be unmounted: {message}", mountpoint.display())]
    Helper {
        /// The mount point.
        mountpoint: PathBuf,
        /// Message of the helper.
        message: String,
    },
    /// The time limit is beyond what the kernel takes.
    #[error("the timeout is too long")]
    TimeoutTooLong,
    /// A call that waits for the daemon failed.
    #[error("{what} can't be waited for")]
    Wait {
        /// The daemon or its lock.
        what: &'static str,
        /// Error of the kernel.
        source: rustix::io::Errno,
    },
    /// The daemon still runs.
    #[error(
        "the mount is gone, but process {pid} still writes to the source after {seconds} s; wait for its end before the source is \
         unmounted"
    )]
    StillWriting {
        /// The daemon.
        pid: u32,
        /// The time limit that passed.
        seconds: f64,
    },
    /// The daemon is not visible from here.
    #[error(
        "{}: the mount is gone, but its process can't be waited for: {reason}; its buffered data may not be written yet, so see \
         to its end before the source is unmounted",
        mountpoint.display()
    )]
    OutOfReach {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// The daemon ended with an error.
    #[error("{}: the mount is gone, but its process ended with an error", mountpoint.display())]
    EndedBadly {
        /// The mount point.
        mountpoint: PathBuf,
        /// The error.
        source: Box<MountedError>,
    },
    /// Error of a daemon, in its words.
    #[error("{0}")]
    Daemon(String),
    /// The daemon ended without a status.
    #[error("process {pid} was killed before everything was written; unsynced data is lost")]
    Killed {
        /// The daemon.
        pid: u32,
    },
    /// The status of the daemon can't be read.
    #[error(transparent)]
    Status(io::Error),
}
