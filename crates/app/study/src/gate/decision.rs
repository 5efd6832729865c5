//! The decision on each cell, from the speeds of both sides.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use results::{Estimate, RunRecord, nearest_f64};

use super::{Compared, Rule, Verdict};
use crate::cell::Cell;
use crate::folder::place;
use crate::plan::Plan;

/// A coverage that was reached up to rounding errors.
const TINY: f64 = 1e-9;

/// Speeds of a cell.
#[derive(Clone, Debug, Default)]
pub struct Speeds {
    /// MB/s by round.
    by_round: BTreeMap<u32, f64>,
    /// A run that failed or has no speed.
    problem: Option<String>,
    seconds: f64,
}

impl Speeds {
    pub fn missing() -> Self {
        Self {
            problem: Some("it was not measured".to_owned()),
            ..Self::default()
        }
    }

    /// Speeds of a cell that a study should have and does not.
    pub fn missing_in(study: &str) -> Self {
        Self {
            problem: Some(format!("{study} has no record of it")),
            ..Self::default()
        }
    }

    /// Whether a run was tried.
    pub fn has_records(&self) -> bool {
        self.problem.is_some() || !self.by_round.is_empty()
    }
}

/// The cells that a study left out, because the machine lacks something.
pub fn left_out(records: &[RunRecord]) -> BTreeSet<Cell> {
    let places = records.iter().filter_map(place);
    places
        .filter(|place| place.left_out.is_some())
        .map(|place| place.cell)
        .collect()
}

/// The speeds of all cells. Interrupted runs are left out.
pub fn speeds(source: &str, records: &[RunRecord]) -> Result<BTreeMap<Cell, Speeds>> {
    let mut all: BTreeMap<Cell, Speeds> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for record in records {
        let Some(place) = place(record).filter(|place| place.left_out.is_none()) else {
            continue;
        };
        if !seen.insert((place.cell.clone(), record.round)) {
            bail!(
                "{source}: round {} of the cell `{}` was measured twice; the records of two studies were mixed",
                record.round,
                record.label
            );
        }
        let speeds = all.entry(place.cell).or_default();
        let speed = record
            .mb_per_s()
            .filter(|speed| speed.is_finite() && *speed > 0.0);
        match (place.failed, speed) {
            (Some(reason), _) => speeds.problem = Some(format!("round {}: {reason}", record.round)),
            (None, _) if !record.complete => {}
            (None, Some(speed)) => {
                speeds.by_round.insert(record.round, speed);
                let longest = record.samples.iter().map(|sample| sample.elapsed_ns).max();
                speeds.seconds += nearest_f64(longest.unwrap_or(0)) / 1e9;
            }
            (None, None) => speeds.problem = Some(format!("round {}: it has no speed", record.round)),
        }
    }
    Ok(all)
}

/// A cell of both sides.
pub struct Pair {
    pub cell: Cell,
    /// Baseline and measured.
    pub sides: [Speeds; 2],
    /// Both sides ran in the same rounds.
    pub is_paired: bool,
}

impl Pair {
    /// The ratio, with an interval of this coverage if there are enough rounds for it.
    fn estimate(&self, coverage: f64) -> Option<Estimate> {
        let [baseline, measured] = &self.sides;
        if self.is_paired {
            let ratios = measured.by_round.iter().filter_map(|(round, speed)| {
                let below = baseline.by_round.get(round)?;
                Some(speed / below)
            });
            return Estimate::of_ratios_covering(&ratios.collect::<Vec<_>>(), coverage);
        }
        let [baseline, measured] =
            [baseline, measured].map(|side| side.by_round.values().copied().collect::<Vec<_>>());
        Estimate::of_ratio_covering(&baseline, &measured, coverage)
    }

    /// Whether both sides have a speed.
    pub fn has_both_sides(&self) -> bool {
        self.sides.iter().all(|side| !side.by_round.is_empty())
    }

    fn problem(&self) -> Option<&str> {
        self.sides.iter().find_map(|side| side.problem.as_deref())
    }
}

/// The decisions on all cells.
pub fn judged(plan: &Plan, pairs: Vec<Pair>, rule: Rule) -> Vec<Compared> {
    let worse = worse(&pairs, rule);
    let cells: Vec<&Cell> = pairs.iter().map(|pair| &pair.cell).collect();
    let titles = titles(plan, &cells);
    let wanted = 1.0 - rule.error();
    let judge = |(index, (pair, title)): (usize, (Pair, String))| {
        let estimate = pair.estimate(wanted);
        let (verdict, reason) = match (&estimate, pair.problem()) {
            (_, Some(problem)) => (Verdict::NotMeasured, problem.to_owned()),
            (None, None) => (Verdict::NotMeasured, "no round was measured".to_owned()),
            _ if worse.contains(&index) => (Verdict::Worse, String::new()),
            (Some(estimate), None) => alone(estimate, wanted, rule.min_ratio),
        };
        Compared {
            seconds: pair.sides.iter().map(|side| side.seconds).sum(),
            cell: pair.cell,
            title,
            estimate,
            verdict,
            reason,
        }
    };
    pairs.into_iter().zip(titles).enumerate().map(judge).collect()
}

/// The decision on a cell that was not found to be worse.
fn alone(estimate: &Estimate, wanted: f64, min_ratio: f64) -> (Verdict, String) {
    if estimate.coverage < wanted - TINY {
        let reason = format!("{} rounds give no interval of {wanted}", estimate.count);
        (Verdict::TooFewRounds, reason)
    } else if estimate.low >= min_ratio {
        (Verdict::Fine, String::new())
    } else if estimate.high < min_ratio {
        let reason = "below the bound, but so many cells need more rounds for a verdict";
        (Verdict::Undecided, reason.to_owned())
    } else {
        (Verdict::Undecided, "the interval contains the bound".to_owned())
    }
}

/// Numbers of the worse cells, by Holm's steps.
fn worse(pairs: &[Pair], rule: Rule) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    loop {
        let left = u64::try_from(pairs.len() - found.len()).unwrap_or(u64::MAX);
        let wanted = 1.0 - rule.error() / nearest_f64(left.max(1));
        let is_worse = |pair: &Pair| {
            pair.problem().is_none()
                && pair.estimate(wanted).is_some_and(|estimate| {
                    estimate.coverage >= wanted - TINY && estimate.high < rule.min_ratio
                })
        };
        let step: Vec<usize> = (0..pairs.len())
            .filter(|index| !found.contains(index) && is_worse(&pairs[*index]))
            .collect();
        if step.is_empty() {
            return found;
        }
        found.extend(step);
    }
}

/// The values by which each cell differs from the others; for a single cell those that are no defaults of the plan.
pub fn titles(plan: &Plan, cells: &[&Cell]) -> Vec<String> {
    if let [cell] = cells {
        return vec![cell.label(plan)];
    }
    let differs = |axis: &str| {
        let mut values = cells.iter().map(|cell| cell.value(axis));
        values
            .next()
            .is_some_and(|first| values.any(|value| value != first))
    };
    let title = |cell: &&Cell| {
        let own = cell.0.iter().filter(|(axis, _)| differs(axis));
        let words: Vec<String> = own
            .map(|(axis, value)| format!("{}={value}", axis.trim_start_matches("mount.")))
            .collect();
        words.join(" ")
    };
    cells.iter().map(title).collect()
}
