//! Finds the time scale of a card at which one ratio has its published value.
//!
//! With `d` the time of the card and `h` that of the host for the same data, the cell takes `d / K + h` and MAX takes
//! `d / K`: its share is `1 / (1 + K h / d)`. Each measurement gives `h / d`, and the median of them `K`. Single ones
//! differ by a tenth, a few by half; and the model is only about right, so that those far from the target do not count.

use anyhow::{Context, Result, bail};
use results::median;

use crate::bed::Bed;
use crate::cell::Cell;
use crate::measure::Blocks;
use crate::plan::{Calibration, Plan};

/// The scale of the first measurement.
const FIRST: f64 = 9.0;

/// Scales that a card accepts and a machine can serve.
const RANGE: (f64, f64) = (0.1, 200.0);

/// Measurements after the first one.
const MEASUREMENTS: usize = 5;

/// Greatest distance of a scale from the one found at which its shares count, relative to that.
const NEAR: f64 = 0.15;

/// A time scale and the share that was measured with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrated {
    /// The scale.
    pub scale: f64,
    /// The share of MAX, a median.
    pub share: f64,
}

/// Finds the scale.
///
/// # Errors
/// If the share can't be measured, or stays away from its target.
pub fn calibrate(
    plan: &Plan,
    calibration: &Calibration,
    blocks: &Blocks<'_>,
    say: &dyn Fn(&str),
) -> Result<Calibrated> {
    let cell = Cell::of(plan, &[&calibration.cell]).context("environment.calibrate.cell")?;
    let found = fit(calibration.target, |scale| {
        let share = blocks.share(&cell, scale)?;
        say(&format!(
            "time scale {scale:.2}: share of MAX {share:.3}, wanted {}",
            calibration.target
        ));
        Ok(share)
    })?;
    say(&format!(
        "time scale {:.2} is taken: share of MAX {:.3} (median of those near it)",
        found.scale, found.share
    ));
    if (found.share - calibration.target).abs() > calibration.tolerance {
        bail!(
            "no time scale gives a share of {} (nearest: {:.3} at {:.2}); set environment.time-scale to a number",
            calibration.target,
            found.share,
            found.scale
        );
    }
    Ok(found)
}

/// Measures at the scale that the measurements before give, and the first time far from it.
fn fit(target: f64, mut share: impl FnMut(f64) -> Result<f64>) -> Result<Calibrated> {
    let mut scale = scale_of(host_time(FIRST, share(FIRST)?), target);
    let mut measured = Vec::with_capacity(MEASUREMENTS);
    for _ in 0..MEASUREMENTS {
        measured.push((scale, share(scale)?));
        let times: Vec<f64> = measured.iter().map(|found| host_time(found.0, found.1)).collect();
        scale = scale_of(median(&times).unwrap_or(1.0), target);
    }
    let is_near = |found: &&(f64, f64)| (found.0 / scale - 1.0).abs() <= NEAR;
    let near: Vec<f64> = measured.iter().filter(is_near).map(|found| found.1).collect();
    let share =
        median(&near).context("the shares of MAX differ too much; set environment.time-scale to a number")?;
    Ok(Calibrated { scale, share })
}

/// Time of the host for the cell's data, in the time that the card takes for it at real speed.
fn host_time(scale: f64, share: f64) -> f64 {
    (1.0 / share - 1.0) / scale
}

/// The scale at which the share is the target, with two decimals: a card accepts six.
fn scale_of(host_time: f64, target: f64) -> f64 {
    let scale = (1.0 / target - 1.0) / host_time.max(f64::MIN_POSITIVE);
    (scale.clamp(RANGE.0, RANGE.1) * 100.0).round() / 100.0
}

impl Blocks<'_> {
    /// The share of MAX of a cell at a time scale, measured on a card of its own.
    fn share(&self, cell: &Cell, scale: f64) -> Result<f64> {
        let bed = Bed::make(self.children, self.folder.path(), &self.plan.environment, scale)?;
        let limit = self.cell(&bed, &cell.max_of(), None, 0)?;
        let file_system = bed.file_system(cell)?;
        let record = self.cell(&bed, cell, Some(&file_system), 0)?;
        let speeds = record.mb_per_s().zip(limit.mb_per_s());
        speeds
            .map(|(own, limit)| own / limit)
            .context("a cell moved no data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_one_that_a_card_accepts() {
        for share in [0.001, 0.1, 0.489, 1.0, 1.2] {
            let scale = scale_of(host_time(FIRST, share), 0.18);
            assert!((RANGE.0..=RANGE.1).contains(&scale), "{scale}");
            let text = scale.to_string();
            let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 2, "{text}");
        }
    }

    #[test]
    fn the_scale_is_found_on_a_host_some_of_whose_measurements_are_far_off() {
        let noise = [1.0, 0.5, 1.1, 0.9, 1.0, 1.6];
        let share = |scale: f64| 1.0 / (1.3 + scale * 0.25);
        let mut turn = noise.iter();
        let found = fit(0.18, |scale| Ok(share(scale) * turn.next().unwrap())).unwrap();
        assert!((share(found.scale) - 0.18).abs() < 0.012, "{found:?}");
        assert!((found.share - 0.18).abs() < 0.03, "{found:?}");
    }

    #[test]
    fn a_share_that_no_scale_has_is_not_found() {
        let found = fit(0.18, |_| Ok(0.9)).unwrap();
        assert!((found.share - 0.18).abs() > 0.1, "{found:?}");
    }
}
