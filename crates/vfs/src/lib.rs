//! The file system contract: what every file system of this project offers, and what its callers may rely on.
//!
//! It is: the trait [`FileSystem`], the values that cross it ([`Ino`], [`Attr`], [`Entry`], [`SetAttr`] ...) and the one
//! table that turns errors into `errno` ([`FsError`]). It is not: a kernel protocol (nothing here knows FUSE), a path
//! walker, or a cache. It imports no crate of ours.
//!
//! Invariants that every implementation keeps, and that `tidegate-testkit` checks:
//! - An [`Ino`] handed out by [`FileSystem::lookup`] or a creating call stays valid until as many
//!   [`FileSystem::forget`]s were counted as entries were handed out. [`Ino::ROOT`] is always valid.
//! - The same file reached by two names has one `Ino` at any one time.
//! - A [`Handle`] is valid from `open`, `create` or `opendir` to the matching release, also after unlink.
//! - Every method may be called from any thread at any time; nothing relies on one caller being gone.

mod attr;
mod error;
mod file_system;
mod flags;

pub use attr::{Attr, FileKind, Privileges, SetAttr, SetTime, StatFs, Timestamp};
pub use error::{FsError, FsResult};
pub use file_system::{
    Caller, CopyRange, DirEntry, DirSink, Entry, FileSystem, Handle, Ino, IoctlReply, NewNode, Opened,
    SeekFrom, WriteMode,
};
pub use flags::{FallocateMode, OpenFlags, RenameFlags, XattrFlags};
