//! The progress of a study in words.

use anyhow::Result;
use results::RunRecord;
use results::words::counted;

use crate::cell::blocks;
use crate::folder::{State, place};
use crate::plan::Plan;

/// Counts of cells and rounds in one line.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn progress(plan: &Plan, state: &State, records: &[RunRecord]) -> Result<String> {
    let places: Vec<_> = records.iter().filter_map(place).collect();
    let failed = places.iter().filter(|place| place.failed.is_some()).count();
    let left_out = places.iter().filter(|place| place.left_out.is_some()).count();
    let mut text = if state.is_race {
        // Each round of a race has fewer cells than the one before; nothing tells how many there will be.
        let rounds = records.iter().map(|record| record.round).max();
        let rounds = rounds.map_or(0, |last| last.saturating_add(1));
        format!(
            "{} measured in {} of a race",
            counted(places.len(), "cell"),
            counted(rounds, "round")
        )
    } else {
        let blocks = blocks(plan)?;
        let in_round = |round| blocks.iter().map(|block| block.order(round).len()).sum::<usize>();
        let all: usize = (0..state.rounds).map(in_round).sum();
        format!(
            "{} of {} measured in {}",
            places.len() - left_out,
            counted(all, "cell"),
            counted(state.rounds, "round")
        )
    };
    text += &format!(", {failed} of them failed");
    if left_out > 0 {
        text += &format!("; {left_out} left out");
    }
    Ok(text)
}
