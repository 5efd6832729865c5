//! Counters of the buffer, and their public form.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Defines the causes once: as a type, as public counts, and as the counters behind them.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident, $count:ident;)*) => {
        /// Reason for writing an entry out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FlushCause {
            $($(#[$doc])* $cause,)*
        }

        /// Entries written out, by cause.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct FlushCauses {
            $($(#[$doc])* pub $count: u64,)*
        }

        #[derive(Debug, Default)]
        struct Causes {
            $($count: AtomicU64,)*
        }

        impl Causes {
            fn of(&self, cause: FlushCause) -> &AtomicU64 {
                match cause {
                    $(FlushCause::$cause => &self.$count,)*
                }
            }

            fn snapshot(&self) -> FlushCauses {
                FlushCauses {
                    $($count: get(&self.$count),)*
                }
            }
        }
    };
}

causes! {
    /// No append for two intervals, or the entry was growing or continued a full one for eight.
    Interval, interval;
    /// The entry is full.
    Full, full;
    /// A write elsewhere in the file ended the entry.
    Scattered, scattered;
    /// Another file needed the memory.
    Pressure, pressure;
    /// A descriptor was closed.
    Close, close;
    /// fsync or fdatasync.
    Fsync, fsync;
    /// A query that the buffer can't answer by itself: the first attribute query of a file, or a query about appended
    /// data.
    Query, query;
    /// Truncation, copy, a write that goes through, or another change that must follow the data.
    Other, other;
    /// sync, unmount or an explicit drain.
    Drain, drain;
}

/// Percentiles of a latency in microseconds, each at most 13 % too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyPercentiles {
    /// Samples.
    pub count: u64,
    /// Half of the samples are at most this.
    pub p50_us: u64,
    /// 90 % of the samples are at most this.
    pub p90_us: u64,
    /// 99 % of the samples are at most this.
    pub p99_us: u64,
    /// Largest sample.
    pub max_us: u64,
}

/// Statistics since the buffer was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferStats {
    /// Writes accepted from above.
    pub writes_accepted: u64,
    /// Their bytes.
    pub bytes_accepted: u64,
    /// Accepted writes that went through without being buffered.
    pub writes_through: u64,
    /// Writes made to the file system below, successful or not.
    pub backing_writes: u64,
    /// Bytes requested by these writes.
    pub backing_bytes: u64,
    /// Writes accepted for each backing write.
    pub coalescing_factor: f64,
    /// Entries holding data or being written out.
    pub entries_in_use: u64,
    /// Total number of entries.
    pub entries_total: u64,
    /// Bytes accepted and not yet below.
    pub bytes_buffered: u64,
    /// Highest value of `bytes_buffered`.
    pub bytes_buffered_max: u64,
    /// Times that a writer found no free entry.
    pub entry_waits: u64,
    /// Time that writers waited for an entry, in nanoseconds.
    pub entry_wait_ns: u64,
    /// Time to write out one entry.
    pub flush_latency: LatencyPercentiles,
    /// Entries written out, by cause.
    pub flushes: FlushCauses,
    /// Flushes that failed: acknowledged data was lost.
    pub errors_recorded: u64,
    /// Reports of an error to a handle.
    pub errors_reported: u64,
    /// Files with an error that has not been reported on any handle.
    pub errors_pending: u64,
    /// Files whose last handle was closed before an error was reported.
    pub errors_unclaimed: u64,
    /// A write ran out of space: all writes go through until as much was allocated as the buffer holds.
    pub degraded: bool,
    /// Rounds of the flush manager's loop; stands still while nothing is buffered.
    pub manager_rounds: u64,
}

impl BufferStats {
    /// Members that can fall; nested ones are prefixed with their parents' names. All others only grow.
    pub const LEVELS: &[&str] = &[
        "entries_in_use",
        "entries_total",
        "bytes_buffered",
        "bytes_buffered_max",
        "coalescing_factor",
        "errors_pending",
        "degraded",
        "flush_latency_p50_us",
        "flush_latency_p90_us",
        "flush_latency_p99_us",
        "flush_latency_max_us",
    ];
}

/// The counters behind [`BufferStats`]. Relaxed: each is correct by itself, but a snapshot of all is not atomic.
#[derive(Debug, Default)]
pub struct Counters {
    pub writes_accepted: AtomicU64,
    pub bytes_accepted: AtomicU64,
    pub writes_through: AtomicU64,
    pub backing_writes: AtomicU64,
    pub backing_bytes: AtomicU64,
    pub bytes_buffered: AtomicU64,
    pub bytes_buffered_max: AtomicU64,
    pub entry_waits: AtomicU64,
    pub entry_wait_ns: AtomicU64,
    pub errors_recorded: AtomicU64,
    pub errors_reported: AtomicU64,
    pub errors_pending: AtomicU64,
    pub errors_unclaimed: AtomicU64,
    pub flush_latency: LatencyHistogram,
    causes: Causes,
}

impl Counters {
    /// Counts an entry written out.
    pub fn count_flush(&self, cause: FlushCause) {
        add(self.causes.of(cause), 1);
    }

    /// Counts bytes added to the buffer.
    pub fn buffered(&self, bytes: u64) {
        let held = self.bytes_buffered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bytes_buffered_max.fetch_max(held, Ordering::Relaxed);
    }

    /// The counters, with zeros in fields that are not counted here.
    pub fn snapshot(&self) -> BufferStats {
        let (writes_accepted, backing_writes) = (get(&self.writes_accepted), get(&self.backing_writes));
        BufferStats {
            writes_accepted,
            bytes_accepted: get(&self.bytes_accepted),
            writes_through: get(&self.writes_through),
            backing_writes,
            backing_bytes: get(&self.backing_bytes),
            coalescing_factor: if backing_writes == 0 {
                0.0
            } else {
                to_f64(writes_accepted) / to_f64(backing_writes)
            },
            bytes_buffered: get(&self.bytes_buffered),
            bytes_buffered_max: get(&self.bytes_buffered_max),
            entry_waits: get(&self.entry_waits),
            entry_wait_ns: get(&self.entry_wait_ns),
            flush_latency: self.flush_latency.percentiles(),
            flushes: self.causes.snapshot(),
            errors_recorded: get(&self.errors_recorded),
            errors_reported: get(&self.errors_reported),
            errors_pending: get(&self.errors_pending),
            errors_unclaimed: get(&self.errors_unclaimed),
            ..BufferStats::default()
        }
    }
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[expect(
    clippy::as_conversions,
    reason = "a ratio shown to people may lose the last bits"
)]
fn to_f64(count: u64) -> f64 {
    count as f64
}

/// Buckets per power of two, which bound the error of a percentile.
const PARTS: u32 = 8;
/// Buckets for 0 to 2^40 microseconds (12 days); longer durations count as that.
const BUCKETS: usize = 38 * 8 + 8;

/// Counts of durations in logarithmic buckets: 2.5 KiB, no lock.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: [AtomicU64; BUCKETS],
    max_us: AtomicU64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            max_us: AtomicU64::new(0),
        }
    }
}

impl LatencyHistogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        add(&self.buckets[bucket_of(us)], 1);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    fn percentiles(&self) -> LatencyPercentiles {
        let counts: Vec<u64> = self.buckets.iter().map(get).collect();
        let count: u64 = counts.iter().sum();
        let max_us = get(&self.max_us);
        let at = |percent: u64| {
            let rank = (count * percent).div_ceil(100);
            let mut seen = 0;
            let found = counts.iter().position(|bucket| {
                seen += bucket;
                seen >= rank && rank > 0
            });
            found.map_or(0, |index| bucket_end(index).min(max_us))
        };
        LatencyPercentiles {
            count,
            p50_us: at(50),
            p90_us: at(90),
            p99_us: at(99),
            max_us,
        }
    }
}

/// Bucket of a duration: the first 8 buckets hold one value each; then each power of two has [`PARTS`].
fn bucket_of(us: u64) -> usize {
    let Some(power) = us.checked_ilog2().filter(|power| *power >= 3) else {
        return usize::try_from(us).expect("less than 8");
    };
    let part = us >> (power - 3);
    let index = u64::from((power - 3) * PARTS) + part;
    usize::try_from(index).expect("less than 500").min(BUCKETS - 1)
}

/// Largest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    let index = crate::entry::byte_count(index);
    let parts = u64::from(PARTS);
    if index < 2 * parts {
        return index;
    }
    let shift = index / parts - 1;
    ((parts + index % parts + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_at_or_little_above_each_value_in_it() {
        for us in (0..5000).chain([1 << 20, (1 << 30) + 12_345, (1 << 39) - 1]) {
            let end = bucket_end(bucket_of(us));
            assert!(
                end >= us && end - us <= us / 8,
                "{us} falls into a bucket that ends at {end}"
            );
        }
    }

    #[test]
    fn percentiles_of_one_to_a_hundred_are_what_they_say() {
        let histogram = LatencyHistogram::default();
        (1..=100).for_each(|us| histogram.record(Duration::from_micros(us)));
        let found = histogram.percentiles();
        assert_eq!((found.count, found.max_us), (100, 100));
        assert!((50..=56).contains(&found.p50_us), "{found:?}");
        assert!((90..=100).contains(&found.p90_us), "{found:?}");
        assert!((99..=100).contains(&found.p99_us), "{found:?}");
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        assert_eq!(
            LatencyHistogram::default().percentiles(),
            LatencyPercentiles::default()
        );
    }
}
