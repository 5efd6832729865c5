//! Logs and merges computed by hand, on four blocks of four pages.

use super::*;
use crate::cell::CellKind;
use crate::geometry::Shape;
use crate::nand_array::{NandArray, NandTiming};
use crate::translation::{DataStream, Placement};

/// One bank of SLC blocks of 4 pages; 4 logical blocks. PC 10, program 100, read 20, erase 1000 us.
fn flash() -> Flash {
    let geometry = CardGeometry::new(Shape {
        cell: CellKind::Slc,
        banks: 1,
        page_bytes: 4096,
        unit_bytes: 4096,
        word_lines: 4,
        capacity_bytes: 16 * 4096,
        spare_permille: 1000,
    })
    .unwrap();
    let timing = NandTiming {
        read: [Nanos::from_micros(20); 3],
        program: [Nanos::from_micros(100); 3],
        program_slc: Nanos::from_micros(100),
        erase: Nanos::from_micros(1000),
        transfer: Nanos::from_micros(10),
    };
    let array = NandArray::new(1, &geometry.word_lines, timing);
    Flash::new(geometry, array, true, 64)
}

fn hybrid(flash: &mut Flash, locality: Locality) -> Hybrid {
    let rules = HybridRules {
        random_logs: 2,
        sequential_logs: 1,
        sequential_from_units: 0,
        locality,
    };
    // Super blocks: 4 logical + 2 + 1 + 2 = 9.
    flash.geometry.super_blocks = 9;
    Hybrid::new(&flash.geometry, rules).unwrap()
}

fn write(layer: &mut Hybrid, flash: &mut Flash, first: u32, count: u32) {
    let data = DataStream {
        start: Nanos::ZERO,
        sector_ps: 0,
        earliest: Nanos::ZERO,
    };
    layer.write(
        flash,
        &UnitWrite {
            first,
            count,
            data,
            sectors_before: 0,
            sectors: u64::from(count) * 8,
            epoch: Epoch(1),
            placement: Placement::Default,
        },
    );
}

/// Block 1 written in order twice: 2 switch merges, nothing copied; 8 programs of 110, one erase of 1000 in between
/// (of the first data block, when the second replaces it): 8 x 110 + 1000 = 1880.
#[test]
fn blocks_written_in_order_are_only_exchanged() {
    let mut flash = flash();
    let mut layer = hybrid(&mut flash, Locality::Ignored);
    write(&mut layer, &mut flash, 4, 4);
    write(&mut layer, &mut flash, 4, 4);
    let counters = layer.counters();
    assert_eq!((counters.switch_merges, counters.copied_units), (2, 0));
    assert_eq!(flash.array.idle_at(), Nanos::from_micros(1880));
    assert_eq!(layer.erase_counts().iter().sum::<u32>(), 1);
}

/// Half of block 0 in order, then block 1 begins: block 0 had no other data, so nothing is copied.
#[test]
fn a_sequential_log_that_has_to_go_is_completed() {
    let mut flash = flash();
    let mut layer = hybrid(&mut flash, Locality::Ignored);
    write(&mut layer, &mut flash, 0, 4);
    write(&mut layer, &mut flash, 0, 2);
    write(&mut layer, &mut flash, 4, 1);
    let counters = layer.counters();
    assert_eq!((counters.partial_merges, counters.copied_units), (1, 2));
    assert!((0..5).all(|unit| layer.is_mapped(unit)));
}

/// 8 random units fill 2 logs; the ninth needs space: the oldest log holds units of blocks 0, 1, 2 and 3 -> 4 merges.
#[test]
fn a_full_random_log_costs_a_merge_for_every_block_in_it() {
    let mut flash = flash();
    let mut layer = hybrid(&mut flash, Locality::Ignored);
    for unit in [1, 5, 9, 13, 2, 6, 10, 14, 3] {
        write(&mut layer, &mut flash, unit, 1);
    }
    assert_eq!(layer.counters().full_merges, 4);
    assert_eq!(layer.counters().copied_units, 8);
    for unit in [1, 5, 9, 13, 2, 6, 10, 14, 3] {
        assert!(layer.is_mapped(unit), "{unit}");
    }
}

/// The same unit over and over: LAST finds logs without valid units, and merges nothing.
#[test]
fn outdated_logs_cost_nothing_when_locality_is_looked_at() {
    let mut flash = flash();
    let mut layer = hybrid(&mut flash, Locality::Parted);
    for _ in 0..40 {
        write(&mut layer, &mut flash, 7, 1);
    }
    assert_eq!(layer.counters().full_merges, 0);
    assert!(layer.is_mapped(7));
}

#[test]
fn every_unit_is_found_after_many_random_writes() {
    for locality in [Locality::Ignored, Locality::Parted] {
        let mut flash = flash();
        let mut layer = hybrid(&mut flash, locality);
        let mut written = [false; 16];
        let mut state = 7_u32;
        for _ in 0..2000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let first = (state >> 8) % 16;
            let count = 1 + (state >> 20) % (16 - first).min(5);
            write(&mut layer, &mut flash, first, count);
            (first..first + count).for_each(|unit| written[index(unit)] = true);
            for (unit, written) in (0..).zip(written) {
                assert_eq!(layer.is_mapped(unit), written, "{locality:?} {unit}");
            }
        }
    }
}
