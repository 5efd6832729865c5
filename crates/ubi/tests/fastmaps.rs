//! Attach by fastmap: the outcome is that of a look at every block, and a fastmap that is not right is left aside.

use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb, RamNand};
use ubi::format::fastmap::{self, Fastmap, FastmapVolume, Pool, Wear};
use ubi::format::volume_table::VolumeName;
use ubi::format::{
    Compatibility, Decoded, EcHeader, FASTMAP_DATA_VOLUME, FASTMAP_SUPERBLOCK_VOLUME, HEADER_BYTES,
    LAYOUT_VOLUME, VidHeader, VolumeKind,
};
use ubi::{
    Access, AttachOptions, AttachedBy, FastmapUse, FormatOptions, Layout, NewVolume, Scanned, SizeInLebs,
    Ubi, Volume, VolumeId, scan,
};

type Chip = Arc<Mutex<RamNand>>;

const BLOCKS: u32 = 48;

fn options() -> AttachOptions {
    AttachOptions {
        fastmap: FastmapUse::IfValid,
        ..AttachOptions::linux(Access::ReadWrite)
    }
}

fn scanned(chip: &Chip) -> Scanned<Chip> {
    scan(Arc::clone(chip), options()).expect("it can be attached")
}

fn header(volume: u32, leb: u32, sequence_number: u64) -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copied: false,
        compatibility: match volume {
            FASTMAP_SUPERBLOCK_VOLUME | FASTMAP_DATA_VOLUME => Compatibility::Delete,
            _ => Compatibility::None,
        },
        volume,
        leb,
        data_size: 0,
        used_lebs: 0,
        data_padding: 0,
        data_crc: 0,
        sequence_number,
        generation: 0,
    }
}

/// What a block's headers are.
fn headers(chip: &mut RamNand, peb: Peb) -> (u32, Option<VidHeader>) {
    let mut raw = [0; 256];
    let _ = chip.read(peb, 0, &mut raw).expect("in range");
    let half = |from: usize| raw[from..from + HEADER_BYTES].try_into().expect("64 bytes");
    let Decoded::Header(ec) = EcHeader::decode(&half(0)) else {
        panic!("{peb} has no EC header");
    };
    match VidHeader::decode(&half(128), 3584) {
        Decoded::Header(vid) => (ec.erase_counter, Some(vid)),
        _ => (ec.erase_counter, None),
    }
}

fn write_block(chip: &mut RamNand, peb: Peb, header: &VidHeader, data: &[u8]) {
    let mut raw = [0; 128];
    raw[..HEADER_BYTES].copy_from_slice(&header.encode());
    chip.program(peb, 128, &raw).expect("free");
    chip.program(peb, 512, data).expect("free");
}

/// A chip with a volume, a fastmap as Linux would write it, and one LEB written after it into the pool.
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
    write_fastmap(&mut chip.lock().expect("no panic"));
    chip
}

fn write_fastmap(chip: &mut RamNand) {
    let mut map = Fastmap::default();
    let mut volumes = [(0, vec![None; 10]), (LAYOUT_VOLUME, vec![None; 2])];
    let mut free = Vec::new();
    for peb in (0..BLOCKS).map(Peb) {
        let (erase_counter, vid) = headers(chip, peb);
        let wear = Wear {
            peb: peb.0,
            erase_counter,
        };
        match vid {
            None => free.push(wear),
            Some(vid) => {
                map.used.push(wear);
                let place = volumes.iter_mut().find(|(volume, _)| *volume == vid.volume);
                place.expect("one of the two").1[usize::try_from(vid.leb).expect("few")] = Some(peb.0);
            }
        }
    }
    map.blocks = free.drain(..2).collect();
    let pool: Vec<Wear> = free.drain(..3).collect();
    map.pool = Pool {
        pebs: pool.iter().map(|wear| wear.peb).collect(),
        pebs_max: 5,
    };
    map.free = free;
    map.volumes = volumes
        .into_iter()
        .map(|(volume, pebs)| FastmapVolume {
            volume,
            kind: VolumeKind::Dynamic,
            data_padding: 0,
            used_lebs: u32::try_from(pebs.len()).expect("few"),
            last_leb_bytes: 3584,
            pebs,
        })
        .collect();
    let raw = fastmap::encode(&map, 2 * 3584);
    let [first, second] = [0, 1].map(|block: usize| Peb(map.blocks[block].peb));
    write_block(
        chip,
        first,
        &header(FASTMAP_SUPERBLOCK_VOLUME, 0, 900),
        &raw[..3584],
    );
    write_block(chip, second, &header(FASTMAP_DATA_VOLUME, 1, 901), &raw[3584..]);
    write_block(chip, Peb(map.pool.pebs[1]), &header(0, 3, 950), &[0x33; 512]);
}

fn contents(ubi: &Ubi<Chip>) -> Vec<Vec<u8>> {
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
