//! Structural results of the paper, checked at a small scale. Numbers at full scale are in `docs/guide/emmc.md`.

use media::Nanos;

use super::*;
use crate::block::SchedulerKind;
use crate::outcome::Outcome;
use crate::packing::{PackRules, Stop};
use crate::simulation::{Continue, Simulation};
use crate::workload::{JournalRules, StreamRules, stream};

const SMALL: PaperScale = PaperScale {
    permille: 150,
    seed: 1,
};

#[test]
fn cfq_halts_for_want_of_requests_and_the_others_do_not() {
    let halts = |scheduler| {
        let outcome = loads::tio_seq(SMALL, scheduler, PackRules::PHONE).unwrap();
        assert_eq!(
            outcome.driver.halts(Stop::Read) + outcome.driver.halts(Stop::Reliable),
            0
        );
        outcome.driver.halts(Stop::NoRequest)
    };
    let (cfq, deadline, noop) = (
        halts(SchedulerKind::Cfq),
        halts(SchedulerKind::Deadline),
        halts(SchedulerKind::Noop),
    );
    assert!(
        cfq > 4 * deadline.max(1) && cfq > 4 * noop.max(1),
        "{cfq} {deadline} {noop}"
    );
}

/// tio_seq, 320 MiB, on a card of 25 MB/s instead of 37, with a journal commit every second instead of every five.
fn slow_and_synced(scheduler: SchedulerKind) -> Outcome {
    let mut setup = loads::phone(scheduler, PackRules::PHONE).unwrap();
    setup.card.flash.transfer_ns = 300_000;
    let load = stream(StreamRules {
        total_bytes: 320 << 20,
        start: 1 << 19,
        chunk_bytes: 4 << 20,
        memory_bytes_per_s: 200_000_000,
        dirty_bytes: 64 << 20,
        journal: JournalRules {
            interval: Nanos::from_millis(1000),
            ..JournalRules::ext4(1)
        },
    });
    Simulation::new(&setup, load).unwrap().run(|_| Continue::Yes).0
}

/// Why table 1 has few full packs. cfq admits one more request per 100 ms since a commit was late by 125 ms, and a
/// commit is late if more than 25 MB/s x 125 ms = 3 MiB, six requests, are in the driver: too few for a pack of
/// seven.
#[test]
fn where_somebody_often_waits_cfq_leaves_few_full_packs() {
    let (cfq, deadline) = (
        slow_and_synced(SchedulerKind::Cfq),
        slow_and_synced(SchedulerKind::Deadline),
    );
    let share = |outcome: &Outcome| outcome.driver.full_packs() * 100 / outcome.driver.packs;
    assert!(
        share(&cfq) < 40 && share(&deadline) > 80,
        "{} and {} % full",
        share(&cfq),
        share(&deadline)
    );
    let no_request = |outcome: &Outcome| outcome.driver.halts(Stop::NoRequest);
    assert!(no_request(&cfq) > 10 * no_request(&deadline).max(1));
    assert!(cfq.write_mb_per_s() < deadline.write_mb_per_s());
}

#[test]
fn packs_of_random_writes_save_interrupts_and_pages() {
    let small = PaperScale {
        permille: 10,
        ..SMALL
    };
    let alone = loads::tio_rand(small, 1).unwrap();
    let packed = loads::tio_rand(small, 8).unwrap();
    assert!(packed.driver.interrupts * 2 < alone.driver.interrupts);
    assert!(packed.write_mb_per_s() > alone.write_mb_per_s());
}

#[test]
fn bandwidth_has_its_knees_at_page_and_super_page() {
    let rate = |bytes| {
        loads::granularity(SMALL, bytes)
            .unwrap()
            .write_mb_per_s()
            .unwrap()
    };
    assert!(rate(8 << 10) > 1.7 * rate(4 << 10));
    assert!(rate(1 << 20) > 1.3 * rate(128 << 10));
}
