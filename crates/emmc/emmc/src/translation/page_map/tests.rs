//! Tests of the page map: times computed by hand, and its invariants under random workloads.

use super::*;
use crate::cell::CellKind;
use crate::geometry::Shape;
use crate::nand_array::{NandArray, NandTiming};
use crate::translation::DataStream;

/// Two banks of MLC blocks of 4 pages of two units; 16 units per super block, 4 visible blocks. PC 10, LSB 100, MSB
/// 300, read 20, SLC 50, erase 1000 us.
fn flash() -> Flash {
    let geometry = CardGeometry::new(Shape {
        cell: CellKind::Mlc,
        banks: 2,
        page_bytes: 8192,
        unit_bytes: 4096,
        word_lines: 2,
        capacity_bytes: 64 * 4096,
        spare_permille: 1000,
    })
    .unwrap();
    let timing = NandTiming {
        read: [Nanos::from_micros(20); 3],
        program: [
            Nanos::from_micros(100),
            Nanos::from_micros(300),
            Nanos::from_micros(300),
        ],
        program_slc: Nanos::from_micros(50),
        erase: Nanos::from_micros(1000),
        transfer: Nanos::from_micros(10),
    };
    let array = NandArray::new(2, &geometry.word_lines, timing);
    Flash::new(geometry, array, true, 64)
}

const RULES: PageMapRules = PageMapRules {
    cached_pages: None,
    data_tag: false,
    contexts: 0,
};

/// The map of many small blocks takes more blocks than there are beside the visible ones.
#[test]
fn a_map_that_finds_no_room_is_refused() {
    let geometry = CardGeometry::new(Shape {
        cell: CellKind::Slc,
        banks: 1,
        page_bytes: 512,
        unit_bytes: 512,
        word_lines: 1,
        capacity_bytes: 1024 * 512,
        spare_permille: 0,
    })
    .unwrap();
    assert!(geometry.units() + map_pages(&geometry) > geometry.slots());
    let cached = PageMapRules {
        cached_pages: Some(1),
        ..RULES
    };
    let refused = PageMap::new(&geometry, cached).unwrap_err().to_string();
    assert!(refused.contains("spare_permille"), "{refused}");
}

fn command(layer: &mut PageMap, flash: &mut Flash, first: u32, count: u32, epoch: u32) -> Nanos {
    let data = DataStream {
        start: Nanos::ZERO,
        sector_ps: 0,
        earliest: Nanos::ZERO,
    };
    let write = UnitWrite {
        first,
        count,
        data,
        sectors_before: 0,
        sectors: u64::from(count) * 8,
        epoch: Epoch(epoch),
        placement: Placement::Default,
    };
    layer.write(flash, &write);
    layer.close(flash, Nanos::ZERO, Epoch(epoch));
    flash.durable
}

/// Two units are one page: 10 + 100 = 110.
#[test]
fn two_units_take_one_program() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    assert_eq!(command(&mut layer, &mut flash, 0, 2, 1), Nanos::from_micros(110));
    assert_eq!(layer.counters().padded_units, 0);
}

/// One unit takes the same time, and wastes half of the page.
#[test]
fn half_a_page_takes_as_long_as_a_page() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    assert_eq!(command(&mut layer, &mut flash, 0, 1, 1), Nanos::from_micros(110));
    assert_eq!(layer.counters().padded_units, 1);
}

/// 12 units in one command are pages 0, 1, 2 of both banks. Bank 0: 0-110 LSB, 110-220 LSB, 220-530 MSB. Bank 1
/// starts 10 later each time: 10-120, 120-230, 230-540. Page 2 endangers page 0 of the same command: no copy.
#[test]
fn pages_of_one_command_need_no_copy() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    assert_eq!(command(&mut layer, &mut flash, 0, 12, 1), Nanos::from_micros(540));
    assert_eq!(flash.array.counters().backups, 0);
}

/// The same in two commands of 8 and 4 units. The first ends at 230 (bank 1); the second programs page 2 of both
/// banks and copies page 0 of each first. Bank 0: copy 220-290, transfer and program 290-600. Bank 1: its copy waits
/// for the buffer until 290 and ends at 360, then 360-670.
#[test]
fn acknowledged_pages_are_copied_before_their_partner_is_programmed() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    assert_eq!(command(&mut layer, &mut flash, 0, 8, 1), Nanos::from_micros(230));
    assert_eq!(command(&mut layer, &mut flash, 8, 4, 2), Nanos::from_micros(670));
    assert_eq!(flash.array.counters().backups, 2);
}

/// A page read: 20 + 10 = 30, which returns both of its units. A unit without data takes no time.
#[test]
fn units_of_one_page_are_read_at_once() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    let written = command(&mut layer, &mut flash, 0, 2, 1);
    assert_eq!(
        layer.read(&mut flash, 0, 2, written),
        written + Nanos::from_micros(30)
    );
    assert_eq!(layer.read(&mut flash, 20, 4, written), written);
}

/// TRIM writes a page of the map's log, as SLC: 10 + 50 = 60. DISCARD takes no time.
#[test]
fn only_a_durable_discard_writes() {
    let (mut flash, mut layer) = (flash(), PageMap::new(&flash().geometry, RULES).unwrap());
    let written = command(&mut layer, &mut flash, 0, 4, 1);
    let lazily = layer.forget(&mut flash, 0, 2, written, Forget::Lazily);
    assert_eq!(lazily, written);
    let durably = layer.forget(&mut flash, 2, 2, written, Forget::Durably);
    assert_eq!(durably, written + Nanos::from_micros(60));
    assert!((0..4).all(|unit| !layer.is_mapped(unit)));
}

#[test]
fn random_writes_keep_the_maps_in_agreement_whatever_is_kept_apart() {
    for rules in [
        RULES,
        PageMapRules {
            cached_pages: Some(1),
            ..RULES
        },
        PageMapRules { contexts: 1, ..RULES },
    ] {
        let mut flash = flash();
        flash.geometry.super_blocks = 14;
        let mut layer = PageMap::new(&flash.geometry, rules).unwrap();
        let mut state = 1_u32;
        let mut written = vec![false; 64];
        for epoch in 1..5000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let first = (state >> 8) % 64;
            let count = 1 + (state >> 16) % (64 - first).min(7);
            if (state >> 24).is_multiple_of(16) {
                layer.forget(&mut flash, first, count, Nanos::ZERO, Forget::Lazily);
                (first..first + count).for_each(|unit| written[index(unit)] = false);
            } else {
                command(&mut layer, &mut flash, first, count, epoch);
                (first..first + count).for_each(|unit| written[index(unit)] = true);
            }
            for (unit, written) in (0..).zip(&written) {
                assert_eq!(
                    layer.is_mapped(unit),
                    *written,
                    "{rules:?} unit {unit} after {epoch}"
                );
            }
        }
        layer.check();
        assert!(layer.counters().collections > 100, "{:?}", layer.counters());
        let (least, most) = (
            layer.erase_counts().iter().min().unwrap(),
            layer.erase_counts().iter().max().unwrap(),
        );
        assert!(most - least < most / 2 + 10, "wear {least} to {most}");
    }
}

#[test]
fn flash_without_room_for_what_is_kept_apart_is_refused() {
    let rules = PageMapRules {
        contexts: 15,
        ..RULES
    };
    let message = PageMap::new(&flash().geometry, rules).unwrap_err().to_string();
    assert!(message.contains("spare_permille"), "{message}");
}

/// Random writes on a small card, saved and restored after each round: the mapping is preserved, wear continues,
/// garbage collection works.
#[test]
fn a_map_that_is_put_away_and_taken_up_goes_on_where_it_was() {
    for rules in [
        RULES,
        PageMapRules {
            cached_pages: Some(1),
            ..RULES
        },
    ] {
        let mut flash = flash();
        flash.geometry.super_blocks = 14;
        let mut layer = PageMap::new(&flash.geometry, rules).unwrap();
        let mut state = 5_u32;
        for round in 1..60 {
            for step in 0..40 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                command(
                    &mut layer,
                    &mut flash,
                    (state >> 8) % 60,
                    1 + (state >> 20) % 4,
                    round * 40 + step,
                );
            }
            let kept = layer.keep();
            let mut again = PageMap::new(&flash.geometry, rules).unwrap();
            again.take_up(&flash.geometry, &kept).unwrap();
            again.check();
            assert_eq!(again.keep(), kept);
            layer = again;
        }
        assert!(layer.erase_counts().iter().sum::<u32>() > 100);
    }
}

/// Arbitrary changes of the saved state are either refused, or the layer works with them.
#[test]
fn a_map_that_was_changed_is_refused_or_works() {
    let mut flash = flash();
    flash.geometry.super_blocks = 14;
    let mut layer = PageMap::new(&flash.geometry, RULES).unwrap();
    let mut state = 9_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for epoch in 1..500 {
        let count = 1 + random(4);
        command(&mut layer, &mut flash, random(60), count, epoch);
    }
    let kept = layer.keep();
    let (mut refused, mut worked) = (0, 0);
    for _ in 0..3000 {
        let mut changed = kept.clone();
        let map = changed.map.as_mut().unwrap();
        let place = index(random(14));
        match random(7) {
            0 => map.slots[index(random(64))] = random(14 * 16 + 20),
            1 => map.erased[place] = !map.erased[place],
            2 => map.open[0].block = random(16),
            3 => map.open[0].filled = random(20),
            4 => map.open[0].stream = random(6),
            5 => drop(map.open.pop()),
            _ => map.slots.truncate(place),
        }
        let mut again = PageMap::new(&flash.geometry, RULES).unwrap();
        if again.take_up(&flash.geometry, &changed).is_err() {
            refused += 1;
            continue;
        }
        worked += 1;
        again.check();
        for epoch in 1000..1100 {
            command(&mut again, &mut flash, random(60), 4, epoch);
        }
        again.check();
    }
    assert!(
        refused > 500 && worked > 100,
        "{refused} refused, {worked} worked"
    );
}
