//! Round trips of both models over many geometries, a bit-flip sweep, and random changes with recomputed CRCs.

use testkit::heap::CountingAllocator;
use testkit::hostile::{Decoder, Inputs, Kind};

use super::bits::crc16;
use super::layout::inner_number;
use super::*;
use crate::scan::to_usize;
use crate::space::LebSpace;

/// For the limit on memory of [`Decoder::run`].
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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

fn hostile_geometry(is_big: bool) -> LptGeometry {
    match is_big {
        true => geometry(15_872, 512, 70_000, 40_000),
        false => geometry(15_872, 512, 2000, 2000),
    }
}

/// Puts the CRC of each node right.
fn fix<const IS_BIG: bool>(raw: &mut [u8]) {
    let geometry = hostile_geometry(IS_BIG);
    for leb in raw.chunks_mut(to_usize(geometry.input.leb_bytes)) {
        let mut at = 0;
        while let Some(kind) = leb.get(at + 2) {
            let bytes = match kind & 0xF {
                0 => geometry.leaf_bytes,
                1 => geometry.inner_bytes,
                2 => geometry.table_bytes,
                3 => geometry.saved_bytes,
                _ => break,
            };
            let Some(node) = leb.get_mut(at..at + to_usize(bytes)) else {
                break;
            };
            let crc = crc16(&node[2..]).to_le_bytes();
            node[..2].copy_from_slice(&crc);
            at += node.len();
        }
    }
}

fn hostile_decoder<const IS_BIG: bool>(name: &'static str) -> Decoder<'static> {
    let geometry = hostile_geometry(IS_BIG);
    let layout = fresh(&geometry);
    let leb_bytes = to_usize(geometry.input.leb_bytes);
    Decoder {
        name,
        kind: Kind::Bytes,
        good: vec![area(&geometry, &layout).concat()],
        fix: |raw| fix::<IS_BIG>(raw),
        decode: Box::new(move |raw| {
            let mut area = raw.to_vec();
            area.resize(leb_bytes * to_usize(geometry.input.lpt_lebs), 0xFF);
            let read = read(&geometry, layout.root, layout.table, layout.saved, &mut |leb| {
                Ok(area[to_usize(leb) * leb_bytes..][..leb_bytes].to_vec())
            });
            read.is_ok()
        }),
    }
}

#[test]
fn changed_tables_with_right_checksums_are_read_or_refused() {
    let tried = hostile_decoder::<false>("ubifs lpt").run(Inputs::asked_for());
    assert!(
        tried.accepted > 0 || tried.inputs < 30,
        "every change was refused"
    );
    hostile_decoder::<true>("ubifs lpt, big").run(Inputs::asked_for());
}

#[test]
fn numbers_of_inner_nodes_have_the_first_step_in_the_lowest_bits() {
    assert_eq!(inner_number(0, 0), 1);
    assert_eq!([0, 1, 2, 3].map(|column| inner_number(1, column)), [4, 5, 6, 7]);
    // From the root to child 2, from there to child 3.
    assert_eq!(inner_number(2, 2 * 4 + 3), 0b1_11_10);
}
