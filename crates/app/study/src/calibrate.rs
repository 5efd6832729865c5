//! Finds the time scale of a card at which one ratio has its published value.
//!
//! With `d` the time of the card and `h` that of the host for the same data, the cell takes `d / K + h` and MAX takes
//! `d / K`: its share is `1 / (1 + K h / d)`. One measurement gives `h / d`, and so a better `K`; a few steps are
//! enough, because the model is only about right. Single measurements differ by a tenth, so near the target the median
//! of three counts.

use anyhow::{Context, Result, bail};

use crate::bed::Bed;
use crate::cell::Cell;
use crate::measure::Blocks;
use crate::plan::{Calibration, Plan};

/// The scale of the first measurement.
const FIRST: f64 = 9.0;

/// Scales that a card accepts and a machine can serve.
const RANGE: (f64, f64) = (0.1, 200.0);

/// Scales that are tried before giving up.
const ATTEMPTS: u32 = 6;

/// Measurements of a scale whose first one is near the target.
const REPEATS: usize = 3;

/// That is: at most so many tolerances away.
const NEAR: f64 = 2.0;

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
    let mut scale = FIRST;
    let mut best: Option<Calibrated> = None;
    for _ in 0..ATTEMPTS {
        let share = median_near(calibration, || blocks.share(&cell, scale))?;
        say(&format!(
            "time scale {scale:.2}: share of MAX {share:.3}, wanted {}",
            calibration.target
        ));
        let found = Calibrated { scale, share };
        let distance = |found: &Calibrated| (found.share - calibration.target).abs();
        if best.is_none_or(|best| distance(&found) < distance(&best)) {
            best = Some(found);
        }
        if distance(&found) <= calibration.tolerance / 2.0 {
            break;
        }
        scale = next(scale, share, calibration.target);
    }
    match best {
        Some(best) if (best.share - calibration.target).abs() <= calibration.tolerance => Ok(best),
        Some(best) => bail!(
            "no time scale gives a share of {} (nearest: {:.3} at {:.2}); set environment.time-scale to a number",
            calibration.target,
            best.share,
            best.scale
        ),
        None => bail!("nothing was measured"),
    }
}

/// The share that `measure` gives: of one measurement if that is far from the target, otherwise the median of several.
fn median_near(calibration: &Calibration, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
    let mut shares = vec![measure()?];
    let away = (shares[0] - calibration.target).abs();
    while away <= calibration.tolerance * NEAR && shares.len() < REPEATS {
        shares.push(measure()?);
    }
    shares.sort_by(f64::total_cmp);
    Ok(shares[shares.len() / 2])
}

/// The next scale to try, with two decimals: a card accepts six.
fn next(scale: f64, share: f64, target: f64) -> f64 {
    let better = match share < 1.0 {
        true => scale * (1.0 / target - 1.0) / (1.0 / share - 1.0),
        false => scale * 4.0,
    };
    (better.clamp(RANGE.0, RANGE.1) * 100.0).round() / 100.0
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
            let text = next(9.0, share, 0.18).to_string();
            let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 2, "{text}");
        }
    }

    #[test]
    fn near_the_target_the_median_counts() {
        let calibration = Calibration {
            cell: crate::plan::Values::new(),
            target: 0.18,
            tolerance: 0.01,
        };
        let of = |values: &[f64]| {
            let mut left = values.iter();
            let share = median_near(&calibration, || Ok(*left.next().unwrap())).unwrap();
            (share, left.len())
        };
        assert_eq!(of(&[0.34, 0.18, 0.18]), (0.34, 2));
        assert_eq!(of(&[0.18, 0.15, 0.17]), (0.17, 0));
        assert_eq!(of(&[0.165, 0.21, 0.2]), (0.2, 0));
    }

    #[test]
    fn a_few_steps_find_the_scale_of_a_host_that_takes_a_fixed_time() {
        let share = |scale: f64| 1.0 / (1.3 + scale * 0.25);
        let mut scale = FIRST;
        for _ in 0..3 {
            scale = next(scale, share(scale), 0.18);
        }
        assert!((share(scale) - 0.18).abs() < 0.005, "{scale}: {}", share(scale));
    }
}
