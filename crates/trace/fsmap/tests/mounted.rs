//! Mounted file systems: the map is compared with the bytes on the device.
//!
//! The content itself is the reference: each block of the test's files contains its file's name and its number.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use fsmap::{BlockType, Class, FileSystemKind, Flush, JournalDetail, Options, OwnerMap};
use support::{Image, Mounted, filefrag, populate, run};

const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Areas,
    flush: Flush::Yes,
};
const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A block that contains its owner.
fn marked(name: &str, number: usize) -> Vec<u8> {
    let mut block = format!("{name} block {number}\n").into_bytes();
    block.resize(BLOCK, b'.');
    block
}

/// Makes files of marked blocks: contiguous, fragmented, with holes, in folders, with two names.
fn mark(root: &Path) {
    let folder = root.join("folder");
    fs::create_dir(&folder).expect("a folder can be made");
    for file in 0..12 {
        let name = format!("marked-{file}");
        let path = if file % 2 == 0 {
            root.join(&name)
        } else {
            folder.join(&name)
        };
        let handle = fs::File::create(path).expect("a file can be made");
        for block in 0..20 {
            // Every third file has holes.
            let at = if file % 3 == 0 { block * 2 } else { block };
            let offset = u64::try_from(at * BLOCK).expect("small");
            handle.write_all_at(&marked(&name, at), offset).expect("room");
        }
        handle.sync_all().expect("the image takes it");
    }
    fs::hard_link(root.join("marked-0"), folder.join("other-name")).expect("a link can be made");
}

/// Compares each data block of marked files in the map with the image; returns their number.
fn compare_content(map: &OwnerMap, image: &Image) -> usize {
    let device = fs::File::open(&image.path).expect("it can be read");
    let mut compared = 0;
    for piece in map.all().filter(|piece| piece.kind == BlockType::Data) {
        let Some(file) = piece.file.and_then(|id| map.file(id)) else {
            continue;
        };
        let path = file.path().expect("it has a name");
        let name = path.rsplit('/').next().expect("it has a last part").to_owned();
        if !name.starts_with("marked-") {
            continue;
        }
        for at in (0..piece.length).step_by(BLOCK) {
            let mut found = vec![0; BLOCK];
            device
                .read_exact_at(&mut found, piece.start + at)
                .expect("it is in the image");
            let number =
                usize::try_from(piece.file_offset.expect("files have offsets") + at).expect("small") / BLOCK;
            // Blocks that XFS has preallocated in a hole read as zeros.
            let hole = found.iter().all(|byte| *byte == 0)
                && name[7..].parse::<usize>().is_ok_and(|file| file % 3 == 0);
            if hole && number % 2 == 1 {
                continue;
            }
            assert!(
                found == marked(&name, number),
                "{path} block {number} at byte {}: {}",
                piece.start + at,
                String::from_utf8_lossy(&found[..40])
            );
            compared += 1;
        }
    }
    compared
}

fn mounted(bytes: u64, format: &[&str]) -> Option<(Image, Mounted)> {
    let image = Image::formatted(bytes, format)?;
    let mounted = image.mount("")?;
    mark(&mounted.folder);
    Some((image, mounted))
}

#[test]
fn a_mounted_ext4_is_mapped_with_journal_and_metadata() {
    let Some((image, mounted)) = mounted(64 * MIB, &["mkfs.ext4", "-q", "-F"]) else {
        return;
    };
    populate(&mounted.folder);
    rustix::fs::sync();
    let live = OwnerMap::open(&mounted.folder, &OPTIONS).expect("a mount can be mapped");
    assert_eq!(compare_content(&live, &image), 12 * 20);
    let device = live.device().expect("loop devices are in sysfs");
    assert_eq!((device.start, device.length), (0, 64 * MIB));
    let inode = fs::metadata(mounted.folder.join("marked-0"))
        .expect("it is there")
        .ino();
    let (_, file) = live.by_inode(0, inode).expect("it is in the map");
    assert_eq!(file.name_count(), 2);
    drop(mounted);
    // After the unmount, the image's own structures agree.
    let image_map = OwnerMap::open(&image.path, &OPTIONS).expect("an image can be mapped");
    let (live, own) = (live.volumes()[0].totals(), image_map.volumes()[0].totals());
    for kind in [
        BlockType::Data,
        BlockType::Directory,
        BlockType::InodeTable,
        BlockType::Superblock,
        BlockType::Xattr,
    ] {
        let bytes = |totals: &[fsmap::Total]| {
            totals
                .iter()
                .find(|total| total.kind == kind)
                .map(|total| total.bytes)
        };
        assert_eq!(bytes(&live), bytes(&own), "{kind}");
    }
    assert!(
        live.iter().any(|total| total.kind.class() == Class::Journal),
        "{live:?}"
    );
}

#[test]
fn a_mounted_xfs_is_mapped_to_its_directories() {
    let Some((image, mounted)) = mounted(300 * MIB, &["mkfs.xfs", "-q", "-m", "rmapbt=1,reflink=1"]) else {
        return;
    };
    let copy = ["--reflink=always", "marked-1", "shared-copy"];
    let folder = mounted.folder.join("folder");
    let names = copy.map(|name| folder.join(name).to_string_lossy().into_owned());
    let Some((output, done)) = run("cp", &["--reflink=always", &names[1], &names[2]]) else {
        return;
    };
    assert!(done, "{output}");
    rustix::fs::sync();
    let map = OwnerMap::open(&mounted.folder, &OPTIONS).expect("a mount can be mapped");
    assert_eq!(map.volumes()[0].kind(), FileSystemKind::Mounted);
    assert_eq!(map.volumes()[0].findings().list(), []);
    assert_eq!(compare_content(&map, &image), 12 * 20);
    let kinds: Vec<BlockType> = map.volumes()[0].totals().iter().map(|total| total.kind).collect();
    for kind in [
        BlockType::Journal,
        BlockType::InodeTable,
        BlockType::Tree,
        BlockType::Free,
        BlockType::Superblock,
    ] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    // Both owners of shared blocks are known.
    let shared = map.all().find(|piece| piece.contested).expect("a file is shared");
    let mut owners: Vec<String> = map
        .others(shared.start..shared.start + shared.length)
        .iter()
        .chain([&shared])
        .filter_map(|piece| map.file(piece.file?)?.path())
        .collect();
    owners.sort();
    assert_eq!(owners, ["/folder/marked-1", "/folder/shared-copy"]);
}

#[test]
fn a_mounted_btrfs_is_led_from_its_addresses_to_the_device() {
    for profile in ["single", "dup"] {
        let Some((image, mounted)) = mounted(256 * MIB, &["mkfs.btrfs", "-q", "-d", profile]) else {
            return;
        };
        rustix::fs::sync();
        let map = OwnerMap::open(&mounted.folder, &OPTIONS).expect("a mount can be mapped");
        let copies = if profile == "dup" { 2 } else { 1 };
        assert_eq!(compare_content(&map, &image), copies * 12 * 20, "{profile}");
        assert!(map.device().is_some());
    }
}

#[test]
fn an_image_that_was_not_unmounted_is_read_through_its_journal() {
    // A long commit interval, so that nothing is written home by itself.
    for format in [
        ["mkfs.ext4", "-q", "-F", "-O", "^fast_commit"],
        ["mkfs.ext4", "-q", "-F", "-b", "1024"],
    ] {
        let Some(image) = Image::formatted(64 * MIB, &format) else {
            return;
        };
        let Some(mounted) = image.mount("") else { return };
        populate(&mounted.folder);
        mark(&mounted.folder);
        let Some((truth, names)) = filefrag(&mounted.folder) else {
            return;
        };
        // One fsync commits the changes of all files.
        let any = fs::File::open(mounted.folder.join("marked-0")).expect("it is there");
        any.set_permissions(fs::Permissions::from_mode(0o600))
            .expect("it is ours");
        any.sync_all().expect("the image takes it");
        let copy = Image::empty(64 * MIB);
        fs::copy(&image.path, &copy.path).expect("there is room");
        let map = OwnerMap::open(&copy.path, &OPTIONS).expect("an image can be mapped");
        let notes = map.volumes()[0].findings().notes();
        assert!(
            notes.iter().any(|note| note.contains("not unmounted")),
            "{notes:?}"
        );
        assert_eq!(map.volumes()[0].findings().list(), []);
        for extent in &truth {
            for piece in map.pieces(extent.physical..extent.physical + extent.length) {
                let file = map
                    .file(piece.file.expect("a file owns it"))
                    .expect("it is in the map");
                assert_eq!(file.inode(), extent.inode, "{extent:?} {piece:?}");
                let path = file.path().expect("it has a name");
                assert!(names[&extent.inode].contains(&path), "{path}");
            }
        }
        // The kernel's own view after it mounts the same image.
        let Some(replayed) = copy.mount("") else { return };
        let Some((after, _)) = filefrag(&replayed.folder) else {
            return;
        };
        assert_eq!(after, truth);
    }
}

#[test]
fn each_block_of_the_journal_is_named_with_its_home() {
    let Some(image) = Image::formatted(64 * MIB, &["mkfs.ext4", "-q", "-F"]) else {
        return;
    };
    let Some(mounted) = image.mount("") else { return };
    mark(&mounted.folder);
    rustix::fs::sync();
    drop(mounted);
    let options = Options {
        journal: JournalDetail::Blocks,
        ..OPTIONS
    };
    let map = OwnerMap::open(&image.path, &options).expect("an image can be mapped");
    let pieces: Vec<_> = map
        .all()
        .filter(|piece| piece.kind == BlockType::JournalData)
        .collect();
    let copies: Vec<u64> = pieces
        .iter()
        .filter_map(|piece| Some(map.home_of(piece)?.0))
        .collect();
    assert!(!copies.is_empty());
    let homes: Vec<BlockType> = copies
        .iter()
        .filter_map(|home| Some(map.owner(*home)?.kind))
        .collect();
    assert!(
        homes.contains(&BlockType::InodeTable) || homes.contains(&BlockType::GroupDescriptors),
        "{homes:?}"
    );
    let kinds: Vec<BlockType> = map.volumes()[0].totals().iter().map(|total| total.kind).collect();
    assert!(
        kinds.contains(&BlockType::JournalDescriptor) && kinds.contains(&BlockType::JournalCommit),
        "{kinds:?}"
    );
    // debugfs's reading of the log.
    let path = image.path.to_str().expect("temporary names are text");
    let Some((text, _)) = run("debugfs", &["-R", "logdump -aO", path]) else {
        return;
    };
    if !text.contains("descriptor block") {
        testkit::report_left_out("debugfs shows nothing of a clean log");
    }
}
