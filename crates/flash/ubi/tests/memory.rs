//! Peak memory of an attach, and memory of an attached device: at most 8 bytes per block plus 300 KiB, without the
//! chip's own storage.

mod linux_fastmap;

use std::sync::{Arc, Mutex};

use linux_fastmap::{header, headers, write_block, write_fastmap};
use media::{Nand, NandGeometry, Peb, RamNand};
use testkit::heap::{CountingAllocator, Taken, taken_by};
use ubi::format::volume_table::VolumeName;
use ubi::format::{VidHeader, VolumeKind, crc32};
use ubi::{
    Access, AttachOptions, AttachedBy, FastmapUse, FormatOptions, Layout, NewVolume, Scanned, SizeInLebs,
    Ubi, scan,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Chip = Arc<Mutex<RamNand>>;

fn promised(chip: &Chip) -> u64 {
    8 * u64::from(chip.geometry().blocks()) + (300 << 10)
}

/// A chip with one volume that has all available blocks. Returns its number of LEBs.
fn formatted(geometry: NandGeometry) -> (Chip, u32) {
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry)));
    let options = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 1,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), options, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"all").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::AllFree,
        alignment: 1,
        autoresize: false,
        skip_check: false,
    };
    ubi.make_volume(new).expect("room for it");
    ubi.settle().expect("nothing fails");
    let lebs = ubi.volumes()[0].record.reserved_pebs;
    drop(ubi);
    (chip, lebs)
}

/// Maps LEBs to all free blocks except those in `spared`; if there are more blocks than LEBs, the rest are
/// duplicates.
fn fill(chip: &Chip, lebs: u32, spared: &[Peb]) {
    let mut nand = chip.lock().expect("no panic");
    let mut sequence_number = 1000;
    for peb in nand.geometry().pebs() {
        if spared.contains(&peb) || headers(&mut nand, peb).1.is_some() {
            continue;
        }
        let leb = u32::try_from(sequence_number - 1000).expect("few") % lebs;
        write_block(&mut nand, peb, &header(0, leb, sequence_number), &[]);
        sequence_number += 1;
    }
}

/// Attaches a copy of the chip, and compares the peak with the promised limit and the kept memory with the device's
/// own figure.
fn attach(chip: &Chip, options: AttachOptions, by: &AttachedBy) -> Taken {
    let copy = Arc::new(Mutex::new(chip.lock().expect("no panic").clone()));
    let attached = || {
        let scanned = scan(Arc::clone(&copy), options).expect("attaches");
        assert_eq!(scanned.attached_by(), by);
        scanned.attach().expect("attaches")
    };
    let (ubi, taken) = taken_by(attached);
    let most = promised(chip);
    assert!(
        taken.peak_bytes <= most,
        "{options:?}: {taken:?}, promised {most}"
    );
    let said = ubi.summary().memory_bytes;
    // An attach for writing erases blocks, which frees memory of the chip.
    assert!(
        options.access == Access::ReadWrite || taken.kept_bytes.abs_diff(said) <= said / 50 + 4096,
        "{options:?}: {taken:?}, but it says {said}"
    );
    taken
}

fn options(access: Access, fastmap: FastmapUse) -> AttachOptions {
    AttachOptions {
        fastmap,
        ..AttachOptions::linux(access)
    }
}

/// Number of blocks of large raw NAND chips; few pages per block keep the test small and are the worst case for the
/// limit.
const BLOCKS: u32 = 8192;

fn geometry() -> NandGeometry {
    NandGeometry::new(2048, 64, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(512))
        .expect("a geometry")
}

#[test]
fn an_attach_of_8192_blocks_in_use_takes_what_was_promised_at_its_peak() {
    let (chip, lebs) = formatted(geometry());
    fill(&chip, lebs, &[]);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        attach(&chip, options(access, FastmapUse::Never), &AttachedBy::Scan);
    }
}

#[test]
fn an_attach_by_fastmap_takes_no_more() {
    let (chip, lebs) = formatted(geometry());
    let spared: Vec<Peb> = (8..40).map(Peb).collect();
    fill(&chip, lebs, &spared);
    // No duplicates, since a fastmap lists none: the later block would be in the pool.
    let volumes = [(0, VolumeKind::Dynamic, lebs)];
    write_fastmap(&mut chip.lock().expect("no panic"), &volumes);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        attach(&chip, options(access, FastmapUse::IfValid), &AttachedBy::Fastmap);
    }
}

#[test]
fn blocks_of_megabytes_are_not_read_whole() {
    let geometry = NandGeometry::new(16 << 10, 256, 64).expect("a geometry");
    let (chip, _) = formatted(geometry);
    let mut nand = chip.lock().expect("no panic");
    let free: Vec<Peb> = nand
        .geometry()
        .pebs()
        .filter(|peb| headers(&mut nand, *peb).1.is_none())
        .collect();
    let data = vec![0x5A; 3 << 20];
    write_block(&mut nand, free[0], &header(0, 0, 1000), &data[..16 << 10]);
    let copied = VidHeader {
        copied: true,
        data_size: 3 << 20,
        data_crc: crc32(&data),
        ..header(0, 0, 1001)
    };
    write_block(&mut nand, free[1], &copied, &data);
    drop(nand);
    let by_scan = options(Access::ReadOnly, FastmapUse::Never);
    attach(&chip, by_scan, &AttachedBy::Scan);
    let ubi = scan(Arc::clone(&chip), by_scan)
        .and_then(Scanned::attach)
        .expect("attaches");
    assert_eq!(
        ubi.mapping(ubi.volumes()[0].id)[0],
        Some(free[1]),
        "the later one is whole"
    );
}

#[test]
fn what_is_wrong_with_every_block_is_not_all_remembered() {
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry())));
    let (formatted, _) = formatted(geometry().with_blocks(64).expect("a geometry"));
    let mut block = vec![0; 1 << 17];
    for peb in (0..64).map(Peb) {
        let _ = formatted
            .lock()
            .expect("no panic")
            .read(peb, 0, &mut block)
            .expect("in range");
        let end = block
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        let mut nand = chip.lock().expect("no panic");
        nand.program(peb, 0, &block[..end.next_multiple_of(512)])
            .expect("erased");
    }
    // All other blocks are blank, as after flashing an image without erase counters.
    attach(
        &chip,
        options(Access::ReadOnly, FastmapUse::Never),
        &AttachedBy::Scan,
    );
}
