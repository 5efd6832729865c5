//! The monotonic clock, in nanoseconds.
//!
//! A cached read of 4 KiB takes a microsecond, so the clock is a considerable part of the harness's cost. If the
//! kernel itself keeps time by the processor's time stamp counter (`tsc`), and thereby vouches that it is constant
//! and synchronous on all processors, a [`Clock`] reads the counter without a system call, in about half the time.
//! The counter is calibrated against the kernel's clock over at least [`CALIBRATION_NS`]. Otherwise the kernel's
//! clock is used.
//!
//! JUSTIFICATION for `unsafe`: reading the counter is an instruction without a safe form; it saves some 20 ns of each
//! 1,000 ns operation.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// Duration of the comparison with the kernel's clock: reading both takes 100 ns, 2 in a million of this.
const CALIBRATION_NS: u64 = 50_000_000;

/// Fraction bits of a counter step in nanoseconds.
const FRACTION_BITS: u32 = 32;

/// Nanoseconds of the kernel's monotonic clock. Only differences are meaningful.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at boot and is never negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Out of line, so that [`Clock::now_ns`] stays small enough to be inlined.
#[inline(never)]
fn of_the_kernel() -> u64 {
    monotonic_ns()
}

/// The clock of a timed window.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    counter: Option<Scale>,
}

/// The conversion from counter steps to nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Scale {
    start: Reading,
    /// Nanoseconds per step, in units of 2^-32.
    step: u64,
}

/// Simultaneous readings of counter and clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    counter: u64,
    ns: u64,
}

impl Clock {
    /// The best clock of this machine. The first call takes [`CALIBRATION_NS`].
    pub fn best() -> Self {
        static SCALE: OnceLock<Option<Scale>> = OnceLock::new();
        Self {
            counter: *SCALE.get_or_init(calibrated),
        }
    }

    /// Nanoseconds. Only differences between readings of one clock are meaningful.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        match self.counter {
            None => of_the_kernel(),
            Some(scale) => scale.ns_at(counter()),
        }
    }
}

impl Scale {
    fn between(start: Reading, end: Reading) -> Option<Self> {
        let steps = end
            .counter
            .checked_sub(start.counter)
            .filter(|steps| *steps > 0)?;
        let ns = u128::from(end.ns.checked_sub(start.ns)?) << FRACTION_BITS;
        let step = u64::try_from(ns / u128::from(steps))
            .ok()
            .filter(|step| *step > 0)?;
        Some(Self { start, step })
    }

    #[inline]
    fn ns_at(self, counter: u64) -> u64 {
        let steps = u128::from(counter.wrapping_sub(self.start.counter));
        let ns = (steps * u128::from(self.step)) >> FRACTION_BITS;
        self.start.ns.wrapping_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Reading {
    /// The tightest of several attempts: an attempt may be interrupted between its two halves.
    fn take() -> Self {
        let attempt = || {
            let before = counter();
            let ns = monotonic_ns();
            let after = counter();
            let width = after.wrapping_sub(before);
            let counter = before.wrapping_add(width / 2);
            (width, Self { counter, ns })
        };
        let mut best = attempt();
        for _ in 0..16 {
            let next = attempt();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

fn calibrated() -> Option<Scale> {
    if !kernel_trusts_the_counter() {
        return None;
    }
    let start = Reading::take();
    thread::sleep(Duration::from_nanos(CALIBRATION_NS));
    Scale::between(start, Reading::take())
}

#[cfg(target_arch = "x86_64")]
fn kernel_trusts_the_counter() -> bool {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(not(target_arch = "x86_64"))]
const fn kernel_trusts_the_counter() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: the instruction reads a register and exists on every processor of this architecture; it is used only if
    // the kernel uses it too, so user space may execute it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
const fn counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_the_window_keeps_the_kernels_time() {
        let clock = Clock::best();
        let (ours, theirs) = (clock.now_ns(), monotonic_ns());
        thread::sleep(Duration::from_millis(20));
        let (theirs, ours) = (monotonic_ns() - theirs, clock.now_ns() - ours);
        // The time between the two readings of each pair is not the clock's error, so the bound is generous.
        assert!(
            ours.abs_diff(theirs) < 5_000_000,
            "{ours} ns of the kernel's {theirs} ns"
        );
        assert!(ours >= 20_000_000);
    }

    #[test]
    fn a_counter_is_scaled_without_drift_for_a_year() {
        let start = Reading {
            counter: 1_000,
            ns: 77,
        };
        let end = Reading {
            counter: 1_000 + 150_000_000,
            ns: 77 + 50_000_000,
        };
        let scale = Scale::between(start, end).unwrap();
        let year_ns = 365 * 86_400 * NS_PER_S;
        let found = scale.ns_at(1_000 + 3 * year_ns) - 77;
        assert!(found.abs_diff(year_ns) < year_ns / 1_000_000_000, "{found} ns");
        assert!(Scale::between(end, start).is_none());
        assert!(Scale::between(start, start).is_none());
    }
}
