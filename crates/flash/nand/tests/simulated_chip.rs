//! The simulated chip as a black box: rules, time, faults, power cuts, snapshots.

use media::{Nand, NandError, NandGeometry, Nanos, Page, Peb, index};
use nand::{
    Access, BlockState, ChipModel, CutPoint, CutTime, FaultModel, PowerCut, PowerSupply, Preset, SimNand,
    Timing,
};
use testkit::prng::Prng;

const PAGE: u32 = 512;
const PAGES: u32 = 8;

fn model() -> ChipModel {
    let geometry = NandGeometry::new(PAGE, PAGES, 8)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("it works");
    ChipModel::new(geometry)
}

fn chip() -> SimNand {
    SimNand::new("chip", model(), FaultModel::none())
}

fn bytes(tag: u8, len: u32) -> Vec<u8> {
    vec![tag; index(len)]
}

fn read(chip: &mut SimNand, peb: Peb) -> Vec<u8> {
    let mut out = bytes(0, PAGE * PAGES);
    let _ = chip.read(peb, 0, &mut out).expect("it works");
    out
}

#[test]
fn a_broken_rule_names_device_block_and_page() {
    let mut chip = chip();
    chip.program(Peb(5), 2 * PAGE, &bytes(1, PAGE)).expect("it works");
    let error = chip.program(Peb(5), 2 * PAGE, &bytes(2, PAGE)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "chip: PEB 5, page 2, offset 1024: programmed out of order or twice; \
         the next place that may be programmed before an erase is offset 1536"
    );
    chip.mark_bad(Peb(6)).expect("it works");
    let error = chip.erase(Peb(6)).unwrap_err();
    assert_eq!(error.to_string(), "chip: PEB 6 is marked bad and can't be erased");
    let mut chip = chip.with_access(Access::ReadOnly);
    let error = chip.erase(Peb(0)).unwrap_err();
    assert_eq!(error.to_string(), "chip: opened read-only; PEB 0 can't be erased");
}

#[test]
fn every_operation_takes_exactly_its_time() {
    let mut chip = SimNand::new("tlc", Preset::Tlc.model(), FaultModel::none());
    let clock = chip.clock();
    let (program, read, transfer) = (1_300_000, 75_000, 102_400);
    chip.program(Peb(0), 0, &bytes(1, 3 * 4096)).expect("it works");
    assert_eq!(clock.now(), Nanos(3 * (program + transfer)));
    let before = clock.now();
    let _ = chip.read(Peb(0), 0, &mut [0; 64]).expect("it works");
    assert_eq!(clock.now() - before, Nanos(read + transfer / 8));
    let before = clock.now();
    let _ = chip.read(Peb(0), 4095, &mut [0; 4098]).expect("it works");
    assert_eq!(
        clock.now() - before,
        Nanos(3 * read + transfer / 8 + transfer + transfer / 8)
    );
    let before = clock.now();
    chip.erase(Peb(0)).expect("it works");
    assert_eq!(clock.now() - before, Nanos(4_000_000));
    assert_eq!(
        chip.is_bad(Peb(0))
            .map(|bad| (bad, clock.now()))
            .expect("it works")
            .1,
        before + Nanos(4_000_000)
    );
}

#[test]
fn chips_with_clocks_of_their_own_overlap_in_virtual_time() {
    let mut members: Vec<_> = (0..4)
        .map(|number| {
            SimNand::new(
                &format!("member {number}"),
                Preset::Tlc.model(),
                FaultModel::none(),
            )
        })
        .collect();
    let start = Nanos::from_millis(10);
    let mut end = start;
    for member in &mut members {
        member.clock().advance_to(start);
        member.program(Peb(0), 0, &bytes(1, 4096)).expect("it works");
        end = end.max(member.clock().now());
    }
    assert_eq!(end - start, Nanos(1_402_400), "four pages in the time of one");
}

#[test]
fn counters_of_a_block_count_what_was_done_to_it() {
    let mut chip = chip();
    chip.program(Peb(1), 0, &bytes(1, 2 * PAGE)).expect("it works");
    let _ = read(&mut chip, Peb(1));
    chip.erase(Peb(1)).expect("it works");
    let _ = chip.read(Peb(1), 0, &mut [0; 1]).expect("it works");
    let expected = BlockState {
        erases: 1,
        programs: 2,
        reads: u64::from(PAGES) + 1,
        reads_since_erase: 1,
        ..BlockState::default()
    };
    assert_eq!(*chip.block(Peb(1)).expect("it works"), expected);
    let statistics = chip.statistics();
    assert_eq!((statistics.page_programs, statistics.block_erases), (2, 1));
}

#[test]
fn a_program_cut_at_any_byte_leaves_its_first_bytes_and_nothing_else() {
    for page in 0..3 {
        for byte in 0..=PAGE {
            let mut chip = chip();
            chip.supply()
                .cut_at_write(u64::from(page), CutPoint::Partway(byte));
            let error = chip.program(Peb(2), 0, &bytes(0x5A, 3 * PAGE)).unwrap_err();
            assert!(error.is_power_cut(), "{error}");
            assert!(chip.read(Peb(2), 0, &mut [0; 1]).unwrap_err().is_power_cut());
            chip.supply().power_on();
            let done = page * PAGE + byte;
            let expected = [bytes(0x5A, done), bytes(0xFF, PAGES * PAGE - done)].concat();
            assert_eq!(
                read(&mut chip, Peb(2)),
                expected,
                "cut at page {page}, byte {byte}"
            );
            // A torn page cannot be programmed again; a page that was not begun can.
            let next = if byte == 0 { page } else { page + 1 } * PAGE;
            assert_eq!(chip.block(Peb(2)).expect("it works").programmed_bytes, next);
            chip.program(Peb(2), next, &bytes(1, PAGE)).expect("it works");
        }
    }
}

#[test]
fn ecc_tells_of_a_torn_page_when_asked_to() {
    for (torn_is_uncorrectable, uncorrectable) in [(false, vec![]), (true, vec![Page(1)])] {
        let mut chip = chip();
        chip.supply().plan(PowerCut {
            time: CutTime::Write(1, CutPoint::Partway(100)),
            torn_is_uncorrectable,
        });
        chip.program(Peb(0), 0, &bytes(3, 2 * PAGE)).unwrap_err();
        chip.supply().power_on();
        let report = chip.read(Peb(0), 0, &mut bytes(0, 3 * PAGE)).expect("it works");
        assert_eq!(report.uncorrectable, uncorrectable);
        chip.erase(Peb(0)).expect("it works");
        assert!(
            chip.read(Peb(0), 0, &mut bytes(0, PAGE))
                .expect("it works")
                .is_correct()
        );
    }
}

#[test]
fn an_erase_cut_half_way_leaves_garbage_that_only_an_erase_mends() {
    let mut chip = chip();
    chip.program(Peb(4), 0, &bytes(0, 4 * PAGE)).expect("it works");
    chip.supply().cut_at_write(4, CutPoint::Partway(1));
    assert!(chip.erase(Peb(4)).unwrap_err().is_power_cut());
    chip.supply().power_on();
    let mut out = bytes(0, PAGES * PAGE);
    let report = chip.read(Peb(4), 0, &mut out).expect("it works");
    assert_eq!(report.uncorrectable, [0, 1, 2, 3].map(Page));
    let (garbage, rest) = out.split_at(4 * 512);
    assert!(garbage.iter().any(|byte| *byte != 0 && *byte != 0xFF));
    assert!(rest.iter().all(|byte| *byte == 0xFF), "what was erased stays so");
    chip.program(Peb(4), 7 * PAGE, &bytes(1, PAGE))
        .expect_err("not before an erase");
    chip.erase(Peb(4)).expect("it works");
    assert_eq!(read(&mut chip, Peb(4)), bytes(0xFF, PAGES * PAGE));
}

#[test]
fn an_erase_cut_before_or_after_is_not_done_or_done() {
    for (point, expected) in [(CutPoint::Before, 7), (CutPoint::After, 0xFF)] {
        let mut chip = chip();
        chip.program(Peb(0), 0, &bytes(7, PAGES * PAGE))
            .expect("it works");
        chip.supply().cut_at_write(u64::from(PAGES), point);
        assert!(chip.erase(Peb(0)).unwrap_err().is_power_cut());
        chip.supply().power_on();
        assert_eq!(read(&mut chip, Peb(0)), bytes(expected, PAGES * PAGE));
    }
}

#[test]
fn chips_on_one_supply_lose_power_together() {
    let supply = PowerSupply::new();
    let mut first = chip().with_supply(&supply);
    let mut second = chip().with_supply(&supply);
    supply.cut_at_write(1, CutPoint::Before);
    first.program(Peb(0), 0, &bytes(1, PAGE)).expect("it works");
    assert!(second.erase(Peb(0)).unwrap_err().is_power_cut());
    assert!(
        first
            .program(Peb(0), PAGE, &bytes(1, PAGE))
            .unwrap_err()
            .is_power_cut()
    );
    supply.power_on();
    first.program(Peb(0), PAGE, &bytes(1, PAGE)).expect("it works");
}

#[test]
fn a_cut_at_a_moment_tears_every_member_that_is_at_work() {
    let supply = PowerSupply::new();
    let timed = model().with_timing(Timing {
        program_page: Nanos(1000),
        ..Timing::default()
    });
    let mut members: Vec<_> = (0..3)
        .map(|_| SimNand::new("member", timed, FaultModel::none()).with_supply(&supply))
        .collect();
    supply.plan(PowerCut {
        time: CutTime::Moment(Nanos(1500)),
        torn_is_uncorrectable: false,
    });
    for (number, member) in (0..).zip(&mut members) {
        member.clock().advance_to(Nanos(number * 750));
        let result = member.program(Peb(0), 0, &bytes(0, PAGE));
        assert_eq!(result.is_err(), number > 0, "member {number}");
    }
    supply.power_on();
    let zeros = |chip: &mut SimNand| read(chip, Peb(0)).iter().filter(|byte| **byte == 0).count();
    assert_eq!(zeros(&mut members[0]), 512);
    assert_eq!(zeros(&mut members[1]), 384, "three quarters of its time");
    assert_eq!(zeros(&mut members[2]), 0, "it would have begun at the cut");
}

#[test]
fn a_failed_program_keeps_what_was_before_and_a_failed_erase_keeps_nothing() {
    let mut chip = chip();
    chip.program(Peb(0), 0, &bytes(1, PAGE)).expect("it works");
    chip.fail_write(1);
    let error = chip.program(Peb(0), PAGE, &bytes(2, PAGE)).unwrap_err();
    assert!(error.is_block_failure(), "{error}");
    let mut out = bytes(0, PAGE);
    assert!(chip.read(Peb(0), 0, &mut out).expect("it works").is_correct());
    assert_eq!(out, bytes(1, PAGE));
    assert!(!chip.read(Peb(0), PAGE, &mut out).expect("it works").is_correct());
    chip.fail_write(2);
    let error = chip.erase(Peb(0)).unwrap_err();
    assert!(
        matches!(error, NandError::EraseFailed { peb: Peb(0), .. }),
        "{error}"
    );
    chip.erase(Peb(0)).expect("only that one");
    let statistics = chip.statistics();
    assert_eq!((statistics.program_failures, statistics.erase_failures), (1, 1));
}

#[test]
fn flipped_bits_are_corrected_up_to_the_chips_strength_and_reported_beyond() {
    let mut chip = chip();
    chip.program(Peb(1), 0, &bytes(0x33, 2 * PAGE)).expect("it works");
    for bits in 0..=6 {
        chip.inject_bit_flips(Peb(1), Page(1), bits);
        let mut out = bytes(0, 2 * PAGE);
        let report = chip.read(Peb(1), 0, &mut out).expect("it works");
        let wrong: u32 = out.iter().map(|byte| (byte ^ 0x33).count_ones()).sum();
        if bits <= 4 {
            assert_eq!((report.worst_step_bits, wrong), (bits, 0));
            assert_eq!(report.needs_scrub(&chip.geometry()), bits >= 3);
        } else {
            assert_eq!(report.uncorrectable, [Page(1)]);
            assert_eq!(wrong, bits, "the medium gives what it has");
        }
    }
    chip.erase(Peb(1)).expect("it works");
    chip.program(Peb(1), 0, &bytes(0x33, 2 * PAGE)).expect("it works");
    assert_eq!(
        chip.read(Peb(1), 0, &mut bytes(0, 2 * PAGE))
            .expect("it works")
            .corrected_bits,
        0
    );
}

#[test]
fn reading_disturbs_and_waiting_forgets_until_an_erase() {
    let faults = FaultModel {
        reads_per_bit_flip: 1000,
        time_per_bit_flip: Nanos::from_millis(1000),
        ..FaultModel::seeded(5)
    };
    let mut chip = SimNand::new("chip", model(), faults);
    chip.program(Peb(0), 0, &bytes(1, PAGES * PAGE))
        .expect("it works");
    let mut out = bytes(0, PAGES * PAGE);
    assert_eq!(
        chip.read(Peb(0), 0, &mut out).expect("it works").corrected_bits,
        0
    );
    for _ in 0..2500 {
        let _ = chip.read(Peb(0), 0, &mut [0; 1]).expect("it works");
    }
    let disturbed = chip.read(Peb(0), 0, &mut out).expect("it works");
    assert!(disturbed.corrected_bits > 4, "{disturbed:?}");
    chip.clock().advance(Nanos::from_millis(20_000));
    let forgotten = chip.read(Peb(0), 0, &mut out).expect("it works");
    assert_eq!(forgotten.uncorrectable.len(), 8, "{forgotten:?}");
    chip.erase(Peb(0)).expect("it works");
    chip.program(Peb(0), 0, &bytes(1, PAGES * PAGE))
        .expect("it works");
    assert_eq!(
        chip.read(Peb(0), 0, &mut out).expect("it works").corrected_bits,
        0
    );
}

#[test]
fn a_worn_block_fails_and_the_same_seed_fails_alike() {
    let lives = |seed| -> Vec<u32> {
        let faults = FaultModel {
            endurance: 100,
            ..FaultModel::seeded(seed)
        };
        let mut chip = SimNand::new("chip", model(), faults);
        let life = |chip: &mut SimNand, peb| (0..1000).take_while(|_| chip.erase(peb).is_ok()).count();
        chip.geometry()
            .pebs()
            .map(|peb| u32::try_from(life(&mut chip, peb)).expect("it works"))
            .collect()
    };
    assert!(
        lives(1).iter().all(|erases| (75..190).contains(erases)),
        "{:?}",
        lives(1)
    );
    assert_eq!(lives(1), lives(1));
    assert_ne!(lives(1), lives(2));
}

/// A minimal model of a chip: the bytes of each block and the next programmable offset.
struct Model(Vec<(Vec<u8>, u32, bool)>);

fn any_operation(prng: &mut Prng, chip: &mut SimNand, model: &mut Model) -> String {
    let peb = u32::try_from(prng.below(8)).expect("it works");
    let (content, next, is_bad) = &mut model.0[index(peb)];
    let unit = |prng: &mut Prng, limit: u64| u32::try_from(prng.below(limit)).expect("it works") * 128;
    match prng.below(100) {
        0 => {
            chip.mark_bad(Peb(peb)).expect("it works");
            *is_bad = true;
            format!("mark_bad {peb}")
        }
        1..20 => {
            assert_eq!(chip.erase(Peb(peb)).is_ok(), !*is_bad);
            if !*is_bad {
                content.fill(0xFF);
                *next = 0;
            }
            format!("erase {peb}")
        }
        20..60 => {
            // Half of the programs continue at the end of the last one.
            let offset = if prng.chance(50) { *next } else { unit(prng, 32) };
            let len = unit(prng, 20);
            let data = prng.bytes(index(len));
            let end = offset + u32::try_from(data.len()).expect("it works");
            let allowed = !*is_bad && !data.is_empty() && offset >= *next && end <= PAGE * PAGES;
            assert_eq!(chip.program(Peb(peb), offset, &data).is_ok(), allowed);
            if allowed {
                content[index(offset)..index(end)].copy_from_slice(&data);
                *next = end;
            }
            format!("program {peb} {offset}+{}", data.len())
        }
        _ => {
            let offset = u32::try_from(prng.below(u64::from(PAGE * PAGES))).expect("it works");
            let len = prng.below_usize(index(PAGE * PAGES - offset) + 1);
            let mut out = vec![0; len];
            assert!(
                chip.read(Peb(peb), offset, &mut out)
                    .expect("it works")
                    .is_correct()
            );
            assert_eq!(out, content[index(offset)..][..len]);
            format!("read {peb} {offset}+{len}")
        }
    }
}

#[test]
fn random_operations_do_what_a_simple_model_does() {
    for seed in 0..20 {
        let mut prng = Prng::named(seed, "operations");
        let (mut chip, block) = (chip(), bytes(0xFF, PAGE * PAGES));
        let mut model = Model(vec![(block, 0, false); 8]);
        let mut log = Vec::new();
        for _ in 0..500 {
            log.push(any_operation(&mut prng, &mut chip, &mut model));
        }
        for (peb, (content, ..)) in (0..).zip(&model.0) {
            assert_eq!(&read(&mut chip, Peb(peb)), content, "seed {seed}: {log:?}");
        }
    }
}

type Step<'a> = &'a dyn Fn(&mut SimNand) -> Result<(), NandError>;

/// A script with every kind of write; returns the number of acknowledged steps.
fn script(chip: &mut SimNand) -> usize {
    let steps: [Step<'_>; 6] = [
        &|chip| chip.program(Peb(0), 0, &bytes(1, 128)),
        &|chip| chip.program(Peb(0), 128, &bytes(2, PAGE - 128)),
        &|chip| chip.program(Peb(1), 0, &bytes(3, 3 * PAGE)),
        &|chip| chip.erase(Peb(0)),
        &|chip| chip.program(Peb(0), 0, &bytes(4, 2 * PAGE)),
        &|chip| chip.mark_bad(Peb(1)),
    ];
    steps.iter().take_while(|step| step(chip).is_ok()).count()
}

#[test]
fn a_cut_at_any_write_and_byte_keeps_what_was_acknowledged_and_nothing_that_was_not_begun() {
    let mut whole = chip();
    assert_eq!(script(&mut whole), 6);
    let writes = whole.supply().writes();
    assert_eq!(writes, 9, "the sweep below would test something else");
    let fresh = chip();
    for write in 0..writes {
        for byte in 0..=PAGE {
            let mut chip = fresh.clone();
            chip.supply().cut_at_write(write, CutPoint::Partway(byte));
            let done = script(&mut chip);
            assert!(done < 6, "write {write} was not cut");
            chip.supply().power_on();
            let [first, second] = [Peb(0), Peb(1)].map(|peb| read(&mut chip, peb));
            let acknowledged = match done {
                0 => true,
                1 => first[..128] == bytes(1, 128),
                2 => first[..512] == [bytes(1, 128), bytes(2, 384)].concat(),
                // The erase was interrupted: the cells only gained ones.
                3 => first[..128].iter().all(|byte| byte & 1 == 1),
                4 => first[1024..].iter().all(|byte| *byte == 0xFF),
                _ => first[..1024] == bytes(4, 1024),
            };
            assert!(acknowledged, "cut at write {write}, byte {byte}");
            let not_begun = done < 2 && second.iter().any(|byte| *byte != 0xFF);
            let lost = done >= 3 && second[..1536] != bytes(3, 1536);
            assert!(!not_begun && !lost, "block 1, cut at write {write}, byte {byte}");
            assert!(!chip.is_bad(Peb(1)).expect("it works"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_chip() {
    let run = |seed| {
        let faults = FaultModel {
            factory_bad_blocks: 2,
            program_failures_ppm: 50_000,
            erase_failures_ppm: 50_000,
            reads_per_bit_flip: 50,
            ..FaultModel::seeded(seed)
        };
        let mut chip = SimNand::new("chip", model(), faults);
        let mut prng = Prng::named(3, "replay");
        let mut log = Vec::new();
        for _ in 0..400 {
            let peb = Peb(u32::try_from(prng.below(8)).expect("it works"));
            let erased = chip.erase(peb).map_err(|error| error.to_string());
            let data = prng.bytes(1024);
            let programmed = chip.program(peb, 0, &data).map_err(|error| error.to_string());
            let mut out = [0; 1024];
            let report = chip.read(peb, 0, &mut out).map_err(|error| error.to_string());
            log.push((erased, programmed, report, out));
        }
        (log, chip.blocks().to_vec(), chip.statistics(), chip.clock().now())
    };
    let (log, blocks, statistics, now) = run(1);
    assert!(
        statistics.program_failures > 0 && statistics.erase_failures > 0 && statistics.corrected_bits > 0
    );
    assert!(
        (log, blocks, statistics, now) == run(1),
        "the same seed, another run"
    );
    assert!(run(1).0 != run(2).0, "another seed, the same run");
}

#[test]
fn a_clone_goes_its_own_way_from_the_same_state() {
    let mut chip = SimNand::new("chip", Preset::Slc.model(), FaultModel::none());
    chip.program(Peb(0), 0, &bytes(1, 2048)).expect("it works");
    let mut clone = chip.clone();
    clone.program(Peb(0), 2048, &bytes(2, 2048)).expect("it works");
    assert!(clone.clock().now() > chip.clock().now());
    assert_eq!(chip.block(Peb(0)).expect("it works").programmed_bytes, 2048);
    clone.supply().power_off();
    chip.erase(Peb(0)).expect("its power is on");
}
