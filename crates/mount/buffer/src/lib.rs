//! bFUSE's user-level write buffer, over any [`vfs::FileSystem`].
//!
//! [`Buffered`] takes the many small writes that a FUSE request path makes and passes few large ones to the file system
//! below. It is itself a [`vfs::FileSystem`], so that it can be left out or stacked. It follows section 4.2 of the
//! bFUSE paper: an array of fixed-size entries, each with a header (handle, offset, size) and a data region; a write
//! that continues an entry is appended to it, a full entry is followed by another; a flush manager thread writes
//! entries out at an interval, and they are written out at close, fsync, fdatasync and the end of the file.
//!
//! It is neither a read cache (it keeps nothing once it is written) nor a promise of durability (that is fsync, which
//! drains the file first, or a durable write, which goes through after the file's buffered data).
//!
//! # Guarantees
//!
//! - Order: entries of one inode reach the file system below in the order of their writes, one at a time. Inodes are
//!   independent of each other. An appended write is in one entry, or goes through: it reaches the file system below in
//!   one write.
//! - Coherence: size, space, mode, holes and bytes of a file are those after all acknowledged writes, through every
//!   call. Queries are answered from the buffer for the data it holds and from below for the rest (`query`); changes
//!   (truncation, copies, times) are made after a flush. An entry stays visible until the write below has ended.
//! - Times: the times reported while a write is buffered remain those of the file after the write-out (`times`).
//! - Errors: a write that fails after it was acknowledged is reported at each flush (close) until an fsync has reported
//!   it, and once at an fsync, on every handle that was open when it failed, and on no other. Writes don't report it.
//!   See the `inode` module.
//! - Failures: after one, writes of its file go through until as many bytes as an entry holds were written without
//!   another; after one for space or quota, writes of all files go through until as many bytes as the buffer holds were
//!   allocated. A failure then is reported to the writer. So an error costs at most the data that was in the buffer
//!   when it occurred. See `probation`.
//! - Bounds: memory is `buffer_bytes`, and no byte waits longer than [`BufferConfig`] says, with either flusher; a
//!   writer that finds no free entry waits, or writes an entry out itself.
//! - A panic below loses the entry that was being written out, which is recorded as an error of its file; no thread
//!   keeps waiting for it.
//!
//! # Difference from the paper
//!
//! The paper flushes "when the request reaches the end of the file", and so at most reads. Programs query files between
//! their writes (databases and logs do so all the time), and each such flush makes a small write below. Here reads and
//! queries don't flush, except for the first query of a file's attributes and if appended data may end up at another
//! offset.
//!
//! # Modules
//!
//! `buffered` creates and drops the buffer, `calls` adapts the calls; `engine` accepts writes; `write_out` writes
//! entries out; `query` answers from the buffer, with `overlay` (size, space, holes) and `times`; `manager` is the
//! thread; `inode` is the state and the errors of one file; `central` the slots and the queues; `registry` finds inodes
//! by number and handle; `slot` is the memory.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod buffered;
mod calls;
mod central;
mod config;
mod engine;
mod entry;
mod inode;
mod manager;
mod overlay;
mod probation;
mod query;
mod registry;
mod slot;
mod stats;
mod times;
mod write_out;

pub use buffered::Buffered;
pub use config::{BufferConfig, BufferConfigError, Flusher};
pub use stats::{BufferStats, FlushCauses, LatencyPercentiles};
