//! Round trips of both models over many geometries, and a bit-flip sweep.

use super::layout::inner_number;
use super::*;
use crate::scan::to_usize;
use crate::space::LebSpace;

fn geometry(leb_bytes: u32, min_io_bytes: u32, lebs_max: u32, lebs: u32) -> LptGeometry {
    LptGeometry::choose(LptInput {
        leb_bytes,
        min_io_bytes,
        main_lebs: lebs - 8,
        lebs,
        lebs_max,
        lpt_lebs: 0,
        saved_lebs: 256,
        big: false,
    })
    .expect("there is room for it")
}

fn lebs(geometry: &LptGeometry) -> Vec<LebSpace> {
    let mut random = fastrand::Rng::with_seed(geometry.input.lebs_max.into());
    (0..geometry.input.main_lebs)
        .map(|_| {
            let free = random.u32(0..=geometry.input.leb_bytes) & !7;
            LebSpace {
                free,
                dirty: random.u32(0..=geometry.input.leb_bytes - free) & !7,
                index: random.bool(),
            }
        })
        .collect()
}

fn fresh(geometry: &LptGeometry) -> LptLayout {
    let input = geometry.input;
    let regions: Vec<_> = (0..input.lpt_lebs).map(|leb| Region { leb, offset: 0 }).collect();
    let erased = TableSpace {
        free: input.leb_bytes,
        dirty: 0,
    };
    let saved = vec![12; to_usize(input.saved_lebs)];
    let spaces = vec![erased; to_usize(input.lpt_lebs)];
    lay_out(geometry, &lebs(geometry), &saved, &regions, spaces).expect("it fits")
}

fn area(geometry: &LptGeometry, layout: &LptLayout) -> Vec<Vec<u8>> {
    let mut area = vec![vec![0xFF; to_usize(geometry.input.leb_bytes)]; to_usize(geometry.input.lpt_lebs)];
    for write in &layout.writes {
        let from = to_usize(write.at.offset);
        let end = from + write.bytes.len();
        area[to_usize(write.at.leb)][from..end].copy_from_slice(&write.bytes);
    }
    area
}

const SHAPES: [(u32, u32, u32, u32); 7] = [
    (126_976, 2048, 2000, 400),
    (126_976, 2048, 17, 17),
    (15_872, 512, 2000, 2000),
    (15_872, 512, 70_000, 40_000),
    (15_360, 8, 4095, 100),
    (262_144, 4096, 30_000, 30_000),
    (2_093_056, 16_384, 65_536, 50_000),
];

#[test]
fn space_is_the_same_after_a_round_trip_in_both_models() {
    let mut models = [0, 0];
    for (leb_bytes, min_io, max, count) in SHAPES {
        let geometry = geometry(leb_bytes, min_io, max, count);
        models[usize::from(geometry.input.big)] += 1;
        let layout = fresh(&geometry);
        let area = area(&geometry, &layout);
        let content = read(&geometry, layout.root, layout.table, layout.saved, &mut |leb| {
            Ok(area[to_usize(leb)].clone())
        })
        .expect("it was just written");
        assert!(content.lebs == lebs(&geometry), "{geometry:?}");
        assert_eq!(content.spaces, layout.spaces);
        let written: u64 = layout
            .spaces
            .iter()
            .map(|space| u64::from(leb_bytes - space.free))
            .sum();
        assert!(
            written <= geometry.bytes,
            "{written} bytes, expected {geometry:?}"
        );
        if let Some(saved) = layout.saved {
            let raw = &area[to_usize(saved.leb)][to_usize(saved.offset)..];
            assert_eq!(geometry.decode_saved(raw), Ok(vec![12; 256]));
        }
    }
    assert!(models.iter().all(|count| *count > 0), "both models: {models:?}");
}

#[test]
fn a_flipped_bit_in_a_used_byte_is_found() {
    let geometry = geometry(15_872, 512, 2000, 60);
    let layout = fresh(&geometry);
    let good = area(&geometry, &layout);
    let used = to_usize(layout.table.offset + geometry.table_bytes);
    for bit in 0..used * 8 {
        let mut area = good.clone();
        area[0][bit / 8] ^= 1 << (bit % 8);
        let content = read(&geometry, layout.root, layout.table, layout.saved, &mut |leb| {
            Ok(area[to_usize(leb)].clone())
        });
        assert!(content.is_err(), "bit {bit}");
    }
}

#[test]
fn numbers_of_inner_nodes_have_the_first_step_in_the_lowest_bits() {
    assert_eq!(inner_number(0, 0), 1);
    assert_eq!([0, 1, 2, 3].map(|column| inner_number(1, column)), [4, 5, 6, 7]);
    // From the root to child 2, from there to child 3.
    assert_eq!(inner_number(2, 2 * 4 + 3), 0b1_11_10);
}
