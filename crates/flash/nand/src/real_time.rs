//! Adapter between a chip's virtual time and the real clock: each operation takes its simulated duration.
//!
//! It sleeps until absolute deadlines, so errors do not accumulate: the lateness of a wake-up is subtracted from the
//! start time of the next operation. A caller that issues one operation after another sees exactly the sum of their
//! durations, plus at most the lateness of one wake-up. Members of an array wait for each other, so one late wake-up
//! delays all: they share a [`Lateness`]. Nothing below this module reads a real clock.
//!
//! A sleep ends late by the time that the processor needs to wake up and the scheduler to choose the thread: some
//! microseconds on a busy machine, more than a hundred if a halted virtual processor has to be resumed. So the last
//! part of a wait polls: 30 us, and with [`RealClock::punctual`] also the observed oversleep, which decays when
//! sleeps end earlier. Members of an array would poll in parallel on more threads than there are processors, so they
//! use the plain clock.
//!
//! A [`RealClock`] may run faster or slower than the host's by a [`TimeScale`]. It then converts deadlines to the host's
//! time; the allowances for late wake-ups are the machine's, and stay in real time.
//!
//! A waiting thread asks the kernel not to delay its wake-ups (`PR_SET_TIMERSLACK`, default 50 us).

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use media::{Clock, Host, Nand, NandError, NandGeometry, Nanos, Peb, ReadReport};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::TimeScale;

/// A source of time to wait on.
pub trait TimeSource: Send {
    /// Time since the start of the source.
    fn now(&self) -> Nanos;

    /// Waits until `deadline`; returns at once if it has passed.
    fn sleep_until(&self, deadline: Nanos);

    /// Time that passes on this source during `real`, a duration of the host's clock.
    fn during(&self, real: Nanos) -> Nanos {
        real
    }
}

/// The monotonic clock of the host, with an offset and a scale. Clones share the same origin, as the members of an array
/// require.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    start: Duration,
    /// Value of this clock at `start`.
    first: Nanos,
    scale: TimeScale,
    wakes: Wakes,
}

/// When a sleep ends before its deadline.
#[derive(Clone, Copy, Debug)]
enum Wakes {
    /// Earlier by [`SPIN`].
    Early,
    /// Earlier by [`SPIN`] and the observed oversleep.
    AsLearnt,
}

/// The last part of a wait polls, because a sleep ends late by the scheduler's latency.
const SPIN: Nanos = Nanos::from_micros(30);

/// Maximum of the observed oversleep to compensate.
const LEARNT_MAX: Nanos = Nanos::from_micros(150);

/// The allowance shrinks by one part in this number with each sleep that ends earlier.
const FADING: u64 = 32;

/// Oversleep observed on this machine, in nanoseconds. Concurrent updates may overwrite each other; later sleeps
/// correct that.
static LEARNT_NS: AtomicU64 = AtomicU64::new(0);

impl RealClock {
    /// A clock that starts at zero.
    #[must_use]
    pub fn start() -> Self {
        Self::starting_at(Nanos::ZERO)
    }

    /// A clock that starts at `moment`: chips in files store their time when they are closed.
    #[must_use]
    pub fn starting_at(moment: Nanos) -> Self {
        Self {
            start: monotonic(),
            first: moment,
            scale: TimeScale::REAL,
            wakes: Wakes::Early,
        }
    }

    /// A clock that starts at zero and compensates the observed oversleep, so that sleeps end on time.
    #[must_use]
    pub fn punctual() -> Self {
        Self {
            wakes: Wakes::AsLearnt,
            ..Self::start()
        }
    }

    /// The same clock, running at `scale` from its start on.
    #[must_use]
    pub const fn at_scale(self, scale: TimeScale) -> Self {
        Self { scale, ..self }
    }

    /// Real time since the start.
    fn elapsed(&self) -> Nanos {
        let elapsed = monotonic().saturating_sub(self.start);
        Nanos(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sleeps until `wake`, real time since the start. Returns `false` if that time has passed already.
    fn sleep(&self, wake: Nanos) -> bool {
        if self.elapsed() >= wake {
            return false;
        }
        WAKES_ON_TIME.with(|_| ());
        let moment = self.start + Duration::from_nanos(wake.0);
        let moment = Timespec::try_from(moment).expect("a monotonic clock is far from its end");
        // Resumes the sleep after a signal.
        while let Err(rustix::io::Errno::INTR) = sleep_to(&moment) {}
        true
    }
}

/// The new allowance after a sleep with allowance `early` that overslept by `late`.
fn learnt(early: Nanos, late: Nanos) -> Nanos {
    let faded = early.saturating_sub(Nanos(early.0.div_ceil(FADING)));
    late.max(faded).min(LEARNT_MAX)
}

impl TimeSource for RealClock {
    fn now(&self) -> Nanos {
        self.first + self.scale.to_virtual(self.elapsed())
    }

    fn sleep_until(&self, deadline: Nanos) {
        let deadline = self.scale.to_real(deadline.saturating_sub(self.first));
        let wake = deadline.saturating_sub(SPIN);
        match self.wakes {
            Wakes::Early => {
                self.sleep(wake);
            }
            Wakes::AsLearnt => {
                let early = Nanos(LEARNT_NS.load(Ordering::Relaxed));
                let wake = wake.saturating_sub(early);
                if self.sleep(wake) {
                    let late = self.elapsed().saturating_sub(wake).saturating_sub(SPIN);
                    LEARNT_NS.store(learnt(early, late).0, Ordering::Relaxed);
                }
            }
        }
        while self.elapsed() < deadline {
            std::hint::spin_loop();
        }
    }

    fn during(&self, real: Nanos) -> Nanos {
        self.scale.to_virtual(real)
    }
}

thread_local! {
    /// Set once per thread. If the host refuses, wake-ups are later, and are treated like any late one.
    static WAKES_ON_TIME: bool = set_current_timer_slack(Some(NonZeroU64::MIN)).is_ok();
}

fn sleep_to(moment: &Timespec) -> rustix::io::Result<()> {
    clock_nanosleep_absolute(ClockId::Monotonic, moment)
}

fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("the monotonic clock is not negative")
}

/// Lateness of the wake-ups that the next operations wait for: those of one device, or of all members of an array.
/// Clones share their state.
///
/// It is the time from the latest deadline to the latest wake-up. In virtual time, a request that begins when all
/// members are done begins at the latest deadline, whichever member woke last.
#[derive(Clone, Debug, Default)]
pub struct Lateness(Arc<Latest>);

#[derive(Debug, Default)]
struct Latest {
    latest_deadline: AtomicU64,
    latest_wake: AtomicU64,
}

impl Lateness {
    fn now(&self) -> Nanos {
        // Read in the opposite order of the writes, so that a race can only make the result smaller.
        let wake = Nanos(self.0.latest_wake.load(Ordering::Acquire));
        wake.saturating_sub(Nanos(self.0.latest_deadline.load(Ordering::Acquire)))
    }

    fn note(&self, deadline: Nanos, wake: Nanos) {
        self.0.latest_deadline.fetch_max(deadline.0, Ordering::AcqRel);
        self.0.latest_wake.fetch_max(wake.0, Ordering::AcqRel);
    }
}

/// A device whose operations take real time.
#[derive(Debug)]
pub struct RealTime<N, T = RealClock> {
    device: N,
    time: T,
    /// Lateness of the last operation.
    late: Nanos,
    lateness: Lateness,
}

impl<N: Nand, T: TimeSource> RealTime<N, T> {
    /// Couples `device` to `time`. Members of an array take clones of one [`RealClock`].
    pub fn new(device: N, time: T) -> Self {
        device.clock().advance_to(time.now());
        Self {
            device,
            time,
            late: Nanos::ZERO,
            lateness: Lateness::default(),
        }
    }

    /// Makes the device one of several that share a clock and wait for each other.
    #[must_use]
    pub fn sharing(self, lateness: &Lateness) -> Self {
        Self {
            lateness: lateness.clone(),
            ..self
        }
    }

    /// Lateness of the last operation.
    pub fn late(&self) -> Nanos {
        self.late
    }

    /// Returns the device, back in virtual time.
    pub fn into_device(self) -> N {
        self.device
    }

    fn timed<R>(&mut self, operation: impl FnOnce(&mut N) -> R) -> R {
        let clock = self.device.clock();
        clock.advance_to(self.time.now().saturating_sub(self.lateness.now()));
        let result = operation(&mut self.device);
        let deadline = clock.now();
        self.time.sleep_until(deadline);
        let wake = self.time.now();
        self.lateness.note(deadline, wake);
        self.late = wake.saturating_sub(deadline);
        result
    }
}

impl<N: Nand, T: TimeSource> Nand for RealTime<N, T> {
    fn name(&self) -> Arc<str> {
        self.device.name()
    }

    fn geometry(&self) -> NandGeometry {
        self.device.geometry()
    }

    fn clock(&self) -> Clock {
        self.device.clock()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.timed(|device| device.read(peb, offset, out))
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        self.timed(|device| device.program(peb, offset, data))
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.timed(|device| device.erase(peb))
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        self.device.is_bad(peb)
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.timed(|device| device.mark_bad(peb))
    }

    fn sync(&mut self) -> Result<(), NandError> {
        self.device.sync()
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        self.device.host()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{FaultModel, Preset, SimNand};

    /// Time that passes only during sleeps, and whose wake-ups are late.
    #[derive(Clone, Default)]
    struct LateTime(Arc<Mutex<(u64, u64)>>);

    impl LateTime {
        fn pass(&self, nanos: u64) {
            self.0.lock().unwrap().0 += nanos;
        }

        fn set_lateness(&self, nanos: u64) {
            self.0.lock().unwrap().1 = nanos;
        }
    }

    impl TimeSource for LateTime {
        fn now(&self) -> Nanos {
            Nanos(self.0.lock().expect("one thread").0)
        }

        fn sleep_until(&self, deadline: Nanos) {
            let mut state = self.0.lock().expect("one thread");
            if state.0 < deadline.0 {
                state.0 = deadline.0 + state.1;
            }
        }
    }

    fn chip() -> SimNand {
        SimNand::new("slc", Preset::Slc.model(), FaultModel::none())
    }

    #[test]
    fn late_wake_ups_do_not_add_up() {
        let time = LateTime::default();
        time.set_lateness(70_000);
        let mut chip = RealTime::new(chip(), time.clone());
        for page in 0..64 {
            chip.program(Peb(0), page * 2048, &[0; 2048]).unwrap();
        }
        let exact = 64 * (200_000 + 51_200);
        assert_eq!(time.now(), Nanos(exact + 70_000), "late once, not 64 times");
    }

    #[test]
    fn a_late_wake_up_of_one_member_is_not_charged_to_another() {
        let time = LateTime::default();
        time.set_lateness(70_000);
        let lateness = Lateness::default();
        let mut members = [chip(), chip()].map(|chip| RealTime::new(chip, time.clone()).sharing(&lateness));
        for page in 0..64 {
            // Each waits for the previous one, as the rows of an array do.
            let member = &mut members[if page % 2 == 0 { 0 } else { 1 }];
            member.program(Peb(0), page / 2 * 2048, &[0; 2048]).unwrap();
        }
        let exact = 64 * (200_000 + 51_200);
        assert_eq!(time.now(), Nanos(exact + 70_000), "late once, not 64 times");
    }

    #[test]
    fn time_between_operations_passes_for_the_device_too() {
        let time = LateTime::default();
        let mut chip = RealTime::new(chip(), time.clone());
        chip.erase(Peb(0)).unwrap();
        time.pass(5_000_000);
        chip.erase(Peb(0)).unwrap();
        assert_eq!(time.now(), Nanos(5_000_000 + 2 * 1_500_000));
    }

    #[test]
    fn the_real_clock_waits_for_its_deadline() {
        let clock = RealClock::start();
        let deadline = clock.now() + Nanos::from_micros(300);
        clock.sleep_until(deadline);
        assert!(clock.now() >= deadline);
        clock.sleep_until(Nanos::ZERO);
    }

    #[test]
    fn the_allowance_rises_at_once_fades_slowly_and_is_bounded() {
        assert_eq!(learnt(Nanos(10), Nanos(500)), Nanos(500));
        assert_eq!(learnt(Nanos(3200), Nanos(7)), Nanos(3100));
        assert_eq!(learnt(Nanos(0), Nanos::from_millis(3)), LEARNT_MAX);
        let faded = (0..1000).fold(LEARNT_MAX, |early, _| learnt(early, Nanos::ZERO));
        assert_eq!(faded, Nanos::ZERO);
    }

    #[test]
    fn nobody_is_woken_before_the_deadline() {
        let clock = RealClock::punctual();
        for _ in 0..20 {
            let deadline = clock.now() + Nanos::from_micros(300);
            clock.sleep_until(deadline);
            assert!(clock.now() >= deadline);
        }
    }

    #[test]
    fn a_chip_that_was_used_for_long_goes_on_from_there() {
        let later = Nanos::from_millis(86_400_000);
        let clock = RealClock::starting_at(later);
        assert!(clock.now() >= later);
        let deadline = clock.now() + Nanos::from_micros(300);
        clock.sleep_until(deadline);
        let over = clock.now().saturating_sub(deadline);
        assert!(clock.now() >= deadline && over < later, "{over}");
    }

    fn scaled(text: &str) -> RealClock {
        RealClock::punctual().at_scale(text.parse().unwrap())
    }

    /// The real clock is read before and after, so the bounds hold on a loaded machine too. A reading is rounded down.
    #[test]
    fn at_scale_9_nine_virtual_seconds_pass_in_a_real_one() {
        for (text, times, parts) in [("9", 9, 1), ("0.5", 1, 2), ("1", 1, 1)] {
            let of_real = |real: Nanos| Nanos(real.0 * times / parts);
            let clock = scaled(text);
            let outer = clock.elapsed();
            let before = clock.now();
            let inner = clock.elapsed();
            clock.sleep_until(before + of_real(Nanos::from_millis(20)));
            let inner = clock.elapsed().saturating_sub(inner);
            let passed = clock.now().saturating_sub(before);
            let outer = clock.elapsed().saturating_sub(outer);
            assert!(
                of_real(inner) <= passed + Nanos(9) && passed <= of_real(outer) + Nanos(9),
                "{text}: {passed} virtual in {inner} to {outer}"
            );
            assert!(outer >= Nanos(19_999_990), "{text}: {outer}");
            assert_eq!(clock.during(Nanos(1000)), of_real(Nanos(1000)));
        }
    }

    /// Each sleep starts at the deadline of the one before, as the operations of a device do.
    #[test]
    fn many_sleeps_at_a_scale_that_is_no_whole_number_do_not_drift() {
        let clock = scaled("3.333333");
        let mut deadline = Nanos::ZERO;
        for _ in 0..1000 {
            deadline += Nanos(99_999);
            clock.sleep_until(deadline);
            assert!(clock.now() >= deadline);
        }
        // As one conversion of the whole time.
        let of_real = |real: Nanos| Nanos(real.0 * 3_333_333 / 1_000_000);
        let (before, passed, after) = (clock.elapsed(), clock.now(), clock.elapsed());
        assert!(of_real(before) <= passed && passed <= of_real(after), "{passed}");
    }

    #[test]
    fn a_clock_that_goes_on_at_another_scale_keeps_its_time() {
        let later = Nanos::from_millis(86_400_000);
        let clock = RealClock::starting_at(later).at_scale("100".parse().unwrap());
        let (first, real) = (clock.now(), clock.elapsed());
        assert!(first >= later && first <= later + clock.during(real));
        // One virtual second: 10 ms.
        clock.sleep_until(later + Nanos::from_millis(1000));
        let (now, real) = (clock.now(), clock.elapsed());
        assert!(now >= later + Nanos::from_millis(1000) && real >= Nanos::from_millis(10));
        assert!(
            now <= later + clock.during(real),
            "the offset is not scaled: {now}"
        );
    }
}
