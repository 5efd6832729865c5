//! One entry of the buffer: header and data of writes that follow one another in a file.

use std::time::Instant;

use vfs::{Handle, Privileges, WriteMode};

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
            appends: mode.flags.has(libc::O_APPEND) && !mode.from_page_cache,
            privileges: mode.privileges,
            from_page_cache: mode.from_page_cache,
        }
    }
}

/// Header and data.
///
/// Invariants: `1 <= used <= room`; an entry of `room` bytes is sealed; a sealed entry never grows.
#[derive(Debug)]
pub struct Entry {
    slot: Slot,
    /// Handle that the data is written by: the one of the first write. It stays open until the entry is
    /// written, because release flushes first.
    pub handle: Handle,
    /// Where in the file the data starts, in bytes.
    pub offset: u64,
    /// Mode of the first write.
    pub mode: WriteMode,
    kind: WriteKind,
    used: usize,
    /// Bytes that fit: entries end where a multiple of the entry size in the file does, so that a stream that
    /// starts anywhere soon makes aligned writes.
    room: usize,
    /// When the first byte came.
    pub created: Instant,
    /// When the last byte came.
    pub appended: Instant,
    /// Why nothing may be appended any more; `None` while the entry is open.
    pub sealed: Option<FlushCause>,
}

impl Entry {
    /// An empty entry for data at `offset`; append to it before anyone else sees it.
    pub fn new(slot: Slot, handle: Handle, offset: u64, mode: WriteMode, now: Instant) -> Self {
        let bytes = slot.bytes().len();
        let into_entry = usize::try_from(offset % byte_count(bytes)).expect("a remainder of a usize fits it");
        Self {
            room: bytes - into_entry,
            slot,
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

    /// True when a write of `kind` at `offset` goes on where this entry stops.
    pub fn is_continued_by(&self, kind: WriteKind, offset: u64) -> bool {
        self.sealed.is_none() && self.kind == kind && self.end() == offset
    }

    /// Takes as much of `data` as fits and says how much; seals the entry when it is full.
    pub fn append(&mut self, data: &[u8], now: Instant) -> usize {
        let taken = data.len().min(self.room - self.used);
        self.slot.bytes_mut()[self.used..self.used + taken].copy_from_slice(&data[..taken]);
        self.used += taken;
        self.appended = now;
        if self.used == self.room {
            self.sealed = Some(FlushCause::Full);
        }
        taken
    }

    /// The data.
    pub fn data(&self) -> &[u8] {
        &self.slot.bytes()[..self.used]
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + byte_count(self.used)
    }

    /// What of the file this entry may change.
    pub fn extent(&self) -> Extent {
        Extent {
            handle: self.handle,
            end: if self.kind.appends { u64::MAX } else { self.end() },
        }
    }

    /// The memory, when the data has been written.
    pub fn into_slot(self) -> Slot {
        self.slot
    }
}

/// What others must know of an entry, also while it is being written out.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Handle that the data is written by.
    pub handle: Handle,
    /// Nothing at or behind this offset is changed; `u64::MAX` where the place is not known before the write
    /// (append).
    pub end: u64,
}

/// A length in memory as a count of bytes in a file.
pub fn byte_count(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory fits 64 bits")
}
