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
//!
//! # The contract between layers
//!
//! A layer above may rely on each clause, so a layer that passes calls on must keep it or pass it on. Each clause has a
//! case of its name in the contract suite of `testkit`.
//!
//! - **Durability.** [`WriteMode::durability`] says what is on the medium when [`FileSystem::write`] returns. It does not
//!   rely on a later call: the caller sends none. A write that can't be made durable fails.
//! - **Appending.** A write that [appends](WriteMode::appends) goes to the end that the file has at that moment, also
//!   when somebody else has moved it since the offset was chosen. No two appended writes overlap.
//! - **Short reads.** Fewer bytes than asked mean the end of the file and nothing else. An error part of the way is the
//!   call's outcome; holes read as zeros.
//! - **Errors.** An error of a write that was acknowledged earlier is told to each handle of that file that was open when
//!   it failed: at each close until an fsync told it, once at an fsync, never to handles of other files. An error that concerns one
//!   file changes nothing for others. After an error that may pass (no space, quota) nothing is acknowledged that can't
//!   be kept.
//! - **Size, times and extents** are those after all acknowledged writes, buffered or not, through every call that tells
//!   them: `getattr`, `lookup`, `readdir_plus`, `lseek`, `setattr`. A query changes none of them, and the time of a change
//!   does not move when buffered data is written out later.
//! - **Handles** keep naming their file after rename, unlink and replacement, and while `backing_file` is used for another
//!   handle of the file.
//! - **Credentials.** What is made belongs to the [`Caller`]; no call is made with the credentials of an earlier one.
//! - **Sync.** [`FileSystem::fsync`] covers every write to the file acknowledged before the call, by whichever handle.
//!   [`FileSystem::sync`] covers all files. [`FileSystem::fsyncdir`] covers names of the directory.

mod attr;
mod error;
mod file_system;
mod flags;

pub use attr::{Attr, FileKind, Privileges, SetAttr, SetTime, StatFs, Timestamp};
pub use error::{FsError, FsResult};
pub use file_system::{
    Caller, CopyRange, DirEntry, DirSink, Durability, Entry, FileSystem, Handle, Ino, IoctlReply, NewNode,
    Opened, SeekFrom, WriteMode,
};
pub use flags::{FallocateMode, OpenFlags, RenameFlags, XattrFlags};
