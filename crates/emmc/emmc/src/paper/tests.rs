//! Verdicts, and structural results of the paper at a small scale. Numbers at full scale are in `docs/guide/emmc.md`.

use super::*;
use crate::block::SchedulerKind;
use crate::card::TranslationKind;
use crate::device::Card;
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
    let alone = world.tio_rand(small, 1, None).unwrap();
    let packed = world.tio_rand(small, 8, None).unwrap();
    assert!(packed.driver.interrupts * 2 < alone.driver.interrupts);
    assert!(packed.write_mb_per_s() > alone.write_mb_per_s());
}

/// A card that was filled and overwritten collects garbage, and the run's counters have it.
#[test]
fn a_used_card_collects_garbage_in_the_run() {
    let mut world = World::new(1).unwrap();
    world.phone.flash.capacity_bytes = 3 << 30;
    let (small, card) = (PaperScale { permille: 10 }, world.used(&world.phone).unwrap());
    let used = world.tio_rand(small, 8, Some(&card)).unwrap();
    let new = world.tio_rand(small, 8, None).unwrap();
    assert_eq!(
        used,
        world.tio_rand(small, 8, Some(&card)).unwrap(),
        "a copy is worn like its original"
    );
    assert!(used.translation.collections > 0 && new.translation.collections == 0);
    assert!(used.translation.write_amplification() > new.translation.write_amplification());
}

/// Each assumed number is really changed, and each world can be measured.
#[test]
fn every_variation_is_another_world_that_can_be_built() {
    let world = World::new(1).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for variation in World::variations() {
        let varied = world.varied(variation);
        assert!(varied != world, "{}", variation.name);
        assert!(names.insert(variation.name), "{} is there twice", variation.name);
        let hybrid = [TranslationKind::Fast, TranslationKind::CachedMap].map(|kind| varied.small_card(kind));
        let spare = [10, 1000].map(|permille| varied.spare_card(PaperScale { permille }));
        for card in [&varied.phone, &varied.older]
            .into_iter()
            .chain(&hybrid)
            .chain(&spare)
        {
            Card::new(card, varied.host.sector_ps()).unwrap();
        }
    }
}

/// Halts of packs are among those of attempts; the mean pack stays that of packs.
#[test]
fn attempts_are_another_way_to_count_halts() {
    let world = World::new(1).unwrap();
    let only = Some("table 1");
    let measured = Measured::run(&world, SMALL, &Mixes::default(), (Extent::Claims, only), |_| {}).unwrap();
    let counted = measured.counting_attempts();
    let (packs, attempts) = (
        &measured.sequential["cfq"].driver,
        &counted.sequential["cfq"].driver,
    );
    assert_eq!(attempts.halts_of_packs, packs.halts_of_attempts);
    assert_eq!(attempts.packs, packs.pack_sizes.iter().sum::<u64>());
    assert!(
        attempts.packs > packs.packs,
        "{} and {}",
        attempts.packs,
        packs.packs
    );
    assert_eq!(attempts.mean_pack(), packs.mean_pack());
}

#[test]
fn without_variations_no_claim_holds_or_fails() {
    let world = World::new(1).unwrap();
    let only = Some("table 1");
    let measured = Measured::run(&world, SMALL, &Mixes::default(), (Extent::Claims, only), |_| {}).unwrap();
    let judged = |variations: &[(String, Measured)]| -> Vec<Verdict> {
        let claims = judge(&measured, variations, only);
        claims.iter().map(|claim| claim.verdict).collect()
    };
    let one_world = [Verdict::Inside, Verdict::Outside];
    assert!(judged(&[]).iter().all(|verdict| one_world.contains(verdict)));
    let varied = judged(&[("nothing".to_owned(), measured.clone())]);
    assert!(varied.iter().all(|verdict| !one_world.contains(verdict)));
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
    assert!(first.cost <= first.cost_before, "{first:?}");
    assert_eq!(first.residuals.len(), 5);
    let other = fit(FitRules { seed: 8, ..rules }, &Mixes::default(), |_, _| {}).unwrap();
    assert_ne!(
        first.parameters, other.parameters,
        "another seed searches elsewhere"
    );
}

/// The parameters of a fit make its world; others, and values out of range, do not.
#[test]
fn the_result_of_a_fit_can_be_taken_over() {
    let world = World::before_the_fit(1).unwrap();
    for (name, (low, high)) in World::parameters() {
        let varied = world.clone().with_parameter(name, high).unwrap();
        assert!(
            varied != world.clone().with_parameter(name, low).unwrap(),
            "{name}"
        );
        assert_eq!(world.clone().with_parameter(name, high * 2.0), None);
        assert_eq!(world.clone().with_parameter(name, f64::NAN), None);
    }
    assert_eq!(world.with_parameter("phone: banks", 16.0), None);
}
