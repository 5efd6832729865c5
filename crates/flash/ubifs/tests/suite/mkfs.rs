//! Images of `mkfs.ubifs` (mtd-utils), read back: every file equals its source. With flipped bits, reading must
//! neither panic nor loop forever.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::support::tool::{content, has_mkfs, mkfs};
use crate::support::{tree_of, tree_of_host};
use ubifs::format::{Group, NodeKind, check, seal};
use ubifs::{ImageVolume, OpenOptions, Ubifs};

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/and/deeper")).expect("small, and possible on this host");
    fs::create_dir(root.join("many")).expect("small, and possible on this host");
    for number in 0..400_usize {
        fs::write(root.join(format!("many/file-{number}")), content(number * 37, 1))
            .expect("small, and possible on this host");
    }
    fs::write(root.join("empty"), b"").expect("small, and possible on this host");
    fs::write(root.join("large"), content(700_001, 2)).expect("small, and possible on this host");
    fs::write(root.join("deep/er/and/deeper/zeros"), vec![0; 70_000])
        .expect("small, and possible on this host");
    fs::write(root.join("deep/one"), b"x").expect("small, and possible on this host");
    fs::hard_link(root.join("deep/one"), root.join("deep/er/two")).expect("small, and possible on this host");
    symlink("deep/er/../one", root.join("link")).expect("small, and possible on this host");
    fs::write(root.join("n".repeat(255)), b"long name").expect("small, and possible on this host");
    fs::write(root.join("na\u{ef}ve \u{2603}"), b"not ASCII").expect("small, and possible on this host");
}

fn open(image: &Path) -> Ubifs {
    let volume = ImageVolume::open(image)
        .expect("small, and possible on this host")
        .expect("mkfs.ubifs makes a superblock");
    Ubifs::open(Arc::new(volume), OpenOptions::standard()).expect("small, and possible on this host")
}

#[test]
fn every_file_of_an_image_is_equal_to_its_original() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("small, and possible on this host");
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&tree).expect("small, and possible on this host");
    make_tree(&tree);
    let expected = tree_of_host(&tree);
    assert!(expected.len() > 400, "the comparison would be of nothing");
    let kinds: &[(u32, u32, &[&str])] = &[
        (2048, 126_976, &["-x", "none"]),
        (2048, 129_024, &["-x", "lzo"]),
        (512, 15_872, &["-x", "zlib"]),
        (4096, 253_952, &["-x", "zstd"]),
        (16_384, 1_015_808, &["-x", "favor_lzo"]),
        (2048, 126_976, &["-x", "none", "-f", "64"]),
        (2048, 126_976, &["-x", "none", "-k", "test"]),
    ];
    for (min_io, leb, more) in kinds {
        mkfs(&tree, &image, *min_io, *leb, more);
        let ubifs = open(&image);
        let mut lost = Vec::new();
        let found = tree_of(&ubifs, &mut lost);
        assert!(
            lost.is_empty() && ubifs.findings().is_empty(),
            "{min_io} {more:?}: {lost:?} {:?}",
            ubifs.findings()
        );
        for (path, line) in &expected {
            assert_eq!(found.get(path), Some(line), "{min_io} {leb} {more:?}: {path}");
        }
        assert_eq!(found.len(), expected.len(), "{min_io} {leb} {more:?}");
    }
}

#[test]
fn a_part_of_a_file_is_that_part() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("small, and possible on this host");
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir(&tree).expect("small, and possible on this host");
    let whole = content(50_001, 5);
    fs::write(tree.join("file"), &whole).expect("small, and possible on this host");
    mkfs(&tree, &image, 2048, 126_976, &["-x", "lzo"]);
    let ubifs = open(&image);
    let entry = ubifs
        .lookup(ubifs::format::ROOT_INODE, b"file")
        .expect("small, and possible on this host");
    let inode = ubifs
        .inode(entry.inode)
        .expect("small, and possible on this host");
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..200 {
        let (from, bytes) = (random.usize(..60_000), random.usize(..20_000));
        let mut out = vec![7; bytes];
        let read = ubifs
            .read(
                &inode,
                from.try_into().expect("small, and possible on this host"),
                &mut out,
            )
            .expect("small, and possible on this host");
        let expected = whole.get(from..).unwrap_or_default();
        assert_eq!(
            out[..read],
            expected[..expected.len().min(bytes)],
            "{bytes} bytes from {from}"
        );
    }
    assert!(ubifs.lookup(ubifs::format::ROOT_INODE, b"other").is_err());
}

/// Changes bytes of nodes and fixes their CRCs, so that the decoders behind the CRC check see them.
#[test]
fn damaged_images_are_read_without_a_panic_or_an_endless_loop() {
    if !has_mkfs() {
        return;
    }
    let folder = tempfile::tempdir().expect("small, and possible on this host");
    let (tree, image) = (folder.path().join("tree"), folder.path().join("image"));
    fs::create_dir_all(tree.join("folder")).expect("small, and possible on this host");
    for number in 0..30_usize {
        fs::write(tree.join(format!("folder/{number}")), content(number * 500, 3))
            .expect("small, and possible on this host");
    }
    symlink("folder", tree.join("link")).expect("small, and possible on this host");
    mkfs(&tree, &image, 512, 15_872, &["-x", "lzo"]);
    let good = fs::read(&image).expect("small, and possible on this host");
    let places: Vec<usize> = (0..good.len())
        .step_by(8)
        .filter(|at| check(&good[*at..]).is_ok())
        .collect();
    assert!(places.len() > 100, "nothing would be damaged");
    let broken = folder.path().join("broken");
    let mut differing = 0;
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut raw = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = places[random.usize(..places.len())];
            let header = check(&good[at..]).expect("small, and possible on this host");
            if header.kind == NodeKind::Superblock && seed % 8 != 0 {
                continue;
            }
            let bytes = usize::try_from(header.bytes).expect("small, and possible on this host");
            let node = &mut raw[at..at + bytes];
            for _ in 0..random.usize(1..3) {
                let byte = random.usize(24..bytes.min(200));
                node[byte] = if random.bool() {
                    node[byte] ^ (1 << random.u8(..8))
                } else {
                    random.u8(..)
                };
            }
            if random.u8(..4) != 0 {
                seal(node, header.kind, Group::None, header.sequence);
            }
        }
        fs::write(&broken, &raw).expect("small, and possible on this host");
        let Some(volume) = ImageVolume::open(&broken).expect("small, and possible on this host") else {
            continue;
        };
        let Ok(ubifs) = Ubifs::open(Arc::new(volume), OpenOptions::standard()) else {
            differing += 1;
            continue;
        };
        let mut lost = Vec::new();
        tree_of(&ubifs, &mut lost);
        differing += u32::from(!lost.is_empty() || !ubifs.findings().is_empty());
    }
    assert!(differing > 50, "only {differing} images were damaged");
}
