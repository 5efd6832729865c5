//! Peak memory use of an array while it is attached: per member at most 8 bytes per block plus 300 KiB.

use std::sync::{Arc, Mutex};

use array::{Execution, MemberIdentity, attach, format};
use media::{Nand, NandGeometry, Peb, RamNand};
use testkit::heap::{CountingAllocator, taken_by};
use ubi::format::{Compatibility, HEADER_BYTES, VidHeader, VolumeKind};
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Chip = Arc<Mutex<RamNand>>;

const BLOCKS: u32 = 8192;
const VID_HEADER_OFFSET: u32 = 512;

fn formatted(members: u32) -> Vec<Chip> {
    let geometry = NandGeometry::new(2048, 64, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(512))
        .expect("a geometry");
    let chips: Vec<Chip> = (0..members)
        .map(|member| Arc::new(Mutex::new(RamNand::new(&format!("chip{member}"), geometry))))
        .collect();
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: 7,
        index: 0,
        members: 0,
        redundancy: array::Redundancy::None,
        label: "large".to_owned(),
    };
    format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    chips
}

/// Fills every free block: the first `lebs` belong to LEBs with one generation on all members. The rest claim the same
/// LEBs again, with generations that are not on all members.
fn fill(chips: &[Chip], lebs: u32) {
    for (member, chip) in (0_u64..).zip(chips) {
        let mut chip = chip.lock().expect("no panic");
        let mut taken = 0;
        for peb in (0..BLOCKS).map(Peb) {
            let mut raw = [0; 512];
            let _ = chip.read(peb, VID_HEADER_OFFSET, &mut raw).expect("in range");
            if raw != [0xFF; 512] {
                continue;
            }
            let again = u64::from(taken / lebs);
            let header = VidHeader {
                kind: VolumeKind::Dynamic,
                copied: false,
                compatibility: Compatibility::None,
                volume: 0,
                leb: taken % lebs,
                data_size: 0,
                used_lebs: 0,
                data_padding: 0,
                data_crc: 0,
                sequence_number: 1000 + u64::from(taken),
                generation: 1 + again * (10 + member),
            };
            raw[..HEADER_BYTES].copy_from_slice(&header.encode());
            chip.program(peb, VID_HEADER_OFFSET, &raw).expect("free");
            taken += 1;
        }
        assert!(taken > lebs, "some LEBs have two blocks");
    }
}

#[test]
fn an_attach_takes_what_was_promised_for_each_member() {
    let chips = formatted(3);
    let options = AttachOptions::linux(Access::ReadOnly);
    let lebs = attach(chips.clone(), options, Execution::Inline)
        .expect("attached")
        .volume()
        .geometry()
        .lebs;
    fill(&chips, lebs);
    let (array, taken) = taken_by(|| attach(chips.clone(), options, Execution::Inline).expect("attached"));
    let promised = 3 * (8 * u64::from(BLOCKS) + (300 << 10));
    assert!(taken.peak_bytes <= promised, "{taken:?}, promised {promised}");
    assert!(array.resolution().rolled_back > 50, "{:?}", array.resolution());
}
