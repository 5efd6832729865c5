//! Accepts writes.
//!
//! # Invariants
//!
//! - The thread that writes out the front entry of a file sets [`InodeState::writing`], and no other takes the next
//!   before it is cleared: entries of a file reach the file system below in order and one at a time.
//! - With the manager thread: a file whose front is sealed and not being written is in `Central::ready`.
//! - No lock is held while the file system below is called, and none while waiting, except the writer's own
//!   [`InodeBuffer::turn`], which no flush takes: so a writer that waits for a slot never blocks the thread that frees
//!   it.
//!
//! # Writes that go through
//!
//! These writes are made at once, after the file's buffered data: durable and direct ones, which keep their flags;
//! those to files that the file system below syncs by itself ([`FileSystem::is_synchronous`]); those on probation after
//! a failure (see [`Probation`]); a file's first write past 4 GiB and past each doubling of that, so that a file system
//! with a smaller limit reports it to the writer; appended ones longer than an entry, since a record must reach the
//! file system below in one write; and small scattered ones. A scattered write that continues neither the tail entry
//! nor the write before would cost an entry and a copy and save nothing. After a few of them in a row a file's
//! scattered writes go through, and so does a small write that finds no free entry when its file has nothing buffered.
//! So random I/O costs the same as without a buffer, and the first write that continues the one before is buffered
//! again.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use vfs::{Durability, FileSystem, FsError, FsResult, Handle, Ino, WriteMode};

use crate::central::Central;
use crate::config::{BufferConfig, Flusher};
use crate::entry::{Entry, WriteKind, byte_count};
use crate::inode::{InodeBuffer, InodeState, OpenFile};
use crate::probation::Probation;
use crate::registry::Registry;
use crate::slot::Slot;
use crate::stats::{Counters, FlushCause, add};

/// Number of consecutive scattered writes that are still buffered: a file header, an index and the data make three
/// positions.
const SCATTERED_MAX: u32 = 3;
/// A write of at least this fraction of an entry is worth its own entry.
const SMALL_PART_OF_ENTRY: u64 = 4;
/// All file systems support files up to this size. The smallest limit is vfat's 4 GiB.
const NEAR_BYTES: u64 = (1 << 32) - 1;

/// The buffer without its thread: shared by callers and the manager.
#[derive(Debug)]
pub struct Engine<F> {
    pub inner: F,
    pub config: BufferConfig,
    pub central: Central,
    pub registry: Registry,
    pub counters: Counters,
    entries_total: u64,
    /// A write ran out of space or quota: the amount that has to be allocated before any file's writes are buffered
    /// again. It applies to all files, as it is unknown which of them share the exhausted resource.
    pub space: Probation,
    /// Time of the inline flusher's last check for overdue entries, in nanoseconds since `born`.
    pub inline_tick_ns: AtomicU64,
    pub born: Instant,
}

impl<F: FileSystem> Engine<F> {
    /// Creates an engine with the free slots `slots`, each of `config.entry_bytes`.
    pub fn new(inner: F, config: BufferConfig, slots: Vec<Slot>) -> Self {
        Self {
            inner,
            config,
            entries_total: byte_count(slots.len()),
            central: Central::new(slots),
            registry: Registry::default(),
            counters: Counters::default(),
            space: Probation::default(),
            inline_tick_ns: AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    /// Total number of entries.
    pub const fn entries_total(&self) -> u64 {
        self.entries_total
    }

    /// True if sealed entries are written out by the threads that sealed them.
    pub fn writes_out_inline(&self) -> bool {
        self.config.flusher == Flusher::Inline || self.central.manager_is_gone()
    }

    /// Accepts a write from above.
    pub fn write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        add(&self.counters.writes_accepted, 1);
        add(&self.counters.bytes_accepted, byte_count(data.len()));
        let file = match self.config.flusher {
            Flusher::Off => None,
            Flusher::Thread | Flusher::Inline => self.registry.file(handle),
        };
        let Some(file) = file else {
            add(&self.counters.writes_through, 1);
            return self.backing_write(ino, handle, offset, data, mode);
        };
        let turn = file.inode.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.accept(&file, handle, offset, data, mode);
        drop(turn);
        if taken > 0 && self.writes_out_inline() {
            self.inline_tick();
        }
        if taken > 0 && taken == data.len() {
            return Ok(taken);
        }
        let at = offset.saturating_add(byte_count(taken));
        match self.write_through(&file.inode, handle, at, &data[taken..], mode) {
            // A short count: the next write gets the error.
            Err(_) if taken > 0 && !mode.from_page_cache => Ok(taken),
            written => written.map(|written| taken + written),
        }
    }

    fn may_buffer(&self, file: &OpenFile, state: &InodeState, end: u64, mode: WriteMode) -> bool {
        let is_ordinary = mode.durability() == Durability::None && !mode.is_direct();
        is_ordinary
            && !state.is_synchronous
            && file.writable
            && i64::try_from(end).is_ok()
            && !self.space.is_on()
    }

    /// Writes without buffering, after the file's buffered data.
    fn write_through(
        &self,
        inode: &Arc<InodeBuffer>,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        self.flush_inode(inode, FlushCause::Other);
        add(&self.counters.writes_through, 1);
        let space_used = || {
            let attr = self.inner.getattr(inode.ino, Some(handle));
            attr.map_or(0, |attr| attr.blocks * 512)
        };
        // Overwriting in place succeeds on a full file system too, and proves nothing.
        let used_before = self.space.is_on().then(space_used);
        let written = self.backing_write(inode.ino, handle, offset, data, mode);
        match written {
            Ok(count) => {
                let mut state = inode.lock();
                state.probation.note_success(byte_count(count));
                state.reached = state.reached.max(offset.saturating_add(byte_count(count)));
                drop(state);
                if let Some(used_before) = used_before {
                    self.space.note_success(space_used().saturating_sub(used_before));
                }
            }
            Err(error) => self.note_failure(&inode.lock(), error),
        }
        written
    }

    /// Records that a write to the file system below failed: until others have succeeded, writes go through, so that
    /// none is acknowledged and then fails.
    pub fn note_failure(&self, state: &InodeState, error: FsError) {
        state.probation.start(self.config.entry_bytes);
        if matches!(error, FsError::NoSpace | FsError::Quota) {
            self.space.start(self.config.buffer_bytes);
        }
    }

    /// The only place that writes to the file system below.
    pub fn backing_write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        add(&self.counters.backing_writes, 1);
        add(&self.counters.backing_bytes, byte_count(data.len()));
        self.inner.write(ino, handle, offset, data, mode)
    }

    fn is_small(&self, data: &[u8]) -> bool {
        byte_count(data.len()) < self.config.entry_bytes / SMALL_PART_OF_ENTRY
    }

    /// Appends `data` to the tail entry and to as many new entries as it needs; appended data goes to a single entry or
    /// to none. Returns the number of bytes accepted; the caller writes the rest through, after the file's buffered
    /// data. The caller holds [`InodeBuffer::turn`].
    fn accept(&self, file: &OpenFile, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> usize {
        let inode = &file.inode;
        let end = offset.saturating_add(byte_count(data.len()));
        let now = Instant::now();
        let mut state = inode.lock();
        let kind = WriteKind::of(mode, state.by_handle.then_some(handle));
        let continues = state.note_write(offset, end) || kind.appends;
        let is_scattered = !continues && state.scattered > SCATTERED_MAX && self.is_small(data);
        let is_too_long = kind.appends && byte_count(data.len()) > self.config.entry_bytes;
        let is_far = end > NEAR_BYTES && end.ilog2() > state.reached.max(1).ilog2();
        if is_scattered || is_too_long || is_far || !self.may_buffer(file, &state, end, mode) {
            return 0;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            if let Some(tail) = state
                .entries
                .back_mut()
                .filter(|tail| tail.is_continued_by(kind, at, rest.len()))
            {
                let taken = tail.append(rest, now);
                let full = tail.sealed.is_some();
                (at, rest) = (tail.end(), &rest[taken..]);
                self.counters.buffered(byte_count(taken));
                state.times.note_write();
                if full {
                    state.filled_to = Some(at);
                    state = self.hand_over(inode, state);
                }
                continue;
            }
            if let Some(tail) = state.entries.back_mut().filter(|tail| tail.sealed.is_none()) {
                let is_full = kind.appends && tail.is_of(kind);
                tail.sealed = Some(if is_full {
                    FlushCause::Full
                } else {
                    FlushCause::Scattered
                });
                state = self.hand_over(inode, state);
                continue;
            }
            if let Some(slot) = self.central.take_slot() {
                // Check after taking the slot: if the slot comes from an entry whose write failed, the failure is
                // visible here.
                if state.probation.is_on() || self.space.is_on() {
                    self.central.free_slot(slot);
                    break;
                }
                let mut entry = Entry::new(slot, (handle, mode, kind), at, rest.len(), now);
                entry.is_of_stream = state.filled_to == Some(at);
                state.entries.push_back(entry);
                state.opened += 1;
                self.central.activate(inode, &mut state);
                continue;
            }
            if rest.len() == data.len() && self.is_small(data) && state.is_clean() {
                break;
            }
            drop(state);
            self.make_room();
            state = inode.lock();
        }
        data.len() - rest.len()
    }

    /// Called when an entry of the file has been sealed: writes it out, or queues it for the manager.
    fn hand_over<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
    ) -> MutexGuard<'a, InodeState> {
        if self.writes_out_inline() {
            return self.write_sealed(inode, state);
        }
        if state.front_is_sealed() {
            self.central.queue(inode, &mut state);
        }
        state
    }

    /// Waits until there may be a free slot. Rather than just wait, a writer writes out an entry of another file. In
    /// this order: write out a sealed entry; wait for one that is being written; write out the oldest open entry.
    fn make_room(&self) {
        let started = Instant::now();
        add(&self.counters.entry_waits, 1);
        self.free_one_slot();
        let waited = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        add(&self.counters.entry_wait_ns, waited);
    }

    fn free_one_slot(&self) {
        let (active, freed_count) = {
            let lists = self.central.lock();
            if !lists.free.is_empty() {
                return;
            }
            (lists.active.clone(), lists.freed_count)
        };
        let mut writing = false;
        let mut open = None;
        for inode in &active {
            let state = inode.lock();
            if state.front_is_sealed() {
                drop(self.write_front(inode, state, FlushCause::Pressure));
                return;
            }
            writing |= state.writing;
            open = open.or((!state.writing && !state.entries.is_empty()).then_some(inode));
        }
        match open {
            Some(inode) if !writing => {
                let state = inode.lock();
                if !state.writing && !state.entries.is_empty() {
                    drop(self.write_front(inode, state, FlushCause::Pressure));
                }
            }
            _ if writing => self.central.wait_for_slot(freed_count),
            // Every slot changed hands during the search: the caller tries again.
            _ => std::thread::yield_now(),
        }
    }
}
