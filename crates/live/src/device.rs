//! A card that is alive: data, the model's times, and power that can be cut.
//!
//! Every request is served by the thread that brings it. It takes its place in the log and in the model, then waits for the
//! model to say that it is done. There is no thread of the device's own: of those that wait, one sleeps until the next moment
//! at which something happens (the one whose request ends then, if it is one's end), the others until they are woken.
//!
//! Lock order: `medium` before `engine`; `late` alone. Nobody sleeps with a lock.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use emmc::block::Bio;
use emmc::outcome::Outcome;
use emmc::simulation::{Happening, Online, Setup, Ticket};
use media::Nanos;
use nand::{RealClock, TimeSource};
use results::LatencyHistogram;
use results::block_trace::Operation;
use serde::{Deserialize, Serialize};
use vfs::{FsError, FsResult};

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
}

/// Data, and what a cut would take back of it.
struct Medium {
    log: UndoLog,
    power: PowerReport,
}

/// The model, and who waits for it.
struct Engine {
    online: Online,
    waiters: HashMap<Ticket, Waiter>,
    /// Moments until which somebody sleeps.
    covered: BTreeSet<(Nanos, Ticket)>,
    /// What the log has not been told yet.
    for_log: Vec<Happening>,
}

struct Waiter {
    thread: Thread,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    At(Nanos),
    PowerLost,
}

/// A card with data in real time.
pub struct LiveDevice<T = RealClock> {
    store: Store,
    unit_bytes: u64,
    time: T,
    medium: Mutex<Medium>,
    engine: Mutex<Engine>,
    late: Mutex<LatencyHistogram>,
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: TimeSource + Sync> LiveDevice<T> {
    /// A card over `store`, which counts as written where the store has data.
    ///
    /// # Errors
    /// When the card can't be built, or the store does not say where it has data.
    pub fn new(setup: &Setup, store: Store, time: T) -> Result<Self, LiveError> {
        let unit_bytes = setup.card.translation.unit_bytes;
        let mut online = Online::new(setup)?;
        for (offset, length) in store.ranges_with_data()? {
            let end = (offset + length).div_ceil(SECTOR);
            online = online.with_written(offset / SECTOR, end - offset / SECTOR);
        }
        let unit_size = usize::try_from(unit_bytes).expect("memory has room for a unit");
        Ok(Self {
            store,
            unit_bytes: u64::from(unit_bytes),
            time,
            medium: Mutex::new(Medium {
                log: UndoLog::new(unit_size),
                power: PowerReport {
                    power: Power::On,
                    cuts: 0,
                    last_cut: None,
                },
            }),
            engine: Mutex::new(Engine {
                online: online.with_happenings(),
                waiters: HashMap::new(),
                covered: BTreeSet::new(),
                for_log: Vec::new(),
            }),
            late: Mutex::new(LatencyHistogram::new()),
        })
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
        let ticket = {
            let medium = self.powered()?;
            let ticket = self.submit(arrived, Operation::Read, offset, bytes);
            drop(medium);
            ticket
        };
        let data = self.store.read(offset, out);
        self.wait(ticket)?;
        Ok(data?)
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// `Io` without power, or when the store fails.
    pub fn write(&self, offset: u64, data: &[u8]) -> FsResult<()> {
        let arrived = self.time.now();
        let bytes = self.range(offset, u64::try_from(data.len()).map_err(|_| FsError::Invalid)?)?;
        let ticket = {
            let mut medium = self.powered()?;
            self.tell_log(&mut medium, arrived);
            let first = offset / self.unit_bytes;
            let end = (offset + bytes).div_ceil(self.unit_bytes);
            let mut old =
                vec![0; usize::try_from((end - first) * self.unit_bytes).map_err(|_| FsError::Invalid)?];
            self.store.read(first * self.unit_bytes, &mut old)?;
            self.store.write(offset, data)?;
            let ticket = self.submit(arrived, Operation::Write, offset, bytes);
            let first = u32::try_from(first).map_err(|_| FsError::Invalid)?;
            medium.log.enter(ticket, first, old);
            ticket
        };
        self.wait(ticket)
    }

    /// Empties the card's cache.
    ///
    /// # Errors
    /// `Io` without power.
    pub fn flush(&self) -> FsResult<()> {
        let ticket = {
            let _medium = self.powered()?;
            self.submit(self.time.now(), Operation::Flush, 0, 0)
        };
        self.wait(ticket)
    }

    /// Discards a range, or (`WriteZeroes`) fills it with zeroes. It reads as zeroes when this returns.
    ///
    /// # Errors
    /// `Io` without power, or when the store fails.
    pub fn zero(&self, operation: Operation, offset: u64, bytes: u64) -> FsResult<()> {
        self.range(offset, bytes)?;
        let ticket = {
            let _medium = self.powered()?;
            self.submit(self.time.now(), operation, offset, bytes)
        };
        self.wait(ticket)?;
        // Nobody writes there before this is answered, and a discard that a cut interrupts did nothing.
        let mut medium = self.powered()?;
        self.tell_log(&mut medium, self.time.now());
        medium.log.zero(offset, bytes);
        Ok(self.store.zero(offset, bytes)?)
    }

    /// Cuts the power: requests under way fail, and what is not in flash is gone.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn cut_power(&self, kind: CutKind) -> io::Result<PowerReport> {
        let mut medium = lock(&self.medium);
        let now = self.time.now();
        self.tell_log(&mut medium, now);
        let mut engine = lock(&self.engine);
        engine.online.forget_requests();
        engine.covered.clear();
        for waiter in engine.waiters.values_mut() {
            // The driver has seen some done; they stay done.
            waiter.end.get_or_insert(End::PowerLost);
            waiter.thread.unpark();
        }
        drop(engine);
        let report = medium.log.cut(now, kind, &self.store)?;
        if medium.power.power == Power::On {
            medium.power = PowerReport {
                power: Power::Off,
                cuts: medium.power.cuts + 1,
                last_cut: Some(report),
            };
        }
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
        let now = self.time.now();
        self.tell_log(&mut medium, now);
        let (power, volatile_writes) = (medium.power, medium.log.len());
        drop(medium);
        let outcome = lock(&self.engine).online.outcome();
        LiveStatistics {
            outcome,
            late: lock(&self.late).clone(),
            volatile_writes,
            power,
        }
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

    /// Lets the model come up to `now`, and tells the log what happened.
    fn tell_log(&self, medium: &mut Medium, now: Nanos) {
        let happenings = {
            let mut engine = lock(&self.engine);
            engine.advance(now);
            std::mem::take(&mut engine.for_log)
        };
        happenings.iter().for_each(|happening| medium.log.note(happening));
        medium.log.settle(now);
    }

    fn submit(&self, arrived: Nanos, operation: Operation, offset: u64, bytes: u64) -> Ticket {
        let mut engine = lock(&self.engine);
        engine.advance(arrived);
        let bio = Bio::plain(operation, offset / SECTOR, bytes / SECTOR);
        let ticket = engine.online.submit(arrived, &bio);
        let waiter = Waiter {
            thread: std::thread::current(),
            end: None,
        };
        engine.waiters.insert(ticket, waiter);
        ticket
    }

    /// Waits until the model says that a request of this thread is done.
    fn wait(&self, ticket: Ticket) -> FsResult<()> {
        let mut slept_until = None;
        loop {
            let mut engine = lock(&self.engine);
            if let Some(moment) = slept_until.take() {
                engine.covered.remove(&(moment, ticket));
            }
            engine.advance(self.time.now());
            match engine.end_of(ticket) {
                Some(End::At(at)) => {
                    engine.wake_next();
                    drop(engine);
                    self.time.sleep_until(at);
                    let late = self.time.now().saturating_sub(at);
                    lock(&self.late).record(late.0);
                    return Ok(());
                }
                Some(End::PowerLost) => return Err(FsError::Io),
                None => slept_until = engine.cover(ticket),
            }
            drop(engine);
            match slept_until {
                Some(moment) => self.time.sleep_until(moment),
                None => std::thread::park(),
            }
        }
    }
}

impl Engine {
    /// Lets everything happen up to `now`, and wakes whose requests are done.
    fn advance(&mut self, now: Nanos) {
        let from = self.for_log.len();
        self.online.advance(now, &mut self.for_log);
        for happening in &self.for_log[from..] {
            if let Happening::Done { ticket, at } = happening
                && let Some(waiter) = self.waiters.get_mut(ticket)
            {
                waiter.end = Some(End::At(*at));
                waiter.thread.unpark();
            }
        }
    }

    fn end_of(&mut self, ticket: Ticket) -> Option<End> {
        let end = self.waiters.get(&ticket)?.end?;
        self.waiters.remove(&ticket);
        Some(end)
    }

    /// Until when the thread of `ticket` has to sleep so that the next thing happens in time; `None` when somebody else does.
    fn cover(&mut self, ticket: Ticket) -> Option<Nanos> {
        let next = self.online.next()?;
        match next.owner.filter(|owner| *owner != ticket) {
            Some(owner) if self.waiters.contains_key(&owner) => {
                if !self.covered.contains(&(next.at, owner)) {
                    self.waiters[&owner].thread.unpark();
                }
                None
            }
            _ if self.is_covered(next.at) => None,
            _ => {
                self.covered.insert((next.at, ticket));
                Some(next.at)
            }
        }
    }

    fn is_covered(&self, moment: Nanos) -> bool {
        self.covered
            .first()
            .is_some_and(|(earliest, _)| *earliest <= moment)
    }

    /// Somebody leaves: has another one see to what happens next.
    fn wake_next(&self) {
        let Some(next) = self.online.next() else {
            return;
        };
        if self.is_covered(next.at) {
            return;
        }
        let owner = next.owner.and_then(|owner| self.waiters.get(&owner));
        if let Some(waiter) = owner.or_else(|| self.waiters.values().find(|waiter| waiter.end.is_none())) {
            waiter.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use emmc::block::{QueueRules, SchedulerKind};
    use emmc::card::CardFile;
    use emmc::host::HostFile;
    use emmc::packing::PackRules;
    use emmc::simulation::{DiscardMode, DriverMode};
    use testkit::prng::Prng;

    use super::*;

    /// Time that passes while somebody sleeps, and not otherwise.
    #[derive(Clone, Default)]
    struct SleptTime(Arc<AtomicU64>);

    impl TimeSource for SleptTime {
        fn now(&self) -> Nanos {
            Nanos(self.0.load(Ordering::SeqCst))
        }

        fn sleep_until(&self, deadline: Nanos) {
            self.0.fetch_max(deadline.0, Ordering::SeqCst);
        }
    }

    fn setup(cache: bool) -> Setup {
        let mut card = CardFile::preset("gt-i9300").unwrap();
        card.flash.capacity_bytes = 64 << 20;
        card.controller.cache = cache;
        Setup {
            card,
            host: HostFile::preset("mshci").unwrap(),
            queue: QueueRules::usual(SchedulerKind::None),
            driver: DriverMode::Packed(PackRules::PHONE),
            discard: DiscardMode::Trim,
        }
    }

    fn device(cache: bool) -> (LiveDevice<SleptTime>, SleptTime) {
        let time = SleptTime::default();
        let store = Store::memory(64 << 20).unwrap();
        (LiveDevice::new(&setup(cache), store, time.clone()).unwrap(), time)
    }

    fn unit(device: &LiveDevice<SleptTime>, unit: u64) -> u8 {
        let mut out = [0; 4096];
        device.read(unit * 4096, &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == out[0]), "unit {unit} is whole");
        out[0]
    }

    /// Wake-up 40, fetch 5, prepare 20: start at 65. CMD23 4 + 15 + 40, CMD25 4: data from 128; the card's command 100,
    /// 51.2 of data, PC 200, LSB 500: ready at 979.2. The data ended at 179.2; seen at 234.2 + 15 polls of 50 = 984.2, CMD13 4:
    /// 988.2; completed 10 later.
    #[test]
    fn a_write_is_answered_when_the_model_says_and_not_late() {
        let (device, time) = device(false);
        device.write(0, &[1; 4096]).unwrap();
        assert_eq!(time.now(), Nanos(998_200));
        assert_eq!(
            device.statistics().late.summary().map(|late| late.max_ns),
            Some(0)
        );
        assert_eq!(unit(&device, 0), 1);
    }

    #[test]
    fn requests_outside_of_the_card_are_refused() {
        let (device, _) = device(false);
        assert_eq!(device.write(64 << 20, &[1; 512]), Err(FsError::Invalid));
        assert_eq!(device.read(0, &mut [0; 100]), Err(FsError::Invalid));
    }

    #[test]
    fn without_power_every_request_fails_and_with_it_again_none() {
        let (device, _) = device(false);
        device.write(0, &[1; 4096]).unwrap();
        device.cut_power(CutKind::Clean).unwrap();
        assert_eq!(device.write(0, &[2; 4096]), Err(FsError::Io));
        assert_eq!(device.read(0, &mut [0; 512]), Err(FsError::Io));
        assert_eq!(device.flush(), Err(FsError::Io));
        device.restore_power();
        assert_eq!(unit(&device, 0), 1);
        device.write(0, &[2; 4096]).unwrap();
    }

    /// Single units are written, flushed, discarded and cut off by chance. A unit may hold what it held at the last flush or
    /// anything that was written to it since, never anything else; without a cache it holds the last thing.
    #[test]
    fn after_a_cut_each_unit_holds_a_version_that_it_may_hold() {
        for seed in 0..40 {
            let cache = seed % 2 == 0;
            let (device, _) = device(cache);
            let mut random = Prng::new(seed);
            let mut may_hold = vec![vec![0_u8]; 32];
            let mut lost = 0;
            for step in 0..300 {
                let place = random.below_usize(32);
                let offset = u64::try_from(place).unwrap() * 4096;
                match random.below(100) {
                    0..80 => {
                        let byte = u8::try_from(random.below(256)).unwrap();
                        device.write(offset, &[byte; 4096]).unwrap();
                        may_hold[place].push(byte);
                    }
                    80..88 => {
                        device.flush().unwrap();
                        may_hold
                            .iter_mut()
                            .for_each(|versions| versions.drain(..versions.len() - 1).for_each(drop));
                    }
                    88..93 => {
                        device.zero(Operation::Discard, offset, 4096).unwrap();
                        may_hold[place] = vec![0];
                    }
                    _ => {
                        lost += device
                            .cut_power(CutKind::Clean)
                            .unwrap()
                            .last_cut
                            .unwrap()
                            .answered_bytes_lost;
                        device.restore_power();
                        for (versions, number) in may_hold.iter_mut().zip(0..) {
                            let found = unit(&device, number);
                            let allowed = if cache {
                                versions.contains(&found)
                            } else {
                                versions.last() == Some(&found)
                            };
                            assert!(
                                allowed,
                                "seed {seed} step {step}: unit {number} is {found}, may be {versions:?}"
                            );
                            *versions = vec![found];
                        }
                    }
                }
            }
            assert_eq!(
                lost > 0,
                cache,
                "seed {seed}: a cache loses something, a card without one nothing"
            );
        }
    }
}
