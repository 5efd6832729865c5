//! Every chip of this crate passes the contract suite of `media::Nand`.

use media::{NandGeometry, Nanos};
use nand::{ChipModel, FaultModel, Preset, SimNand};

fn model() -> ChipModel {
    let geometry = NandGeometry::new(512, 8, 8)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("a geometry");
    ChipModel::new(geometry)
}

#[test]
fn a_chip_in_memory_keeps_the_contract() {
    media::contract::run_all(|| SimNand::new("sim", model(), FaultModel::none()));
}

#[test]
fn a_chip_with_time_bad_blocks_and_corrected_bits_keeps_the_contract() {
    let faults = FaultModel {
        factory_bad_blocks: 3,
        time_per_bit_flip: Nanos::from_millis(400),
        ..FaultModel::seeded(11)
    };
    let model = Preset::Tlc.model().with_size(8 << 20).unwrap();
    media::contract::run_all(|| SimNand::new("tlc", model, faults));
}
