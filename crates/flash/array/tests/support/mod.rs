//! Small simulated chips of an array, which can be copied like files: each test attaches copies on its own power
//! supply.

#[expect(dead_code, reason = "syncs that fail are for tests of UBI")]
#[path = "../../../ubi/tests/support/hosted_chip.rs"]
pub mod hosted_chip;

use std::sync::{Arc, Mutex};

use array::{Array, ArrayError, Execution, MemberIdentity, Redundancy, attach, format};
use media::{Leb, Nand as _, NandGeometry, Page, Peb};
use nand::{ChipModel, FaultModel, PowerSupply, SimNand};
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume};

/// A chip that survives its users.
pub type Chip = Arc<Mutex<SimNand>>;

pub const PAGE: usize = 512;
pub const BLOCKS: u32 = 40;
/// Pages per block.
pub const PAGES: u32 = 8;
/// The page of the VID header; data begins after it.
pub const VID_PAGE: u32 = 1;
/// Number of bit-flips that makes a page uncorrectable.
pub const BITS: u32 = 64;

/// Blank chips.
pub fn blank_chips(members: usize) -> Vec<SimNand> {
    let geometry = NandGeometry::new(512, PAGES, BLOCKS).expect("a geometry");
    let chip = |member| {
        SimNand::new(
            &format!("chip{member}"),
            ChipModel::new(geometry),
            FaultModel::none(),
        )
    };
    (0..members).map(chip).collect()
}

/// Chips formatted as an empty array called "data".
pub fn array_of(members: usize) -> Vec<SimNand> {
    formatted(members, Redundancy::None)
}

/// The same with or without parity.
pub fn formatted(members: usize, redundancy: Redundancy) -> Vec<SimNand> {
    let chips = on_supply(&blank_chips(members), &PowerSupply::new());
    let identity = MemberIdentity {
        array: 0xDA7A,
        index: 0,
        members: 0,
        redundancy,
        label: "data".to_owned(),
    };
    format(chips.clone(), format_options(), &identity, &mut |_, _| {}).expect("formatted");
    taken(&chips)
}

pub fn format_options() -> FormatOptions {
    let geometry = NandGeometry::new(512, PAGES, BLOCKS).expect("a geometry");
    FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    }
}

/// Copies of the chips in their current state, with power on.
pub fn taken(chips: &[Chip]) -> Vec<SimNand> {
    let chip = |chip: &Chip| {
        chip.lock()
            .expect("no panic")
            .clone()
            .with_supply(&PowerSupply::new())
    };
    chips.iter().map(chip).collect()
}

/// Copies of chips on one power supply.
pub fn on_supply(chips: &[SimNand], supply: &PowerSupply) -> Vec<Chip> {
    let chip = |chip: &SimNand| Arc::new(Mutex::new(chip.clone().with_supply(supply)));
    chips.iter().map(chip).collect()
}

pub fn try_open(chips: &[Chip], access: Access) -> Result<Array, ArrayError> {
    attach(chips.to_vec(), AttachOptions::linux(access), Execution::Inline)
}

pub fn open(chips: &[Chip]) -> Array {
    try_open(chips, Access::ReadWrite).expect("attached")
}

/// Reads a whole LEB.
pub fn read(array: &Array, leb: u32) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(array.volume().geometry().leb_bytes).expect("small")];
    array.volume().read(Leb(leb), 0, &mut bytes).expect("readable");
    bytes
}

/// Makes a page unreadable.
pub fn damage(chip: &Chip, peb: Peb, page: u32) {
    let mut chip = chip.lock().expect("no panic");
    chip.inject_bit_flips(peb, Page(page), BITS);
}

/// Copies a block from another image.
pub fn copy_block(from: &SimNand, to: &mut SimNand, peb: Peb) {
    let mut bytes = vec![0; usize::try_from(PAGES).expect("few") * PAGE];
    let _ = from.clone().read(peb, 0, &mut bytes).expect("in range");
    to.erase(peb).expect("it works");
    for (page, bytes) in (0..PAGES).zip(bytes.chunks(PAGE)) {
        if bytes.iter().any(|byte| *byte != 0xFF) {
            to.program(peb, page * 512, bytes).expect("it works");
        }
    }
}
