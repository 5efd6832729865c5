//! Writes entries out, and decides when: [`Engine::flush_inode`] and its variants.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use vfs::{FileSystem, FsError, FsResult, Ino};

use crate::engine::Engine;
use crate::entry::{Piece, byte_count};
use crate::inode::{InodeBuffer, InodeState};
use crate::stats::{FlushCause, add};
use crate::times::Stamp;

/// Intervals without an append after which an entry is written out, unless the one before it was filled: a writer that
/// is not scheduled for that long would split its stream.
const INTERVALS_IDLE: u32 = 2;
/// Intervals after which any entry is written out. At 10 ms, a stream of 25 MiB/s still fills 2 MiB.
const INTERVALS_AGE: u32 = 8;

/// The front entry of a file while it is written out. If it is dropped before [`WriteOut::finish`], by a panic below,
/// it counts as failed: its data is lost, and no thread keeps waiting for it.
struct WriteOut<'e, 'a, F: FileSystem> {
    engine: &'e Engine<F>,
    inode: &'a Arc<InodeBuffer>,
    /// `None` once the entry is gone.
    piece: Option<Piece>,
}

impl<'a, F: FileSystem> WriteOut<'_, 'a, F> {
    /// Writes the data, all of it or up to an error: after a short write the next one gets the error.
    fn write(&self, piece: &Piece) -> FsResult<()> {
        let data = piece.data();
        let mut done = 0;
        while done < data.len() {
            let (rest, at) = (&data[done..], piece.offset + byte_count(done));
            let written = self
                .engine
                .backing_write(self.inode.ino, piece.handle, at, rest, piece.mode);
            match written? {
                0 => return Err(FsError::Io),
                written => done += written.min(rest.len()),
            }
        }
        Ok(())
    }

    /// Writes the entry out and removes it from its file.
    fn finish(mut self) -> MutexGuard<'a, InodeState> {
        let piece = self.piece.as_ref().expect("the entry is not written out yet");
        let handle = piece.handle;
        let started = Instant::now();
        let outcome = self.write(piece);
        self.engine.counters.flush_latency.record(started.elapsed());
        let mut times_below = None;
        loop {
            let mut state = self.inode.lock();
            if state.times.are_looked_at() && times_below.is_none() {
                drop(state);
                let attr = self.engine.inner.getattr(self.inode.ino, Some(handle));
                times_below = Some(attr.ok().map(|attr| Stamp::of(&attr)));
                continue;
            }
            self.end(&mut state, outcome);
            if let Some(below) = times_below {
                let is_clean = state.is_clean();
                state.times.settle(below, is_clean);
            }
            return state;
        }
    }

    fn end(&mut self, state: &mut InodeState, outcome: FsResult<()>) {
        let engine = self.engine;
        // Drop the other reference to the entry's memory.
        self.piece = None;
        let entry = state
            .entries
            .pop_front()
            .expect("an entry stays until it has been written out");
        state.writing = false;
        state.completed += 1;
        engine
            .counters
            .bytes_buffered
            .fetch_sub(entry.bytes(), Ordering::Relaxed);
        match outcome {
            Ok(()) => state.reached = state.reached.max(entry.end()),
            Err(error) => {
                engine.note_failure(state, error);
                add(&engine.counters.errors_recorded, 1);
                if state.record_error(error) {
                    add(&engine.counters.errors_pending, 1);
                }
            }
        }
        // Under the same lock: a thread that sees `writing` set and waits for a slot will see this one freed.
        engine.central.free_slot(entry.into_slot());
        if state.is_clean() {
            engine.central.deactivate(self.inode, state);
        } else if !engine.writes_out_inline() && state.front_is_sealed() {
            engine.central.queue(self.inode, state);
        }
        self.inode.notify();
    }
}

impl<F: FileSystem> Drop for WriteOut<'_, '_, F> {
    fn drop(&mut self) {
        if self.piece.is_some() {
            let inode = self.inode;
            self.end(&mut inode.lock(), Err(FsError::Io));
        }
    }
}

impl<F: FileSystem> Engine<F> {
    /// Writes out the front entry of the file. `state` must have one that is not being written. Counted under the cause
    /// for which it was sealed, or else under `cause`.
    pub fn write_front<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
        cause: FlushCause,
    ) -> MutexGuard<'a, InodeState> {
        assert!(
            !state.writing,
            "inode {:?} is being written out by another thread",
            inode.ino
        );
        let entry = state
            .entries
            .front_mut()
            .expect("the caller saw an entry under this lock");
        self.counters.count_flush(entry.sealed.unwrap_or(cause));
        let piece = entry.begin_write_out(cause);
        state.writing = true;
        drop(state);

        let write_out = WriteOut {
            engine: self,
            inode,
            piece: Some(piece),
        };
        write_out.finish()
    }

    /// Writes out all sealed entries of the file in the caller's thread.
    pub fn write_sealed<'a>(
        &self,
        inode: &'a Arc<InodeBuffer>,
        mut state: MutexGuard<'a, InodeState>,
    ) -> MutexGuard<'a, InodeState> {
        loop {
            if state.front_is_sealed() {
                state = self.write_front(inode, state, FlushCause::Full);
            } else if state.writing && state.entries.iter().skip(1).any(|entry| entry.sealed.is_some()) {
                state = inode.wait(state);
            } else {
                return state;
            }
        }
    }

    /// Writes out everything that the file holds at the time of the call, and waits for entries that other threads are
    /// writing.
    pub fn flush_inode(&self, inode: &Arc<InodeBuffer>, cause: FlushCause) {
        let mut state = inode.lock();
        let target = state.opened;
        while state.completed < target {
            state = if state.writing {
                inode.wait(state)
            } else {
                self.write_front(inode, state, cause)
            };
        }
    }

    /// [`Engine::flush_inode`] by number; does nothing for a file without buffer state.
    pub fn flush_ino(&self, ino: Ino, cause: FlushCause) {
        if !self.central.is_clean()
            && let Some(inode) = self.registry.inode(ino)
        {
            self.flush_inode(&inode, cause);
        }
    }

    /// Writes out everything that was buffered at the time of the call.
    pub fn flush_all(&self, cause: FlushCause) {
        for inode in self.central.active() {
            self.flush_inode(&inode, cause);
        }
    }

    /// Writes out one sealed entry of a file that was in the `ready` list; a further one is queued after other files'.
    pub fn flush_ready(&self, inode: &Arc<InodeBuffer>) {
        let mut state = inode.lock();
        state.queued = false;
        if state.front_is_sealed() {
            drop(self.write_front(inode, state, FlushCause::Full));
        }
    }

    /// Writes out entries that have waited for `factor` times the configured limits.
    pub fn flush_overdue(&self, factor: u32) {
        let idle = self.config.flush_interval * INTERVALS_IDLE * factor;
        let age = self.config.flush_interval * INTERVALS_AGE * factor;
        for inode in self.central.active() {
            let state = inode.lock();
            let now = Instant::now();
            let overdue = state.entries.front().is_some_and(|entry| {
                let since = |earlier: Instant| now.saturating_duration_since(earlier);
                (since(entry.appended) >= idle && !entry.is_of_stream) || since(entry.created) >= age
            });
            if overdue && !state.writing {
                drop(self.write_front(&inode, state, FlushCause::Interval));
            }
        }
    }

    /// The inline flusher's part of each write: at most one check per interval.
    pub fn inline_tick(&self) {
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
            self.flush_overdue(1);
        }
    }
}
