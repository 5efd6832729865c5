//! Tune: a race of settings for one workload, then a fresh comparison of the winner with the default setting.
//!
//! All settings run for [`SCREENING`] rounds. After each later round only those stay whose interval overlaps the best
//! one's, and at most half of them, until [`FINALISTS`] are left, which run [`FINAL_ROUNDS`] rounds more. Speeds are divided
//! by the default's of the same round, so that a change of the machine affects all alike.
//!
//! The best of many noisy results looks better than it is. The race therefore only picks the winner; its gain is measured
//! by [`CONFIRMING`] rounds that the race has not seen.

pub mod advice;
pub mod axes;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use results::{Estimate, RatioVerdict, RunRecord};
use serde::Serialize;

pub use self::source::Source;
use crate::cell::Cell;
use crate::folder::place;

/// Rounds of all settings.
const SCREENING: u32 = 2;

/// The race ends with at most this many beside the default.
const FINALISTS: usize = 4;

/// Rounds of the finalists and the default.
const FINAL_ROUNDS: u32 = 3;

/// Rounds of winner and default; nine give an interval of 95 % that leaves out one outlier at each end.
const CONFIRMING: u32 = 9;

/// Share of the time for the race; the rest is for the confirming rounds.
const RACE_SHARE: f64 = 0.6;

/// Most combinations of a race.
pub const COMBINATIONS_MAX: u64 = 512;

/// Rounds that any race needs at most: each halving takes one.
pub const ROUNDS_MAX: u32 = SCREENING + 9 + FINAL_ROUNDS + CONFIRMING;

/// A race and its confirming rounds.
#[derive(Clone, Debug)]
pub struct Race {
    base: Cell,
    racing: BTreeSet<Cell>,
    phase: Phase,
    /// Rounds of the finalists so far.
    final_rounds: u32,
    time: Option<Duration>,
    began: Instant,
}

#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Race,
    Confirming {
        winner: Cell,
        first_round: u32,
    },
    /// The default won the race, or has no speed.
    Over,
}

/// Result of a race.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The default setting.
    pub base: Cell,
    /// The fastest setting of the race; `None` if that is the default, or nothing could be compared.
    pub winner: Option<Cell>,
    /// Winner over default in the confirming rounds.
    pub gain: Option<Estimate>,
    /// Settings that failed in a round, each with its last reason: nothing is known about them.
    pub failed: Vec<(Cell, String)>,
}

impl Tuned {
    /// The setting to use; `None` for the default.
    #[must_use]
    pub fn better(&self) -> Option<&Cell> {
        let is_faster = self
            .gain
            .is_some_and(|gain| gain.verdict() == RatioVerdict::Higher);
        self.winner.as_ref().filter(|_| is_faster)
    }
}

impl Race {
    /// A race of these cells against `base`, which is one of them; `time` is for everything.
    #[must_use]
    pub fn new(cells: impl IntoIterator<Item = Cell>, base: Cell, time: Option<Duration>) -> Self {
        let mut racing: BTreeSet<Cell> = cells.into_iter().collect();
        racing.insert(base.clone());
        Self {
            base,
            racing,
            phase: Phase::Race,
            final_rounds: 0,
            time,
            began: Instant::now(),
        }
    }

    /// Whether a cell runs in the next round.
    #[must_use]
    pub fn runs(&self, cell: &Cell) -> bool {
        self.racing.contains(cell)
    }

    /// Decides after a round which cells go on; returns a message, and whether there is another round.
    pub fn after_round(&mut self, rounds_done: u32, records: &[RunRecord]) -> (Option<String>, bool) {
        let part = |share: f64| {
            self.time
                .is_some_and(|time| self.began.elapsed() >= time.mul_f64(share))
        };
        match &self.phase {
            Phase::Race => {
                let is_late = part(RACE_SHARE);
                self.raced(rounds_done, records, is_late)
            }
            Phase::Confirming { first_round, .. } => {
                let goes_on = rounds_done < first_round + CONFIRMING && !part(1.0);
                (None, goes_on)
            }
            Phase::Over => (None, false),
        }
    }

    fn raced(&mut self, rounds_done: u32, records: &[RunRecord], is_late: bool) -> (Option<String>, bool) {
        let standings = standings(&self.base, &self.racing, 0, rounds_done, records);
        let Some((best, estimate)) = standings.first().cloned() else {
            self.phase = Phase::Over;
            return (None, false);
        };
        // The default always runs: all others are compared with it.
        let before = self.racing.len() - 1;
        if before <= FINALISTS && rounds_done > SCREENING {
            self.final_rounds += 1;
        }
        if is_late || self.final_rounds >= FINAL_ROUNDS || standings.len() == 1 {
            let message = format!("{} settings are left; ", standings.len());
            if best == self.base {
                self.phase = Phase::Over;
                return (Some(message + "the default is the fastest"), false);
            }
            self.racing = [self.base.clone(), best.clone()].into();
            self.phase = Phase::Confirming {
                winner: best,
                first_round: rounds_done,
            };
            let message =
                format!("{message}confirming the winner against the default in {CONFIRMING} new rounds");
            return (Some(message), true);
        }
        if rounds_done < SCREENING {
            return (None, true);
        }
        let most = match before > FINALISTS {
            true => before.div_ceil(2).max(FINALISTS),
            false => before,
        };
        let overlaps = |(_, other): &&(Cell, Estimate)| other.high >= estimate.low;
        let rivals = standings.iter().filter(|(cell, _)| *cell != self.base);
        let kept = rivals.filter(overlaps).take(most);
        self.racing = kept.map(|(cell, _)| cell.clone()).collect();
        let left = self.racing.len();
        self.racing.insert(self.base.clone());
        let message = (left < before).then(|| {
            let gain = (estimate.value - 1.0) * 100.0;
            format!(
                "round {rounds_done}: {left} of {before} settings go on; the best is {gain:+.0} % from the default"
            )
        });
        (message, true)
    }

    /// The result, from all records.
    #[must_use]
    pub fn tuned(&self, records: &[RunRecord]) -> Tuned {
        let (winner, gain) = match &self.phase {
            Phase::Confirming { winner, first_round } => {
                let cells = [winner.clone()].into();
                let gain = standings(&self.base, &cells, *first_round, u32::MAX, records);
                (Some(winner.clone()), gain.first().map(|(_, gain)| *gain))
            }
            Phase::Race | Phase::Over => (None, None),
        };
        Tuned {
            base: self.base.clone(),
            winner,
            gain,
            failed: failures(records),
        }
    }
}

/// The cells that failed in a round, each with its last reason.
fn failures(records: &[RunRecord]) -> Vec<(Cell, String)> {
    let places = records.iter().filter_map(place);
    let failed: BTreeMap<Cell, String> = places
        .filter_map(|place| Some((place.cell, place.failed?)))
        .collect();
    failed.into_iter().collect()
}

/// The ratios of cells to the default in the rounds from `first` to before `end`, the highest median first. Cells that
/// failed in a round are left out.
fn standings(
    base: &Cell,
    cells: &BTreeSet<Cell>,
    first: u32,
    end: u32,
    records: &[RunRecord],
) -> Vec<(Cell, Estimate)> {
    let mut speeds: BTreeMap<Cell, BTreeMap<u32, f64>> = BTreeMap::new();
    let mut failed = BTreeSet::new();
    let in_time = records
        .iter()
        .filter(|record| (first..end).contains(&record.round));
    for record in in_time {
        let Some(place) = place(record) else {
            continue;
        };
        let speed = record
            .mb_per_s()
            .filter(|speed| speed.is_finite() && *speed > 0.0);
        match speed.filter(|_| place.failed.is_none() && record.complete) {
            Some(speed) => {
                speeds.entry(place.cell).or_default().insert(record.round, speed);
            }
            None => {
                failed.insert(place.cell);
            }
        }
    }
    let Some(below) = speeds.get(base) else {
        return Vec::new();
    };
    let ratios = |cell: &Cell| {
        let own = speeds.get(cell).filter(|_| !failed.contains(cell))?;
        let ratios: Vec<f64> = own
            .iter()
            .filter_map(|(round, speed)| Some(speed / below.get(round)?))
            .collect();
        Estimate::of_median(&ratios)
    };
    let mut standings: Vec<(Cell, Estimate)> = cells
        .iter()
        .filter_map(|cell| Some((cell.clone(), ratios(cell)?)))
        .collect();
    standings.sort_by(|(_, left), (_, right)| right.value.total_cmp(&left.value));
    standings
}

/// Why the default setting was never measured; `None` if it was, or was not tried.
#[must_use]
pub fn failure_of(base: &Cell, records: &[RunRecord]) -> Option<String> {
    let was_measured = records.iter().any(|record| {
        record.complete && place(record).is_some_and(|place| place.cell == *base && place.failed.is_none())
    });
    let mut failed = failures(records).into_iter();
    let (_, reason) = failed.find(|(cell, _)| cell == base)?;
    (!was_measured).then_some(reason)
}

/// Whether records of the default exist, but have no speed: the workload moves no data.
#[must_use]
pub fn has_no_speed(base: &Cell, records: &[RunRecord]) -> bool {
    let of_base = |record: &&RunRecord| {
        record.complete && place(record).is_some_and(|place| place.cell == *base && place.failed.is_none())
    };
    let mut own = records.iter().filter(of_base).peekable();
    own.peek().is_some() && own.all(|record| record.mb_per_s().is_none())
}

#[cfg(test)]
mod tests;
