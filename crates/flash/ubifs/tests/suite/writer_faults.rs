//! Device faults below a mounted read-write file system: each write and each read of a script, once and permanently,
//! from the mount to the unmount, on one chip and on arrays. Expected:
//!
//! - No panic except injected ones, and no wrong content.
//! - A call that encounters a failed write, or a panic, fails, and the file system is read-only from then on: nothing
//!   is written, changes fail with `EROFS` and syncs with `EIO`, and reads continue.
//! - A call that encounters only a failed read has no effect, and later calls work.
//! - The unmount fails unless everything written is on the medium.
//! - The medium as it was left passes `check`, before and after its recovery, and has everything that was synced.
//!
//! Failed programs and erases of a chip are covered by `chip_faults.rs`. To run all of it:
//!
//! `TIDEGATE_FULL=1 CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p ubifs --test suite writer_faults -- --nocapture`

use crate::support::fault_run::{Faults, Left, judge, run};
use crate::support::fault_sweep::{Extent, sweep};
use crate::support::faulty::{Class, Fault, FaultyVolume, Lasting, Outcome};

/// Faults of each write.
const OF_WRITES: [(Outcome, Lasting); 6] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Half, Lasting::Once),
    (Outcome::Done, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
    (Outcome::Half, Lasting::ForEver),
    (Outcome::Panic, Lasting::Once),
];
/// Faults of each read.
const OF_READS: [(Outcome, Lasting); 6] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
    (Outcome::Nothing, Lasting::ForEverThere),
    (Outcome::Done, Lasting::Once),
    (Outcome::Done, Lasting::ForEverThere),
    (Outcome::Panic, Lasting::Once),
];
/// Faults of each wait for the device.
const OF_SETTLES: [(Outcome, Lasting); 2] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
];

/// All faults of a segment.
fn faults(sound: &Left) -> Vec<Fault> {
    let kinds: [&[(Outcome, Lasting)]; 3] = [&OF_WRITES, &OF_READS, &OF_SETTLES];
    let mut faults = Vec::new();
    for ((class, kinds), count) in Class::ALL.into_iter().zip(kinds).zip(sound.operations) {
        for operation in 0..count {
            // Without a cache there are thousands of reads: try one kind on each, in turn.
            let in_turn = usize::try_from(operation).expect("few") % kinds.len();
            let kinds = if count > 1000 {
                &kinds[in_turn..=in_turn]
            } else {
                kinds
            };
            faults.extend(kinds.iter().map(|(outcome, lasting)| Fault {
                class,
                operation,
                outcome: *outcome,
                lasting: *lasting,
            }));
        }
    }
    // Recovery can't tell noise from a torn write.
    faults.retain(|fault| {
        (fault.class, fault.outcome) != (Class::Read, Outcome::Done) || fault.operation >= sound.mount_reads
    });
    faults
}

fn name_of(fault: Fault) -> String {
    let Fault {
        class,
        operation,
        outcome,
        lasting,
    } = fault;
    format!("{class:?}:{operation}:{outcome:?}:{lasting:?}")
}

impl Faults for FaultyVolume {
    fn hit(&self) -> Option<String> {
        Self::hit(self)
    }

    fn mend(&self) {
        Self::mend(self);
    }

    fn reads(&self) -> u64 {
        self.done(Class::Read)
    }

    fn writes(&self) -> u64 {
        self.done(Class::Write)
    }

    fn are_of_reads(&self) -> bool {
        self.fault().is_some_and(|fault| fault.class == Class::Read)
    }

    fn panic(&self) -> bool {
        self.fault().is_some_and(|fault| fault.outcome == Outcome::Panic)
    }
}

fn sweep_volume(members: usize, segments: u64) {
    let extent = Extent {
        members,
        segments,
        every: 41,
        least: (10_000, 150),
    };
    sweep(extent, name_of, faults, |trial| {
        let (medium, replay) = (trial.medium, trial.replay);
        let (volume, work) = medium.attached().expect("it attaches");
        let faulty = FaultyVolume::new(volume, trial.fault);
        let mut left = run(trial, (faulty.clone(), &*work), &*faulty);
        left.operations = Class::ALL.map(|class| faulty.done(class));
        judge(medium, &left, replay);
        left
    });
}

#[test]
fn one_chip_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep_volume(1, 12);
}

#[test]
fn an_array_of_two_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep_volume(2, 9);
}

#[test]
fn an_array_of_four_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep_volume(4, 9);
}
