//! The device fails below a mounted file system that is written to: each write and each read of a script, once and for ever, from the mount
//! to the unmount, on one chip and on arrays. What is wanted:
//!
//! - no panic but those that a test puts in, and no wrong content;
//! - a call that meets a failed write, or a panic, ends in an error, and from there on the file system is read-only: nothing is written, changes
//!   answer `EROFS` and syncs `EIO`, and reads go on as before;
//! - a call that meets a failed read alone changed nothing, and the next ones work;
//! - the unmount fails unless all that was written is on the medium;
//! - the medium as it was left is whole for `check`, before and after its recovery, and has all that was synced.
//!
//! Programs and erases of a chip that fail are the other half: UBI moves the data, and nobody notices, unless no block is good any more.
//!
//! A failure names its fault; `TIDEGATE_REPLAY` runs that one alone. Without `TIDEGATE_FULL` one in some is tried. With it all are, or with
//! `TIDEGATE_PART=1/8` one in eight, so that a long run can be done in pieces:
//!
//! `TIDEGATE_FULL=1 CARGO_PROFILE_TEST_OPT_LEVEL=3 cargo test -p ubifs --test writer_faults -- --nocapture`
#![expect(
    clippy::print_stdout,
    reason = "how many faults there were, for who asks with --nocapture"
)]

mod support {
    pub mod array_of;
    pub mod fault_run;
    #[expect(dead_code, reason = "some faults are for other tests")]
    pub mod faulty;
    #[expect(dead_code, reason = "raw images are for other tests")]
    pub mod medium;
    #[expect(dead_code, reason = "the script of the writer alone is for other tests")]
    pub mod rig;
    pub mod script;
    #[expect(dead_code, reason = "power cuts are for other tests")]
    pub mod sweep;
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use support::fault_run::{Left, Tally, hush, judge, run};
use support::faulty::{Class, Fault, Lasting, Outcome};
use support::sweep::{Segment, Sweep};

/// Faults of each operation that writes.
const OF_WRITES: [(Outcome, Lasting); 6] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Half, Lasting::Once),
    (Outcome::Done, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
    (Outcome::Half, Lasting::ForEver),
    (Outcome::Panic, Lasting::Once),
];
/// Of each that reads.
const OF_READS: [(Outcome, Lasting); 6] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
    (Outcome::Nothing, Lasting::ForEverThere),
    (Outcome::Done, Lasting::Once),
    (Outcome::Done, Lasting::ForEverThere),
    (Outcome::Panic, Lasting::Once),
];
/// Of each that waits for the device.
const OF_SETTLES: [(Outcome, Lasting); 2] = [
    (Outcome::Nothing, Lasting::Once),
    (Outcome::Nothing, Lasting::ForEver),
];

/// One in so many faults is tried without `TIDEGATE_FULL`: a number without a divisor in common with those of the kinds.
const EVERY: usize = 41;

/// All faults of a segment.
fn faults(sound: &Left) -> Vec<Fault> {
    let kinds: [&[(Outcome, Lasting)]; 3] = [&OF_WRITES, &OF_READS, &OF_SETTLES];
    let mut faults = Vec::new();
    for ((class, kinds), count) in Class::ALL.into_iter().zip(kinds).zip(sound.operations) {
        for operation in 0..count {
            // Without a cache there are thousands of reads: one kind each, in turn.
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
    // A recovery can't tell noise from a write that power tore.
    faults.retain(|fault| {
        (fault.class, fault.outcome) != (Class::Read, Outcome::Done) || fault.operation >= sound.mount_reads
    });
    faults
}

fn replay_of(sweep: Sweep, segment: &Segment, fault: Fault) -> String {
    let Fault {
        class,
        operation,
        outcome,
        lasting,
    } = fault;
    let (members, number) = (sweep.members, segment.number);
    format!(
        "TIDEGATE_FULL=1 TIDEGATE_REPLAY={members}:{number}:{class:?}:{operation}:{outcome:?}:{lasting:?}"
    )
}

/// A part of all faults: `TIDEGATE_PART=2/8` has the second of eight, so that a long run can be done in pieces.
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

/// All faults of a script, or some of them.
fn sweep(members: usize, segments: u64) {
    hush();
    let only = std::env::var("TIDEGATE_REPLAY").ok();
    let part = Part::from_environment();
    let sweep = Sweep {
        members,
        segments: if testkit::is_full() { segments } else { 4 },
        steps: 60,
        // So few that garbage is collected. An array has all of them.
        blocks: if members == 1 { 50 } else { 40 },
    };
    let (mut tally, mut collected, mut failures) = (Tally::default(), 0, Vec::new());
    for segment in sweep.segments() {
        let start = segment.start.copy();
        let sound = run(
            sweep,
            &segment,
            &start,
            None,
            "without a fault",
            &mut Tally::default(),
        );
        judge(&start, &sound, "without a fault");
        collected += sound.collected;
        for (turn, fault) in faults(&sound).into_iter().enumerate() {
            let replay = replay_of(sweep, &segment, fault);
            let wanted = match &only {
                Some(only) => replay.ends_with(&format!("={only}")),
                None if testkit::is_full() => part.has(turn),
                None => turn.is_multiple_of(EVERY),
            };
            if !wanted {
                continue;
            }
            let medium = segment.start.copy();
            let noticed = (tally.mounts, tally.calls, tally.read_only, tally.ends);
            let judged = catch_unwind(AssertUnwindSafe(|| {
                let left = run(sweep, &segment, &medium, Some(fault), &replay, &mut tally);
                judge(&medium, &left, &replay);
            }));
            if let Err(why) = judged {
                let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
                let why: String = why.chars().take(600).collect();
                println!("FAILED {why}");
                failures.push(why);
            }
            tally.faults += 1;
            let is_unnoticed = noticed == (tally.mounts, tally.calls, tally.read_only, tally.ends);
            tally.unnoticed += u64::from(is_unnoticed);
        }
    }
    println!("{members} members: {tally:?}, {} failures", failures.len());
    failures.truncate(12);
    assert!(failures.is_empty(), "the first ones: {failures:#?}");
    assert!(collected > 0, "no garbage was collected");
    let least = if testkit::is_full() { 10_000 / part.of } else { 150 };
    assert!(tally.faults >= least || only.is_some(), "{tally:?}");
}

#[test]
fn one_chip_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep(1, 12);
}

#[test]
fn an_array_of_two_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep(2, 9);
}

#[test]
fn an_array_of_four_reads_on_and_keeps_what_was_synced_whatever_fails() {
    sweep(4, 9);
}
