//! The sentence beside a figure whose cells ran in the lab guest: machine, kernel, and the noise of its raw device.

use std::collections::BTreeSet;

use report::number::significant;
use results::{Estimate, RunRecord};

use crate::cell::{Cell, MACHINE};
use crate::evidence::{Results, Shown};
use crate::folder::place;

/// The sentence; `None` for a figure of this machine.
#[must_use]
pub fn sentence(shown: &[Shown], results: &Results<'_>) -> Option<String> {
    let cells: Vec<&Cell> = shown
        .iter()
        .map(|shown| &shown.slot.cell)
        .filter(|cell| !cell.value(MACHINE).is_empty())
        .collect();
    if cells.is_empty() {
        return None;
    }
    let mut text = "A panel of its own, measured in the lab guest".to_owned();
    let mut records = cells.iter().flat_map(|cell| results.records(cell));
    let Some(first) = records.next() else {
        return Some(text + "; nothing was measured.");
    };
    let machine = place(first).and_then(|place| place.machine);
    text += &format!(
        " ({}; {}): its processors differ from this machine's, so that its values are to be compared only with each other.",
        first.host.kernel,
        machine.unwrap_or_else(|| "virtual machine unknown".to_owned())
    );
    let limits: BTreeSet<Cell> = cells.iter().map(|cell| cell.max_of()).collect();
    let speeds: Vec<f64> = limits
        .iter()
        .flat_map(|cell| results.records(cell))
        .filter_map(RunRecord::mb_per_s)
        .collect();
    if let Some(estimate) = Estimate::of_median(&speeds) {
        let (low, high) = speeds.iter().fold((f64::MAX, f64::MIN), |(low, high), speed| {
            (low.min(*speed), high.max(*speed))
        });
        text += &format!(
            " MAX is the guest's own raw device: {} MB/s, between {} and {} in {} runs.",
            significant(estimate.value),
            significant(low),
            significant(high),
            speeds.len()
        );
    }
    Some(text)
}
