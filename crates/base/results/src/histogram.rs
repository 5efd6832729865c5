//! Latency histogram with logarithmic buckets of less than 1 % width: small to store, exact to merge.
//!
//! Minimum, maximum and sum are kept exactly beside the buckets. The JSON form shows percentiles for people and
//! carries the non-empty buckets for machines. Reading it back gives the same histogram; percentiles are recomputed
//! from the buckets, never taken from the file.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::statistics::nearest_f64;

/// Two significant digits keep each bucket under 1 % wide and a histogram of all 64-bit values under 60 KiB.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Latency histogram with exact minimum, maximum and sum.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyHistogram {
    buckets: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl LatencyHistogram {
    /// An empty histogram.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        let buckets = Histogram::new_with_bounds(1, u64::MAX, SIGNIFICANT_DIGITS)
            .expect("all values in two digits are valid bounds");
        Self {
            buckets,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    /// Adds one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.record_many(latency_ns, 1);
        self.sum_ns += u128::from(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Adds `count` latencies to the bucket of `latency_ns` without updating minimum, maximum and sum. For callers
    /// that count in buckets of the same widths and call [`Self::set_exact`] at the end.
    pub fn record_bucket(&mut self, latency_ns: u64, count: u64) {
        self.record_many(latency_ns, count);
    }

    /// Sets the exact sum, minimum and maximum after [`Self::record_bucket`].
    pub const fn set_exact(&mut self, sum_ns: u128, min_ns: u64, max_ns: u64) {
        self.sum_ns = sum_ns;
        self.min_ns = min_ns;
        self.max_ns = max_ns;
    }

    /// Adds all latencies of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.buckets
            .add(&other.buckets)
            .expect("all histograms have the same bounds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of latencies recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Number of latencies above `limit_ns`; those within 1 % of the limit may fall on either side.
    #[must_use]
    pub fn count_above(&self, limit_ns: u64) -> u64 {
        let end = self.buckets.highest_equivalent(limit_ns);
        self.count() - self.buckets.count_between(0, end)
    }

    /// The latency that `percent` of all operations did not exceed: at most 1 % above the true value, and never above
    /// the maximum. 0 when empty.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.buckets.value_at_quantile(percent / 100.0).min(self.max_ns)
    }

    /// The standard deviation of all latencies, to bucket precision; 0 when empty.
    #[must_use]
    pub fn standard_deviation_ns(&self) -> f64 {
        self.buckets.stdev()
    }

    /// The usual percentiles; `None` when empty.
    #[must_use]
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.count() == 0 {
            return None;
        }
        // More than 2^64 ns in sum is 584 years of latency: no real run saturates.
        let sum_ns = nearest_f64(u64::try_from(self.sum_ns).unwrap_or(u64::MAX));
        Some(LatencySummary {
            count: self.count(),
            mean_ns: sum_ns / nearest_f64(self.count()),
            min_ns: self.min_ns,
            p50_ns: self.percentile_ns(50.0),
            p90_ns: self.percentile_ns(90.0),
            p95_ns: self.percentile_ns(95.0),
            p99_ns: self.percentile_ns(99.0),
            p99_9_ns: self.percentile_ns(99.9),
            p99_99_ns: self.percentile_ns(99.99),
            max_ns: self.max_ns,
        })
    }

    fn record_many(&mut self, latency_ns: u64, count: u64) {
        self.buckets.saturating_record_n(latency_ns.max(1), count);
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// Count, mean, extremes and percentiles of one histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[expect(
    missing_docs,
    reason = "each field is the percentile that it is named for, in nanoseconds"
)]
pub struct LatencySummary {
    pub count: u64,
    pub mean_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub p99_99_ns: u64,
    pub max_ns: u64,
}

/// The JSON form. `summary` is for people and is ignored when read.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    summary: Option<LatencySummary>,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    /// Pairs of upper bound in nanoseconds and count, ascending.
    buckets: Vec<(u64, u64)>,
}

impl Serialize for LatencyHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let buckets = self
            .buckets
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_since_last_iteration()))
            .collect();
        Stored {
            summary: self.summary(),
            sum_ns: u64::try_from(self.sum_ns).unwrap_or(u64::MAX),
            min_ns: if self.count() == 0 { 0 } else { self.min_ns },
            max_ns: self.max_ns,
            buckets,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let mut histogram = Self::new();
        for (upper_ns, count) in stored.buckets {
            histogram.record_many(upper_ns, count);
        }
        if histogram.count() == 0 {
            return Ok(histogram);
        }
        if stored.min_ns > stored.max_ns {
            return Err(de::Error::custom(format!(
                "latency minimum {} ns is above the maximum {} ns",
                stored.min_ns, stored.max_ns
            )));
        }
        histogram.sum_ns = u128::from(stored.sum_ns);
        histogram.min_ns = stored.min_ns;
        histogram.max_ns = stored.max_ns;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_to(count: u64) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for step in 1..=count {
            histogram.record(step * 1_000);
        }
        histogram
    }

    #[test]
    fn percentiles_are_within_one_percent_and_extremes_are_exact() {
        let summary = one_to(10_000).summary().unwrap();
        for (found, exact) in [
            (summary.p50_ns, 5_000_000),
            (summary.p90_ns, 9_000_000),
            (summary.p95_ns, 9_500_000),
            (summary.p99_ns, 9_900_000),
            (summary.p99_9_ns, 9_990_000),
            (summary.p99_99_ns, 9_999_000),
        ] {
            let error = nearest_f64(found.abs_diff(exact)) / nearest_f64(exact);
            assert!(error < 0.01, "found {found} ns, exact {exact} ns");
        }
        assert_eq!(
            (summary.min_ns, summary.max_ns, summary.count),
            (1_000, 10_000_000, 10_000)
        );
        assert!((summary.mean_ns - 5_000_500.0).abs() < 1e-6);
    }

    #[test]
    fn slow_ones_are_counted() {
        let histogram = one_to(10_000);
        for (limit_ns, expected) in [(0, 10_000), (5_050_000, 4_950), (20_000_000, 0), (u64::MAX, 0)] {
            assert!(
                histogram.count_above(limit_ns).abs_diff(expected) <= 50,
                "above {limit_ns} ns"
            );
        }
        let mut slow = LatencyHistogram::new();
        slow.record(2_500_000_000);
        assert_eq!(
            (slow.count_above(2_000_000_000), slow.count_above(10_000_000_000)),
            (1, 0)
        );
    }

    #[test]
    fn an_empty_histogram_has_no_summary_and_survives_json() {
        let empty = LatencyHistogram::new();
        assert_eq!(empty.summary(), None);
        assert_eq!(empty.percentile_ns(99.0), 0);
        let text = serde_json::to_string(&empty).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&text).unwrap(), empty);
    }

    #[test]
    fn json_keeps_every_bucket_so_that_histograms_read_back_are_equal() {
        let histogram = one_to(3_333);
        let text = serde_json::to_string(&histogram).unwrap();
        let read: LatencyHistogram = serde_json::from_str(&text).unwrap();
        assert_eq!(read, histogram);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn merging_equals_recording_everything_in_one() {
        let (mut merged, mut whole) = (one_to(100), one_to(100));
        merged.merge(&one_to(50));
        for step in 1..=50 {
            whole.record(step * 1_000);
        }
        assert_eq!(merged, whole);
    }

    #[test]
    fn zero_and_absurd_latencies_are_counted() {
        let mut histogram = LatencyHistogram::new();
        histogram.record(0);
        histogram.record(u64::MAX);
        let summary = histogram.summary().unwrap();
        assert_eq!((summary.count, summary.min_ns, summary.max_ns), (2, 0, u64::MAX));
    }

    #[test]
    fn percentiles_reach_the_maximum_however_long_it_is() {
        for max_ns in [3_000_000_000_000, 4 * 3_600_000_000_000, 1 << 50, u64::MAX / 2] {
            let mut histogram = LatencyHistogram::new();
            histogram.record(1_000);
            histogram.record(max_ns);
            let summary = histogram.summary().unwrap();
            let difference = nearest_f64(max_ns - summary.p99_99_ns) / nearest_f64(max_ns);
            assert!(
                difference < 0.01,
                "p99.99 {} ns of a maximum of {max_ns} ns",
                summary.p99_99_ns
            );
            assert_eq!(histogram.count_above(2_000), 1, "{max_ns} ns");
            let text = serde_json::to_string(&histogram).unwrap();
            assert!(
                serde_json::from_str::<LatencyHistogram>(&text).unwrap() == histogram,
                "{text}"
            );
        }
    }

    #[test]
    fn contradicting_extremes_are_refused() {
        let text = r#"{"sum_ns":1,"min_ns":9,"max_ns":1,"buckets":[[1,1]]}"#;
        let error = serde_json::from_str::<LatencyHistogram>(text)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("minimum 9 ns is above the maximum 1 ns"),
            "{error}"
        );
    }
}
