//! The file system contract: the services of every file system in this project, and the guarantees to its callers.
//!
//! It contains the trait [`FileSystem`], the values that cross it ([`Ino`], [`Attr`], [`Entry`], [`SetAttr`] ...) and
//! the only table that turns errors into `errno` ([`FsError`]). It is not a kernel protocol (nothing here knows FUSE),
//! a path walker, or a cache. It imports no other crate of the project.
//!
//! Invariants that every implementation keeps, and that `tidegate-testkit` checks:
//! - An [`Ino`] returned by [`FileSystem::lookup`] or a creating call stays valid until [`FileSystem::forget`] has
//!   subtracted as many lookups as entries were returned. [`Ino::ROOT`] is always valid.
//! - The same file reached by two names has one `Ino` at any one time.
//! - A [`Handle`] is valid from `open`, `create` or `opendir` to the matching release, also after unlink.
//! - Every method may be called from any thread at any time; nothing relies on one caller being gone.
//!
//! # The contract between layers
//!
//! A layer above may rely on each clause, so a layer that forwards calls either keeps it or forwards it. Each clause is
//! a module of the contract suite (`testkit::contract`), each sentence of it a case there.
//!
//! - **Durability** (`durability`). [`WriteMode::durability`] says what must be on the medium when
//!   [`FileSystem::write`] returns: the bytes of that write and the metadata needed to read them back
//!   ([`Durability::Data`]), and all metadata of the file ([`Durability::All`]). No later call is needed: the caller
//!   sends none. It says nothing about bytes written earlier, except that older ones never replace these. If the data
//!   can't be made durable the write fails, even if it is in the file by then. [`WriteMode::is_direct`] requests no
//!   durability, and neither does a page cache above. A write to a file that [is
//!   synchronous](FileSystem::is_synchronous) is durable as data at least.
//! - **Appending** (`appending`). A write that [appends](WriteMode::appends) goes to the end that the file has when the
//!   write is made, whatever its offset is and whoever moved the end: another handle, or a program that bypasses this
//!   layer. The flags of the write decide, not those of the open. Each appended write is in one piece, and no two
//!   overlap. If writes are delayed, those of one file keep their order, and the end is determined when they are
//!   written out.
//! - **Short reads** (`short_reads`). Fewer bytes than requested mean the end of the file and nothing else. A failure
//!   anywhere in the range is the outcome of the whole call. Holes read as zeros, also between the last data and the
//!   end. A handle that was opened for writing only is refused with [`FsError::BadHandle`], or reads the same bytes as
//!   any other handle: a page cache above fills partial pages by it.
//! - **Errors** (`errors`). The outcome of a call is reported by that call only. An error of a write that was
//!   acknowledged earlier is reported to each handle of its file that was open when it failed: at every
//!   [`FileSystem::flush`] until a [`FileSystem::fsync`] of that handle has reported it, which happens once; to no
//!   handle opened later, and to none of another file. An error that concerns one file changes nothing for others. Once
//!   an error that may pass (no space, quota) was reported, a write of that file is acknowledged only if it is kept. A
//!   read that fails changes nothing.
//! - **Size, times and extents** (`visibility`) are those after all acknowledged writes, through every call that
//!   returns them: `getattr`, `lookup`, `readdir_plus`, `lseek`, `setattr`. Data is never reported as a hole, and a
//!   file with data never as one without blocks. Queries change none of them, and the time of a change does not move
//!   when the data is written out later. They never go back unless a caller sets them.
//! - **Handles** (`handles`) refer to their file until they are released, whatever happens to its names and to other
//!   handles, and while [`FileSystem::backing_file`] is used for some of them.
//! - **Credentials** (`credentials`). New files belong to the [`Caller`]. No call is made with the credentials of an
//!   earlier one.
//! - **Sync** (`durability`). [`FileSystem::fsync`] covers every write to the file that was acknowledged before the
//!   call, by any handle, and its size. [`FileSystem::sync`] covers all files and names, [`FileSystem::fsyncdir`] the
//!   names of the directory.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod attr;
mod changes;
mod error;
mod file_system;
mod flags;
mod lost_content;

pub use attr::{Attr, FileKind, Privileges, SetAttr, SetTime, StatFs, Timestamp};
pub use changes::{Bypass, Change, ChangeListener, Reports};
pub use error::{FsError, FsResult};
pub use file_system::{
    Caller, CopyRange, DirEntry, DirSink, Durability, Entry, FileSystem, Handle, Ino, IoctlReply, NewNode,
    Opened, SeekFrom, WriteMode,
};
pub use flags::{FallocateMode, OpenFlags, RenameFlags, XattrFlags};
pub use lost_content::LostContent;
