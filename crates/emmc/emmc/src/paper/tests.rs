//! Verdicts, and structural results of the paper at a small scale. Numbers at full scale are in `docs/guide/emmc.md`.

use super::loads::Wear;
use super::*;
use crate::block::SchedulerKind;
use crate::packing::Stop;

const SMALL: PaperScale = PaperScale { permille: 50 };

fn measured(world: &World) -> Measured {
    Measured::run(
        world,
        PaperScale { permille: 10 },
        &Mixes::default(),
        (Extent::Claims, None),
        |_| {},
    )
    .unwrap()
}

#[test]
fn read_and_reliable_write_end_no_pack_whatever_the_scheduler() {
    let world = World::new(1).unwrap();
    for scheduler in [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop] {
        let outcome = world.tio_seq(SMALL, scheduler, 62).unwrap();
        assert_eq!(
            outcome.driver.halts(Stop::Read) + outcome.driver.halts(Stop::Reliable),
            0
        );
    }
}

#[test]
fn packs_of_random_writes_save_interrupts_and_time() {
    let world = World::new(1).unwrap();
    let small = PaperScale { permille: 10 };
    let alone = world.tio_rand(small, 1, Wear::New).unwrap();
    let packed = world.tio_rand(small, 8, Wear::New).unwrap();
    assert!(packed.driver.interrupts * 2 < alone.driver.interrupts);
    assert!(packed.write_mb_per_s() > alone.write_mb_per_s());
}

/// A card that was filled and overwritten collects garbage, and the run's counters have it.
#[test]
fn a_used_card_collects_garbage_in_the_run() {
    let mut world = World::new(1).unwrap();
    world.phone.flash.capacity_bytes = 3 << 30;
    let used = world
        .tio_rand(PaperScale { permille: 10 }, 8, Wear::Used)
        .unwrap();
    let new = world.tio_rand(PaperScale { permille: 10 }, 8, Wear::New).unwrap();
    assert!(used.translation.collections > 0 && new.translation.collections == 0);
    assert!(used.translation.write_amplification() > new.translation.write_amplification());
}

/// The same measurements as variations of themselves: a claim then holds or fails, and none is open.
#[test]
fn a_claim_is_open_only_if_an_assumption_decides() {
    let mut world = World::new(1).unwrap();
    world.phone.flash.capacity_bytes = 6 << 30;
    world.older.flash.capacity_bytes = 6 << 30;
    let base = measured(&world);
    let claims = judge(&base, &[("nothing".to_owned(), base.clone())], None);
    assert!(claims.iter().all(|claim| claim.verdict != Verdict::Open));
    let names: std::collections::BTreeSet<_> = claims.iter().map(|claim| claim.name).collect();
    assert_eq!(names.len(), claims.len(), "names are unique");
    let mut other = base.clone();
    other.by_size.insert(128 << 10, base.by_size[&(8 << 10)].clone());
    let flat = |claims: &[Claim]| {
        claims
            .iter()
            .find(|claim| claim.name == "f7-flat")
            .cloned()
            .unwrap()
    };
    let open = flat(&judge(&base, &[("flat".to_owned(), other)], None));
    assert_eq!(open.band.0.to_bits(), 1.0_f64.to_bits());
    if open.found > 2.0 {
        assert_eq!(
            (open.verdict, open.sensitive_to),
            (Verdict::Open, vec!["flat".to_owned()])
        );
    }
    assert_eq!(exhibits(&base, None).len(), 12);
}

#[test]
fn a_fit_is_reproducible_and_no_worse_than_the_presets() {
    let rules = FitRules {
        evaluations: 4,
        seed: 7,
        scale: PaperScale { permille: 10 },
    };
    let run = || fit(rules, &Mixes::default(), |_, _| {}).unwrap();
    let first = run();
    assert_eq!(first, run());
    assert!(first.cost <= first.cost_of_presets, "{first:?}");
    assert_eq!(first.residuals.len(), 5);
}
