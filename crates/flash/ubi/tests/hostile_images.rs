//! Images with random corruption, and with random fields behind correct CRCs: an attach succeeds or is refused; it
//! never panics or loops, and never modifies an image that it refuses. `TIDEGATE_FULL` runs many more cases; a
//! failure names its seed, and `TIDEGATE_REPLAY=SEED` reruns that case.

mod linux_fastmap;

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

use media::{Leb, Nand, NandGeometry, Peb, RamNand, index};
use testkit::heap::{CountingAllocator, taken_by};
use testkit::prng::Prng;
use ubi::format::volume_table::VolumeName;
use ubi::format::{VolumeKind, crc32};
use ubi::{
    Access, AttachOptions, FastmapUse, FormatOptions, Layout, NewVolume, Scanned, SizeInLebs, Ubi, Volume,
    check, scan,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Memory limit of a full scan or an attach of any image.
const MEMORY_BYTES: u64 = 32 * 8 + (300 << 10);

const BLOCKS: u32 = 32;
const BLOCK_BYTES: usize = 4096;

type Chip = Arc<Mutex<RamNand>>;

fn good_image() -> Vec<Vec<u8>> {
    let geometry = geometry();
    let chip = Arc::new(Mutex::new(RamNand::new("chip", geometry)));
    let format = FormatOptions {
        layout: Layout::usual(&geometry).expect("a layout"),
        image_sequence: 7,
        erase_counter: None,
    };
    let ubi = Ubi::format(Arc::clone(&chip), format, &mut |_| {}).expect("formatted");
    for (name, kind) in [("data", VolumeKind::Dynamic), ("boot", VolumeKind::Static)] {
        let new = NewVolume {
            id: None,
            name: VolumeName::new(name.as_bytes()).expect("a name"),
            kind,
            size: SizeInLebs::Exactly(6),
            alignment: 1,
            autoresize: false,
            skip_check: false,
        };
        let id = ubi.make_volume(new).expect("room for it");
        if kind == VolumeKind::Static {
            let mut update = ubi.update(id, 8000).expect("it fits");
            update
                .write(&[9; 8000])
                .and_then(|()| update.finish())
                .expect("it fits");
        } else {
            let volume = ubi.open(id).expect("it is there");
            for leb in 0..5 {
                volume.leb_change(Leb(leb), &[1; 1024]).expect("room for it");
                volume.leb_change(Leb(leb), &[2; 512]).expect("room for it");
            }
        }
    }
    ubi.settle().expect("nothing fails");
    drop(ubi);
    blocks(&chip)
}

/// The image with a fastmap added, and the PEBs of the fastmap.
fn good_image_with_fastmap(good: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<usize>) {
    let chip = chip(good);
    let volumes = [(0, VolumeKind::Dynamic, 6), (1, VolumeKind::Static, 6)];
    let map = linux_fastmap::write_fastmap(&mut chip.lock().expect("no panic"), &volumes);
    let places = map.blocks.iter().map(|wear| index(wear.peb));
    (blocks(&chip), places.collect())
}

fn geometry() -> NandGeometry {
    NandGeometry::new(512, 8, BLOCKS)
        .and_then(|geometry| geometry.with_subpage(128))
        .expect("a geometry")
}

fn blocks(chip: &Chip) -> Vec<Vec<u8>> {
    let mut chip = chip.lock().expect("no panic");
    let read = |peb| {
        let mut block = vec![0; BLOCK_BYTES];
        let _ = chip.read(Peb(peb), 0, &mut block).expect("in range");
        block
    };
    (0..BLOCKS).map(read).collect()
}

fn chip(blocks: &[Vec<u8>]) -> Chip {
    let mut chip = RamNand::new("chip", geometry());
    for (peb, block) in (0..).zip(blocks) {
        let written = block
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| last + 1);
        let written = written.next_multiple_of(128);
        // Programs only the written part, so that the erased end stays programmable.
        if written > 0 {
            chip.program(Peb(peb), 0, &block[..written]).expect("erased");
        }
    }
    Arc::new(Mutex::new(chip))
}

fn damage(blocks: &mut [Vec<u8>], prng: &mut Prng) {
    let bytes = [0, 1, 2, 5, 0x7F, 0x80, 0xFF];
    for _ in 0..1 + prng.below(6) {
        let peb = prng.below_usize(blocks.len());
        match prng.below(8) {
            0 => blocks[peb] = blocks[prng.below_usize(blocks.len())].clone(),
            1 => blocks[peb].fill(0xFF),
            2 => blocks[peb] = prng.bytes(BLOCK_BYTES),
            3 => {
                let at = prng.below_usize(BLOCK_BYTES);
                blocks[peb][at..].fill(0xFF);
            }
            4 => {
                let at = prng.below_usize(BLOCK_BYTES);
                blocks[peb][at] ^= 1 << prng.below(8);
            }
            5 => {
                // A record of the volume table, or of bytes at the position of one.
                let start = 512 + 172 * prng.below_usize(20);
                let at = start + prng.below_usize(168);
                blocks[peb][at] = *prng.pick(&bytes);
                let crc = crc32(&blocks[peb][start..start + 168]);
                blocks[peb][start + 168..start + 172].copy_from_slice(&crc.to_be_bytes());
            }
            _ => {
                let start = *prng.pick(&[0, 128]);
                let at = start + 4 + prng.below_usize(56);
                blocks[peb][at] = *prng.pick(&bytes);
                let crc = crc32(&blocks[peb][start..start + 60]);
                blocks[peb][start + 60..start + 64].copy_from_slice(&crc.to_be_bytes());
            }
        }
    }
}

/// Changes fields of a fastmap and corrects its CRC.
fn damage_fastmap(blocks: &mut [Vec<u8>], places: &[usize], prng: &mut Prng) {
    let mut raw: Vec<u8> = places
        .iter()
        .flat_map(|peb| blocks[*peb][512..].to_vec())
        .collect();
    for _ in 0..1 + prng.below(3) {
        // Anywhere but in the padding; the superblock and the header more often.
        let end = *prng.pick(&[344, 344, 3000]);
        let at = prng.below_usize(end / 4) * 4;
        let value = match prng.below(3) {
            0 => prng.next_u64().to_le_bytes()[0].into(),
            1 => u32::MAX - u32::from(prng.next_u64().to_le_bytes()[0]),
            _ => 1 << prng.below(32),
        };
        raw[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    raw[8..12].fill(0);
    let crc = crc32(&raw);
    raw[8..12].copy_from_slice(&crc.to_be_bytes());
    for (peb, part) in places.iter().zip(raw.chunks(BLOCK_BYTES - 512)) {
        blocks[*peb][512..].copy_from_slice(part);
    }
}

/// Attaches the image, and uses it if the attach succeeds. Returns whether it did.
fn use_image(chip: &Chip, fastmap: FastmapUse, seed: u64) -> bool {
    let before = blocks(chip);
    let (report, taken) = taken_by(|| check(&mut Arc::clone(chip), Access::ReadOnly, &mut |_| {}));
    report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(
        taken.peak_bytes <= MEMORY_BYTES,
        "seed {seed}: the check took {taken:?}"
    );
    read_only(chip, fastmap, seed);
    let options = AttachOptions {
        fastmap,
        ..AttachOptions::linux(Access::ReadWrite)
    };
    let (scanned, taken) = taken_by(|| scan(Arc::clone(chip), options));
    assert!(
        taken.peak_bytes <= MEMORY_BYTES,
        "seed {seed}: the scan took {taken:?}"
    );
    let scanned = match scanned {
        Ok(scanned) => scanned,
        Err(error) => {
            assert!(error.to_string().starts_with("chip: "), "seed {seed}: {error}");
            assert!(
                before == blocks(chip),
                "seed {seed}: refused and changed: {error}"
            );
            return false;
        }
    };
    // Repairs write to the chip, whose memory grows.
    let (ubi, taken) = taken_by(|| scanned.attach());
    assert!(
        taken.peak_bytes <= 2 * MEMORY_BYTES,
        "seed {seed}: the attach took {taken:?}"
    );
    let Ok(ubi) = ubi else { return false };
    for volume in ubi.volumes() {
        let Ok(volume) = ubi.open(volume.id) else { continue };
        for leb in (0..volume.geometry().lebs).map(Leb) {
            let mut page = [0; 512];
            // Unreadable data is an error here; this only checks that nothing panics.
            let _ = volume.read(leb, 0, &mut page);
            let _ = volume.leb_change(leb, &page);
        }
    }
    let _ = ubi.settle();
    true
}

/// Attaches read-only, where volumes may be larger than the image, and reads the existing part.
fn read_only(chip: &Chip, fastmap: FastmapUse, seed: u64) {
    let options = AttachOptions {
        fastmap,
        ..AttachOptions::linux(Access::ReadOnly)
    };
    let attached = || scan(Arc::clone(chip), options).and_then(Scanned::attach);
    let (ubi, taken) = taken_by(attached);
    // The table of these LEBs has 20 records, each with at most as many LEBs as the largest chips have blocks.
    let most = MEMORY_BYTES + 20 * (4 << 16);
    assert!(
        taken.peak_bytes <= most,
        "seed {seed}: the attach for reading took {taken:?}"
    );
    let Ok(ubi) = ubi else { return };
    for volume in ubi.volumes() {
        let mapping = ubi.mapping(volume.id);
        let Ok(opened) = ubi.open(volume.id) else { continue };
        for (leb, _) in (0..).map(Leb).zip(&mapping).filter(|(_, peb)| peb.is_some()) {
            let mut page = [0; 512];
            let _ = opened.read(leb, 0, &mut page);
        }
    }
}

#[test]
fn damaged_images_are_refused_or_attached_and_never_panic() {
    let seeds = if testkit::is_full() { 200_000 } else { 3000 };
    let good = good_image();
    let (with_fastmap, places) = good_image_with_fastmap(&good);
    for image in [&good, &with_fastmap] {
        assert!(
            use_image(&chip(image), FastmapUse::IfValid, 0),
            "the good one attaches"
        );
    }
    let only: Option<u64> = std::env::var("TIDEGATE_REPLAY")
        .ok()
        .map(|seed| seed.parse().expect("a seed"));
    let mut attached = 0;
    for seed in (0..seeds).filter(|seed| only.is_none_or(|only| only == *seed)) {
        let mut prng = Prng::named(seed, "hostile images");
        let mut blocks = match seed % 2 {
            0 => good.clone(),
            _ => with_fastmap.clone(),
        };
        match seed % 4 {
            3 => damage_fastmap(&mut blocks, &places, &mut prng),
            _ => damage(&mut blocks, &mut prng),
        }
        let used = catch_unwind(|| use_image(&chip(&blocks), FastmapUse::IfValid, seed));
        let used =
            used.unwrap_or_else(|_| panic!("replay with TIDEGATE_REPLAY={seed}; what failed is above"));
        attached += u64::from(used);
    }
    if only.is_some() {
        return;
    }
    assert!(attached > seeds / 20, "only {attached} of {seeds} attached");
    assert!(attached < seeds - seeds / 20, "{attached} of {seeds} attached");
}

#[test]
fn an_image_with_the_last_sequence_number_is_read_and_not_written() {
    let mut blocks = good_image();
    let used = blocks.iter().position(|block| block[128..132] == *b"UBI!");
    let header = &mut blocks[used.expect("a block in use")][128..192];
    header[40..48].fill(0xFF);
    let crc = crc32(&header[..60]);
    header[60..].copy_from_slice(&crc.to_be_bytes());
    let chip = chip(&blocks);
    let scanned = scan(Arc::clone(&chip), AttachOptions::linux(Access::ReadWrite)).expect("attaches");
    let ubi = scanned.attach().expect("attaches");
    assert!(ubi.frozen().is_some_and(|why| why.contains("sequence number")));
    let volume = ubi.open(ubi.volumes()[0].id).expect("it is there");
    volume
        .leb_change(Leb(0), &[1; 512])
        .expect_err("nothing is written");
    assert!(blocks == self::blocks(&chip));
}
