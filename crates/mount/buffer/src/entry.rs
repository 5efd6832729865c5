//! One entry of the buffer: header and data of writes that follow one another in a file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use vfs::{Handle, Privileges, WriteMode};

use crate::overlay::Extent;
use crate::slot::Slot;
use crate::stats::FlushCause;

/// What must agree for two writes to share an entry, because it changes what the file system below does with
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteKind {
    /// The data goes to the end of the file, wherever that is when it is written; the offset is only the
    /// caller's guess.
    pub appends: bool,
    /// What the write leaves of setuid, setgid and capabilities.
    pub privileges: Privileges,
    /// Written back from a page cache.
    pub from_page_cache: bool,
}

impl WriteKind {
    /// The kind of a write with this mode.
    pub const fn of(mode: WriteMode) -> Self {
        Self {
            appends: mode.appends(),
            privileges: mode.privileges,
            from_page_cache: mode.from_page_cache,
        }
    }
}

/// Header and data.
///
/// Invariants: `1 <= used <= room`; an entry of `room` bytes is sealed; a sealed entry never grows; an entry that is
/// being written out is sealed.
#[derive(Debug)]
pub struct Entry {
    /// Shared with the thread that writes it out, and with nobody before.
    slot: Arc<Slot>,
    /// Handle that the data is written by: the one of the first write. It stays open until the entry is
    /// written, because release flushes first.
    pub handle: Handle,
    /// Where in the file the data starts, in bytes; a guess where it is appended.
    pub offset: u64,
    /// Mode of the first write.
    pub mode: WriteMode,
    kind: WriteKind,
    used: usize,
    /// Bytes that fit: entries end where a multiple of the entry size in the file does, so that a stream that
    /// starts anywhere soon makes aligned writes. Appended records like the first that this would cut make it the
    /// whole slot.
    room: usize,
    /// When the first byte came.
    pub created: Instant,
    /// When the last byte came.
    pub appended: Instant,
    /// Why nothing may be appended any more; `None` while the entry is open.
    pub sealed: Option<FlushCause>,
}

/// What is needed to write an entry out, without a lock.
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
    /// An empty entry for `length` bytes and more at `offset`; append to it before anyone else sees it.
    pub fn new(
        slot: Slot,
        handle: Handle,
        offset: u64,
        length: usize,
        mode: WriteMode,
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
            kind: WriteKind::of(mode),
            used: 0,
            created: now,
            appended: now,
            sealed: None,
        }
    }

    /// True when a write of `kind` at `offset` goes on where this entry stops. Appended data always does, as nothing else
    /// was written to the file in between; but all of it has to fit, so that it comes below in one piece.
    pub fn is_continued_by(&self, kind: WriteKind, offset: u64, length: usize) -> bool {
        let goes_on = match kind.appends {
            true => length <= self.room - self.used,
            false => self.end() == offset,
        };
        self.sealed.is_none() && self.is_of(kind) && goes_on
    }

    /// True when its data came by writes of this kind.
    pub fn is_of(&self, kind: WriteKind) -> bool {
        self.kind == kind
    }

    /// Takes as much of `data` as fits and says how much; seals the entry when it is full.
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

    /// Copies what the entry has of the bytes from `offset` on to their places in `out`, and says which these are.
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

    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        byte_count(self.used)
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes()
    }

    /// Where in the file the data lies.
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.offset,
            end: self.end(),
            appends: self.kind.appends,
        }
    }

    /// What the data takes away of setuid, setgid and capabilities.
    pub const fn privileges(&self) -> Privileges {
        self.kind.privileges
    }

    /// Seals the entry, for `cause` unless it is sealed, to be written out.
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

    /// The memory, when the data has been written and its [`Piece`] is gone.
    pub fn into_slot(self) -> Slot {
        Arc::into_inner(self.slot).expect("the one piece of the entry is gone")
    }
}

/// A length in memory as a count of bytes in a file.
pub fn byte_count(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory fits 64 bits")
}
