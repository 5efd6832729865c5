//! What must hold of the paper's structure at a small scale. Numbers at full scale are in `docs/emmc.md`.

use super::*;
use crate::block::SchedulerKind;
use crate::packing::{PackRules, Stop};

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
