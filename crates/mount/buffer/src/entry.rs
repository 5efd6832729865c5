//! One entry of the buffer: header and data of contiguous writes to a file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use vfs::{Handle, Privileges, WriteMode};

use crate::overlay::Extent;
use crate::slot::Slot;
use crate::stats::FlushCause;

/// Properties that two writes must share to be in one entry, because they change how the file system below handles
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteKind {
    /// The data goes to the end of the file at the time of the write below; the offset is only the caller's guess.
    pub appends: bool,
    /// Effect of the write on setuid, setgid and capabilities.
    pub privileges: Privileges,
    /// Write-back from a page cache.
    pub from_page_cache: bool,
    /// The handle, if the file system below keeps data by handle.
    pub owner: Option<Handle>,
}

impl WriteKind {
    /// The kind of a write with this mode, by `owner` alone if there is one.
    pub const fn of(mode: WriteMode, owner: Option<Handle>) -> Self {
        Self {
            appends: mode.appends(),
            privileges: mode.privileges,
            from_page_cache: mode.from_page_cache,
            owner,
        }
    }
}

/// Header and data.
///
/// Invariants: `1 <= used <= room`; an entry of `room` bytes is sealed; a sealed entry never grows; an entry that is
/// being written out is sealed.
#[derive(Debug)]
pub struct Entry {
    /// Exclusive until the entry is written out, then shared with the thread that writes it.
    slot: Arc<Slot>,
    /// Handle to write the data with: that of the first write. It stays open until the entry is written, because
    /// release flushes first.
    pub handle: Handle,
    /// Offset of the data in the file, in bytes; a guess for appended data.
    pub offset: u64,
    /// Mode of the first write.
    pub mode: WriteMode,
    kind: WriteKind,
    used: usize,
    /// Capacity in bytes: entries end at multiples of the entry size in the file, so that a stream with any start soon
    /// makes aligned writes. If that would split appended records as long as the first, the capacity is the whole slot.
    room: usize,
    /// It goes on where an entry ended that was full: its writer has filled one, and is expected to fill this one.
    pub is_of_stream: bool,
    /// Time of the first append.
    pub created: Instant,
    /// Time of the last append.
    pub appended: Instant,
    /// Reason why nothing more may be appended; `None` while the entry is open.
    pub sealed: Option<FlushCause>,
}

/// Data and header fields needed to write an entry out, without a lock.
#[derive(Debug)]
pub struct Piece {
    slot: Arc<Slot>,
    used: usize,
    /// See [`Entry::handle`].
    pub handle: Handle,
    /// See [`Entry::offset`].
    pub offset: u64,
    /// See [`Entry::mode`].
    pub mode: WriteMode,
}

impl Piece {
    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.slot.bytes()[..self.used]
    }
}

impl Entry {
    /// Creates an empty entry at `offset` for at least `length` bytes; append to it before sharing it. `kind` is that of
    /// `mode`.
    pub fn new(
        slot: Slot,
        (handle, mode, kind): (Handle, WriteMode, WriteKind),
        offset: u64,
        length: usize,
        now: Instant,
    ) -> Self {
        let bytes = slot.bytes().len();
        let into_entry = usize::try_from(offset % byte_count(bytes)).expect("a remainder of a usize fits it");
        let aligned = bytes - into_entry;
        Self {
            room: if mode.appends() && !aligned.is_multiple_of(length) {
                bytes
            } else {
                aligned
            },
            slot: Arc::new(slot),
            handle,
            offset,
            mode,
            kind,
            used: 0,
            is_of_stream: false,
            created: now,
            appended: now,
            sealed: None,
        }
    }

    /// True if a write of `kind` at `offset` continues this entry. Appended data always does, as nothing else was
    /// written to the file in between; but it has to fit completely, so that it reaches the file system below in one
    /// write.
    pub fn is_continued_by(&self, kind: WriteKind, offset: u64, length: usize) -> bool {
        let goes_on = match kind.appends {
            true => length <= self.room - self.used,
            false => self.end() == offset,
        };
        self.sealed.is_none() && self.is_of(kind) && goes_on
    }

    /// True if the data came from writes of this kind.
    pub fn is_of(&self, kind: WriteKind) -> bool {
        self.kind == kind
    }

    /// Appends as much of `data` as fits and returns its length; seals the entry when it is full.
    pub fn append(&mut self, data: &[u8], now: Instant) -> usize {
        let taken = data.len().min(self.room - self.used);
        let slot = Arc::get_mut(&mut self.slot).expect("an open entry is not being written out");
        slot.bytes_mut()[self.used..self.used + taken].copy_from_slice(&data[..taken]);
        self.used += taken;
        self.appended = now;
        if self.used == self.room {
            self.sealed = Some(FlushCause::Full);
        }
        taken
    }

    /// Copies the entry's part of the file range that starts at `offset` into `out`, and returns the range of `out`
    /// that it filled.
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) -> Option<Range<usize>> {
        let (start, end) = (
            self.offset.max(offset),
            self.end().min(offset + byte_count(out.len())),
        );
        if start >= end {
            return None;
        }
        let index = |at: u64| usize::try_from(at).expect("a distance within memory");
        let (from, to) = (index(start - self.offset), index(start - offset));
        let length = index(end - start);
        out[to..to + length].copy_from_slice(&self.slot.bytes()[from..from + length]);
        Some(to..to + length)
    }

    /// Length of the data in bytes.
    pub fn bytes(&self) -> u64 {
        byte_count(self.used)
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes()
    }

    /// The range of the data in the file.
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.offset,
            end: self.end(),
            appends: self.kind.appends,
        }
    }

    /// Effect of the data on setuid, setgid and capabilities.
    pub const fn privileges(&self) -> Privileges {
        self.kind.privileges
    }

    /// Seals the entry, for `cause` unless it is sealed already, to be written out.
    pub fn begin_write_out(&mut self, cause: FlushCause) -> Piece {
        self.sealed.get_or_insert(cause);
        Piece {
            slot: Arc::clone(&self.slot),
            used: self.used,
            handle: self.handle,
            offset: self.offset,
            mode: self.mode,
        }
    }

    /// Returns the slot after the data has been written and its [`Piece`] dropped.
    pub fn into_slot(self) -> Slot {
        Arc::into_inner(self.slot).expect("the one piece of the entry is gone")
    }
}

/// A length in memory as a count of bytes in a file.
pub fn byte_count(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory fits 64 bits")
}
