//! Damaged images: no panic, no endless work, no gap or overlap in the map, and no wrong name without a finding.
//!
//! Images are made without root (`mkfs.ext4 -d`), then bits, fields and whole blocks of their metadata are changed by a
//! seed. A failure prints the seed; `FSMAP_SEED=N` runs only that one, `FSMAP_TIMES=N` multiplies the number of seeds.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;

use fsmap::{BlockType, Class, FindingKind, Flush, JournalDetail, Life, Options, OwnerMap};
use support::{Image, run};

const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Blocks,
    flush: Flush::No,
};
const MIB: u64 = 1 << 20;

/// Runs `test` for each seed, or for the one in the environment.
fn for_seeds(count: u64, test: impl Fn(u64)) {
    match std::env::var("FSMAP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => test(seed),
        None => {
            let times = std::env::var("FSMAP_TIMES")
                .ok()
                .and_then(|times| times.parse().ok());
            (0..count * times.unwrap_or(1)).for_each(test);
        }
    }
}

/// An ext4 image with a tree of files, made without mounting it.
fn ext4(options: &[&str]) -> Option<Image> {
    let image = Image::empty(8 * MIB);
    let tree = image.folder().join("tree");
    let deep = tree.join("a/b/c/d");
    fs::create_dir_all(&deep).expect("folders can be made");
    for number in 0..60_usize {
        let folder = if number % 3 == 0 { &deep } else { &tree };
        let path = folder.join(format!("file-{number}"));
        fs::write(path, vec![7; 1 + number * 300]).expect("a file can be written");
    }
    // Every second block is missing, so that its extents need a tree.
    let sparse = fs::File::create(tree.join("sparse")).expect("a file can be made");
    for number in 0..40 {
        sparse.write_all_at(&[1; 1024], number * 8192).expect("room");
    }
    let (tree, path) = (tree.to_str()?, image.path.to_str()?);
    let words = [
        &["-q", "-F", "-b", "1024", "-J", "size=1", "-d", tree],
        options,
        &[path],
    ]
    .concat();
    let (output, done) = run("mkfs.ext4", &words)?;
    if !done {
        testkit::report_left_out(format!("mkfs.ext4 -d: {output}"));
        return None;
    }
    Some(image)
}

/// Checks that the map has each byte once.
fn assert_covers(map: &OwnerMap, seed: u64) {
    let mut position = 0;
    for piece in map.all() {
        assert_eq!(piece.start, position, "seed {seed}: {piece:?}");
        assert!(piece.length > 0, "seed {seed}: {piece:?}");
        position += piece.length;
    }
}

/// Changes a few places of the metadata; returns the original bytes.
fn damage(random: &mut fastrand::Rng, file: &fs::File, places: &[(u64, u64)]) -> Vec<(u64, Vec<u8>)> {
    let mut before = Vec::new();
    for _ in 0..random.usize(1..4) {
        let (start, length) = places[random.usize(0..places.len())];
        let (start, length) = match random.u8(0..10) {
            // A whole block: zeros, noise, or another block of the metadata.
            0 => (start + random.u64(0..length / 1024) * 1024, 1024),
            1..4 => (start + random.u64(0..length / 4) * 4, 4),
            4..6 => (start + random.u64(0..length / 2) * 2, 2),
            _ => (start + random.u64(0..length), 1),
        };
        let mut bytes = vec![0; usize::try_from(length).expect("small")];
        file.read_exact_at(&mut bytes, start).expect("it is in the image");
        before.push((start, bytes.clone()));
        match random.u8(0..4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = random.u8(..)),
            1 => bytes.fill(if random.bool() { 0xFF } else { 0 }),
            2 => {
                let (from, room) = places[random.usize(0..places.len())];
                let at = from + random.u64(0..=room.saturating_sub(length));
                file.read_exact_at(&mut bytes, at).expect("it is in the image");
            }
            _ => {
                let at = random.usize(0..bytes.len());
                bytes[at] ^= 1 << random.u8(0..8);
            }
        }
        file.write_all_at(&bytes, start).expect("it can be written");
    }
    before
}

fn restore(file: &fs::File, before: Vec<(u64, Vec<u8>)>) {
    for (start, bytes) in before.into_iter().rev() {
        file.write_all_at(&bytes, start).expect("it can be written");
    }
}

/// Ranges of metadata and directories.
fn metadata(map: &OwnerMap) -> Vec<(u64, u64)> {
    let mut places: Vec<(u64, u64)> = map
        .all()
        .filter(|piece| {
            [Class::Metadata, Class::Journal].contains(&piece.kind.class())
                || piece.kind == BlockType::Directory
        })
        .map(|piece| (piece.start, piece.length.min(64 << 10)))
        .collect();
    // The superblock and the first descriptors get more than their share.
    places.extend(vec![(1024, 2048); places.len() / 4]);
    places
}

type Owners = BTreeMap<u64, (String, BTreeMap<u64, u64>)>;

/// For each inode its path, and the offset of each block of the file.
fn owners(map: &OwnerMap, certain: bool) -> Owners {
    let mut owners = Owners::new();
    for (_, file) in map.files(0) {
        if let Some(path) = file.paths().find(|path| !(certain && path.doubtful))
            && file.life() == Life::Alive
        {
            let path = String::from_utf8_lossy(&path.bytes).into_owned();
            owners.insert(file.inode(), (path, BTreeMap::new()));
        }
    }
    for piece in map.all().filter(|piece| piece.kind == BlockType::Data) {
        let Some(file) = piece.file.and_then(|id| map.file(id)) else {
            continue;
        };
        let Some((_, blocks)) = owners.get_mut(&file.inode()) else {
            continue;
        };
        if !(certain && (piece.doubtful || piece.contested)) {
            for block in 0..piece.length / 1024 {
                let offset = piece.file_offset.expect("files have offsets") + block * 1024;
                blocks.insert(offset, piece.start + block * 1024);
            }
        }
    }
    owners
}

#[test]
fn damaged_ext4_with_checksums_gives_no_wrong_owner_and_no_wrong_name() {
    let Some(image) = ext4(&[]) else { return };
    let sound = OwnerMap::open(&image.path, &OPTIONS).expect("it is sound");
    assert!(sound.is_sound());
    let (truth, places) = (owners(&sound, false), metadata(&sound));
    assert!(truth.len() > 60, "the image is empty");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(&image.path)
        .expect("it can be opened");
    let mut unsound = 0_u32;
    for_seeds(400, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let before = damage(&mut random, &file, &places);
        if let Ok(map) = OwnerMap::open(&image.path, &OPTIONS) {
            assert_covers(&map, seed);
            for (inode, (path, blocks)) in owners(&map, true) {
                // A path that does not lead to the root is marked as such.
                let Some((expected, expected_blocks)) = truth.get(&inode) else {
                    panic!("seed {seed}: inode {inode} {path} was made up");
                };
                let named = path == *expected || path.starts_with("<inode ");
                assert!(
                    named,
                    "seed {seed}: inode {inode} is {path} instead of {expected}"
                );
                for (offset, byte) in blocks {
                    assert_eq!(
                        expected_blocks.get(&offset),
                        Some(&byte),
                        "seed {seed}: {path} at {offset}"
                    );
                }
            }
        }
        restore(&file, before);
    });
    let again = OwnerMap::open(&image.path, &OPTIONS).expect("it is sound");
    unsound += u32::from(!again.is_sound());
    assert_eq!(
        unsound, 0,
        "the image was not restored: the seeds above were not apart"
    );
}

#[test]
fn damaged_images_without_checksums_end_and_cover_all() {
    let formats: [&[&str]; 3] = [
        &["-O", "^metadata_csum,^64bit"],
        &["-O", "^metadata_csum,^extents,^64bit,^flex_bg"],
        &["-O", "bigalloc,^metadata_csum,^resize_inode", "-C", "4096"],
    ];
    for format in formats {
        let Some(image) = ext4(format) else { return };
        let places = metadata(&OwnerMap::open(&image.path, &OPTIONS).expect("it is sound"));
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&image.path)
            .expect("it can be opened");
        for_seeds(150, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let before = damage(&mut random, &file, &places);
            if let Ok(map) = OwnerMap::open(&image.path, &OPTIONS) {
                assert_covers(&map, seed);
                let named: usize = map.files(0).map(|(_, file)| file.paths().count()).sum();
                assert!(named < 10_000, "seed {seed}: names were made up");
            }
            restore(&file, before);
        });
    }
}

#[test]
fn damaged_fat_ends_and_covers_all() {
    for (kind, bytes) in [("12", 2 * MIB), ("16", 10 * MIB), ("32", 36 * MIB)] {
        let Some(image) = Image::formatted(bytes, &["mkfs.fat", "-F", kind, "-s", "1"]) else {
            return;
        };
        let text = image.path.to_str().expect("temporary names are text");
        let source = image.folder().join("source");
        fs::write(&source, vec![7; 5000]).expect("a file can be written");
        for number in 0..20 {
            let to = format!("::/file-{number} with a long name");
            let words = [
                "-i",
                text,
                source.to_str().expect("temporary names are text"),
                &to,
            ];
            if run("mcopy", &words).is_none() {
                return;
            }
        }
        let places: Vec<(u64, u64)> = OwnerMap::open(&image.path, &OPTIONS)
            .expect("it is sound")
            .all()
            .filter(|piece| piece.kind.class() == Class::Metadata || piece.kind == BlockType::Directory)
            .map(|piece| (piece.start, piece.length.min(4096)))
            .filter(|(_, length)| *length >= 1024 || *length == 512)
            .map(|(start, length)| (start, length.max(1024)))
            .collect();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&image.path)
            .expect("it can be opened");
        for_seeds(150, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let before = damage(&mut random, &file, &places);
            if let Ok(map) = OwnerMap::open(&image.path, &OPTIONS) {
                assert_covers(&map, seed);
            }
            restore(&file, before);
        });
    }
}

#[test]
fn a_lost_superblock_and_lost_descriptors_are_taken_from_their_backups() {
    let Some(image) = ext4(&["-g", "1024"]) else {
        return;
    };
    let sound = owners(
        &OwnerMap::open(&image.path, &OPTIONS).expect("it is sound"),
        false,
    );
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("it can be opened");
    file.write_all_at(&[0; 2048], 1024).expect("it can be written");
    let map = OwnerMap::open(&image.path, &OPTIONS).expect("the backups are there");
    assert!(map.volumes()[0].findings().any(FindingKind::Backup));
    assert_eq!(owners(&map, true), sound);
}

#[test]
fn an_image_cut_short_is_mapped_as_far_as_it_goes() {
    let Some(image) = ext4(&[]) else { return };
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("it can be opened");
    file.set_len(3 * MIB).expect("it can be cut");
    let map = OwnerMap::open(&image.path, &OPTIONS).expect("its first part is there");
    assert!(map.volumes()[0].findings().any(FindingKind::OutOfRange));
    assert_covers(&map, 0);
}

#[test]
fn what_is_no_file_system_is_refused_with_the_next_step() {
    let image = Image::empty(MIB);
    let message = OwnerMap::open(&image.path, &OPTIONS)
        .expect_err("it is empty")
        .to_string();
    assert!(
        message.contains("mount it") || message.contains("mount what"),
        "{message}"
    );
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("it can be opened");
    file.write_all_at(b"\xEB\x76\x90EXFAT   ", 0)
        .expect("it can be written");
    let message = OwnerMap::open(&image.path, &OPTIONS)
        .expect_err("it is exFAT")
        .to_string();
    assert!(message.contains("exFAT"), "{message}");
}
