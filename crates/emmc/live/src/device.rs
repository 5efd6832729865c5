//! A card that is alive: data, the model's times, and power that can be cut.
//!
//! Every request is served by the thread that brings it. It takes its place in the log and in the model, then waits for the
//! model to say that it is done. There is no thread of the device's own (see [`Engine`]).
//!
//! Time counts as a client of the block device sees it: a request came when it was made, and is answered so that the client sees it
//! done when the model says. [`PathCost`] says how far both are from here. So the model runs ahead of the clock, by the longest way of
//! an answer, and what was answered was done in the model before. Without a known way both are the clock's.
//!
//! The model learns of a write before its data is copied to the store, which takes longer than coming here did: many copies at once
//! would have the model hear of a stream's requests in pieces.
//!
//! Lock order: `copying` before `medium` before `engine`; `late` alone. Nobody sleeps with a lock.

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

/// Whether the card has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// It answers.
    On,
    /// Every request fails.
    Off,
}

/// The power, and what the last cut took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PowerReport {
    /// Now.
    pub power: Power,
    /// Cuts so far.
    pub cuts: u64,
    /// What the last one took.
    pub last_cut: Option<CutReport>,
}

/// What the device did.
#[derive(Clone, Debug)]
pub struct LiveStatistics {
    /// The model's counters.
    pub outcome: Outcome,
    /// By how much requests were answered later than the model says.
    pub late: LatencyHistogram,
    /// Writes whose data is not programmed yet.
    pub volatile_writes: usize,
    /// The power.
    pub power: PowerReport,
    /// What the kernel takes on both sides, as it is made up for.
    pub path: PathCost,
    /// What the kernel's events told of requests, where they are followed.
    pub flags: Option<FlagCounts>,
}

/// Data, and what a cut would take back of it.
struct Medium {
    log: UndoLog,
    power: PowerReport,
}

/// A card with data in real time.
pub struct LiveDevice<T = RealClock> {
    store: Store,
    unit_bytes: u64,
    time: T,
    /// Shared by those who copy data to the store; had alone by who takes some back.
    copying: RwLock<()>,
    medium: Mutex<Medium>,
    /// Data came to the store, or never will: `medium` tells.
    copied: Condvar,
    engine: Mutex<Engine>,
    late: Mutex<LatencyHistogram>,
    path: OnceLock<PathCost>,
    flags: OnceLock<IssuedFlags>,
    rehearsal: Rehearsal,
}

/// A request that the model has.
struct Submitted {
    ticket: Ticket,
    /// How long its answer is under way.
    way_back: Nanos,
}

pub(crate) fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: TimeSource + Sync> LiveDevice<T> {
    /// A card over `store`: with the maps that were kept with it, or else as written where the store has data.
    ///
    /// # Errors
    /// When the card can't be built, the store does not say where it has data, or keeps what is not of this card.
    pub fn new(setup: &Setup, store: Store, time: T) -> Result<Self, LiveError> {
        let unit_bytes = setup.card.translation.unit_bytes;
        let mut online = Online::new(setup)?;
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

    /// From here on makes up for what the kernel takes; what was said first counts.
    pub fn make_up_for(&self, path: PathCost) {
        let _ = self.path.set(path);
    }

    /// From here on requests have the flags that the kernel's events tell; what was said first counts.
    pub fn with_flags_of(&self, flags: IssuedFlags) {
        let _ = self.flags.set(flags);
    }

    /// The clock.
    pub(crate) const fn time(&self) -> &T {
        &self.time
    }

    /// What reads and writes do while their way is measured.
    pub(crate) const fn rehearsal(&self) -> &Rehearsal {
        &self.rehearsal
    }

    /// Where the data is.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Bytes of a unit of the card's map.
    #[must_use]
    pub const fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Reads all of `out`.
    ///
    /// # Errors
    /// `Io` without power, or when the store fails.
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
    /// `Io` without power, or when the store fails.
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

    /// Puts the data of a write of `units` units from `first` on into the store, and what was there into the log.
    fn copy(&self, ticket: Ticket, first: u64, units: usize, offset: u64, data: &[u8]) -> io::Result<()> {
        let unit_size = usize::try_from(self.unit_bytes).expect("memory has room for a unit");
        let mut old = vec![0; units * unit_size];
        let copied = match self.store.read(first * self.unit_bytes, &mut old) {
            // What a write that fails half way has changed is taken back as any other.
            Ok(()) => Ok(self.store.write(offset, data)),
            Err(error) => Err(error),
        };
        let mut medium = lock(&self.medium);
        match copied {
            Ok(_) => medium.log.fill(ticket, old),
            Err(_) => medium.log.withdraw(ticket),
        }
        self.tell_log(&mut medium);
        copied.flatten()
    }

    /// The right to copy the data of a write, when older data of the same units is there. Fails when the power went meanwhile, though it
    /// may be back.
    fn copying_of(&self, ticket: Ticket, cuts: u64) -> FsResult<RwLockReadGuard<'_, ()>> {
        loop {
            let copying = self.copying.read().unwrap_or_else(PoisonError::into_inner);
            let medium = lock(&self.medium);
            if medium.power.cuts != cuts {
                // The engine knows how it ended; nobody asks any more.
                let _ = lock(&self.engine).end_of(ticket);
                return Err(FsError::Io);
            }
            if medium.log.is_next(ticket) {
                return Ok(copying);
            }
            // A cut needs all of it, and who is older needs a part.
            drop(copying);
            drop(self.copied.wait(medium).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Writes what is not there already, so that a rehearsal leaves a sparse store as it is.
    fn keep_different(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        let mut there = vec![0; data.len()];
        self.store.read(offset, &mut there)?;
        match there == data {
            true => Ok(()),
            false => Ok(self.store.write(offset, data)?),
        }
    }

    /// Empties the card's cache.
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

    /// Discards a range, or (`WriteZeroes`) fills it with zeroes. It reads as zeroes when this returns.
    ///
    /// # Errors
    /// `Io` without power, or when the store fails.
    pub fn zero(&self, operation: Operation, offset: u64, bytes: u64) -> FsResult<()> {
        self.range(offset, bytes)?;
        let request = {
            let _medium = self.powered()?;
            let bio = Bio::plain(operation, offset / SECTOR, bytes / SECTOR);
            self.submit(self.time.now(), &bio)
        };
        self.wait(request)?;
        // Nobody writes there before this is answered, and a discard that a cut interrupts did nothing.
        let _alone = self.copying.write().unwrap_or_else(PoisonError::into_inner);
        let mut medium = self.powered()?;
        self.tell_log(&mut medium);
        medium.log.zero(offset, bytes);
        Ok(self.store.zero(offset, bytes)?)
    }

    /// Cuts the power: requests under way fail, and what is not in flash is gone.
    ///
    /// # Errors
    /// When the store can't be written.
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

    /// Gives the power back.
    pub fn restore_power(&self) -> PowerReport {
        let mut medium = lock(&self.medium);
        medium.power.power = Power::On;
        medium.power
    }

    /// Whether there is power, and what the last cut took.
    pub fn power(&self) -> PowerReport {
        lock(&self.medium).power
    }

    /// What was done so far.
    pub fn statistics(&self) -> LiveStatistics {
        let mut medium = lock(&self.medium);
        self.tell_log(&mut medium);
        let (power, volatile_writes) = (medium.power, medium.log.len());
        drop(medium);
        let outcome = lock(&self.engine).online.outcome();
        LiveStatistics {
            outcome,
            late: lock(&self.late).clone(),
            volatile_writes,
            power,
            path: self.path(),
            flags: self.flags.get().map(IssuedFlags::counts),
        }
    }

    /// Puts data, maps and wear on the host's medium, when nobody asks for anything any more.
    ///
    /// # Errors
    /// When the host can't.
    pub fn put_away(&self) -> Result<(), LiveError> {
        if let Some(flags) = self.flags.get() {
            flags.stop();
        }
        self.store.sync()?;
        let (epoch, kept) = lock(&self.engine).online.keep();
        self.store.keep(epoch, kept)
    }

    /// The length of a range, when it is whole sectors of the card.
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

    /// The model's time: an answer that is given now is seen by then at the latest.
    fn model_now(&self) -> Nanos {
        self.time.now() + self.path().longest_after()
    }

    /// Lets the model come up to its time, which is returned, and tells the log what happened.
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

    /// A read or write, with what the kernel says of it.
    fn moving(&self, operation: Operation, offset: u64, bytes: u64) -> Bio {
        let (sector, sectors) = (offset / SECTOR, bytes / SECTOR);
        let flags = self.flags.get().map(|flags| flags.of(operation, sector, sectors));
        Bio {
            flags: flags.unwrap_or_default(),
            ..Bio::plain(operation, sector, sectors)
        }
    }

    /// Gives the model a request that arrived here at `arrived`.
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

    /// Waits until the model says that a request of this thread is done, but for its way back.
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
