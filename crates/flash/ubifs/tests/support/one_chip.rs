//! The image of a volume on a single chip, also of an array's volume, whose LEBs fit no chip. The chip's volume is
//! aligned to them, so that tools without array support can check it.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand};
use nand::SimNand;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{FormatOptions, Layout, NewVolume, SizeInLebs, Ubi, UbiVolume, Volume};

/// Writes an image to a volume, except for erased pages at the ends of LEBs: no page may be programmed twice.
pub fn fill(volume: &dyn Volume, image: &[u8]) {
    let geometry = volume.geometry();
    let (leb_bytes, unit) = (
        usize::try_from(geometry.leb_bytes).expect("small"),
        usize::try_from(geometry.min_io_bytes).expect("small"),
    );
    for (leb, content) in (0..).zip(image.chunks(leb_bytes)) {
        let used = content
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| (last + 1).next_multiple_of(unit).min(content.len()));
        if used > 0 {
            volume.write(Leb(leb), 0, &content[..used]).expect("room");
        }
    }
}

/// Formats a chip with a volume of `lebs` LEBs of `leb_bytes`, slightly smaller than its blocks allow, and fills it.
pub fn on_chip(chip: &Arc<Mutex<SimNand>>, lebs: u32, leb_bytes: u32, image: &[u8]) -> UbiVolume {
    let options = FormatOptions {
        layout: Layout::usual(&chip.geometry()).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let device = Ubi::format(Arc::clone(chip), options, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(lebs),
        alignment: leb_bytes,
        autoresize: false,
        skip_check: false,
    };
    let id = device.make_volume(new).expect("room");
    let volume = device.open(id).expect("it is there");
    assert_eq!(volume.geometry().leb_bytes, leb_bytes);
    fill(&volume, image);
    volume
}
