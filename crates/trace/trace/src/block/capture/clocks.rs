//! The clock of the records and the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Readings of both clocks at the start.
const CLOCK_READINGS: usize = 5;

/// CLOCK_MONOTONIC, ns.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// One moment by CLOCK_MONOTONIC, ns, and by the wall clock since 1970: the closest of several readings, as the thread
/// may be interrupted between the two.
pub(super) fn both_clocks() -> (u64, Duration) {
    let reading = || {
        let before = monotonic_ns();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (monotonic_ns() - before, before, wall)
    };
    let readings = std::iter::repeat_with(reading).take(CLOCK_READINGS);
    let closest = readings.min_by_key(|(gap, _, _)| *gap);
    closest.map_or((0, Duration::ZERO), |(gap, before, wall)| {
        (before + gap / 2, wall)
    })
}
