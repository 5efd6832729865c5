//! Simulated chips that form an array with one empty volume.

use std::sync::{Arc, Mutex};

use array::{MemberIdentity, Redundancy};
use nand::{ChipModel, FaultModel, PowerSupply, SimNand};
use ubi::{FormatOptions, Layout};

/// A chip that outlives its users.
pub type Chip = Arc<Mutex<SimNand>>;

/// `members` chips of a model on one power supply, formatted as an array with or without parity.
pub fn array_of(redundancy: Redundancy, members: usize, model: ChipModel) -> Vec<Chip> {
    let supply = PowerSupply::default();
    let chip = |member| {
        let chip = SimNand::new(&format!("chip{member}"), model, FaultModel::none());
        Arc::new(Mutex::new(chip.with_supply(&supply)))
    };
    let chips: Vec<Chip> = (0..members).map(chip).collect();
    let identity = MemberIdentity {
        array: 1,
        index: 0,
        members: 0,
        redundancy,
        label: "data".to_owned(),
    };
    let options = FormatOptions {
        layout: Layout::usual(&model.geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    array::format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    chips
}
