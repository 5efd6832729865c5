//! FUSE server: mounts any [`vfs::FileSystem`] and serves the kernel's requests from several threads.
//!
//! It is the only crate that speaks FUSE. It is not a file system and imports none: caching, buffering and the host are
//! below the trait. Source of the protocol: `include/uapi/linux/fuse.h` (7.45) and the kernel's
//! `Documentation/filesystems/fuse*.rst`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod abi;
mod backing;
mod caching;
mod config;
mod counters;
mod device;
mod dispatch;
mod error_log;
#[cfg(test)]
mod fuzz;
mod inode_states;
mod ioctl;
mod mount;
mod mount_sync;
mod negotiate;
mod nested;
mod notify;
mod open;
mod poll;
mod region;
mod reply;
mod request;
mod resident;
mod session;
mod stats;
mod uring;
mod worker;
mod write;

pub use config::{Coherence, DirectIo, MountConfig, MountError, Negotiated, Opens, Switch, Transport};
pub use error_log::{ErrorListener, RequestError};
pub use mount::{check_mountpoint, remount, unmount};
pub use poll::LIMIT_MAX as POLL_MAX;
pub use session::{Session, StatsDocument, Stopper};
pub use stats::{OperationCount, SessionStats, SizeCount};
