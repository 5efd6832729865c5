//! What the buffer knows of one file: its entries in the order of their writes, and the errors of writes that
//! were acknowledged and then failed.
//!
//! # Errors
//!
//! A failed flush can't be told to the writer any more. As `errseq_t` does in the kernel, the inode counts
//! failures and each open handle remembers how many it was told of: a handle with a lower count gets the last
//! error, once, and catches up. So each handle open at the failure is told once, later handles never, other
//! inodes never. A write tells nothing of an earlier one, as in Linux. The data of the failed entry is dropped; entries
//! behind it are still tried.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vfs::{FsError, Handle, Ino, OpenFlags};

use crate::entry::Entry;
use crate::overlay::Overlay;
use crate::probation::Probation;
use crate::times::Times;

/// One file with at least one open handle, or with something to remember until the kernel forgets it.
#[derive(Debug)]
pub struct InodeBuffer {
    /// Its number below.
    pub ino: Ino,
    /// Held through one whole write, so that pieces of two writes that each span entries do not mix.
    /// Lock order: `turn`, then `state` of any one inode, then `Central`. Never two states at once.
    pub turn: Mutex<()>,
    /// See [`InodeState`]. Held while data is copied in, never while the file system below is called.
    state: Mutex<InodeState>,
    /// Signalled when an entry has been written out.
    written_out: Condvar,
}

/// Entries and errors of one file.
#[derive(Debug, Default)]
pub struct InodeState {
    /// Entries in the order of their writes; only the last may be open. An entry stays until it has been written out.
    pub entries: VecDeque<Entry>,
    /// Some thread is writing out the front entry. Only one at a time: that is the order.
    pub writing: bool,
    /// Entries ever opened.
    pub opened: u64,
    /// Entries ever written out or failed.
    pub completed: u64,
    /// Listed in `Central::active`.
    pub active: bool,
    /// Listed in `Central::ready`.
    pub queued: bool,
    /// Where the last write ended; `None` before the first.
    pub last_end: Option<u64>,
    /// Writes in a row that did not start where the one before ended.
    pub scattered: u32,
    /// Largest offset that a write to the file system below has ended at.
    pub reached: u64,
    /// After a failed write: what has to be written through before writes are buffered again.
    pub probation: Probation,
    /// The file system below syncs each write: nothing is held back.
    pub is_synchronous: bool,
    /// Times told and to be told.
    pub times: Times,
    /// Somebody looked at the attributes while data was buffered.
    pub looked_at: bool,
    /// Data was lost that a page cache above may have: the next open voids it.
    pub cache_is_void: bool,
    /// The kernel gave its inode back.
    pub forgotten: bool,
    /// Flushes that failed.
    error_count: u64,
    /// Error of the last one.
    last_error: Option<FsError>,
    /// Nobody was told of `last_error` yet.
    untold: bool,
}

impl InodeBuffer {
    /// A file with nothing buffered.
    pub fn new(ino: Ino) -> Self {
        Self {
            ino,
            turn: Mutex::default(),
            state: Mutex::default(),
            written_out: Condvar::new(),
        }
    }

    /// The state, locked.
    pub fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until some entry of this file has been written out.
    pub fn wait<'a>(&'a self, state: MutexGuard<'a, InodeState>) -> MutexGuard<'a, InodeState> {
        self.written_out
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those in [`InodeBuffer::wait`].
    pub fn notify(&self) {
        self.written_out.notify_all();
    }
}

impl InodeState {
    /// True when every accepted byte is in the file system below.
    pub fn is_clean(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where the buffered data lies, and what it changes.
    pub fn overlay(&self) -> Overlay {
        let killed = self.entries.iter().map(Entry::privileges);
        Overlay {
            extents: self.entries.iter().map(Entry::extent).collect(),
            killed: killed.filter(|privileges| privileges.are_killed()).collect(),
        }
    }

    /// True when some of it is written by `handle`.
    pub fn uses(&self, handle: Handle) -> bool {
        self.entries.iter().any(|entry| entry.handle == handle)
    }

    /// True when there is something to remember of the file although nobody has it open.
    pub fn outlives_handles(&self) -> bool {
        !self.forgotten && (self.times.differ() || self.cache_is_void)
    }

    /// True when the oldest entry can be written out and may not grow.
    pub fn front_is_sealed(&self) -> bool {
        !self.writing && self.entries.front().is_some_and(|entry| entry.sealed.is_some())
    }

    /// Counts a write at `offset` that ends at `end`; says whether it went on where the one before ended.
    pub fn note_write(&mut self, offset: u64, end: u64) -> bool {
        let continues = self.last_end.is_none_or(|last| last == offset);
        self.scattered = if continues {
            0
        } else {
            self.scattered.saturating_add(1)
        };
        self.last_end = Some(end);
        continues
    }

    /// Records that acknowledged data is lost. True when no older error was still untold.
    pub fn record_error(&mut self, error: FsError) -> bool {
        self.error_count += 1;
        self.cache_is_void = true;
        self.last_error = Some(error);
        !std::mem::replace(&mut self.untold, true)
    }

    /// True when an error is forgotten that nobody was told of.
    pub fn forget_untold(&mut self) -> bool {
        std::mem::take(&mut self.untold)
    }
}

/// One open handle.
#[derive(Debug)]
pub struct OpenFile {
    /// Its file.
    pub inode: Arc<InodeBuffer>,
    /// Opened for writing: only then is a write worth buffering.
    pub writable: bool,
    /// Opened for reading: whether others may read is for the file system below to say.
    pub readable: bool,
    /// `error_count` that this handle was told of by an fsync.
    told: AtomicU64,
    /// The same, by a close of one of its descriptors.
    told_at_close: AtomicU64,
}

/// An error that a handle is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub error: FsError,
    /// No other handle was told before.
    pub first: bool,
    /// This handle was not told before.
    pub fresh: bool,
}

impl OpenFile {
    /// A handle that will be told of errors from here on.
    pub fn new(inode: Arc<InodeBuffer>, flags: OpenFlags) -> Self {
        let known = inode.lock().error_count;
        Self {
            inode,
            writable: flags.writes(),
            readable: flags.reads(),
            told: AtomicU64::new(known),
            told_at_close: AtomicU64::new(known),
        }
    }

    /// The error that no fsync of this handle has told yet; from here on it is told.
    pub fn take_error(&self) -> Option<Told> {
        self.untold_error(&self.told)
    }

    /// The same at a close of a descriptor, after which others may be open: a child that a thread starts closes its copies
    /// when it runs another program, and nobody looks at what that close says. So an fsync tells it again.
    pub fn show_error(&self) -> Option<Told> {
        self.untold_error(&self.told_at_close)
    }

    fn untold_error(&self, told_by: &AtomicU64) -> Option<Told> {
        let mut state = self.inode.lock();
        let count = state.error_count;
        if self.told.load(Ordering::Relaxed) >= count {
            return None;
        }
        let known = self.told_at_close.load(Ordering::Relaxed);
        told_by.fetch_max(count, Ordering::Relaxed);
        let first = state.forget_untold();
        state.last_error.map(|error| Told {
            error,
            first,
            fresh: known < count,
        })
    }
}
