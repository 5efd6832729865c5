//! Virtual time: nanoseconds, and the clock of one device. Nothing here reads a real clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds: a time since a device's clock started, or a duration. 64 bits are 584 years; sums saturate there, because
/// an image may set its clock to any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Zero duration, and the start of every clock.
    pub const ZERO: Self = Self(0);

    /// Converts microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1000)
    }

    /// Converts milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// This duration times `count`.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// This minus `other`, or zero if `other` is later.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, unit, thousandths) = match self.0 {
            0..1_000 => return write!(formatter, "{} ns", self.0),
            1_000..1_000_000 => (self.0 / 1_000, "us", self.0 % 1_000),
            1_000_000..1_000_000_000 => (self.0 / 1_000_000, "ms", self.0 / 1_000 % 1_000),
            _ => (self.0 / 1_000_000_000, "s", self.0 / 1_000_000 % 1_000),
        };
        match thousandths {
            0 => write!(formatter, "{whole} {unit}"),
            _ => {
                let text = format!("{whole}.{thousandths:03}");
                write!(formatter, "{} {unit}", text.trim_end_matches('0'))
            }
        }
    }
}

/// The clock of one device: the time at which it has finished all operations so far. Clones are the same clock.
///
/// Time never goes back. The device moves the clock during its operations; its user moves the clock between them.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A clock that starts at `start`.
    #[must_use]
    pub fn starting_at(start: Nanos) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// The time at which the device is, or becomes, idle.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Acquire))
    }

    /// Lets the device idle until `moment`; does nothing if that has passed. Returns the new time.
    pub fn advance_to(&self, moment: Nanos) -> Nanos {
        Nanos(self.0.fetch_max(moment.0, Ordering::AcqRel).max(moment.0))
    }

    /// Moves the clock by `duration`. Returns the new time.
    pub fn advance(&self, duration: Nanos) -> Nanos {
        let later = |now: u64| Some(now.saturating_add(duration.0));
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        Nanos(before.unwrap_or_else(|now| now).saturating_add(duration.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_one_clock_and_time_never_goes_back() {
        let clock = Clock::starting_at(Nanos(5));
        let other = clock.clone();
        assert_eq!(other.advance(Nanos(10)), Nanos(15));
        assert_eq!(clock.advance_to(Nanos(7)), Nanos(15));
        assert_eq!(clock.advance_to(Nanos(20)), Nanos(20));
        assert_eq!(other.now(), Nanos(20));
    }

    #[test]
    fn at_the_end_of_all_times_the_clock_stands_still() {
        let clock = Clock::starting_at(Nanos(u64::MAX - 5));
        assert_eq!(clock.advance(Nanos(3)), Nanos(u64::MAX - 2));
        assert_eq!(clock.advance(Nanos(3)), Nanos(u64::MAX));
        assert_eq!(clock.advance(Nanos(3)), Nanos(u64::MAX));
        assert_eq!(clock.now(), Nanos(u64::MAX));
        assert_eq!(Nanos(u64::MAX) + Nanos(1), Nanos(u64::MAX));
        assert_eq!(Nanos(u64::MAX / 2).times(3), Nanos(u64::MAX));
    }

    #[test]
    fn durations_are_shown_in_their_natural_unit() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (51_200, "51.2 us"),
            (1_300_000, "1.3 ms"),
            (2_000_000_000, "2 s"),
            (1_002_000_000, "1.002 s"),
        ] {
            assert_eq!(Nanos(nanos).to_string(), text);
        }
    }
}
