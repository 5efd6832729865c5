//! Attach by fastmap: the result equals that of a full scan, and an invalid fastmap is ignored.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb, RamNand};
use ubi::format::volume_table::VolumeName;
use ubi::format::{FASTMAP_DATA_VOLUME, VolumeKind};
use ubi::{
    Access, AttachOptions, AttachedBy, FastmapUse, FormatOptions, Layout, NewVolume, Scanned, SizeInLebs,
    Ubi, Volume, VolumeId, scan,
};

use crate::linux_fastmap::{header, headers, write_block, write_fastmap};

type Chip = Arc<Mutex<RamNand>>;

const BLOCKS: u32 = 48;

fn options() -> AttachOptions {
    AttachOptions {
        fastmap: FastmapUse::IfValid,
        ..AttachOptions::linux(Access::ReadWrite)
    }
}

fn scanned(chip: &Chip) -> Scanned {
    scan(Arc::clone(chip), options()).expect("it can be attached")
}

/// A chip with a volume, a fastmap as Linux would write it, and one LEB written later into the pool.
fn chip_with_fastmap() -> Chip {
    let geometry = NandGeometry::new(512, 8, BLOCKS).and_then(|geometry| geometry.with_subpage(128));
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry.expect("a geometry"))));
    let format = FormatOptions {
        layout: Layout::usual(&chip.geometry()).expect("a layout"),
        image_sequence: 7,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), format, &mut |_| {}).expect("formatted");
    let new = NewVolume {
        id: None,
        name: VolumeName::new(b"data").expect("a name"),
        kind: VolumeKind::Dynamic,
        size: SizeInLebs::Exactly(10),
        alignment: 1,
        autoresize: false,
        skip_check: false,
    };
    let id = ubi.make_volume(new).expect("room for it");
    let volume = ubi.open(id).expect("it is there");
    for leb in 0..6_u8 {
        volume
            .write(Leb(u32::from(leb)), 0, &[leb; 1024])
            .expect("room for it");
    }
    ubi.settle().expect("nothing fails");
    drop((volume, ubi));
    let mut nand = chip.lock().expect("no panic");
    let map = write_fastmap(&mut nand, &[(0, VolumeKind::Dynamic, 10)]);
    write_block(&mut nand, Peb(map.pool.pebs[1]), &header(0, 3, 950), &[0x33; 512]);
    drop(nand);
    chip
}

fn contents(ubi: &Ubi) -> Vec<Vec<u8>> {
    let volume = ubi.open(VolumeId(0)).expect("it is there");
    let read = |leb| {
        let mut out = vec![0; 3584];
        volume.read(Leb(leb), 0, &mut out).expect("it can be read");
        out
    };
    (0..10).map(read).collect()
}

fn copy(chip: &Chip) -> Chip {
    Arc::new(Mutex::new(chip.lock().expect("no panic").clone()))
}

#[test]
fn a_fastmap_gives_what_a_look_at_every_block_gives() {
    let chip = chip_with_fastmap();
    let by_map = scanned(&chip);
    assert_eq!(*by_map.attached_by(), AttachedBy::Fastmap);
    let never = AttachOptions {
        fastmap: FastmapUse::Never,
        ..options()
    };
    let (by_map, by_scan) = (copy(&chip), copy(&chip));
    let by_map = scanned(&by_map).attach().unwrap();
    let by_scan = scan(by_scan, never).unwrap().attach().unwrap();
    assert_eq!(contents(&by_map)[3][..512], [0x33; 512]);
    assert_eq!(contents(&by_map), contents(&by_scan));
    by_map.settle().unwrap();
    by_scan.settle().unwrap();
    let (mut by_map, by_scan) = (by_map.summary(), by_scan.summary());
    by_map.memory_bytes = by_scan.memory_bytes;
    assert_eq!(by_map, by_scan);
}

#[test]
fn the_anchor_is_gone_before_anything_is_written() {
    for fastmap in [FastmapUse::IfValid, FastmapUse::Never] {
        let chip = chip_with_fastmap();
        let attach = AttachOptions { fastmap, ..options() };
        let ubi = scan(Arc::clone(&chip), attach).unwrap().attach().unwrap();
        let volume = ubi.open(VolumeId(0)).unwrap();
        volume.leb_change(Leb(1), &[0xEE; 512]).unwrap();
        let again = scanned(&chip);
        assert_eq!(*again.attached_by(), AttachedBy::Scan);
        assert_eq!(contents(&again.attach().unwrap())[1][..512], [0xEE; 512]);
    }
}

#[test]
fn a_fastmap_that_is_not_right_is_left_aside() {
    let good = chip_with_fastmap();
    let expected = contents(&scanned(&copy(&good)).attach().unwrap());
    let mut chip = good.lock().unwrap().clone();
    // A block that was free when the fastmap was written, and is in no pool, has gone bad.
    let free = (0..BLOCKS)
        .rev()
        .map(Peb)
        .find(|peb| headers(&mut chip, *peb).1.is_none())
        .unwrap();
    chip.erase(free).unwrap();
    let anchor = (0..BLOCKS)
        .map(Peb)
        .find(|peb| {
            headers(&mut good.lock().unwrap().clone(), *peb)
                .1
                .is_some_and(|vid| vid.volume == FASTMAP_DATA_VOLUME)
        })
        .unwrap();
    chip.erase(anchor).unwrap();
    let damaged = Arc::new(Mutex::new(chip));
    let scanned = scanned(&damaged);
    assert!(
        matches!(scanned.attached_by(), AttachedBy::ScanAfterFastmap { why } if why.contains("is not block 1")),
        "{:?}",
        scanned.attached_by()
    );
    assert_eq!(contents(&scanned.attach().unwrap()), expected);
}

/// Found in the lab: Linux does not update the fastmap when a LEB is unmapped, so a write here would have gone to a
/// block without VID header.
#[test]
fn a_leb_that_was_unmapped_after_the_fastmap_was_written_is_not_mapped() {
    let chip = chip_with_fastmap();
    let peb = scanned(&copy(&chip)).attach().unwrap().mapping(VolumeId(0))[5].unwrap();
    let mut nand = chip.lock().unwrap();
    let mut ec_header = [0; 128];
    let _ = nand.read(peb, 0, &mut ec_header).unwrap();
    nand.erase(peb).unwrap();
    nand.program(peb, 0, &ec_header).unwrap();
    drop(nand);
    let by_map = scanned(&chip);
    assert_eq!(*by_map.attached_by(), AttachedBy::Fastmap);
    assert_eq!(by_map.attach().unwrap().mapping(VolumeId(0))[5], None);
}
