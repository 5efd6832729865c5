//! Mounts that exist, and the daemons behind them: the mount table, the document of `tidegate stats` and its forms, the exit
//! status of a daemon, and the end of a mount.
//!
//! Nothing here serves a file system. Calls on a mount may hang, so only [`document`] and [`unmount`] make them, with a time
//! limit. The time limit needs a child process: the running program with the arguments `stats --ask`, so that only `tidegate`
//! can use these two.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod document;
pub mod end_status;
mod error;
pub mod prometheus;
pub mod table;
pub mod taken;
pub mod text;
pub mod unmount;

pub use self::error::MountedError;
