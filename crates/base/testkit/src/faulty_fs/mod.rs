//! [`FaultyFs`]: injects faults, blocks writes and models power cuts over any file system, and records the calls.
//!
//! Faults are set while it runs, through [`Faults`], which outlives the file system. A [`Call`] fails once or for ever,
//! for one file or for all; all calls can be delayed. If it [models power cuts](FaultyFs::with_power_cuts), it keeps the content that each file
//! would have after one: the ranges of synchronous writes, and whole files and folders at each successful sync.
//!
//! Faults and durability are those of the file system below; data that a layer above has acknowledged and not passed
//! down does not exist here.

mod calls;
mod durable;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use vfs::{Durability, FileSystem, FsError, FsResult, Handle, Ino, WriteMode};

use durable::Durable;

/// One write that reached the file system below, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// The file.
    pub ino: Ino,
    /// Offset in bytes; a guess if it appends.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: usize,
    /// Requested durability.
    pub durability: Durability,
    /// It goes to the end of the file.
    pub appends: bool,
    /// The thread that made it.
    pub thread: ThreadId,
    /// The injected error, if it failed.
    pub injected: Option<FsError>,
}

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`FileSystem::read`], and the source of `copy_file_range`.
    Read,
    /// [`FileSystem::write`], and the target of `copy_file_range`; nothing is written.
    Write,
    /// [`FileSystem::fsync`], `fsyncdir`, `sync`, and writes that request durability: the data of those is written, but
    /// the call fails.
    Sync,
    /// [`FileSystem::flush`], as for a host that writes back at close.
    Flush,
    /// [`FileSystem::getattr`]
    Getattr,
}

/// Number of times that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Only the next call of its kind.
    Once,
    /// Each call until [`Faults::heal`].
    ForEver,
}

/// A file system whose calls can be made to fail or to block.
#[derive(Debug)]
pub struct FaultyFs<F> {
    inner: F,
    faults: Faults,
    models_power_cuts: bool,
}

/// Control of the faults, and the record of calls; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled at every change of `state`.
    changed: Condvar,
    durable: Mutex<Durable>,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    call: Call,
    /// `None` for all files.
    ino: Option<Ino>,
    times: Times,
    error: FsError,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<WriteRecord>,
    syncs: usize,
    /// By the number of the write, counted from 0.
    failing_writes: HashMap<usize, FsError>,
    /// Number of the write that panics.
    panicking_write: Option<usize>,
    /// Largest end of a write; writes beyond fail with `EFBIG`.
    end_max: Option<u64>,
    getattrs: usize,
    faults: Vec<Fault>,
    gate_closed: bool,
    at_gate: usize,
    /// Inodes with a write in the file system below, to detect two writes to one at the same time.
    in_flight: HashSet<Ino>,
    overlaps: usize,
    after_lookup: Option<Action>,
    /// Time that each delayed call takes longer.
    delay: Duration,
    keeps_by_handle: bool,
}

impl State {
    /// The error to inject into a call on `ino`; a fault that strikes once is removed.
    fn strike(&mut self, call: Call, ino: Option<Ino>) -> Option<FsError> {
        let hits = |fault: &Fault| fault.call == call && (fault.ino.is_none() || fault.ino == ino);
        let place = self.faults.iter().position(hits)?;
        Some(match self.faults[place].times {
            Times::Once => self.faults.remove(place).error,
            Times::ForEver => self.faults[place].error,
        })
    }
}

/// A callback that runs once.
struct Action(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Action")
    }
}

impl<F: FileSystem> FaultyFs<F> {
    /// Without faults.
    pub fn new(inner: F) -> Self {
        Self {
            inner,
            faults: Faults::default(),
            models_power_cuts: false,
        }
    }

    /// Without faults, modelling power cuts ([`Faults::after_power_cut`]). That costs a copy of the file at each sync.
    pub fn with_power_cuts(inner: F) -> Self {
        Self {
            models_power_cuts: true,
            ..Self::new(inner)
        }
    }

    /// Control of the faults.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The file system below.
    pub const fn inner(&self) -> &F {
        &self.inner
    }

    /// Makes an admitted write, and records its durable bytes.
    fn make_write(
        &self,
        ino: Ino,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let durable = mode.durability() != Durability::None;
        // One at a time, as the offset of appended data is only known afterwards.
        let mut model = (durable && self.models_power_cuts).then(|| self.faults.durable());
        let written = self.inner.write(ino, handle, offset, data, mode)?;
        if !durable {
            return Ok(written);
        }
        if let Some(error) = self.faults.strike(Call::Sync, Some(ino)) {
            return Err(error);
        }
        if let Some(model) = &mut model {
            let start = if mode.appends() {
                let length = u64::try_from(written).expect("a length fits 64 bits");
                self.inner.getattr(ino, Some(handle))?.size - length
            } else {
                offset
            };
            model.write(ino, start, &data[..written]);
        }
        Ok(written)
    }

    /// Makes a sync of a file, after which all of it is durable.
    fn make_sync(&self, ino: Ino, sync: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        self.faults.wait();
        self.faults.lock().syncs += 1;
        if let Some(error) = self.faults.strike(Call::Sync, Some(ino)) {
            return Err(error);
        }
        sync()?;
        if self.models_power_cuts {
            self.faults.durable().take(&self.inner, ino);
        }
        Ok(())
    }
}

impl Faults {
    /// Makes `call` fail with `error` on any file.
    pub fn fail(&self, call: Call, times: Times, error: FsError) {
        let ino = None;
        self.lock().faults.push(Fault {
            call,
            ino,
            times,
            error,
        });
    }

    /// Makes `call` fail with `error` on `ino`.
    pub fn fail_file(&self, ino: Ino, call: Call, times: Times, error: FsError) {
        let ino = Some(ino);
        self.lock().faults.push(Fault {
            call,
            ino,
            times,
            error,
        });
    }

    /// Makes the write with this number, counted from 0 since the start, fail with `error`.
    pub fn fail_write(&self, number: usize, error: FsError) {
        self.lock().failing_writes.insert(number, error);
    }

    /// Makes the write with this number, counted from 0 since the start, panic.
    pub fn panic_at_write(&self, number: usize) {
        self.lock().panicking_write = Some(number);
    }

    /// Makes writes that end beyond `end_max` fail with `EFBIG`, as in a file system that can't store larger files.
    pub fn limit_file_size(&self, end_max: u64) {
        self.lock().end_max = Some(end_max);
    }

    /// Makes every write to `ino` fail with `error`.
    pub fn fail_inode(&self, ino: Ino, error: FsError) {
        self.fail_file(ino, Call::Write, Times::ForEver, error);
    }

    /// Makes every write fail with `error`.
    pub fn fail_all(&self, error: FsError) {
        self.fail(Call::Write, Times::ForEver, error);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.failing_writes.clear();
        state.faults.clear();
        state.end_max = None;
    }

    /// Runs `action` between the next lookup below and its return.
    pub fn after_lookup(&self, action: impl FnOnce() + Send + 'static) {
        self.lock().after_lookup = Some(Action(Box::new(action)));
    }

    /// Makes each lookup, getattr, create, open, read, write, flush and sync take this much longer from here on.
    pub fn delay(&self, time: Duration) {
        self.lock().delay = time;
    }

    /// Says of files opened from here on that they keep data by handle ([`FileSystem::keeps_data_by_handle`]).
    pub fn keep_data_by_handle(&self) {
        self.lock().keeps_by_handle = true;
    }

    /// Blocks writes from here on.
    pub fn close_gate(&self) {
        self.lock().gate_closed = true;
    }

    /// Lets writes continue.
    pub fn open_gate(&self) {
        self.lock().gate_closed = false;
        self.shared.changed.notify_all();
    }

    /// The writes so far, including blocked ones.
    pub fn writes(&self) -> Vec<WriteRecord> {
        self.lock().writes.clone()
    }

    /// Number of syncs so far, of files, folders and everything, without synchronous writes.
    pub fn syncs(&self) -> usize {
        self.lock().syncs
    }

    /// Number of getattr calls so far.
    pub fn getattrs(&self) -> usize {
        self.lock().getattrs
    }

    /// Number of writes to an inode that arrived while another write to the same inode was in progress.
    pub fn overlaps(&self) -> usize {
        self.lock().overlaps
    }

    /// The content that the file `name` in the root directory would have after a power cut now; `None` if its name
    /// would be gone. Needs [`FaultyFs::with_power_cuts`].
    pub fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.durable().file(name)
    }

    /// Waits until `count` writes have arrived; false after `limit`.
    pub fn wait_for_writes(&self, count: usize, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.writes.len() >= count)
    }

    /// Waits until `count` writes are blocked; false after `limit`.
    pub fn wait_at_gate(&self, count: usize, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.at_gate >= count)
    }

    fn wait_until(&self, limit: Duration, holds: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while !holds(&state) {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            state = self
                .shared
                .changed
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        self.shared.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, call: Call, ino: Option<Ino>) -> Option<FsError> {
        self.lock().strike(call, ino)
    }

    /// Sleeps for the delay of a call.
    fn wait(&self) {
        let time = self.lock().delay;
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    /// Records a write, blocks it while the gate is closed, and returns the error to inject.
    fn arrive(&self, ino: Ino, offset: u64, bytes: usize, mode: WriteMode) -> Option<FsError> {
        let mut state = self.lock();
        let number = state.writes.len();
        let by_number = state.failing_writes.get(&number).copied();
        let end = offset.saturating_add(u64::try_from(bytes).expect("a length fits 64 bits"));
        let too_big = state.end_max.is_some_and(|end_max| end > end_max);
        let injected = by_number
            .or_else(|| state.strike(Call::Write, Some(ino)))
            .or_else(|| too_big.then_some(FsError::FileTooBig));
        state.writes.push(WriteRecord {
            ino,
            offset,
            bytes,
            durability: mode.durability(),
            appends: mode.appends(),
            thread: std::thread::current().id(),
            injected,
        });
        if state.panicking_write == Some(number) {
            self.shared.changed.notify_all();
            drop(state);
            panic!("write {number} was told to panic");
        }
        if !state.in_flight.insert(ino) {
            state.overlaps += 1;
        }
        state.at_gate += 1;
        self.shared.changed.notify_all();
        while state.gate_closed {
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.at_gate -= 1;
        injected
    }

    fn leave(&self, ino: Ino) {
        self.lock().in_flight.remove(&ino);
    }
}
