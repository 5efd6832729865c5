//! bFUSE's user-level write buffer, over any [`vfs::FileSystem`].
//!
//! [`Buffered`] takes the many small writes that a FUSE request path makes and hands few large ones to the
//! file system below. It is itself a [`vfs::FileSystem`], so that it can be left out or stacked. It follows
//! section 4.2 of the bFUSE paper: an array of fixed-size entries, each with a header (handle, offset, size)
//! and a data region; a write that continues an entry is appended to it, a full entry gives way to another; a
//! flush manager thread writes entries out at an interval, and they are written out at close, fsync,
//! fdatasync and the end of the file.
//!
//! It is not: a read cache (a read that could see buffered data flushes it first), a page cache (it keeps
//! nothing that is written), or a promise of durability (that is fsync, which drains the file first).
//!
//! # What it keeps
//!
//! - Order: entries of one inode reach the file system below in the order of their writes, one at a time.
//!   Inodes are independent of each other.
//! - Coherence: whatever could show a buffered write (read, attributes, seek, copy, second descriptor,
//!   extended attributes) finds it in the file system below, because it is flushed first.
//! - Errors: a write that fails after it was acknowledged is told once, at flush (close) or fsync, to every
//!   handle that was open when it failed, and to no other. See the `inode` module.
//! - No space: after a flush failed with `ENOSPC` or `EDQUOT`, writes go through synchronously until one
//!   succeeds and the file system has room for the whole buffer again: what can't be written is not
//!   acknowledged.
//! - Bounds: memory is `buffer_bytes`, and no byte waits longer than [`BufferConfig`] says; a writer that
//!   finds no free entry waits, or writes an entry out itself.
//!
//! # How the paper's "end of file" is read
//!
//! The paper flushes "when the request reaches the end of the file". Writes always reach the end of a growing
//! file, so that can only mean a read: a read request that reaches past the last buffered byte flushes the
//! inode, and is counted under that cause; a read that touches buffered data before it is counted as `read`.
//!
//! # Where things are
//!
//! `buffered` adapts the calls; `engine` appends and writes out; `manager` is the thread; `inode` is the
//! state and the errors of one file; `central` the slots and the queues; `registry` finds inodes by number
//! and handle; `slot` is the memory.

mod buffered;
mod central;
mod config;
mod engine;
mod entry;
mod inode;
mod manager;
mod registry;
mod slot;
mod stats;

pub use buffered::Buffered;
pub use config::{BufferConfig, BufferConfigError, Flusher};
pub use stats::{BufferStats, FlushCauses, LatencyPercentiles};
