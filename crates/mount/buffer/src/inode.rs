//! The buffer's state of one file: its entries in the order of their writes, and the errors of writes that failed after
//! they were acknowledged.
//!
//! # Errors
//!
//! A failed flush can no longer be reported to the writer. As with `errseq_t` in the kernel, the inode counts failures
//! and each open handle remembers the count it has reported: a handle with a lower count reports the last error, once,
//! and catches up. So the error is reported once on each handle open at the failure, and never on later handles or on
//! other inodes. A write does not report the error of an earlier one, as in Linux. The data of the failed entry is
//! dropped; entries behind it are still tried.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use vfs::{FsError, Handle, Ino, LostContent, OpenFlags};

use crate::entry::Entry;
use crate::overlay::Overlay;
use crate::probation::Probation;
use crate::times::Times;

/// One file with at least one open handle, or with state to keep until the kernel forgets it.
#[derive(Debug)]
pub struct InodeBuffer {
    /// Inode number in the file system below.
    pub ino: Ino,
    /// Held during one whole write, so that two writes that both span entries do not interleave. Lock order: `turn`,
    /// then `state` of any one inode, then `Central`. Never two states at once.
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
    /// A thread is writing out the front entry. Only one at a time does, which keeps the order.
    pub writing: bool,
    /// Number of entries opened so far.
    pub opened: u64,
    /// Number of entries written out or failed so far.
    pub completed: u64,
    /// Listed in `Central::active`.
    pub active: bool,
    /// Listed in `Central::ready`.
    pub queued: bool,
    /// End offset of the last write; `None` before the first.
    pub last_end: Option<u64>,
    /// Number of consecutive writes that did not start at the end of the one before.
    pub scattered: u32,
    /// End of the last entry that was filled.
    pub filled_to: Option<u64>,
    /// Largest end offset of the writes to the file system below.
    pub reached: u64,
    /// Bytes to write through after a failed write before writes are buffered again.
    pub probation: Probation,
    /// The file system below keeps data by handle: an entry has data of one.
    pub by_handle: bool,
    /// The file system below syncs each write: no write is delayed.
    pub is_synchronous: bool,
    /// Times reported to callers, and those of the file system below.
    pub times: Times,
    /// The attributes were queried while data was buffered.
    pub looked_at: bool,
    /// Whether a page cache above may hold data that was lost.
    pub lost: LostContent,
    /// The kernel has forgotten the inode.
    pub forgotten: bool,
    /// Number of failed flushes.
    error_count: u64,
    /// Error of the last failed flush.
    last_error: Option<FsError>,
    /// `last_error` has not been reported on any handle.
    untold: bool,
}

impl InodeBuffer {
    /// A file without buffered data.
    pub fn new(ino: Ino) -> Self {
        Self {
            ino,
            turn: Mutex::default(),
            state: Mutex::default(),
            written_out: Condvar::new(),
        }
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until an entry of this file has been written out.
    pub fn wait<'a>(&'a self, state: MutexGuard<'a, InodeState>) -> MutexGuard<'a, InodeState> {
        self.written_out
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the waiters of [`InodeBuffer::wait`].
    pub fn notify(&self) {
        self.written_out.notify_all();
    }
}

impl InodeState {
    /// True if every accepted byte is in the file system below.
    pub fn is_clean(&self) -> bool {
        self.entries.is_empty()
    }

    /// The file ranges of the buffered data, and its effect on privileges.
    pub fn overlay(&self) -> Overlay {
        let killed = self.entries.iter().map(Entry::privileges);
        Overlay {
            extents: self.entries.iter().map(Entry::extent).collect(),
            killed: killed.filter(|privileges| privileges.are_killed()).collect(),
        }
    }

    /// True if part of the buffered data will be written by `handle`.
    pub fn uses(&self, handle: Handle) -> bool {
        self.entries.iter().any(|entry| entry.handle == handle)
    }

    /// True if state of the file must be kept although it has no open handle.
    pub fn outlives_handles(&self) -> bool {
        !self.forgotten && (self.times.differ() || self.lost.is_recorded())
    }

    /// True if the oldest entry is sealed and not being written out.
    pub fn front_is_sealed(&self) -> bool {
        !self.writing && self.entries.front().is_some_and(|entry| entry.sealed.is_some())
    }

    /// Notes a write at `offset` that ends at `end`; returns whether it continues the one before.
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

    /// Records that acknowledged data is lost. True if no older error is still unreported.
    pub fn record_error(&mut self, error: FsError) -> bool {
        self.error_count += 1;
        self.lost.lose();
        self.last_error = Some(error);
        !std::mem::replace(&mut self.untold, true)
    }

    /// Clears an error that was never reported; true if there was one.
    pub fn forget_untold(&mut self) -> bool {
        std::mem::take(&mut self.untold)
    }
}

/// One open handle.
#[derive(Debug)]
pub struct OpenFile {
    /// Its file.
    pub inode: Arc<InodeBuffer>,
    /// Opened for writing: otherwise buffering its writes is pointless.
    pub writable: bool,
    /// Opened for reading: otherwise the file system below decides whether it may read.
    pub readable: bool,
    /// `error_count` that an fsync of this handle has reported.
    told: AtomicU64,
    /// `error_count` that a close of one of its descriptors has reported.
    told_at_close: AtomicU64,
}

/// An error to report on a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub error: FsError,
    /// No other handle has reported it.
    pub first: bool,
    /// This handle has not reported it.
    pub fresh: bool,
}

impl OpenFile {
    /// A handle that reports errors from here on.
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

    /// Returns the error that no fsync of this handle has reported yet, and marks it as reported.
    pub fn take_error(&self) -> Option<Told> {
        self.untold_error(&self.told)
    }

    /// Like [`OpenFile::take_error`], for a close of a descriptor while others may be open: a forked child closes its
    /// copies when it executes another program, and the result of that close is ignored. So an fsync reports the error
    /// again.
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
