//! Latency histograms of the timed window: one increment, one addition and two comparisons per operation.
//!
//! Buckets are those of [`results::LatencyHistogram`]: exact below 256 ns, and 128 buckets per power of two above.
//! The conversion to a histogram after the window is therefore lossless.

use results::LatencyHistogram;

use crate::file_outcome::OperationOutcome;

/// Binary logarithm of the number of buckets per power of two.
const SUB_BITS: u32 = 7;

/// Values below this have a bucket each.
const EXACT: u64 = 1 << (SUB_BITS + 1);

/// `EXACT` buckets, and then `1 << SUB_BITS` for each of the other powers of two below 2^64.
const BUCKETS: usize = (1 << (SUB_BITS + 1)) + (1 << SUB_BITS) * 56;

/// Latencies of one kind of operation.
#[derive(Debug)]
pub struct LatencyCounter {
    buckets: Box<[u64; BUCKETS]>,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// Latencies of a worker by kind of operation.
#[derive(Debug)]
pub struct Latencies {
    pub read: LatencyCounter,
    pub write: LatencyCounter,
    pub sync: LatencyCounter,
}

impl LatencyCounter {
    /// An empty counter.
    pub fn new() -> Self {
        // Touches the memory, so that it is allocated before the window.
        let mut buckets = Box::new([1; BUCKETS]);
        buckets.fill(0);
        Self {
            buckets,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts one operation.
    #[inline]
    pub fn add(&mut self, latency_ns: u64) {
        self.buckets[bucket(latency_ns)] += 1;
        self.sum_ns = self.sum_ns.wrapping_add(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    fn clear(&mut self) {
        self.buckets.fill(0);
        (self.sum_ns, self.min_ns, self.max_ns) = (0, u64::MAX, 0);
    }

    /// Converts the counts to a histogram; each operation transferred `bytes`.
    pub fn outcome(&self, bytes: u64) -> OperationOutcome {
        let mut latency = LatencyHistogram::new();
        let mut count = 0_u64;
        for (number, bucket) in self.buckets.iter().enumerate() {
            if *bucket > 0 {
                latency.record_bucket(lowest_of(number), *bucket);
                count += bucket;
            }
        }
        latency.set_exact(u128::from(self.sum_ns), self.min_ns, self.max_ns);
        OperationOutcome {
            count,
            bytes: count.saturating_mul(bytes),
            latency,
        }
    }
}

/// Counts back-to-back operations: the end of one is the start of the next, so the latencies add up to the time from
/// the first start to the last end.
pub struct BackToBack<'count> {
    count: &'count mut LatencyCounter,
    began_ns: u64,
    ended_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl<'count> BackToBack<'count> {
    /// Starts at `now`.
    pub const fn new(count: &'count mut LatencyCounter, now: u64) -> Self {
        Self {
            count,
            began_ns: now,
            ended_ns: now,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Counts the operation that ended at `now`.
    #[inline]
    pub fn add(&mut self, now: u64) {
        let now = now.max(self.ended_ns);
        let latency_ns = now - self.ended_ns;
        self.ended_ns = now;
        self.count.buckets[bucket(latency_ns)] += 1;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }
}

impl Drop for BackToBack<'_> {
    fn drop(&mut self) {
        let count = &mut *self.count;
        count.sum_ns = count.sum_ns.wrapping_add(self.ended_ns - self.began_ns);
        count.min_ns = count.min_ns.min(self.min_ns);
        count.max_ns = count.max_ns.max(self.max_ns);
    }
}

impl Latencies {
    pub fn new() -> Self {
        Self {
            read: LatencyCounter::new(),
            write: LatencyCounter::new(),
            sync: LatencyCounter::new(),
        }
    }

    /// Discards the counts of the ramp.
    pub fn clear(&mut self) {
        self.read.clear();
        self.write.clear();
        self.sync.clear();
    }
}

/// The bucket of a latency, without a branch: values with a bucket each have power 0.
#[inline]
fn bucket(latency_ns: u64) -> usize {
    let power = u64::BITS - (SUB_BITS + 1) - (latency_ns | (EXACT - 1)).leading_zeros();
    let number = u64::from(power) * (EXACT / 2) + (latency_ns >> power);
    // The largest value falls into the last bucket: the bound lets the compiler omit the bounds check.
    usize::try_from(number).map_or(BUCKETS - 1, |number| number.min(BUCKETS - 1))
}

/// The smallest latency of a bucket.
fn lowest_of(number: usize) -> u64 {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    if number < EXACT {
        return number;
    }
    let power = number / (EXACT / 2) - 1;
    (number - power * (EXACT / 2)) << power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_the_histogram_that_recording_each_gives() {
        let mut count = LatencyCounter::new();
        let mut expected = LatencyHistogram::new();
        let mut value = 0_u64;
        while value < 1 << 58 {
            for latency in [value, value + 1, value * 5 / 4] {
                count.add(latency);
                expected.record(latency);
            }
            value = value * 9 / 8 + 1;
        }
        let outcome = count.outcome(10);
        assert_eq!(outcome.latency, expected);
        assert_eq!(outcome.bytes, outcome.count * 10);
        assert_eq!(outcome.count, expected.count());
    }

    #[test]
    fn a_streak_counts_what_counting_each_operation_does() {
        let (mut streaked, mut counted) = (LatencyCounter::new(), LatencyCounter::new());
        for latencies in [&[900, 0, 70_000_000][..], &[1_000], &[]] {
            let mut now = 5_000;
            let mut back_to_back = BackToBack::new(&mut streaked, now);
            for latency in latencies {
                now += latency;
                back_to_back.add(now);
                counted.add(*latency);
            }
        }
        assert_eq!(streaked.outcome(4096), counted.outcome(4096));
    }

    #[test]
    fn absurd_latencies_and_none_at_all_are_counted() {
        let mut count = LatencyCounter::new();
        assert_eq!(count.outcome(1), OperationOutcome::default());
        count.add(u64::MAX);
        let outcome = count.outcome(1);
        assert_eq!(outcome.count, 1);
        let summary = outcome.latency.summary().unwrap();
        assert_eq!(summary.max_ns, u64::MAX);
        assert!(summary.p99_99_ns > u64::MAX - u64::MAX / 100, "{summary:?}");
        count.clear();
        assert_eq!(count.outcome(1), OperationOutcome::default());
    }
}
