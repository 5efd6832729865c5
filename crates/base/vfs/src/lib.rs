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
//! A layer above may rely on each clause, so a layer that passes calls on keeps it or passes it on. Each clause is a module of
//! the contract suite (`testkit::contract`), each sentence of it a case there.
//!
//! - **Durability** (`durability`). [`WriteMode::durability`] says what is on the medium when [`FileSystem::write`] returns:
//!   the bytes of that write and what it takes to read them back ([`Durability::Data`]), and all metadata of the file
//!   ([`Durability::All`]). It takes no later call: the caller sends none. It says nothing of bytes written earlier, except
//!   that older ones never take the place of these. Where the data can't be made durable the write fails, also when it is
//!   in the file by then. [`WriteMode::is_direct`] asks for no durability, and neither does a page cache above. A write to a file that
//!   [is synchronous](FileSystem::is_synchronous) is durable as data at least.
//! - **Appending** (`appending`). A write that [appends](WriteMode::appends) goes to the end that the file has when it is
//!   made, whatever its offset says and whoever moved the end: another handle, or a program that does not pass this layer. The
//!   flags of the write decide, not those of the open. Each appended write is in one piece, and no two overlap. Where writes are
//!   held back, those of one file keep their order, and the place is found when they are written out.
//! - **Short reads** (`short_reads`). Fewer bytes than asked mean the end of the file and nothing else. A failure anywhere in the
//!   range is the outcome of the whole call. Holes read as zeros, also between the last data and the end. A handle that was
//!   opened for writing alone is refused with [`FsError::BadHandle`], or reads what any other does: a page cache above fills
//!   up pages by it.
//! - **Errors** (`errors`). What a call returns is told by that call alone. An error of a write that was acknowledged earlier is
//!   told to each handle of its file that was open when it failed: at every [`FileSystem::flush`] until a
//!   [`FileSystem::fsync`] of that handle has told it, which happens once; to no handle opened later, and to none of another
//!   file. An error that concerns one file changes nothing for others. Once an error that may pass (no space, quota) was told,
//!   a write of that file is acknowledged only if it is kept. A read that fails changes nothing.
//! - **Size, times and extents** (`visibility`) are those after all acknowledged writes, through every call that tells them:
//!   `getattr`, `lookup`, `readdir_plus`, `lseek`, `setattr`. Data is never told to be a hole, and a file with data never to have
//!   no blocks. Looking changes none of them, and the time of a change does not move when the data is written out later. They
//!   never go back unless somebody sets them.
//! - **Handles** (`handles`) name their file until they are released, whatever becomes of its names, of other handles, and
//!   while [`FileSystem::backing_file`] is used for some of them.
//! - **Credentials** (`credentials`). What is made belongs to the [`Caller`]. No call is made with the credentials of an earlier
//!   one.
//! - **Sync** (`durability`). [`FileSystem::fsync`] covers every write to the file that was acknowledged before the call, by
//!   whichever handle, and its size. [`FileSystem::sync`] covers all files and names, [`FileSystem::fsyncdir`] the names of the
//!   directory.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

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
