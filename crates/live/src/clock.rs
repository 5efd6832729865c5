//! A clock whose sleepers are on time although processors that sleep wake up late.
//!
//! A sleep ends by as much too late as the processor takes to wake up and the scheduler to choose: some microseconds on a busy
//! machine, a hundred and more where a halted virtual processor has to be brought back. So the clock learns how late its sleeps end,
//! sleeps for so much less, and spends the rest polling. What it has learnt fades when sleeps end earlier.

use std::sync::atomic::{AtomicU64, Ordering};

use media::Nanos;
use nand::{RealClock, TimeSource};

/// Nobody polls for longer.
const EARLY_MAX: Nanos = Nanos::from_micros(150);

/// By which part of itself the allowance shrinks with each sleep that ends earlier.
const FADING: u64 = 32;

/// The monotonic clock, counted from when it was made.
#[derive(Debug)]
pub struct PunctualClock {
    clock: RealClock,
    early_ns: AtomicU64,
}

impl PunctualClock {
    /// A clock that begins at zero.
    #[must_use]
    pub fn start() -> Self {
        Self {
            clock: RealClock::start(),
            early_ns: AtomicU64::new(0),
        }
    }
}

impl TimeSource for PunctualClock {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Nanos) {
        let early = Nanos(self.early_ns.load(Ordering::Relaxed));
        let wake = deadline.saturating_sub(early);
        if self.now() < wake {
            self.clock.sleep_until(wake);
            let late = self.now().saturating_sub(wake);
            // Threads that learn at the same time overwrite each other, which the next ones mend.
            self.early_ns.store(learnt(early, late).0, Ordering::Relaxed);
        }
        while self.now() < deadline {
            std::hint::spin_loop();
        }
    }
}

/// The allowance after a sleep with allowance `early` that ended `late` after it should have.
fn learnt(early: Nanos, late: Nanos) -> Nanos {
    let faded = early.saturating_sub(Nanos(early.0.div_ceil(FADING)));
    late.max(faded).min(EARLY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_rises_at_once_fades_slowly_and_is_bounded() {
        assert_eq!(learnt(Nanos(10), Nanos(500)), Nanos(500));
        assert_eq!(learnt(Nanos(3200), Nanos(7)), Nanos(3100));
        assert_eq!(learnt(Nanos(0), Nanos::from_millis(3)), EARLY_MAX);
        let faded = (0..1000).fold(EARLY_MAX, |early, _| learnt(early, Nanos::ZERO));
        assert_eq!(faded, Nanos::ZERO);
    }

    #[test]
    fn nobody_is_woken_before_the_deadline() {
        let clock = PunctualClock::start();
        for _ in 0..20 {
            let deadline = clock.now() + Nanos::from_micros(300);
            clock.sleep_until(deadline);
            assert!(clock.now() >= deadline);
        }
    }
}
