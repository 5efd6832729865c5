//! One joint fit of the parameters that no source gives, to all numbers of the claims of kind fitted.
//!
//! The search is random at first, then it walks from the best point along each parameter with shrinking steps. It is
//! seeded: the same rules give the same result. Claims of the other kinds are not looked at.

use media::Nanos;
use serde::Serialize;

use super::loads::{Mixes, PaperScale};
use super::measured::{FULL, mb_per_s, share_of_packs};
use super::world::World;
use crate::block::SchedulerKind;
use crate::error::CardError;
use crate::packing::{PackRules, Stop};
use crate::workload::Random;

/// Configuration of a fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitRules {
    /// Number of evaluations.
    pub evaluations: u32,
    /// Seed of the search and of the loads.
    pub seed: u64,
    /// Scale of tio_seq; the real loads run as a whole.
    pub scale: PaperScale,
}

/// A fitted parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Name and unit.
    pub name: &'static str,
    /// Its range.
    pub range: (f64, f64),
    /// Its value.
    pub value: f64,
}

/// A number that was fitted to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    /// The claim.
    pub claim: &'static str,
    /// The paper's number.
    pub paper: f64,
    /// Ours.
    pub ours: f64,
    /// Difference in tolerances: 0.1 for a share, 15 % for a bandwidth.
    pub residual: f64,
}

/// Result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The best parameters.
    pub parameters: Vec<Parameter>,
    /// Their residuals.
    pub residuals: Vec<Residual>,
    /// Sum of the squared residuals.
    pub cost: f64,
    /// The same for the card and the load that the search starts from ([`World::before_the_fit`]).
    pub cost_before: f64,
    /// The same for the preset card, which is the result of an earlier fit ([`World::new`]).
    pub cost_of_preset: f64,
    /// Number of evaluations made.
    pub evaluations: u32,
}

struct Axis {
    name: &'static str,
    /// Value besides the range: 0 for no such thing.
    none: Option<f64>,
    range: (f64, f64),
    get: fn(&World) -> f64,
    set: fn(&mut World, f64),
}

/// The nearest whole number; the ranges are below 2^32.
fn whole(value: f64) -> u32 {
    let seconds = std::time::Duration::from_secs_f64(value.round().max(0.0)).as_secs();
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn milliseconds(time: Nanos) -> f64 {
    results::nearest_f64(time.0) / 1e6
}

fn from_milliseconds(value: f64) -> Nanos {
    Nanos(u64::from(whole(value * 1e3)) * 1000)
}

/// Each shows in the loads of both tables.
const AXES: [Axis; 5] = [
    Axis {
        name: "phone: transfer_ns",
        none: None,
        range: (60_000.0, 300_000.0),
        get: |world| f64::from(world.phone.flash.transfer_ns),
        set: |world, value| world.phone.flash.transfer_ns = whole(value),
    },
    Axis {
        name: "phone: program_slc_us",
        none: None,
        range: (200.0, 1500.0),
        get: |world| f64::from(world.phone.flash.program_slc_us),
        set: |world, value| world.phone.flash.program_slc_us = whole(value),
    },
    Axis {
        name: "phone: command_ns",
        none: None,
        range: (20_000.0, 400_000.0),
        get: |world| f64::from(world.phone.controller.command_ns),
        set: |world, value| world.phone.controller.command_ns = whole(value),
    },
    Axis {
        name: "phone: packed_entry_ns",
        none: Some(0.0),
        range: (1_000.0, 400_000.0),
        get: |world| f64::from(world.phone.controller.packed_entry_ns),
        set: |world, value| world.phone.controller.packed_entry_ns = whole(value),
    },
    Axis {
        name: "load: ms between reads of other programs",
        none: Some(0.0),
        range: (5.0, 5_000.0),
        get: |world| milliseconds(world.reads_every),
        set: |world, value| world.reads_every = from_milliseconds(value),
    },
];

impl World {
    /// Takes over the value of a fitted parameter; `None` if none has this name.
    #[must_use]
    pub fn with_parameter(mut self, name: &str, value: f64) -> Option<Self> {
        let axis = AXES.iter().find(|axis| axis.name == name)?;
        let (low, high) = axis.range;
        let is_none = axis.none.is_some_and(|none| none.total_cmp(&value).is_eq());
        (is_none || low <= value && value <= high).then(|| {
            (axis.set)(&mut self, value);
            self
        })
    }

    /// Names and ranges of all fitted parameters.
    pub fn parameters() -> impl Iterator<Item = (&'static str, (f64, f64))> {
        AXES.iter().map(|axis| (axis.name, axis.range))
    }
}

impl Parameter {
    /// Whether the value is at the end of its range, so that a better one may lie beyond.
    #[must_use]
    pub fn is_at_its_end(&self) -> bool {
        let (low, high) = self.range;
        self.value <= low * 1.01 || self.value >= high / 1.01
    }
}

fn residuals(world: &World, scale: PaperScale, mixes: &Mixes) -> Result<Vec<Residual>, CardError> {
    let cfq = world.tio_seq(scale, SchedulerKind::Cfq, PackRules::PHONE.max_requests)?;
    let (drive, install) = (world.mix(&mixes.google_drive)?, world.mix(&mixes.app_install)?);
    let share = |claim, paper, ours: f64| Residual {
        claim,
        paper,
        ours,
        residual: (ours - paper) / 0.1,
    };
    let rate = |claim, paper: f64, ours: f64| Residual {
        claim,
        paper,
        ours,
        residual: (ours.max(0.001) / paper).ln() / 1.15_f64.ln(),
    };
    Ok(vec![
        share(
            "t1-noreq",
            203.0 / 267.0,
            share_of_packs(&cfq, &[Stop::NoRequest]),
        ),
        share("t1-rand", 58.0 / 267.0, share_of_packs(&cfq, &[Stop::Random])),
        share("t1-full", 4.0 / 267.0, share_of_packs(&cfq, &FULL)),
        rate("t3-google-drive", 24.146, mb_per_s(&drive)),
        rate("t3-app-install", 36.179, mb_per_s(&install)),
    ])
}

fn cost(residuals: &[Residual]) -> f64 {
    residuals.iter().map(|residual| residual.residual.powi(2)).sum()
}

/// Fits all parameters. Calls `progress` after each evaluation with its number and the lowest cost so far.
///
/// # Errors
/// If a card cannot be built.
pub fn fit(rules: FitRules, mixes: &Mixes, mut progress: impl FnMut(u32, f64)) -> Result<Fit, CardError> {
    let before = World::before_the_fit(rules.seed)?;
    let cost_of_preset = cost(&residuals(&World::new(rules.seed)?, rules.scale, mixes)?);
    let mut done = 0;
    let evaluate = |values: &[f64]| -> Result<(f64, Vec<Residual>), CardError> {
        let mut world = before.clone();
        for (axis, value) in AXES.iter().zip(values) {
            (axis.set)(&mut world, *value);
        }
        let residuals = residuals(&world, rules.scale, mixes)?;
        Ok((cost(&residuals), residuals))
    };
    let start: Vec<f64> = AXES.iter().map(|axis| (axis.get)(&before)).collect();
    let (cost_before, mut best_residuals) = evaluate(&start)?;
    let (mut best, mut lowest) = (start, cost_before);
    let mut random = Random::named(rules.seed, "fit");
    let mut consider = |values: Vec<f64>,
                        best: &mut Vec<f64>,
                        lowest: &mut f64,
                        best_residuals: &mut Vec<Residual>|
     -> Result<bool, CardError> {
        let (cost, residuals) = evaluate(&values)?;
        done += 1;
        let improved = cost < *lowest;
        if improved {
            (*best, *lowest, *best_residuals) = (values, cost, residuals);
        }
        progress(done, *lowest);
        Ok(improved)
    };
    let exploring = rules.evaluations / 2;
    for _ in 0..exploring {
        let values = AXES.iter().map(|axis| {
            let (low, high) = axis.range;
            let part = results::nearest_f64(random.below(1 << 20)) / 1_048_576.0;
            low * (high / low).powf(part)
        });
        consider(values.collect(), &mut best, &mut lowest, &mut best_residuals)?;
    }
    let mut left = rules.evaluations - exploring;
    let mut step = 1.6_f64;
    while left > 0 && step > 1.01 {
        let mut improved = false;
        for place in 0..AXES.len() {
            for factor in [step, 1.0 / step] {
                if left == 0 {
                    break;
                }
                left -= 1;
                let (low, high) = AXES[place].range;
                let mut values = best.clone();
                values[place] = (values[place] * factor).clamp(low, high);
                improved |= consider(values, &mut best, &mut lowest, &mut best_residuals)?;
            }
        }
        if !improved {
            step = step.sqrt();
        }
    }
    let parameters = AXES.iter().zip(&best).map(|(axis, value)| Parameter {
        name: axis.name,
        range: axis.range,
        value: *value,
    });
    Ok(Fit {
        parameters: parameters.collect(),
        residuals: best_residuals,
        cost: lowest,
        cost_before,
        cost_of_preset,
        evaluations: rules.evaluations + 1,
    })
}
