//! Evidence from records: an estimate for each cell of an exhibit, and a verdict on each sentence of a paper.

use std::collections::BTreeMap;

use anyhow::Result;
use results::{CLAIM_COVERAGE, Estimate, RunRecord};

use crate::cell::{Cell, Slot, slots};
use crate::folder::place;
use crate::plan::{Basis, Claim, Exhibit, Plan, Quantity};
use crate::traced;

/// Records by cell.
#[derive(Debug, Default)]
pub struct Results<'records> {
    complete: BTreeMap<Cell, BTreeMap<u32, &'records RunRecord>>,
    failures: BTreeMap<Cell, Vec<String>>,
}

impl<'records> Results<'records> {
    /// Sorts records by cell; what belongs to no study is left out.
    #[must_use]
    pub fn of(records: &'records [RunRecord]) -> Self {
        let mut results = Self::default();
        for record in records {
            let Some(place) = place(record) else {
                continue;
            };
            let left_out = place.left_out.map(|reason| format!("left out: {reason}"));
            if let Some(reason) = place.failed.or(left_out) {
                let reasons = results.failures.entry(place.cell).or_default();
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            } else if record.complete {
                results
                    .complete
                    .entry(place.cell)
                    .or_default()
                    .insert(record.round, record);
            }
        }
        results
    }

    /// The records of a cell, by round.
    pub(crate) fn records(&self, cell: &Cell) -> impl Iterator<Item = &'records RunRecord> {
        self.complete
            .get(cell)
            .into_iter()
            .flat_map(|rounds| rounds.values().copied())
    }

    /// The value of a cell in each round, with the round.
    fn values(&self, cell: &Cell, quantity: &Quantity) -> Vec<(u32, f64)> {
        let Some(rounds) = self.complete.get(cell) else {
            return Vec::new();
        };
        let limits = self.complete.get(&cell.max_of());
        let value = |record: &RunRecord| match quantity {
            // The layout has no value of its own; its table shows the throughput.
            Quantity::Throughput | Quantity::Layout => record.mb_per_s(),
            Quantity::Counter(name) => record.counters.get(name).copied(),
            Quantity::ShareOfMax => {
                let limit = limits?.get(&record.round)?.mb_per_s()?;
                record.mb_per_s().map(|value| value / limit)
            }
        };
        let values = rounds
            .iter()
            .filter_map(|(round, record)| Some((*round, value(record)?)));
        values.filter(|(_, value)| value.is_finite()).collect()
    }
}

/// A slot of an exhibit with what was measured in it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The slot.
    pub slot: Slot,
    /// One value for each round.
    pub values: Vec<f64>,
    /// The rounds of the values.
    pub rounds: Vec<u32>,
    /// Their median with its interval; `None` if nothing was measured.
    pub estimate: Option<Estimate>,
    /// Why not, if cells failed.
    pub failures: Vec<String>,
}

/// Result of comparing a sentence with the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies within the range of the sentence.
    Holds,
    /// The interval lies outside it.
    Fails,
    /// The interval lies on both sides of a bound.
    NotShown,
    /// The rounds give no interval of the coverage that a claim needs ([`CLAIM_COVERAGE`]).
    TooFewRounds,
    /// A cell was not measured.
    NotMeasured,
}

impl Verdict {
    /// For tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::NotShown => "not shown",
            Self::TooFewRounds => "too few rounds",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A sentence with its verdict.
#[derive(Clone, Debug)]
pub struct Judged<'plan> {
    /// The sentence.
    pub claim: &'plan Claim,
    /// The value measured.
    pub estimate: Option<Estimate>,
    /// The result.
    pub verdict: Verdict,
}

impl Judged<'_> {
    /// Kind of evidence.
    #[must_use]
    pub const fn basis(&self) -> &'static str {
        match self.claim.basis {
            Basis::Calibrated => "calibrated",
            Basis::Predicted => "predicted",
        }
    }

    /// The smallest difference that these rounds could have shown, relative to the value: half of the interval's width.
    #[must_use]
    pub fn visible(&self) -> Option<f64> {
        self.estimate.as_ref()?.relative_width().map(|width| width / 2.0)
    }
}

/// All slots of an exhibit.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn shown(plan: &Plan, exhibit: &Exhibit, results: &Results<'_>) -> Result<Vec<Shown>> {
    let all = slots(plan, exhibit)?.into_iter().map(|slot| {
        let by_round = results.values(&slot.cell, &exhibit.y);
        let values: Vec<f64> = by_round.iter().map(|(_, value)| *value).collect();
        Shown {
            estimate: Estimate::of_median(&values),
            failures: results.failures.get(&slot.cell).cloned().unwrap_or_default(),
            values,
            rounds: by_round.iter().map(|(round, _)| *round).collect(),
            slot,
        }
    });
    Ok(all.collect())
}

/// The write requests of a slot in its first traced round: data, then metadata and journal.
#[must_use]
pub fn layout(slot: &Slot, results: &Results<'_>) -> [Vec<(f64, f64)>; 2] {
    let rounds = results
        .complete
        .get(&slot.cell)
        .into_iter()
        .flat_map(BTreeMap::values);
    let mut layouts = rounds.map(|record| traced::layout(record));
    layouts
        .find(|layout| layout.iter().any(|class| !class.is_empty()))
        .unwrap_or_default()
}

/// The verdicts on all sentences of an exhibit.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn judged<'plan>(
    plan: &Plan,
    exhibit: &'plan Exhibit,
    results: &Results<'_>,
) -> Result<Vec<Judged<'plan>>> {
    exhibit
        .claims
        .iter()
        .map(|claim| judge(plan, exhibit, claim, results))
        .collect()
}

fn judge<'plan>(
    plan: &Plan,
    exhibit: &Exhibit,
    claim: &'plan Claim,
    results: &Results<'_>,
) -> Result<Judged<'plan>> {
    let cell = Cell::of(plan, &[&exhibit.fixed, &claim.cell])?;
    let mut by_round = results.values(&cell, &exhibit.y);
    if let Some(of) = &claim.of {
        let of = Cell::of(plan, &[&exhibit.fixed, of])?;
        let below = results.values(&of, &exhibit.y);
        let divided = by_round.iter().filter_map(|(round, value)| {
            let (_, below) = below.iter().find(|(other, _)| other == round)?;
            (*below > 0.0).then(|| (*round, value / below))
        });
        by_round = divided.collect();
    }
    let values: Vec<f64> = by_round.into_iter().map(|(_, value)| value).collect();
    let estimate = Estimate::of_median(&values);
    let verdict = verdict(claim, &values, estimate.as_ref());
    Ok(Judged {
        claim,
        estimate,
        verdict,
    })
}

/// A coverage that was reached up to rounding errors.
const TINY: f64 = 1e-9;

fn verdict(claim: &Claim, values: &[f64], estimate: Option<&Estimate>) -> Verdict {
    let Some(estimate) = estimate else {
        return Verdict::NotMeasured;
    };
    let (low, high) = (claim.low.unwrap_or(f64::MIN), claim.high.unwrap_or(f64::MAX));
    if claim.is_exact {
        match values.iter().all(|value| (low..=high).contains(value)) {
            true => Verdict::Holds,
            false => Verdict::Fails,
        }
    } else if estimate.coverage < CLAIM_COVERAGE - TINY {
        Verdict::TooFewRounds
    } else if estimate.low >= low && estimate.high <= high {
        Verdict::Holds
    } else if estimate.high < low || estimate.low > high {
        Verdict::Fails
    } else {
        Verdict::NotShown
    }
}

/// The widest interval of all exhibits, relative to its value; `None` without any.
#[must_use]
pub fn widest(plan: &Plan, records: &[RunRecord]) -> Option<f64> {
    let results = Results::of(records);
    let exhibits = plan
        .exhibits
        .iter()
        .filter_map(|exhibit| shown(plan, exhibit, &results).ok());
    let widths = exhibits
        .flatten()
        .filter_map(|shown| shown.estimate?.relative_width());
    widths.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_on(values: &[f64], low: Option<f64>, high: Option<f64>) -> Verdict {
        verdict_of(values, low, high, false)
    }

    fn verdict_of(values: &[f64], low: Option<f64>, high: Option<f64>, is_exact: bool) -> Verdict {
        let claim = Claim {
            sentence: String::new(),
            cell: crate::plan::Values::new(),
            of: None,
            paper: None,
            low,
            high,
            is_exact,
            basis: Basis::Predicted,
        };
        verdict(&claim, values, Estimate::of_median(values).as_ref())
    }

    #[test]
    fn a_sentence_holds_or_fails_only_with_its_whole_interval() {
        let values = [1.1, 1.1, 1.2, 1.3, 1.3];
        assert_eq!(verdict_on(&values, Some(1.0), None), Verdict::Holds);
        assert_eq!(verdict_on(&values, Some(1.2), None), Verdict::NotShown);
        assert_eq!(verdict_on(&values, None, Some(1.0)), Verdict::Fails);
        assert_eq!(verdict_on(&values, Some(1.0), Some(1.25)), Verdict::NotShown);
        assert_eq!(verdict_on(&[], Some(1.0), None), Verdict::NotMeasured);
    }

    #[test]
    fn a_verdict_needs_rounds_for_its_interval_unless_the_value_is_an_exact_count() {
        for rounds in 1..5 {
            let values = [1.5; 4];
            let verdict = verdict_on(&values[..rounds], Some(1.0), None);
            assert_eq!(verdict, Verdict::TooFewRounds, "{rounds} rounds");
        }
        let exact = |values: &[f64]| verdict_of(values, Some(4.0), Some(4.0), true);
        assert_eq!(exact(&[4.0]), Verdict::Holds);
        assert_eq!(exact(&[4.0, 4.0, 5.0]), Verdict::Fails);
        assert_eq!(exact(&[]), Verdict::NotMeasured);
    }
}
