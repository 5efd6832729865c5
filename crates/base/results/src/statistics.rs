//! Medians, spreads and ratios paired by round.
//!
//! Runs of one round of an interleaved comparison share the state of the machine; runs of different rounds do not.
//! The ratio is therefore formed within each round, and the median is taken over the ratios. No distribution is
//! assumed: all ratios are kept, and "no difference" is a possible answer.

use serde::{Deserialize, Serialize};

use crate::record::RunRecord;

/// The nearest floating-point number; counts above 2^53 lose their last bits.
#[must_use]
pub fn nearest_f64(value: u64) -> f64 {
    #[expect(
        clippy::as_conversions,
        reason = "there is no `From`; rounding to nearest is what is wanted"
    )]
    {
        value as f64
    }
}

/// The middle value (mean of the two middle ones). Ignores values that are not finite; `None` if none are left.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

/// Median and range of a list of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of finite values.
    pub count: usize,
    /// Middle value.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Summary {
    /// Summarises the finite values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self {
            count: sorted.len(),
            median,
            min,
            max,
        })
    }

    /// Range (maximum minus minimum) relative to the median; `None` when the median is 0.
    #[must_use]
    pub fn relative_spread(&self) -> Option<f64> {
        (self.median != 0.0).then(|| (self.max - self.min) / self.median.abs())
    }
}

/// The value of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundValue {
    /// The round, counted from 0.
    pub round: u32,
    /// The value, or the ratio.
    pub value: f64,
}

/// Applies `value` to every complete record with this label.
pub fn values_by_round(
    records: &[RunRecord],
    label: &str,
    value: impl Fn(&RunRecord) -> Option<f64>,
) -> Vec<RoundValue> {
    records
        .iter()
        .filter(|record| record.complete && record.label == label)
        .filter_map(|record| {
            Some(RoundValue {
                round: record.round,
                value: value(record)?,
            })
        })
        .collect()
}

/// Ratios of a configuration to a baseline, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// Measured over baseline for each round that has both, in measurement order.
    pub ratios: Vec<RoundValue>,
    /// Median, smallest and largest ratio.
    pub summary: Summary,
}

/// Ratios of `measured` over `baseline` in the rounds present in both; `None` when they share no round.
///
/// Rounds with a zero or non-finite baseline are skipped.
#[must_use]
pub fn paired_ratio(baseline: &[RoundValue], measured: &[RoundValue]) -> Option<PairedRatio> {
    let ratios: Vec<RoundValue> = measured
        .iter()
        .filter_map(|one| {
            let other = baseline.iter().find(|other| other.round == one.round)?;
            let ratio = one.value / other.value;
            (other.value != 0.0 && ratio.is_finite()).then_some(RoundValue {
                round: one.round,
                value: ratio,
            })
        })
        .collect();
    let plain: Vec<f64> = ratios.iter().map(|ratio| ratio.value).collect();
    Summary::of(&plain).map(|summary| PairedRatio { ratios, summary })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn rounds(values: &[f64]) -> Vec<RoundValue> {
        (0..)
            .zip(values)
            .map(|(round, &value)| RoundValue { round, value })
            .collect()
    }

    #[test]
    fn the_median_of_an_even_list_is_the_mean_of_its_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        let summary = Summary::of(&[f64::NAN, 2.0, f64::INFINITY, 4.0]).unwrap();
        assert_eq!(
            (summary.count, summary.median, summary.min, summary.max),
            (2, 3.0, 2.0, 4.0)
        );
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(
            Summary::of(&[8.0, 10.0, 12.0]).unwrap().relative_spread(),
            Some(0.4)
        );
        assert_eq!(Summary::of(&[0.0]).unwrap().relative_spread(), None);
    }

    #[test]
    fn the_ratio_is_formed_inside_each_round_before_the_median() {
        // The machine halves its speed each round: medians of the raw values would say 50 / 100.
        let baseline = rounds(&[200.0, 100.0, 50.0]);
        let measured = rounds(&[100.0, 80.0, 50.0]);
        let compared = paired_ratio(&baseline, &measured).unwrap();
        assert_eq!(compared.summary.median, 0.8);
        assert_eq!(compared.ratios, rounds(&[0.5, 0.8, 1.0]));
    }

    #[test]
    fn rounds_without_a_usable_baseline_are_left_out() {
        let compared = paired_ratio(&rounds(&[0.0, 10.0]), &rounds(&[5.0, 5.0, 5.0])).unwrap();
        assert_eq!(compared.ratios, [RoundValue { round: 1, value: 0.5 }]);
        assert_eq!(paired_ratio(&[], &rounds(&[1.0])), None);
    }

    #[test]
    fn incomplete_runs_are_not_compared() {
        let mut records = vec![record("native", 0, 10_000_000, 1_000_000_000); 2];
        records[1].complete = false;
        let values = values_by_round(&records, "native", RunRecord::mb_per_s);
        assert_eq!(
            values,
            [RoundValue {
                round: 0,
                value: 10.0
            }]
        );
    }
}
