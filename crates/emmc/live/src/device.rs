//! A live card: data, the model's times, and power that can be cut.
//!
//! Every request is served by the thread that delivers it. The thread registers it in the log and in the model, then
//! waits until the model completes it. The device has no thread of its own (see [`Engine`]).
//!
//! Time is measured as a client of the block device sees it: a request arrives when it is made, and is answered so
//! that the client sees it complete at the model's time. [`PathCost`] gives the latency between here and the client.
//! So the model runs ahead of the clock, by the longest latency of an answer, and a request is completed in the model
//! before it is answered. If the latencies are unknown, both follow the clock.
//!
//! All times here are in virtual time, that of the clock `T`; it may run faster or slower than real time.
//!
//! The model gets a write before its data is copied to the store, which takes longer than the way here: otherwise
//! many concurrent copies would delay parts of a stream on their way to the model.
//!
//! Lock order: `copying` before `medium` before `engine`; `late` is never held with another lock. No thread sleeps
//! while it holds a lock.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use emmc::block::Bio;
use emmc::outcome::Outcome;
use emmc::simulation::{Online, Setup, Ticket};
use media::Nanos;
use nand::{RealClock, TimeSource};
use results::LatencyHistogram;
use results::block_trace::Operation;
use serde::{Deserialize, Serialize};
use vfs::{FsError, FsResult};

use crate::engine::{End, Engine};
use crate::issued_flags::{FlagCounts, IssuedFlags};
use crate::path_cost::PathCost;
use crate::rehearsal::Rehearsal;
use crate::undo::{CutKind, CutReport, UndoLog};
use crate::{LiveError, Store};

const SECTOR: u64 = 512;

/// Power state of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// Requests are served.
    On,
    /// Every request fails.
    Off,
}

/// Power state, and the losses of the last cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PowerReport {
    /// Current state.
    pub power: Power,
    /// Cuts so far.
    pub cuts: u64,
    /// Losses of the last cut.
    pub last_cut: Option<CutReport>,
}

/// Statistics of the device.
#[derive(Clone, Debug)]
pub struct LiveStatistics {
    /// Virtual time since the card was attached.
    pub card_time: Nanos,
    /// The model's counters.
    pub outcome: Outcome,
    /// Lateness of answers relative to the model.
    pub late: LatencyHistogram,
    /// Writes whose data is not programmed yet.
    pub volatile_writes: usize,
    /// Power state.
    pub power: PowerReport,
    /// Compensated latencies of the kernel on both sides.
    pub path: PathCost,
    /// Flags of requests found in the kernel's events, if those are traced.
    pub flags: Option<FlagCounts>,
}

/// Undo log and power state.
struct Medium {
    log: UndoLog,
    power: PowerReport,
}

/// A card with data in real time; see the module.
pub struct LiveDevice<T = RealClock> {
    store: Store,
    unit_bytes: u64,
    time: T,
    /// Held shared while data is copied to the store, exclusively while data is restored.
    copying: RwLock<()>,
    medium: Mutex<Medium>,
    /// Signals that data reached the store, or never will; `medium` has the state.
    copied: Condvar,
    engine: Mutex<Engine>,
    late: Mutex<LatencyHistogram>,
    path: OnceLock<PathCost>,
    flags: OnceLock<IssuedFlags>,
    rehearsal: Rehearsal,
}

/// A request submitted to the model.
struct Submitted {
    ticket: Ticket,
    /// Latency of its answer.
    way_back: Nanos,
}

pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: TimeSource + Sync> LiveDevice<T> {
    /// A card over `store`: with the maps saved beside it, or otherwise as if written in the ranges where the store
    /// has data.
    ///
    /// # Errors
    /// If the card can't be built, the store does not report its data ranges, or the saved state belongs to another
    /// card.
    pub fn new(setup: &Setup, store: Store, time: T) -> Result<Self, LiveError> {
        let unit_bytes = setup.card.translation.unit_bytes;
        let mut online = Online::at_scale(setup, |real| time.during(real))?;
        let kept = store.kept()?;
        if let Some(card) = &kept {
            let taken = online.with_kept(card.epoch, &card.kept);
            online = taken.map_err(|source| LiveError::KeptOfAnother {
                path: store.maps_path().unwrap_or_default(),
                source,
            })?;
        }
        if kept.is_none_or(|card| card.kept.map.is_none()) {
            for (offset, length) in store.ranges_with_data()? {
                let end = (offset + length).div_ceil(SECTOR);
                online = online.with_written(offset / SECTOR, end - offset / SECTOR);
            }
        }
        let unit_size = usize::try_from(unit_bytes).expect("memory has room for a unit");
        Ok(Self {
            store,
            unit_bytes: u64::from(unit_bytes),
            time,
            copying: RwLock::new(()),
            copied: Condvar::new(),
            medium: Mutex::new(Medium {
                log: UndoLog::new(unit_size),
                power: PowerReport {
                    power: Power::On,
                    cuts: 0,
                    last_cut: None,
                },
            }),
            engine: Mutex::new(Engine::new(online)),
            late: Mutex::new(LatencyHistogram::new()),
            path: OnceLock::new(),
            flags: OnceLock::new(),
            rehearsal: Rehearsal::default(),
        })
    }

    /// From here on compensates these latencies; only the first call has an effect.
    pub fn make_up_for(&self, path: PathCost) {
        let _ = self.path.set(path);
    }

    /// From here on requests get the flags of the kernel's events; only the first call has an effect.
    pub fn with_flags_of(&self, flags: IssuedFlags) {
        let _ = self.flags.set(flags);
    }

    /// The clock.
    pub(crate) const fn time(&self) -> &T {
        &self.time
    }

    /// The measurement mode of reads and writes.
    pub(crate) const fn rehearsal(&self) -> &Rehearsal {
        &self.rehearsal
    }

    /// The data.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Size of a mapping unit of the card, bytes.
    #[must_use]
    pub const fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Reads all of `out`.
    ///
    /// # Errors
    /// `Io` without power, or if the store fails.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> FsResult<()> {
        let arrived = self.time.now();
        let bytes = self.range(offset, u64::try_from(out.len()).map_err(|_| FsError::Invalid)?)?;
        if self.rehearsal.is_on() {
            self.store.read(offset, out)?;
            self.rehearsal.answer(arrived, &self.time);
            return Ok(());
        }
        let bio = self.moving(Operation::Read, offset, bytes);
        let request = {
            let _medium = self.powered()?;
            self.submit(arrived, &bio)
        };
        let data = self.store.read(offset, out);
        self.wait(request)?;
        Ok(data?)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `Io` without power, or if the store fails.
    pub fn write(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        let arrived = self.time.now();
        let bytes = self.range(offset, u64::try_from(data.len()).map_err(|_| FsError::Invalid)?)?;
        if self.rehearsal.is_on() {
            self.keep_different(offset, data)?;
            self.rehearsal.answer(arrived, &self.time);
            return Ok(());
        }
        let first = offset / self.unit_bytes;
        let units = (offset + bytes).div_ceil(self.unit_bytes) - first;
        let first = u32::try_from(first).map_err(|_| FsError::Invalid)?;
        let units = usize::try_from(units).map_err(|_| FsError::Invalid)?;
        let bio = self.moving(Operation::Write, offset, bytes);
        let (request, cuts) = {
            let mut medium = self.powered()?;
            let request = self.submit(arrived, &bio);
            medium.log.announce(request.ticket, first, units);
            (request, medium.power.cuts)
        };
        let copied = {
            let _copying = self.copying_of(request.ticket, cuts)?;
            self.copy(request.ticket, u64::from(first), units, offset, data)
        };
        self.copied.notify_all();
        self.wait(request)?;
        Ok(copied?)
    }

    /// Copies the data of a write of `units` units from `first` on to the store, and the old content to the log.
    fn copy(&self, ticket: Ticket, first: u64, units: usize, offset: u64, data: &[u8]) -> io::Result<()> {
        let unit_size = usize::try_from(self.unit_bytes).expect("memory has room for a unit");
        let former = self.store.former(first * self.unit_bytes, units * unit_size);
        // The changes of a write that fails midway can be undone like any other.
        let written = former.map(|former| (former, self.store.write(offset, data)));
        let mut medium = lock(&self.medium);
        let copied = match written {
            Ok((former, copied)) => {
                medium.log.fill(ticket, former);
                copied
            }
            Err(error) => {
                medium.log.withdraw(ticket);
                Err(error)
            }
        };
        self.tell_log(&mut medium);
        copied
    }

    /// Waits for older data of the same units, then permits the copy of a write's data. Fails if the power was cut
    /// meanwhile, even if it is back.
    fn copying_of(&self, ticket: Ticket, cuts: u64) -> FsResult<RwLockReadGuard<'_, ()>> {
        loop {
            let copying = self.copying.read().unwrap_or_else(PoisonError::into_inner);
            let medium = lock(&self.medium);
            if medium.power.cuts != cuts {
                // The engine still has the result, which is no longer needed.
                let _ = lock(&self.engine).end_of(ticket);
                return Err(FsError::Io);
            }
            if medium.log.is_next(ticket) {
                return Ok(copying);
            }
            // A power cut needs `copying` exclusively, and an older write needs it shared.
            drop(copying);
            drop(self.copied.wait(medium).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Writes only data that differs, so that a rehearsal leaves a sparse store unchanged.
    fn keep_different(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        let mut there = vec![0; data.len()];
        self.store.read(offset, &mut there)?;
        match there == data {
            true => Ok(()),
            false => Ok(self.store.write(offset, data)?),
        }
    }

    /// Flushes the card's cache.
    ///
    /// # Errors
    /// `Io` without power.
    pub fn flush(&self) -> FsResult<()> {
        let request = {
            let _medium = self.powered()?;
            self.submit(self.time.now(), &Bio::plain(Operation::Flush, 0, 0))
        };
        self.wait(request)
    }

    /// Discards a range, or (`WriteZeroes`) fills it with zeros. It reads as zeros when this returns.
    ///
    /// # Errors
    /// `Io` without power, or if the store fails.
    pub fn zero(&self, operation: Operation, offset: u64, bytes: u64) -> FsResult<()> {
        self.range(offset, bytes)?;
        let request = {
            let _medium = self.powered()?;
            let bio = Bio::plain(operation, offset / SECTOR, bytes / SECTOR);
            self.submit(self.time.now(), &bio)
        };
        self.wait(request)?;
        // No other write goes there before this is answered, and a discard interrupted by a cut has no effect.
        let _alone = self.copying.write().unwrap_or_else(PoisonError::into_inner);
        let mut medium = self.powered()?;
        self.tell_log(&mut medium);
        medium.log.zero(offset, bytes);
        Ok(self.store.zero(offset, bytes)?)
    }

    /// Cuts the power: requests in progress fail, and data that is not in flash is lost.
    ///
    /// # Errors
    /// If the store can't be written.
    pub fn cut_power(&self, kind: CutKind) -> io::Result<PowerReport> {
        let _alone = self.copying.write().unwrap_or_else(PoisonError::into_inner);
        let mut medium = lock(&self.medium);
        let now = self.tell_log(&mut medium);
        lock(&self.engine).cut_power();
        let report = medium.log.cut(now, kind, &self.store)?;
        if medium.power.power == Power::On {
            medium.power = PowerReport {
                power: Power::Off,
                cuts: medium.power.cuts + 1,
                last_cut: Some(report),
            };
        }
        self.copied.notify_all();
        Ok(medium.power)
    }

    /// Restores the power.
    pub fn restore_power(&self) -> PowerReport {
        let mut medium = lock(&self.medium);
        medium.power.power = Power::On;
        medium.power
    }

    /// Power state, and the losses of the last cut.
    pub fn power(&self) -> PowerReport {
        lock(&self.medium).power
    }

    /// Statistics so far.
    pub fn statistics(&self) -> LiveStatistics {
        let mut medium = lock(&self.medium);
        self.tell_log(&mut medium);
        let (power, volatile_writes) = (medium.power, medium.log.len());
        drop(medium);
        let outcome = lock(&self.engine).online.outcome();
        LiveStatistics {
            card_time: self.time.now(),
            outcome,
            late: lock(&self.late).clone(),
            volatile_writes,
            power,
            path: self.path(),
            flags: self.flags.get().map(IssuedFlags::counts),
        }
    }

    /// Saves data, maps and wear on the host's medium. Call it when no more requests arrive.
    ///
    /// # Errors
    /// If the host fails.
    pub fn put_away(&self) -> Result<(), LiveError> {
        if let Some(flags) = self.flags.get() {
            flags.stop();
        }
        self.store.sync()?;
        let (epoch, kept) = lock(&self.engine).online.keep();
        self.store.keep(epoch, kept)
    }

    /// The length of a range, if it consists of whole sectors of the card.
    fn range(&self, offset: u64, bytes: u64) -> FsResult<u64> {
        let end = offset.checked_add(bytes).ok_or(FsError::Invalid)?;
        match end <= self.store.size_bytes() && (offset | bytes).is_multiple_of(SECTOR) {
            true => Ok(bytes),
            false => Err(FsError::Invalid),
        }
    }

    fn powered(&self) -> FsResult<MutexGuard<'_, Medium>> {
        let medium = lock(&self.medium);
        match medium.power.power {
            Power::On => Ok(medium),
            Power::Off => Err(FsError::Io),
        }
    }

    fn path(&self) -> PathCost {
        self.path.get().copied().unwrap_or_default()
    }

    /// The model's time: an answer given at this moment is seen by then at the latest.
    fn model_now(&self) -> Nanos {
        self.time.now() + self.path().longest_after()
    }

    /// Advances the model to its time, which is returned, and passes the events to the log.
    fn tell_log(&self, medium: &mut Medium) -> Nanos {
        let now = self.model_now();
        let happenings = {
            let mut engine = lock(&self.engine);
            engine.advance(now);
            std::mem::take(&mut engine.for_log)
        };
        happenings.iter().for_each(|happening| medium.log.note(happening));
        medium.log.settle(now);
        now
    }

    /// A read or write bio, with the flags from the kernel's events.
    fn moving(&self, operation: Operation, offset: u64, bytes: u64) -> Bio {
        let (sector, sectors) = (offset / SECTOR, bytes / SECTOR);
        let flags = self.flags.get().map(|flags| flags.of(operation, sector, sectors));
        Bio {
            flags: flags.unwrap_or_default(),
            ..Bio::plain(operation, sector, sectors)
        }
    }

    /// Submits a request that arrived here at `arrived` to the model.
    fn submit(&self, arrived: Nanos, bio: &Bio) -> Submitted {
        let way = self.path().of(bio.operation, bio.sectors * SECTOR);
        let came = arrived.saturating_sub(way.before);
        let mut engine = lock(&self.engine);
        engine.advance(came);
        Submitted {
            ticket: engine.submit(came, bio),
            way_back: way.after,
        }
    }

    /// Waits until the model completes a request of this thread, minus the latency of its answer.
    fn wait(&self, Submitted { ticket, way_back }: Submitted) -> FsResult<()> {
        let ahead = self.path().longest_after();
        let mut slept_until = None;
        loop {
            let mut engine = lock(&self.engine);
            if let Some(moment) = slept_until.take() {
                engine.uncover(moment, ticket);
            }
            engine.advance(self.model_now());
            match engine.end_of(ticket) {
                Some(End::At(at)) => {
                    engine.wake_next();
                    drop(engine);
                    let answer = at.saturating_sub(way_back);
                    self.time.sleep_until(answer);
                    let late = self.time.now().saturating_sub(answer);
                    lock(&self.late).record(late.0);
                    return Ok(());
                }
                Some(End::PowerLost) => return Err(FsError::Io),
                None => slept_until = engine.cover(ticket),
            }
            drop(engine);
            match slept_until {
                Some(moment) => self.time.sleep_until(moment.saturating_sub(ahead)),
                None => std::thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
