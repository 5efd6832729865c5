//! Chip faults below UBI and a mounted read-write file system: each read, program and erase of a script, from the
//! attach to the unmount, on one chip and on arrays. Expected:
//!
//! - Up to three failed or uncorrectable reads in a row, correctable bit flips, and a failed program or erase, once
//!   or permanently in that block: not noticed above UBI; all calls succeed, and everything is there.
//! - Faults that UBI can't handle (all blocks fail, the host fails, the code panics): UBI stops writing, and the file
//!   system responds as in `writer_faults.rs`. A read that fails four times, or whose data is lost, is an error of
//!   its call.
//! - The medium as it was left passes `check` and has everything that was synced. If too many blocks went bad to
//!   attach it read-write, it is still readable.
//!
//! `TIDEGATE_FULL=1 CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p ubifs --test suite chip_faults -- --nocapture`
#![expect(
    clippy::print_stdout,
    reason = "how many faults there were, for who asks with --nocapture"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::fault_run::{Faults, Left, calling, judge, run};
use crate::support::fault_sweep::{Extent, Trial, sweep};
use crate::support::faulty_chip::{ChipFault, ChipOperation, ChipPlan, FaultyChip};
use crate::support::medium::{Medium, assert_sound};
use crate::support::script::tree_of;
use ubi::Access;
use ubifs::{MountedOptions, MountedUbifs, OpenOptions, Ubifs};

/// A fault of the nth operation of a class.
type Fault = (ChipOperation, u64, ChipFault);

const ALL: [ChipOperation; 3] = [ChipOperation::Read, ChipOperation::Program, ChipOperation::Erase];
/// Read attempts by UBI.
const ATTEMPTS: u32 = 4;
const OF_READS: [ChipFault; 9] = [
    ChipFault::Host(1),
    ChipFault::Uncorrectable(1),
    ChipFault::Flips,
    ChipFault::Host(ATTEMPTS - 1),
    ChipFault::Uncorrectable(ATTEMPTS - 1),
    ChipFault::Host(ATTEMPTS),
    ChipFault::Uncorrectable(ATTEMPTS),
    ChipFault::Lost,
    ChipFault::Panic,
];
const OF_WRITES: [ChipFault; 5] = [
    ChipFault::Once,
    ChipFault::ForEver,
    ChipFault::Everywhere,
    ChipFault::Host(1),
    ChipFault::Panic,
];

/// Whether UBI handles the fault.
fn is_mended((operation, _, fault): Fault) -> bool {
    match fault {
        ChipFault::Host(times) | ChipFault::Uncorrectable(times) => {
            operation == ChipOperation::Read && times < ATTEMPTS
        }
        ChipFault::Flips | ChipFault::Once | ChipFault::ForEver => true,
        ChipFault::Lost | ChipFault::Everywhere | ChipFault::Panic => false,
    }
}

/// All faults of a segment.
fn faults(sound: &Left) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (operation, count) in ALL.into_iter().zip(sound.operations) {
        let kinds: &[ChipFault] = match operation {
            ChipOperation::Read => &OF_READS,
            ChipOperation::Program | ChipOperation::Erase => &OF_WRITES,
        };
        for number in 0..count {
            // There are thousands of reads: try one kind on each, in turn.
            let in_turn = usize::try_from(number).expect("few") % kinds.len();
            let kinds = match operation {
                ChipOperation::Read => &kinds[in_turn..=in_turn],
                ChipOperation::Program | ChipOperation::Erase => kinds,
            };
            faults.extend(kinds.iter().map(|fault| (operation, number, *fault)));
        }
    }
    // Recovery can't tell noise from a torn write.
    let noise = [ChipFault::Uncorrectable(ATTEMPTS), ChipFault::Lost];
    faults.retain(|(_, number, fault)| !noise.contains(fault) || *number >= sound.mount_reads);
    faults
}

/// The fault planned for a run.
struct Planned {
    plan: ChipPlan,
    fault: Option<Fault>,
}

impl Faults for Planned {
    fn hit(&self) -> Option<String> {
        self.plan.hit()
    }

    fn mend(&self) {
        self.plan.mend();
    }

    fn reads(&self) -> u64 {
        self.plan.done(ChipOperation::Read)
    }

    fn writes(&self) -> u64 {
        self.plan.done(ChipOperation::Program) + self.plan.done(ChipOperation::Erase)
    }

    fn are_of_reads(&self) -> bool {
        self.fault
            .is_some_and(|(operation, _, _)| operation == ChipOperation::Read)
    }

    fn panic(&self) -> bool {
        self.fault.is_some_and(|(_, _, fault)| fault == ChipFault::Panic)
    }
}

/// Attaches, mounts, runs and checks a segment. Also returns the number of blocks that went bad.
fn try_one(trial: Trial<'_, Fault>) -> (Left, usize) {
    let (medium, replay) = (trial.medium, trial.replay);
    let faults = Planned {
        plan: ChipPlan::default(),
        fault: trial.fault,
    };
    if let Some((operation, number, fault)) = trial.fault {
        faults.plan.fail(operation, number, fault);
    }
    let before = trial.tally.noticed();
    let tally_after;
    let mut left = {
        let wrap = |chip: &_| FaultyChip {
            chip: Arc::clone(chip),
            plan: faults.plan.clone(),
        };
        match calling(&faults, || medium.attached_through(wrap, Access::ReadWrite)) {
            Some(Ok((volume, work))) => {
                let tally = &mut *trial.tally;
                let left = run(Trial { tally, ..trial }, (volume, &*work), &faults);
                tally_after = trial.tally.noticed();
                left
            }
            refused => {
                let why = refused.map(|attached| attached.err());
                assert!(faults.hit().is_some(), "{replay}: {why:?}");
                trial.tally.mounts += 1;
                tally_after = trial.tally.noticed();
                Left::unmounted(trial.segment)
            }
        }
    };
    left.operations = ALL.map(|operation| faults.plan.done(operation));
    if trial.fault.is_none_or(is_mended) {
        assert_eq!(
            before,
            tally_after,
            "{replay}: it was noticed: {:?}",
            faults.hit()
        );
    }
    let bad_blocks = medium.bad_blocks();
    match medium.copy().attached() {
        Ok(_) => judge(medium, &left, replay),
        Err(why) => {
            let is_worn_out = trial
                .fault
                .is_some_and(|(_, _, fault)| fault == ChipFault::Everywhere);
            assert!(is_worn_out && bad_blocks > 1, "{replay}: {why}");
            judge_by_reading(medium, &left, replay);
        }
    }
    (left, bad_blocks)
}

/// Like [`judge`], for a medium that is no longer writable.
fn judge_by_reading(medium: &Medium, left: &Left, replay: &str) {
    let attached = medium.attached_through(Arc::clone, Access::ReadOnly);
    let (volume, _) = attached.unwrap_or_else(|error| panic!("{replay}: {error}"));
    assert_sound(&*volume, replay);
    let ubifs = Ubifs::open(volume, OpenOptions::standard());
    let ubifs = ubifs.unwrap_or_else(|error| panic!("{replay}: {error}"));
    let no_loss = Box::new(|finding: &ubifs::Finding| panic!("{finding}"));
    let mounted = MountedUbifs::new(Arc::new(ubifs), MountedOptions::standard(), no_loss);
    let found = tree_of(&mounted).unwrap_or_else(|error| panic!("{replay}: {error}"));
    left.assert_explains(&found, replay);
}

fn sweep_chips(members: usize, segments: u64) {
    let extent = Extent {
        members,
        segments,
        every: 97,
        least: (5000, 70),
    };
    let name_of = |(operation, number, fault): Fault| format!("{operation:?}:{number}:{fault:?}");
    let bad_blocks = AtomicUsize::new(0);
    sweep(extent, name_of, faults, |trial| {
        let (left, bad) = try_one(trial);
        bad_blocks.fetch_add(bad, Ordering::Relaxed);
        left
    });
    let bad_blocks = bad_blocks.into_inner();
    println!("{members} members: {bad_blocks} blocks went bad");
    assert!(bad_blocks > 0 || std::env::var_os("TIDEGATE_REPLAY").is_some());
}

#[test]
fn one_chip_whose_blocks_fail_is_not_noticed_above_ubi() {
    sweep_chips(1, 8);
}

#[test]
fn an_array_of_two_whose_blocks_fail_is_not_noticed_above_ubi() {
    sweep_chips(2, 6);
}

#[test]
fn an_array_of_four_whose_blocks_fail_is_not_noticed_above_ubi() {
    sweep_chips(4, 6);
}
