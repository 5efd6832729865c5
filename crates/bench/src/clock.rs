//! The monotonic clock, as a number of nanoseconds.

use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock. Only differences mean anything.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The monotonic clock starts at boot and is never negative.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * NS_PER_S + u64::try_from(now.tv_nsec).unwrap_or(0)
}
