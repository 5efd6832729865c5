//! Images made by mkfs and filled by the kernel: each block's owner is compared with FIEMAP, the layout with dumpe2fs,
//! inodes and names with debugfs.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use fsmap::{BlockType, FileKind, Flush, JournalDetail, Options, OwnerMap};
use support::{Image, Names, Truth, filefrag, populate, run};

const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Areas,
    flush: Flush::No,
};
const MIB: u64 = 1 << 20;

fn map(image: &Image) -> OwnerMap {
    OwnerMap::open(&image.path, &OPTIONS).expect("an image of ext4 can be mapped")
}

fn assert_sound(map: &OwnerMap) {
    let findings: Vec<String> = map.volumes()[0]
        .findings()
        .list()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Each extent that the kernel reports has the owner given by the map, and vice versa.
fn compare(map: &OwnerMap, truth: &[Truth], names: &Names) {
    let mut covered = 0;
    for extent in truth {
        let mut position = extent.physical;
        for piece in map.pieces(extent.physical..extent.physical + extent.length) {
            assert_eq!(piece.start, position, "{extent:?}");
            let file = map
                .file(piece.file.expect("a file owns it"))
                .expect("it is in the map");
            assert_eq!(file.inode(), extent.inode, "{extent:?} {piece:?}");
            let offset = extent.logical + (piece.start - extent.physical);
            assert_eq!(piece.file_offset, Some(offset), "{extent:?} {piece:?}");
            let data = [BlockType::Data, BlockType::Directory];
            assert!(data.contains(&piece.kind), "{extent:?} {piece:?}");
            let paths: BTreeSet<String> = file
                .paths()
                .map(|path| String::from_utf8_lossy(&path.bytes).into_owned())
                .collect();
            let expected: BTreeSet<String> = names[&extent.inode].iter().cloned().collect();
            assert_eq!(paths, expected);
            position += piece.length;
            covered += piece.length;
        }
        assert_eq!(position, extent.physical + extent.length);
    }
    let in_map: u64 = map
        .all()
        .filter(|piece| [BlockType::Data, BlockType::Directory].contains(&piece.kind))
        .map(|piece| piece.length)
        .sum();
    // All files including lost+found were queried: the map may contain nothing else.
    assert_eq!(in_map, covered);
    assert!(covered > 4 * MIB, "nothing was compared");
}

/// Numbers after `key` in a text such as "Inode table at 10-20 (+9)", per group.
fn ranges_behind(text: &str, key: &str) -> Vec<(u64, u64)> {
    text.match_indices(key)
        .filter_map(|(at, _)| {
            let words = &text[at + key.len()..];
            let word = words.split([',', ' ', '\n', '(']).find(|word| !word.is_empty())?;
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect()
}

/// Compares the layout with dumpe2fs.
fn compare_layout(image: &Image, map: &OwnerMap) {
    let path = image.path.to_str().expect("temporary names are text");
    let Some((text, true)) = run("dumpe2fs", &[path]) else {
        return;
    };
    let block = map.volumes()[0].block_bytes();
    let kinds = [
        ("superblock at ", BlockType::Superblock),
        ("Group descriptors at ", BlockType::GroupDescriptors),
        ("Group descriptor at ", BlockType::GroupDescriptors),
        ("Reserved GDT blocks at ", BlockType::ReservedGroupDescriptors),
        ("Block bitmap at ", BlockType::BlockBitmap),
        ("Inode bitmap at ", BlockType::InodeBitmap),
        ("Inode table at ", BlockType::InodeTable),
    ];
    let mut told: BTreeMap<BlockType, u64> = BTreeMap::new();
    for (key, kind) in kinds {
        for (first, last) in ranges_behind(&text, key) {
            for piece in map.pieces(first * block..(last + 1) * block) {
                assert_eq!(piece.kind, kind, "{key}{first}-{last}: {piece:?}\n{text}");
            }
            *told.entry(kind).or_default() += (last + 1 - first) * block;
        }
    }
    for total in map.volumes()[0].totals() {
        if kinds.iter().any(|(_, kind)| *kind == total.kind) {
            assert_eq!(
                told.get(&total.kind),
                Some(&total.bytes),
                "{}\n{text}",
                total.kind
            );
        }
    }
    assert!(told.len() >= 4, "dumpe2fs was not understood");
}

/// Compares the inodes of a sample of blocks of all types with debugfs.
fn compare_debugfs(image: &Image, map: &OwnerMap) {
    let path = image.path.to_str().expect("temporary names are text");
    let block = map.volumes()[0].block_bytes();
    let mut asked: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let mut per_kind: BTreeMap<BlockType, u32> = BTreeMap::new();
    for piece in map.all() {
        let seen = per_kind.entry(piece.kind).or_default();
        *seen += 1;
        // debugfs reports the resize inode as the owner of reserved descriptors, and no owner for slack.
        let other = [BlockType::ReservedGroupDescriptors, BlockType::Slack].contains(&piece.kind);
        if *seen <= 40 && !other {
            let inode = piece.file.and_then(|id| map.file(id)).map(|file| file.inode());
            asked.insert(piece.start / block, inode);
        }
    }
    let words: Vec<String> = asked.keys().map(ToString::to_string).collect();
    let Some((text, _)) = run("debugfs", &["-R", &format!("icheck {}", words.join(" ")), path]) else {
        return;
    };
    let mut answers = 0;
    for line in text.lines() {
        let Some((number, owner)) = line.split_once('\t') else {
            continue;
        };
        let Ok(number) = number.parse::<u64>() else {
            continue;
        };
        let expected =
            asked[&number].map_or_else(|| "<block not found>".to_owned(), |inode| inode.to_string());
        let owner = owner.trim();
        assert_eq!(owner, expected, "block {number}: {:?}", map.owner(number * block));
        answers += 1;
    }
    assert_eq!(answers, asked.len(), "{text}");
}

/// Formats, fills and compares an image.
fn check(format: &[&str], mount: &str, bytes: u64) {
    let Some(image) = Image::formatted(bytes, format) else {
        return;
    };
    let Some(mounted) = image.mount(mount) else { return };
    populate(&mounted.folder);
    let Some((truth, names)) = filefrag(&mounted.folder) else {
        return;
    };
    drop(mounted);
    let map = map(&image);
    assert_sound(&map);
    compare(&map, &truth, &names);
    compare_layout(&image, &map);
    compare_debugfs(&image, &map);
}

#[test]
fn blocks_of_a_default_image_are_where_the_kernel_says() {
    check(&["mkfs.ext4", "-q", "-F"], "", 128 * MIB);
}

#[test]
fn blocks_of_1_kib_are_where_the_kernel_says() {
    check(&["mkfs.ext4", "-q", "-F", "-b", "1024"], "", 100 * MIB);
}

#[test]
fn block_maps_of_ext3_and_ext2_are_where_the_kernel_says() {
    check(&["mkfs.ext4", "-q", "-F", "-t", "ext3"], "", 64 * MIB);
    check(
        &["mkfs.ext4", "-q", "-F", "-t", "ext2", "-b", "1024"],
        "",
        64 * MIB,
    );
    check(&["mkfs.ext4", "-q", "-F", "-O", "^extents,^64bit"], "", 64 * MIB);
}

#[test]
fn clusters_of_bigalloc_are_where_the_kernel_says() {
    check(
        &["mkfs.ext4", "-q", "-F", "-O", "bigalloc", "-C", "65536"],
        "",
        256 * MIB,
    );
}

#[test]
fn descriptors_of_meta_bg_are_where_dumpe2fs_says() {
    check(
        &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-b",
            "1024",
            "-O",
            "meta_bg,^resize_inode",
            "-g",
            "1024",
        ],
        "",
        160 * MIB,
    );
}

#[test]
fn sparse_super2_inline_data_and_narrow_descriptors_are_read() {
    check(
        &["mkfs.ext4", "-q", "-F", "-O", "sparse_super2", "-b", "1024"],
        "",
        64 * MIB,
    );
    check(
        &["mkfs.ext4", "-q", "-F", "-O", "inline_data", "-I", "1024"],
        "",
        64 * MIB,
    );
    check(
        &["mkfs.ext4", "-q", "-F", "-O", "^64bit,^metadata_csum,uninit_bg"],
        "",
        64 * MIB,
    );
    check(
        &[
            "mkfs.ext4",
            "-q",
            "-F",
            "-O",
            "^flex_bg,^sparse_super,^resize_inode",
            "-b",
            "1024",
        ],
        "",
        64 * MIB,
    );
    check(
        &["mkfs.ext4", "-q", "-F", "-O", "ea_inode", "-I", "256"],
        "",
        64 * MIB,
    );
}

#[test]
fn long_symbolic_links_are_found_by_inode() {
    let Some(image) = Image::formatted(64 * MIB, &["mkfs.ext4", "-q", "-F"]) else {
        return;
    };
    let Some(mounted) = image.mount("") else { return };
    populate(&mounted.folder);
    drop(mounted);
    let map = map(&image);
    let link = map
        .files(0)
        .find(|(_, file)| file.path().as_deref() == Some("/long-link"))
        .expect("it is in the map");
    assert_eq!(link.1.kind(), FileKind::Symlink);
    let piece = map
        .all()
        .find(|piece| piece.kind == BlockType::Symlink)
        .expect("its target has a block");
    assert_eq!(piece.file, Some(link.0));
}

#[test]
fn twenty_thousand_files_are_each_where_the_kernel_says() {
    let format = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-N", "24000"];
    let Some(image) = Image::formatted(96 * MIB, &format) else {
        return;
    };
    let Some(mounted) = image.mount("") else { return };
    for folder in 0..40 {
        let folder = mounted.folder.join(format!("folder-{folder}"));
        fs::create_dir(&folder).expect("a folder can be made");
        for file in 0..500 {
            fs::write(folder.join(format!("file-{file}")), [7; 300]).expect("room");
        }
    }
    let Some((truth, names)) = filefrag(&mounted.folder) else {
        return;
    };
    drop(mounted);
    let started = Instant::now();
    let map = map(&image);
    testkit::report_left_out(format!(
        "no bound on time here: {:?} for 20,000 files",
        started.elapsed()
    ));
    assert_sound(&map);
    assert!(truth.len() > 20_000);
    compare(&map, &truth, &names);
}

/// Sets a folder up for encryption with a key that is discarded.
fn encrypt(folder: &str, mountpoint: &str) -> Option<()> {
    let (identifier, done) = run(
        "sh",
        &[
            "-c",
            &format!("head -c 64 /dev/zero | tr '\\0' k | xfs_io -c add_enckey {mountpoint}"),
        ],
    )?;
    let identifier = identifier.trim().rsplit(' ').next()?.to_owned();
    if !done || identifier.len() != 32 {
        testkit::report_left_out(format!("no key can be added: {identifier}"));
        return None;
    }
    let (output, done) = run("xfs_io", &["-c", &format!("set_encpolicy {identifier}"), folder])?;
    if !done || !output.is_empty() {
        testkit::report_left_out(format!("no folder can be encrypted: {output}"));
        return None;
    }
    Some(())
}

#[test]
fn names_in_an_encrypted_folder_are_shown_as_ciphertext_and_blocks_are_known() {
    let format = ["mkfs.ext4", "-q", "-F", "-O", "encrypt,stable_inodes"];
    let Some(image) = Image::formatted(64 * MIB, &format) else {
        return;
    };
    let Some(mounted) = image.mount("") else { return };
    populate(&mounted.folder);
    let folder = mounted.folder.join("secret");
    fs::create_dir(&folder).expect("a folder can be made");
    let text = |path: &std::path::Path| path.to_str().expect("temporary names are text").to_owned();
    if encrypt(&text(&folder), &text(&mounted.folder)).is_none() {
        return;
    }
    for file in 0..20 {
        fs::write(folder.join(format!("name-{file}")), [7; 6000]).expect("room");
    }
    let Some((truth, names)) = filefrag(&mounted.folder) else {
        return;
    };
    drop(mounted);
    let map = map(&image);
    assert_sound(&map);
    let mut secret = 0;
    for extent in &truth {
        for piece in map.pieces(extent.physical..extent.physical + extent.length) {
            let file = map
                .file(piece.file.expect("a file owns it"))
                .expect("it is in the map");
            assert_eq!(file.inode(), extent.inode, "{extent:?} {piece:?}");
            let (path, real) = (file.path().expect("it has a name"), &names[&extent.inode][0]);
            if real.starts_with("/secret/") {
                assert!(path.starts_with("/secret/<encrypted:"), "{path}");
                secret += 1;
            }
        }
    }
    assert!(secret >= 20, "nothing was encrypted");
}

#[test]
fn quota_files_and_multi_mount_protection_have_types_of_their_own() {
    let format = ["mkfs.ext4", "-q", "-F", "-O", "quota,project,mmp,orphan_file"];
    let Some(image) = Image::formatted(64 * MIB, &format) else {
        return;
    };
    let map = map(&image);
    assert_sound(&map);
    let kinds: Vec<BlockType> = map.volumes()[0].totals().iter().map(|total| total.kind).collect();
    for kind in [
        BlockType::Quota,
        BlockType::MultiMountProtection,
        BlockType::OrphanFile,
    ] {
        assert!(kinds.contains(&kind), "{kind} is not in {kinds:?}");
    }
    compare_layout(&image, &map);
    compare_debugfs(&image, &map);
}
