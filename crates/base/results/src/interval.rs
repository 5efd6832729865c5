//! Distribution-free confidence intervals, and detection of machines too noisy for a verdict.
//!
//! The interval of a median is a pair of order statistics: of `n` independent runs, the `k`-th smallest and the
//! `k`-th largest value hold the true median between them with probability `1 - 2 P(B < k)`, where `B` counts heads
//! of `n` fair coins. The largest `k` that keeps [`WANTED_COVERAGE`] is used. Below six runs no `k` does: the
//! interval is then the whole range, with its actual coverage (0.94 for five runs, 0.75 for three, 0 for one).
//!
//! Two groups of runs that were not interleaved are compared by all ratios of a run of one group to a run of the
//! other (Hodges and Lehmann; the rank sum of Mann and Whitney gives the number to cut off at each end). This assumes
//! that the groups differ by a factor, and nothing about the shape of the distribution. Above [`PAIRS_MAX`] pairs,
//! the intervals of both medians are divided instead, each with half of the error: wider, but narrow enough with that
//! many runs.
//!
//! For a change of scale within rounds, [`Estimate::of_ratios_covering`] takes the means of all pairs of
//! rounds in place of the rounds (Hodges and Lehmann; the rank sum of Wilcoxon): a quarter narrower with noise as it is
//! usual. This assumes that the logarithms of the ratios are as often above their middle as below it by the same amount.
//! They are if both sides of a round have the same noise, and which side runs first alternates. If only one side is held up
//! now and then, the interval is lower than that of the median, and with many rounds does not hold it.
//!
//! All of this assumes that rounds, or runs, are independent. Noise that lasts for several rounds and differs between the
//! sides makes every interval too narrow.
//!
//! No method detects a systematic error common to all runs (a full device, a slow clock): intervals describe
//! repeatability, not truth.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rate::has_own_speed;
use crate::record::{RunRecord, counter};
use crate::statistics::{PairedRatio, Summary, nearest_f64};

/// Coverage of intervals when there are enough runs.
pub const WANTED_COVERAGE: f64 = 0.95;

/// Minimum coverage for claiming a difference.
pub const CLAIM_COVERAGE: f64 = 0.90;

/// Maximum number of pairs of runs for the exact comparison of two groups.
pub const PAIRS_MAX: usize = 1024;

/// Maximum number of rounds for means of all their pairs.
pub const ROUNDS_MAX: usize = 256;

/// A median whose interval is wider than this fraction of it is noisy.
pub const NOISY_WIDTH: f64 = 0.10;

/// CPU steal time above this is noise.
pub const NOISY_STEAL_PERCENT: f64 = 2.0;

/// CPU time of other processes above this is noise.
pub const NOISY_LOAD_PERCENT: f64 = 25.0;

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Number of values (for two groups: of the smaller group).
    pub count: usize,
    /// The median, or the ratio.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Probability, from 0 to 1, that such an interval holds the true value.
    pub coverage: f64,
}

/// Verdict on a ratio with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioVerdict {
    /// The whole interval is above 1.
    Higher,
    /// The whole interval is below 1.
    Lower,
    /// The interval contains 1.
    NoDifference,
    /// The coverage is below [`CLAIM_COVERAGE`]: no verdict is possible.
    TooFewRuns,
}

impl fmt::Display for RatioVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::NoDifference => "no difference",
            Self::TooFewRuns => "too few runs",
        })
    }
}

impl Estimate {
    /// The median of the finite values with its interval; `None` if there are none.
    #[must_use]
    pub fn of_median(values: &[f64]) -> Option<Self> {
        Self::of_median_covering(values, WANTED_COVERAGE)
    }

    /// The median of ratios formed within rounds.
    #[must_use]
    pub fn of_paired_ratio(paired: &PairedRatio) -> Option<Self> {
        let ratios: Vec<f64> = paired.ratios.iter().map(|round| round.value).collect();
        Self::of_median(&ratios)
    }

    /// Ratio of measured to baseline for two unpaired groups of runs. Uses positive, finite values only; `None` when
    /// a group has none.
    #[must_use]
    pub fn of_ratio(baseline: &[f64], measured: &[f64]) -> Option<Self> {
        Self::of_ratio_covering(baseline, measured, WANTED_COVERAGE)
    }

    /// As [`Self::of_ratio`], with an interval of at least this coverage, unless there are too few runs for it.
    #[must_use]
    pub fn of_ratio_covering(baseline: &[f64], measured: &[f64], wanted: f64) -> Option<Self> {
        let usable = |values: &[f64]| -> Vec<f64> {
            let positive = values
                .iter()
                .copied()
                .filter(|value| value.is_finite() && *value > 0.0);
            positive.collect()
        };
        let (baseline, measured) = (usable(baseline), usable(measured));
        let count = baseline.len().min(measured.len());
        if baseline.len().saturating_mul(measured.len()) > PAIRS_MAX {
            let half_error = f64::midpoint(1.0, wanted);
            let below = Self::of_median_covering(&baseline, half_error)?;
            let above = Self::of_median_covering(&measured, half_error)?;
            return Some(Self {
                count,
                value: above.value / below.value,
                low: above.low / below.high,
                high: above.high / below.low,
                coverage: (below.coverage + above.coverage - 1.0).max(0.0),
            });
        }
        let mut ratios: Vec<f64> = measured
            .iter()
            .flat_map(|above| baseline.iter().map(move |below| above / below))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let value = Summary::of(&ratios)?.median;
        let chances = rank_sum_chances(baseline.len(), measured.len());
        let (cut, coverage) = outermost(&chances, ratios.len(), wanted);
        Some(Self {
            count,
            value,
            low: ratios[cut],
            high: ratios[ratios.len() - 1 - cut],
            coverage,
        })
    }

    /// Change of scale of ratios formed within rounds, all positive, with an interval of at least this coverage, unless
    /// there are too few rounds for it. Above [`ROUNDS_MAX`] rounds, that of [`Self::of_median_covering`].
    #[must_use]
    pub fn of_ratios_covering(ratios: &[f64], wanted: f64) -> Option<Self> {
        let usable = ratios.iter().filter(|ratio| ratio.is_finite() && **ratio > 0.0);
        let rounds: Vec<f64> = usable.map(|ratio| ratio.ln()).collect();
        if rounds.len() > ROUNDS_MAX {
            return Self::of_median_covering(ratios, wanted);
        }
        let pairs = rounds.iter().enumerate();
        let mut means: Vec<f64> = pairs
            .flat_map(|(number, one)| {
                rounds[number..]
                    .iter()
                    .map(move |other| f64::midpoint(*one, *other))
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let value = Summary::of(&means)?.median;
        let (cut, coverage) = outermost(&signed_rank_chances(rounds.len()), means.len(), wanted);
        Some(Self {
            count: rounds.len(),
            value: value.exp(),
            low: means[cut].exp(),
            high: means[means.len() - 1 - cut].exp(),
            coverage,
        })
    }

    /// Width of the interval relative to the value; `None` when the value is 0 or rests on one run.
    #[must_use]
    pub fn relative_width(&self) -> Option<f64> {
        (self.value != 0.0 && self.count > 1).then(|| (self.high - self.low) / self.value.abs())
    }

    /// Verdict on the value as a ratio.
    #[must_use]
    pub fn verdict(&self) -> RatioVerdict {
        // Three runs in each group give exactly 0.9, up to a rounding error.
        if self.coverage < CLAIM_COVERAGE - 1e-9 {
            RatioVerdict::TooFewRuns
        } else if self.low > 1.0 {
            RatioVerdict::Higher
        } else if self.high < 1.0 {
            RatioVerdict::Lower
        } else {
            RatioVerdict::NoDifference
        }
    }

    /// As [`Self::of_median`], with an interval of at least this coverage, unless there are too few runs for it.
    #[must_use]
    pub fn of_median_covering(values: &[f64], wanted: f64) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let summary = Summary::of(&sorted)?;
        let (cut, coverage) = outermost(&coin_chances(sorted.len()), sorted.len(), wanted);
        Some(Self {
            count: sorted.len(),
            value: summary.median,
            low: sorted[cut],
            high: sorted[sorted.len() - 1 - cut],
            coverage,
        })
    }
}

/// Returns the number of sorted values to cut off at each end such that the coverage stays at least `wanted`, and the
/// resulting coverage. Cuts off nothing if no cut keeps it. `chances[i]` is the probability that exactly `i` of the
/// `count` values lie below the true one.
fn outermost(chances: &[f64], count: usize, wanted: f64) -> (usize, f64) {
    let (mut cut, mut below) = (0, chances[0]);
    let mut coverage = (1.0 - 2.0 * below).max(0.0);
    while 2 * (cut + 1) < count {
        below += chances[cut + 1];
        let narrower = 1.0 - 2.0 * below;
        if narrower < wanted {
            break;
        }
        (cut, coverage) = (cut + 1, narrower);
    }
    (cut, coverage)
}

/// Binomial distribution of heads for `coins` fair coins. Weights grow from the middle outwards, because the
/// probability of zero heads underflows to 0 from 1,075 coins on.
fn coin_chances(coins: usize) -> Vec<f64> {
    let float = |number: usize| nearest_f64(u64::try_from(number).unwrap_or(u64::MAX));
    let mut weights = vec![1.0; coins + 1];
    let middle = coins / 2;
    for heads in (0..middle).rev() {
        weights[heads] = weights[heads + 1] * float(heads + 1) / float(coins - heads);
    }
    for heads in middle + 1..=coins {
        weights[heads] = weights[heads - 1] * float(coins - heads + 1) / float(heads);
    }
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Null distribution of the number of pairs "measured below baseline": of `n + m` runs in order, the largest is one
/// of the `n` with probability `n / (n + m)` and then lies above all `m`.
fn rank_sum_chances(rows: usize, columns: usize) -> Vec<f64> {
    let float = |number: usize| nearest_f64(u64::try_from(number).unwrap_or(u64::MAX));
    let mut above: Vec<Vec<f64>> = vec![vec![1.0]; columns + 1];
    for row in 1..=rows {
        let mut current: Vec<Vec<f64>> = vec![vec![1.0]];
        for column in 1..=columns {
            let share = float(row) / float(row + column);
            let mut chances = vec![0.0; row * column + 1];
            for (pairs, chance) in above[column].iter().enumerate() {
                chances[pairs + column] += share * chance;
            }
            for (pairs, chance) in current[column - 1].iter().enumerate() {
                chances[pairs] += (1.0 - share) * chance;
            }
            current.push(chances);
        }
        above = current;
    }
    above.swap_remove(columns)
}

/// Null distribution of the number of means of pairs of rounds, a round with itself included, that lie below the true
/// value: the sum of those ranks, from 1 on, whose round lies below it.
fn signed_rank_chances(rounds: usize) -> Vec<f64> {
    let mut chances = vec![1.0];
    for rank in 1..=rounds {
        let mut next = vec![0.0; chances.len() + rank];
        for (sum, chance) in chances.iter().enumerate() {
            next[sum] += chance / 2.0;
            next[sum + rank] += chance / 2.0;
        }
        chances = next;
    }
    chances
}

/// Reasons why repeated runs on a machine are too noisy to show small differences.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Noise {
    /// The interval of an operation's rate is wide.
    WideInterval {
        /// The operation.
        operation: String,
        /// Width of the interval relative to the median.
        relative_width: f64,
        /// Its coverage; below [`WANTED_COVERAGE`], it is the range of too few runs.
        coverage: f64,
    },
    /// The hypervisor took processor time.
    Steal {
        /// Median share of all processors.
        percent: f64,
    },
    /// Processes other than the workers used the processors.
    OtherLoad {
        /// Median share of all processors.
        percent: f64,
    },
}

impl Noise {
    /// The noise of one operation, if its interval is wide.
    #[must_use]
    pub fn of_width(operation: &str, estimate: &Estimate) -> Option<Self> {
        let relative_width = estimate.relative_width()?;
        (relative_width > NOISY_WIDTH).then(|| Self::WideInterval {
            operation: operation.to_owned(),
            relative_width,
            coverage: estimate.coverage,
        })
    }

    /// All noise in repeated runs of one workload. Incomplete runs are skipped.
    #[must_use]
    pub fn of(records: &[RunRecord]) -> Vec<Self> {
        let records: Vec<&RunRecord> = records.iter().filter(|record| record.complete).collect();
        let Some(first) = records.first() else {
            return Vec::new();
        };
        let median_of = |value: &dyn Fn(&RunRecord) -> Option<f64>| {
            let values: Vec<f64> = records.iter().filter_map(|record| value(record)).collect();
            Summary::of(&values).map(|summary| summary.median)
        };
        let mut found = Vec::new();
        for operation in first
            .samples
            .iter()
            .filter(|sample| has_own_speed(sample))
            .map(|sample| &sample.operation)
        {
            let rates: Vec<f64> = records
                .iter()
                .filter_map(|record| record.sample(operation)?.operations_per_s())
                .collect();
            found.extend(Estimate::of_median(&rates).and_then(|rate| Self::of_width(operation, &rate)));
        }
        found.extend(
            median_of(&|record| record.counters.get(counter::CPU_STEAL).copied())
                .filter(|percent| *percent > NOISY_STEAL_PERCENT)
                .map(|percent| Self::Steal { percent }),
        );
        found.extend(
            median_of(&other_load_percent)
                .filter(|percent| *percent > NOISY_LOAD_PERCENT)
                .map(|percent| Self::OtherLoad { percent }),
        );
        found
    }
}

impl fmt::Display for Noise {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WideInterval {
                operation,
                relative_width,
                coverage,
            } => write!(
                formatter,
                "the {} of {operation} is {:.0} % of its median wide (more than {:.0} %)",
                if *coverage < WANTED_COVERAGE {
                    "range"
                } else {
                    "interval"
                },
                relative_width * 100.0,
                NOISY_WIDTH * 100.0
            ),
            Self::Steal { percent } => write!(
                formatter,
                "the hypervisor took {percent:.1} % of the processors (more than {NOISY_STEAL_PERCENT:.0} %)"
            ),
            Self::OtherLoad { percent } => write!(
                formatter,
                "others used {percent:.0} % of the processors (more than {NOISY_LOAD_PERCENT:.0} %)"
            ),
        }
    }
}

/// CPU share of everything but the workers. The workers' time is divided by the longest window of a sample, which is
/// never longer than the whole run: this underestimates the share of others rather than overestimating it.
fn other_load_percent(record: &RunRecord) -> Option<f64> {
    let active = record.counters.get(counter::CPU_ACTIVE)?;
    let worker_ns = record.counters.get(counter::WORKER_CPU)?;
    let window_ns = record.samples.iter().map(|sample| sample.elapsed_ns).max()?;
    let processors_ns = nearest_f64(window_ns) * f64::from(record.host.cpus.max(1));
    (processors_ns > 0.0).then(|| (active - worker_ns / processors_ns * 100.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn one_to(count: u32) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    fn is_near(found: f64, exact: f64) -> bool {
        (found - exact).abs() < 1e-9
    }

    #[test]
    fn below_six_runs_the_interval_is_the_range_with_its_real_coverage() {
        for (count, coverage) in [(1, 0.0), (2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)] {
            let estimate = Estimate::of_median(&one_to(count)).unwrap();
            assert_eq!((estimate.low, estimate.high), (1.0, f64::from(count)));
            assert!(is_near(estimate.coverage, coverage), "{estimate:?}");
        }
    }

    #[test]
    fn the_interval_of_a_median_is_that_of_the_published_tables() {
        // Ranks of the 95 % interval of the median, from tables of the sign test.
        for (count, rank, coverage) in [
            (6, 1, 0.96875),
            (9, 2, 0.9609375),
            (10, 2, 0.978515625),
            (15, 4, 0.964843750),
            (20, 6, 0.958610535),
        ] {
            let estimate = Estimate::of_median(&one_to(count)).unwrap();
            assert_eq!(
                (estimate.low, estimate.high),
                (f64::from(rank), f64::from(count + 1 - rank)),
                "{count} values"
            );
            assert!((estimate.coverage - coverage).abs() < 1e-6, "{estimate:?}");
        }
    }

    #[test]
    fn thousands_of_runs_do_not_underflow() {
        let estimate = Estimate::of_median(&one_to(10_000)).unwrap();
        assert!(
            estimate.coverage >= 0.95 && estimate.coverage < 0.96,
            "{estimate:?}"
        );
        // Half of 1.96 times the square root of the number, on each side of the middle.
        assert_eq!((estimate.low, estimate.high), (4902.0, 5099.0));
    }

    #[test]
    fn the_signed_ranks_are_those_of_the_published_tables() {
        // Two-sided 5 % points of Wilcoxon.
        for (rounds, critical) in [(6, 0), (7, 2), (8, 3), (9, 5), (10, 8), (15, 25), (20, 52)] {
            let chances = signed_rank_chances(rounds);
            assert!(is_near(chances.iter().sum(), 1.0));
            let (cut, coverage) = outermost(&chances, rounds * (rounds + 1) / 2, 0.95);
            assert_eq!(cut, critical, "{rounds}");
            assert!(coverage >= 0.95);
        }
    }

    /// The share of intervals that hold the true ratio, over 2,000 samples of 16 rounds with the same noise on both sides.
    #[test]
    fn intervals_of_ratios_hold_the_true_one_as_often_as_they_say_and_are_narrower() {
        let mut state = 7_u64;
        let mut noise = || {
            // The middle of twelve is about normal; every sixteenth run is held up.
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                nearest_f64(state >> 40) / nearest_f64(1 << 24)
            };
            let normal: f64 = (0..12).map(|_| next()).sum::<f64>() - 6.0;
            (0.1 * normal - if next() < 0.06 { 0.5 } else { 0.0 }).exp()
        };
        let (mut held, mut width, mut width_of_median) = (0, 0.0, 0.0);
        for _ in 0..2000 {
            let ratios: Vec<f64> = (0..16).map(|_| 0.9 * noise() / noise()).collect();
            let found = Estimate::of_ratios_covering(&ratios, 0.95).unwrap();
            held += u32::from(found.low <= 0.9 && found.high >= 0.9);
            width += found.high - found.low;
            let median = Estimate::of_median_covering(&ratios, 0.95).unwrap();
            width_of_median += median.high - median.low;
        }
        assert!((1880..=1960).contains(&held), "{held}");
        assert!(width < 0.9 * width_of_median, "{width} and {width_of_median}");
        assert!(Estimate::of_ratios_covering(&[], 0.95).is_none());
    }

    #[test]
    fn the_rank_sum_is_that_of_the_published_tables() {
        // Two-sided 5 % points of Mann and Whitney: 0 for 4 and 4, 2 for 5 and 5, 23 for 10 and 10.
        for (n, m, critical) in [(4, 4, 0), (5, 5, 2), (7, 5, 5), (10, 10, 23)] {
            let chances = rank_sum_chances(n, m);
            assert!(is_near(chances.iter().sum(), 1.0));
            let (cut, coverage) = outermost(&chances, n * m, 0.95);
            assert_eq!(cut, critical, "{n} and {m}");
            assert!(coverage >= 0.95);
        }
        assert!(is_near(rank_sum_chances(3, 3)[0], 1.0 / 20.0));
    }

    #[test]
    fn groups_that_differ_by_a_factor_give_that_factor() {
        let baseline = [100.0, 101.0, 99.0, 102.0, 98.0];
        let double: Vec<f64> = baseline.iter().map(|value| value * 2.0).collect();
        let estimate = Estimate::of_ratio(&baseline, &double).unwrap();
        assert!((estimate.value - 2.0).abs() < 0.01, "{estimate:?}");
        assert_eq!(estimate.verdict(), RatioVerdict::Higher);
        let back = Estimate::of_ratio(&double, &baseline).unwrap();
        assert_eq!(back.verdict(), RatioVerdict::Lower);
        assert_eq!(
            Estimate::of_ratio(&baseline, &baseline).unwrap().verdict(),
            RatioVerdict::NoDifference
        );
    }

    #[test]
    fn large_groups_are_compared_by_their_medians() {
        let baseline = one_to(100);
        let measured: Vec<f64> = baseline.iter().map(|value| value * 3.0).collect();
        let estimate = Estimate::of_ratio(&baseline, &measured).unwrap();
        assert!(is_near(estimate.value, 3.0));
        assert!(
            estimate.coverage >= 0.95 && estimate.low < 3.0 && estimate.high > 3.0,
            "{estimate:?}"
        );
    }

    #[test]
    fn three_runs_each_may_claim_and_two_may_not() {
        let three = Estimate::of_ratio(&[1.0, 1.1, 1.2], &[5.0, 5.1, 5.2]).unwrap();
        assert_eq!(three.verdict(), RatioVerdict::Higher);
        let estimate = Estimate::of_ratio(&[1.0, 1.0], &[5.0, 5.0]).unwrap();
        assert_eq!(estimate.verdict(), RatioVerdict::TooFewRuns);
        assert_eq!(Estimate::of_ratio(&[], &[5.0]), None);
        assert_eq!(Estimate::of_ratio(&[0.0, f64::NAN], &[5.0]), None);
    }

    #[test]
    fn one_run_is_not_called_noisy_and_scattered_runs_are() {
        assert_eq!(Noise::of(&[record("native", 0, 10, 1_000_000)]), []);
        let scattered: Vec<RunRecord> = [100, 150, 100, 90, 120, 110]
            .map(|elapsed| record("native", 0, 10, elapsed * 1_000_000))
            .into();
        let noise = Noise::of(&scattered);
        assert!(
            matches!(&noise[..], [Noise::WideInterval { operation, .. }] if operation == "write"),
            "{noise:?}"
        );
        assert!(
            noise[0].to_string().starts_with("the interval of write"),
            "{}",
            noise[0]
        );
        let few = Noise::of(&scattered[..5])[0].to_string();
        assert!(
            few.starts_with("the range of write"),
            "five runs have no interval: {few}"
        );
        let steady = vec![record("native", 0, 10, 1_000_000); 6];
        assert_eq!(Noise::of(&steady), []);
    }

    #[test]
    fn steal_and_other_load_are_noise() {
        let mut one = record("native", 0, 10, 1_000_000);
        one.host.cpus = 2;
        let insert = |record: &mut RunRecord, name: &str, value| {
            record.counters.insert(name.to_owned(), value);
        };
        insert(&mut one, counter::CPU_STEAL, 5.0);
        insert(&mut one, counter::CPU_ACTIVE, 90.0);
        // The worker was busy for all of the window: half of the two processors.
        insert(&mut one, counter::WORKER_CPU, 1e6);
        let noise = Noise::of(&[one.clone()]);
        assert_eq!(
            noise,
            [Noise::Steal { percent: 5.0 }, Noise::OtherLoad { percent: 40.0 }]
        );
        insert(&mut one, counter::CPU_ACTIVE, 60.0);
        insert(&mut one, counter::CPU_STEAL, 1.0);
        assert_eq!(Noise::of(&[one]), []);
    }
}
