//! Gate: decides for each cell whether a program, or a later study, is slower than its baseline.
//!
//! A cell is *worse* if the whole interval of its ratio of MB/s lies below the bound, *fine* if it lies at or above it,
//! and *undecided* otherwise. The gate passes only if every cell is fine, fails if one is worse, and can't tell otherwise.
//!
//! Error of each decision: 5 %, divided by the number of looks if the rounds end as soon as something is decided. A gate
//! that passes needs every cell to be fine, so that no further care is needed for several cells; one that fails needs
//! only one worse cell, so "worse" is found by Holm's steps: with `m` cells left, its error is divided by `m`.
//!
//! Ratios between two programs are formed within rounds. Those between two studies compare all rounds of one with all
//! rounds of the other; their intervals do not show that the machine itself may have changed in between.

mod conditions;
mod decision;
mod output;

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use results::{CLAIM_COVERAGE, Estimate, RunRecord};
use serde::{Deserialize, Serialize};

use self::decision::{Pair, Speeds, judged, left_out, speeds};
use crate::cell::Cell;
use crate::folder::State;
use crate::plan::{BINARY, Plan};

pub(crate) use decision::titles;
pub use output::{json, junit, markdown, text};

/// Looks at the records of rounds that end early: after an eighth, a quarter, a half and all of them.
pub const LOOKS: u32 = 4;

/// Bound of a gate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rule {
    /// Smallest accepted ratio to the baseline.
    pub min_ratio: f64,
    /// Number of times that the records are judged, including the last; 1, or [`LOOKS`].
    pub looks: u32,
}

/// Decision on one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval lies at or above the bound.
    Fine,
    /// The whole interval lies below it.
    Worse,
    /// The interval contains it.
    Undecided,
    /// No interval of these rounds has the coverage wanted.
    TooFewRounds,
    /// A run failed or has no speed.
    NotMeasured,
}

impl Verdict {
    /// For tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Worse => "worse",
            Self::Undecided => "undecided",
            Self::TooFewRounds => "too few rounds",
            Self::NotMeasured => "not measured",
        }
    }
}

/// Decision on all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every cell is fine.
    Passed,
    /// At least one is worse.
    Failed,
    /// None is worse, and not all are fine.
    Undecided,
}

/// A cell with its ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The cell, without the program under test.
    pub cell: Cell,
    /// The values by which it differs from the others.
    pub title: String,
    /// Measured over baseline.
    pub estimate: Option<Estimate>,
    /// The decision.
    pub verdict: Verdict,
    /// Why it is not decided.
    pub reason: String,
    /// Time of all runs, in seconds.
    pub seconds: f64,
}

/// All shared cells, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Name of the study.
    pub name: String,
    /// Names of the baseline and of the measured side.
    pub sides: [String; 2],
    /// The bound.
    pub rule: Rule,
    /// At least one cell.
    pub cells: Vec<Compared>,
    /// Number of cells that only one of two studies has in its plan, or was able to try.
    pub unshared: usize,
}

/// A study as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'study> {
    /// Its folder, for messages.
    pub name: &'study str,
    /// Its plan, as it was run.
    pub plan: &'study Plan,
    /// Its conditions.
    pub state: &'study State,
    /// Its records.
    pub records: &'study [RunRecord],
}

impl Rule {
    /// Error of an interval, at both ends together.
    fn error(self) -> f64 {
        (1.0 - CLAIM_COVERAGE) / f64::from(self.looks.max(1))
    }

    /// Whether the rounds between two programs may end.
    pub(crate) fn is_decided(
        self,
        plan: &Plan,
        records: &[RunRecord],
        rounds_done: u32,
        rounds: u32,
    ) -> bool {
        let is_look = (1..self.looks).any(|step| rounds_done == rounds.checked_shr(step).unwrap_or(0));
        is_look && of_binaries(plan, records, self).is_ok_and(|gate| gate.outcome() != Outcome::Undecided)
    }
}

impl Gate {
    /// The decision on all cells.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match (self.count(Verdict::Worse), self.count(Verdict::Fine)) {
            (1.., _) => Outcome::Failed,
            (_, fine) if fine > 0 && fine == self.cells.len() => Outcome::Passed,
            _ => Outcome::Undecided,
        }
    }

    /// Number of cells with a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.cells.iter().filter(|cell| cell.verdict == verdict).count()
    }
}

/// Compares the second program of a study with the first, by ratios within rounds.
///
/// # Errors
/// If the study is none of two programs, or a cell was measured twice in a round.
pub fn of_binaries(plan: &Plan, records: &[RunRecord], rule: Rule) -> Result<Gate> {
    let [(baseline, _), (measured, _)] = plan.binaries.as_slice() else {
        bail!(
            "it compares no two programs; name another study by --baseline, or run a plan with two --binary"
        );
    };
    let speeds = speeds("cells.jsonl", records)?;
    let of_baseline = crate::cell::blocks(plan)?
        .into_iter()
        .flat_map(|block| block.cells);
    let pairs = of_baseline
        .filter(|cell| cell.value(BINARY) == baseline)
        .map(|cell| {
            let sides = [baseline, measured].map(|name| speeds.get(&cell.with(BINARY, name)).cloned());
            Pair {
                cell: cell.without(BINARY),
                sides: sides.map(|side| side.unwrap_or_else(Speeds::missing)),
                is_paired: true,
            }
        })
        .collect();
    Ok(Gate {
        name: plan.name.clone(),
        sides: [baseline.clone(), measured.clone()],
        rule,
        cells: judged(plan, pairs, rule),
        unshared: 0,
    })
}

/// The cells of a study's plan, without those that it left out.
fn planned(study: Stored<'_>) -> Result<BTreeSet<Cell>> {
    let left_out = left_out(study.records);
    let blocks = crate::cell::blocks(study.plan)?;
    let cells = blocks.into_iter().flat_map(|block| block.cells);
    Ok(cells.filter(|cell| !left_out.contains(cell)).collect())
}

/// Compares the cells that the plans of two studies share.
///
/// # Errors
/// If they were measured under different conditions or share no cell, or a cell was measured twice in a round.
pub fn of_studies(baseline: Stored<'_>, measured: Stored<'_>, rule: Rule) -> Result<Gate> {
    let differences = conditions::differences(baseline, measured);
    if !differences.is_empty() {
        bail!(
            "{} and {} can't be compared: {}; measure both under the same conditions",
            baseline.name,
            measured.name,
            differences.join("; ")
        );
    }
    let mut below = speeds(baseline.name, baseline.records)?;
    let mut above = speeds(measured.name, measured.records)?;
    let planned = [planned(baseline)?, planned(measured)?];
    let [before, after] = &planned;
    // A cell of both plans without a record is not measured; it must not vanish from the decision.
    let pairs: Vec<Pair> = after
        .intersection(before)
        .map(|cell| Pair {
            sides: [(baseline.name, &mut below), (measured.name, &mut above)].map(|(name, speeds)| {
                let own = speeds.remove(cell).filter(Speeds::has_records);
                own.unwrap_or_else(|| Speeds::missing_in(name))
            }),
            cell: cell.clone(),
            is_paired: false,
        })
        .collect();
    if !pairs.iter().any(Pair::has_both_sides) {
        bail!(
            "{} and {} share no measured cell; `tidegate study check PLAN` lists those of a plan",
            baseline.name,
            measured.name
        );
    }
    Ok(Gate {
        name: measured.plan.name.clone(),
        sides: [baseline.name.to_owned(), measured.name.to_owned()],
        rule,
        unshared: before.union(after).count() - pairs.len(),
        cells: judged(measured.plan, pairs, rule),
    })
}

#[cfg(test)]
mod tests;
