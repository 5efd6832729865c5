//! Tries all faults of a random script, or a sample: each segment is run and checked once without a fault, then once
//! per fault.
//!
//! A failure prints its fault; `TIDEGATE_REPLAY` runs that one. Without `TIDEGATE_FULL` a sample is tried, with it
//! all faults, or with `TIDEGATE_PART=2/8` the second of eight parts, to split a long run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::fault_run::{Left, Tally, hush};
use super::medium::Medium;
use super::sweep::{Segment, Sweep};

/// A part of all faults.
struct Part {
    number: u64,
    of: u64,
}

impl Part {
    fn from_environment() -> Self {
        let Ok(text) = std::env::var("TIDEGATE_PART") else {
            return Self { number: 1, of: 1 };
        };
        let part = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&number).then_some(Self { number, of })
        });
        part.unwrap_or_else(|| panic!("TIDEGATE_PART={text}: expected a part such as 2/8"))
    }

    fn has(&self, turn: usize) -> bool {
        u64::try_from(turn).expect("few") % self.of == self.number - 1
    }
}

/// One run of a segment, with everything needed to check it.
pub struct Trial<'a, F> {
    pub sweep: Sweep,
    pub segment: &'a Segment,
    pub medium: &'a Medium,
    pub fault: Option<F>,
    /// How to run this fault again.
    pub replay: &'a str,
    pub tally: &'a mut Tally,
}

/// Number of faults to try.
#[derive(Clone, Copy)]
pub struct Extent {
    pub members: usize,
    /// Segments of a full run; 4 otherwise.
    pub segments: u64,
    /// Sampling step without `TIDEGATE_FULL`: must be coprime to the numbers of fault kinds.
    pub every: usize,
    /// Minimum number of faults: of a full run, and of a sample.
    pub least: (u64, u64),
}

/// Tries the faults of a script. `faults` lists the faults of a segment, given its run without a fault.
pub fn sweep<F: Copy>(
    extent: Extent,
    name_of: impl Fn(F) -> String,
    faults: impl Fn(&Left) -> Vec<F>,
    try_one: impl Fn(Trial<'_, F>) -> Left,
) -> Tally {
    hush();
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let part = Part::from_environment();
    let members = extent.members;
    let sweep = Sweep {
        members,
        redundancy: array::Redundancy::None,
        segments: if testkit::is_full() { extent.segments } else { 4 },
        steps: 60,
        // Few enough that garbage collection runs. An array has this many on each member.
        blocks: if members == 1 { 50 } else { 40 },
    };
    let (mut tally, mut collected, mut failures) = (Tally::default(), 0, Vec::new());
    for segment in sweep.segments() {
        let sound = try_one(Trial {
            sweep,
            segment: &segment,
            medium: &segment.start.copy(),
            fault: None,
            replay: "without a fault",
            tally: &mut Tally::default(),
        });
        collected += sound.collected;
        for (turn, fault) in faults(&sound).into_iter().enumerate() {
            let alone = format!("{members}:{}:{}", segment.number, name_of(fault));
            let replay = format!("TIDEGATE_FULL=1 TIDEGATE_REPLAY={alone}");
            let wanted = match &only {
                Some(only) => *only == alone,
                None if testkit::is_full() => part.has(turn),
                None => turn.is_multiple_of(extent.every),
            };
            if !wanted {
                continue;
            }
            let noticed = tally.noticed();
            let trial = Trial {
                sweep,
                segment: &segment,
                medium: &segment.start.copy(),
                fault: Some(fault),
                replay: &replay,
                tally: &mut tally,
            };
            if let Err(why) = catch_unwind(AssertUnwindSafe(|| try_one(trial))) {
                let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
                let why: String = why.chars().take(600).collect();
                println!("FAILED {why}");
                failures.push(why);
            }
            tally.faults += 1;
            tally.unnoticed += u64::from(noticed == tally.noticed());
        }
    }
    println!("{members} members: {tally:?}, {} failures", failures.len());
    failures.truncate(12);
    assert!(failures.is_empty(), "the first ones: {failures:#?}");
    assert!(collected > 0, "no garbage was collected");
    let least = match testkit::is_full() {
        true => extent.least.0 / part.of,
        false => extent.least.1,
    };
    assert!(tally.faults >= least || only.is_some(), "{tally:?}");
    tally
}
