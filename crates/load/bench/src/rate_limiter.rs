//! Rate limit and think time: the earliest start of a worker's next operation.
//!
//! Deadlines are absolute. The rate limit counts from the start barrier, so that late operations are caught up and
//! sleep errors do not accumulate; the think time counts from the end of the previous operation.

use std::thread;
use std::time::Duration;

use crate::clock::Clock;
use crate::spec::{FileSpec, Rate};

/// Interval at which a sleeping worker checks whether the run is over.
const NAP_NS: u64 = 100_000_000;

/// The limits of one worker.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    /// Bytes or operations per second, of all threads together.
    rate: Option<(u64, Rate)>,
    record_bytes: u64,
    threads: u64,
    index: u64,
    think_ns: u64,
}

impl RateLimiter {
    /// `None` if there is neither a rate limit nor a think time.
    pub fn new(spec: &FileSpec, index: u32) -> Option<Self> {
        let rate = spec.rate.map(|rate| match rate {
            Rate::BytesPerSecond(amount) | Rate::OperationsPerSecond(amount) => (amount.max(1), rate),
        });
        (rate.is_some() || spec.think_ns > 0).then_some(Self {
            rate,
            record_bytes: spec.record_bytes,
            threads: u64::from(spec.threads),
            index: u64::from(index),
            think_ns: spec.think_ns,
        })
    }

    /// The earliest start of the operation after `done` others, not before the previous one ended at `ended_ns`.
    pub fn due_ns(&self, started_ns: u64, done: u64, ended_ns: Option<u64>) -> u64 {
        let by_rate = self.rate.map_or(started_ns, |(amount, rate)| {
            // Threads take turns, so that their operations are evenly spaced.
            let turn = u128::from(done) * u128::from(self.threads) + u128::from(self.index);
            let unit = match rate {
                Rate::BytesPerSecond(_) => self.record_bytes,
                Rate::OperationsPerSecond(_) => 1,
            };
            let after = turn * u128::from(unit) * 1_000_000_000 / u128::from(amount);
            started_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
        });
        let by_thought = ended_ns.map_or(started_ns, |ended| ended.saturating_add(self.think_ns));
        by_rate.max(by_thought)
    }
}

/// Sleeps until `due_ns`, or until `is_over` returns true, and returns the current time.
pub fn sleep_until(clock: Clock, due_ns: u64, is_over: impl Fn() -> bool) -> u64 {
    loop {
        let now = clock.now_ns();
        if now >= due_ns || is_over() {
            return now;
        }
        thread::sleep(Duration::from_nanos((due_ns - now).min(NAP_NS)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Pattern;

    #[test]
    fn threads_share_a_rate_and_its_deadlines_do_not_drift() {
        let spec = FileSpec {
            rate: Some(Rate::OperationsPerSecond(3)),
            threads: 2,
            ..FileSpec::plain("/".into(), Pattern::SequentialRead, 512, 4096)
        };
        let due = |index, done| RateLimiter::new(&spec, index).unwrap().due_ns(0, done, None);
        assert_eq!((due(0, 0), due(1, 0)), (0, 333_333_333));
        assert_eq!((due(0, 3), due(1, 4)), (2_000_000_000, 3_000_000_000));
        assert_eq!(due(0, 3_000_000), 2_000_000_000_000_000);
    }

    #[test]
    fn bytes_count_by_the_record_and_thought_by_the_end_of_the_last() {
        let spec = FileSpec {
            rate: Some(Rate::BytesPerSecond(1024)),
            think_ns: 5,
            ..FileSpec::plain("/".into(), Pattern::SequentialRead, 512, 4096)
        };
        let limiter = RateLimiter::new(&spec, 0).unwrap();
        assert_eq!(limiter.due_ns(10, 1, Some(20)), 500_000_010);
        assert_eq!(limiter.due_ns(10, 1, Some(600_000_000)), 600_000_005);
    }

    #[test]
    fn no_pace_is_no_object() {
        let spec = FileSpec::plain("/".into(), Pattern::SequentialRead, 512, 4096);
        assert!(RateLimiter::new(&spec, 0).is_none());
    }
}
