//! Takes writes in and writes entries out.
//!
//! # Invariants
//!
//! - Whoever takes the front entry of a file sets [`InodeState::writing`], and nobody takes the next before
//!   it is cleared: entries of a file arrive below in order and one at a time.
//! - With the manager thread: a file whose front is sealed and not being written is in `Central::ready`.
//! - No lock is held while the file system below is called, and none while waiting, except the writer's own
//!   [`InodeBuffer::turn`], which no flush takes: so a writer that waits for a slot never stops the one who
//!   frees it.
//!
//! # Small scattered writes
//!
//! One that neither continues the tail entry nor the write before would cost an entry and a copy and save
//! nothing. After a few of them in a row a file's scattered writes go through at once, behind what the file
//! has buffered; so does a small write that finds no free entry when its file has nothing buffered. Random
//! I/O thus costs what it costs without a buffer, and the first write that continues the one before is
//! buffered again.

use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vfs::{FileSystem, FsError, FsResult, Handle, Ino, WriteMode};

use crate::central::Central;
use crate::config::{BufferConfig, Flusher};
use crate::entry::{Entry, WriteKind, byte_count};
use crate::inode::{InodeBuffer, InodeState, OpenFile};
use crate::registry::Registry;
use crate::slot::Slot;
use crate::stats::{Counters, FlushCause, add};

/// Scattered writes in a row that are still buffered: a file header, an index and the data make three places.
const SCATTERED_MAX: u32 = 3;
/// A write of at least this part of an entry is worth an entry of its own.
const SMALL_PART_OF_ENTRY: u64 = 4;
/// A write that jumps beyond this offset goes through, so that a file system that can't hold it (ext4 ends at
/// 16 TiB, others earlier) can say `EFBIG` to the writer instead of at close.
const FAR_BYTES: u64 = 4 << 30;
/// Intervals without an append after which an entry is written out. One would chop a stream whenever the
/// writer is not scheduled for as long.
const INTERVALS_IDLE: u32 = 2;
/// Intervals after which an entry is written out although it grows. At 10 ms, a stream of 25 MiB/s still
/// fills 2 MiB.
const INTERVALS_AGE: u32 = 8;

/// The buffer without its thread: shared by callers and the manager.
#[derive(Debug)]
pub struct Engine<F> {
    pub inner: F,
    pub config: BufferConfig,
    pub central: Central,
    pub registry: Registry,
    pub counters: Counters,
    entries_total: u64,
    /// A flush found no space; see the crate's "No space".
    degraded: AtomicBool,
    /// When the inline flusher last looked for overdue entries, since `born`, in nanoseconds.
    inline_tick_ns: std::sync::atomic::AtomicU64,
    born: Instant,
}

/// What becomes of a write that was offered to the buffer.
enum Accepted {
    Buffered,
    /// It is to be written through, behind what the file has buffered.
    Through,
}

impl<F: FileSystem> Engine<F> {
    /// With `slots` free, all of `config.entry_bytes`.
    pub fn new(inner: F, config: BufferConfig, slots: Vec<Slot>) -> Self {
        Self {
            inner,
            config,
            entries_total: byte_count(slots.len()),
            central: Central::new(slots),
            registry: Registry::default(),
            counters: Counters::default(),
            degraded: AtomicBool::new(false),
            inline_tick_ns: std::sync::atomic::AtomicU64::new(0),
            born: Instant::now(),
        }
    }

    /// Entries in all.
    pub const fn entries_total(&self) -> u64 {
        self.entries_total
    }

    /// See [`crate::BufferStats::degraded`].
    pub fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Relaxed)
    }

    /// A write from above.
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
        let file = if self.config.flusher == Flusher::Off {
            None
        } else {
            self.registry.file(handle)
        };
        let Some(file) = file.filter(|file| self.may_buffer(file, offset, data, mode)) else {
            return self.write_through(ino, handle, offset, data, mode);
        };
        match self.accept(&file.inode, handle, offset, data, mode) {
            Accepted::Buffered => {
                if self.config.flusher == Flusher::Inline {
                    self.inline_tick();
                }
                Ok(data.len())
            }
            Accepted::Through => self.write_through(ino, handle, offset, data, mode),
        }
    }

    fn may_buffer(&self, file: &OpenFile, offset: u64, data: &[u8], mode: WriteMode) -> bool {
        let bypasses = mode.flags.bypasses_buffers() && !mode.from_page_cache;
        let end = offset.checked_add(byte_count(data.len()));
        !bypasses
            && file.writable
            && !data.is_empty()
            && end.is_some_and(|end| i64::try_from(end).is_ok())
            && !self.is_degraded()
    }

    /// Writes without buffering, behind what the file has buffered.
    fn write_through(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        self.flush_ino(ino, FlushCause::Other);
        add(&self.counters.writes_through, 1);
        let written = self.backing_write(ino, handle, offset, data, mode);
        if self.is_degraded() && written.as_ref().is_ok_and(|count| *count > 0) && self.has_room(ino) {
            self.degraded.store(false, Ordering::Relaxed);
        }
        written
    }

    /// True when the file system of `ino` has space for everything that may be buffered, twice over:
    /// overwriting a block in place succeeds on a full file system too and proves nothing. One that does not
    /// say is believed.
    fn has_room(&self, ino: Ino) -> bool {
        self.inner.statfs(ino).is_ok_and(|space| {
            let free = space
                .blocks_available
                .saturating_mul(u64::from(space.fragment_size));
            space.blocks == 0 || free >= self.config.buffer_bytes.saturating_mul(2)
        })
    }

    /// The one place where the file system below is written to.
    fn backing_write(
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

    /// Appends `data` to the tail entry and as many more as it takes.
    fn accept(
        &self,
        inode: &Arc<InodeBuffer>,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> Accepted {
        let _turn = inode
            .turn
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let kind = WriteKind::of(mode);
        let end = offset + byte_count(data.len());
        let now = Instant::now();
        let mut state = inode.lock();
        let first = state.last_end.is_none();
        let continues = state.note_write(offset, end);
        let scattered = !continues && state.scattered > SCATTERED_MAX && self.is_small(data);
        if scattered || (end > FAR_BYTES && (!continues || first)) {
            return Accepted::Through;
        }
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            if let Some(tail) = state
                .entries
                .back_mut()
                .filter(|tail| tail.is_continued_by(kind, at))
            {
                let taken = tail.append(rest, now);
                let full = tail.sealed.is_some();
                self.counters.buffered(byte_count(taken));
                (at, rest) = (at + byte_count(taken), &rest[taken..]);
                if full {
                    state = self.hand_over(inode, state);
                }
                continue;
            }
            if let Some(tail) = state.entries.back_mut().filter(|tail| tail.sealed.is_none()) {
                tail.sealed = Some(FlushCause::Scattered);
                state = self.hand_over(inode, state);
                continue;
            }
            if let Some(slot) = self.central.take_slot() {
                state.entries.push_back(Entry::new(slot, handle, at, mode, now));
                state.opened += 1;
                self.central.activate(inode, &mut state);
                continue;
            }
            if rest.len() == data.len() && self.is_small(data) && state.is_clean() {
                return Accepted::Through;
            }
            drop(state);
            self.make_room();
            state = inode.lock();
        }
        Accepted::Buffered
    }

    /// The front or a later entry of the file has been sealed: sees to it that it is written out.
    fn hand_over<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
    ) -> MutexGuard<'a, InodeState> {
        if self.config.flusher == Flusher::Inline {
            return self.write_sealed(inode, state);
        }
        if state.front_is_sealed() {
            self.central.queue(inode, &mut state);
        }
        state
    }

    /// Writes out all sealed entries of the file in the caller's thread.
    fn write_sealed<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
    ) -> MutexGuard<'a, InodeState> {
        loop {
            if state.front_is_sealed() {
                state = self.write_front(inode, state, FlushCause::Full);
            } else if state.writing.is_some() && state.entries.iter().any(|entry| entry.sealed.is_some()) {
                state = inode.wait(state);
            } else {
                return state;
            }
        }
    }

    /// Waits until there may be a free slot, and helps: a writer that would only wait writes out an entry of
    /// another file. In this order: a sealed entry; waiting for one that is being written; the oldest open
    /// entry.
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
            writing |= state.writing.is_some();
            open = open.or((state.writing.is_none() && !state.entries.is_empty()).then_some(inode));
        }
        match open {
            Some(inode) if !writing => {
                let state = inode.lock();
                if state.writing.is_none() && !state.entries.is_empty() {
                    drop(self.write_front(inode, state, FlushCause::Pressure));
                }
            }
            _ if writing => self.central.wait_for_slot(freed_count),
            // Every slot changed hands while the files were looked at: the caller looks again.
            _ => {}
        }
    }

    /// Writes out the front entry of the file. `state` must have one and nobody may be writing.
    /// Counted under the cause for which it was sealed, or else under `cause`.
    pub fn write_front<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
        cause: FlushCause,
    ) -> MutexGuard<'a, InodeState> {
        assert!(
            state.writing.is_none(),
            "inode {:?} is being written out by another thread",
            inode.ino
        );
        let entry = state
            .entries
            .pop_front()
            .expect("the caller saw an entry under this lock");
        state.writing = Some(entry.extent());
        drop(state);

        self.counters.count_flush(entry.sealed.unwrap_or(cause));
        let started = Instant::now();
        let outcome = self.write_out(inode.ino, &entry);
        self.counters.flush_latency.record(started.elapsed());
        self.counters
            .bytes_buffered
            .fetch_sub(byte_count(entry.data().len()), Ordering::Relaxed);
        if matches!(outcome, Err(FsError::NoSpace | FsError::Quota)) {
            self.degraded.store(true, Ordering::Relaxed);
        }

        let mut state = inode.lock();
        state.writing = None;
        self.central.note_written();
        state.completed += 1;
        // Under the same lock: whoever sees `writing` set and waits for a slot will see this one come back.
        self.central.free_slot(entry.into_slot());
        if let Err(error) = outcome {
            add(&self.counters.errors_recorded, 1);
            if state.record_error(error) {
                add(&self.counters.errors_pending, 1);
            }
        }
        if state.is_clean() {
            self.central.deactivate(inode, &mut state);
        } else if self.config.flusher == Flusher::Thread && state.front_is_sealed() {
            self.central.queue(inode, &mut state);
        }
        inode.notify();
        state
    }

    /// Writes the data of an entry, all of it or up to an error: after a short write the next one meets the
    /// reason.
    fn write_out(&self, ino: Ino, entry: &Entry) -> FsResult<()> {
        let data = entry.data();
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            match self.backing_write(
                ino,
                entry.handle,
                entry.offset + byte_count(done),
                rest,
                entry.mode,
            )? {
                0 => return Err(FsError::Io),
                written => done += written.min(rest.len()),
            }
        }
        Ok(())
    }

    /// Writes out everything that the file holds at the time of the call, and waits for what others are
    /// writing.
    pub fn flush_inode(&self, inode: &Arc<InodeBuffer>, cause: FlushCause) {
        let mut state = inode.lock();
        let target = state.opened;
        while state.completed < target {
            state = if state.writing.is_some() {
                inode.wait(state)
            } else {
                self.write_front(inode, state, cause)
            };
        }
    }

    /// [`Engine::flush_inode`] by number; nothing to do for a file that is not open here.
    pub fn flush_ino(&self, ino: Ino, cause: FlushCause) {
        if !self.central.is_clean()
            && let Some(inode) = self.registry.inode(ino)
        {
            self.flush_inode(&inode, cause);
        }
    }

    /// Writes out everything that was buffered at the time of the call.
    pub fn flush_all(&self, cause: FlushCause) {
        if !self.central.is_clean() {
            self.central
                .active()
                .iter()
                .for_each(|inode| self.flush_inode(inode, cause));
        }
    }

    /// Writes out one sealed entry of a file that was in the `ready` list; more are queued behind other
    /// files'.
    pub fn flush_ready(&self, inode: &Arc<InodeBuffer>) {
        let mut state = inode.lock();
        state.queued = false;
        if state.front_is_sealed() {
            drop(self.write_front(inode, state, FlushCause::Full));
        }
    }

    /// Writes out open entries that wait for too long.
    pub fn flush_overdue(&self) {
        let idle = self.config.flush_interval * INTERVALS_IDLE;
        let age = self.config.flush_interval * INTERVALS_AGE;
        for inode in self.central.active() {
            let state = inode.lock();
            let now = Instant::now();
            let overdue = state.entries.front().is_some_and(|entry| {
                let since = |earlier: Instant| now.saturating_duration_since(earlier);
                since(entry.appended) >= idle || since(entry.created) >= age
            });
            if overdue && state.writing.is_none() {
                drop(self.write_front(&inode, state, FlushCause::Interval));
            }
        }
    }

    /// The inline flusher's share of each write: one look in each interval.
    fn inline_tick(&self) {
        let interval_ns = u64::try_from(self.config.flush_interval.as_nanos()).unwrap_or(u64::MAX);
        let since_birth: Duration = self.born.elapsed();
        let now_ns = u64::try_from(since_birth.as_nanos()).unwrap_or(u64::MAX);
        let last_ns = self.inline_tick_ns.load(Ordering::Relaxed);
        let due = now_ns.saturating_sub(last_ns) >= interval_ns;
        let mine = || {
            let order = Ordering::Relaxed;
            self.inline_tick_ns
                .compare_exchange(last_ns, now_ns, order, order)
                .is_ok()
        };
        if due && mine() {
            self.flush_overdue();
        }
    }
}
