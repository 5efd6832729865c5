//! Images made by mkfs.fat and filled by mtools: clusters are compared with mshowfat, soundness with fsck.fat.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;

use fsmap::{BlockType, FileSystemKind, FindingKind, Flush, JournalDetail, Life, Options, OwnerMap};
use support::{Image, run};

const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Areas,
    flush: Flush::No,
};
const MIB: u64 = 1 << 20;

fn map(image: &Image) -> OwnerMap {
    OwnerMap::open(&image.path, &OPTIONS).expect("an image of FAT can be mapped")
}

fn findings(map: &OwnerMap) -> Vec<String> {
    let list = map.volumes()[0].findings().list();
    list.iter().map(ToString::to_string).collect()
}

/// Fills an image; returns the paths of all files and folders.
fn fill(image: &Image) -> Option<Vec<String>> {
    let text = image.path.to_str().expect("temporary names are text");
    let tool = |tool: &str, words: &[&str]| -> Option<()> {
        let (output, done) = run(tool, &[&["-i", text], words].concat())?;
        assert!(done, "{tool} {words:?}: {output}");
        Some(())
    };
    let source = |name: &str, bytes: usize| {
        let path = image.folder().join(name);
        fs::write(&path, vec![7; bytes]).expect("a file can be written");
        path.to_str().expect("temporary names are text").to_owned()
    };
    let mut paths = Vec::new();
    let small = source("small", 3000);
    for number in 0..30 {
        let path = format!("/file-{number}.with-a-long-name");
        tool("mcopy", &[&small, &format!("::{path}")])?;
        paths.push(path);
    }
    // Make holes, so that the large file is fragmented.
    for number in (0..30).step_by(2) {
        tool("mdel", &[&format!("::/file-{number}.with-a-long-name")])?;
    }
    paths.retain(|path| {
        let number: u32 = path[6..]
            .split('.')
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number");
        number % 2 == 1
    });
    let large = source("large", 90_000);
    tool("mcopy", &[&large, "::/LARGE.BIN"])?;
    paths.push("/LARGE.BIN".to_owned());
    let mut folder = String::new();
    for name in ["Folder with a longer name", "SUB", "Ünïcode", "deep"] {
        folder = format!("{folder}/{name}");
        tool("mmd", &[&format!("::{folder}")])?;
        let path = format!("{folder}/Leaf.txt");
        tool("mcopy", &[&small, &format!("::{path}")])?;
        paths.extend([folder.clone(), path]);
    }
    // An empty file has no cluster.
    let empty = source("empty", 0);
    tool("mcopy", &[&empty, "::/empty"])?;
    Some(paths)
}

/// Clusters of a path as mshowfat prints them: `<2-5>` and `<7>`.
fn clusters(image: &Image, path: &str) -> Option<Vec<(u64, u64)>> {
    let text = image.path.to_str().expect("temporary names are text");
    let (output, done) = run("mshowfat", &["-i", text, &format!("::{path}")])?;
    assert!(done, "{output}");
    let ranges = output.split('<').skip(1).filter_map(|part| {
        let range = part.split('>').next()?;
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    Some(ranges.collect())
}

/// Offset of cluster 2, computed from the boot sector.
fn data_start(image: &Image) -> (u64, u64) {
    let raw = image.bytes();
    let word = |at: usize| u64::from(u16::from_le_bytes([raw[at], raw[at + 1]]));
    let sectors = match word(22) {
        0 => word(36) | word(38) << 16,
        small => small,
    };
    let start = word(14) + u64::from(raw[16]) * sectors;
    (start * word(11) + word(17) * 32, word(11) * u64::from(raw[13]))
}

fn check(format: &[&str], bytes: u64, kind: FileSystemKind) {
    let Some(image) = Image::formatted(bytes, format) else {
        return;
    };
    let Some(paths) = fill(&image) else { return };
    let text = image.path.to_str().expect("temporary names are text");
    if let Some((output, sound)) = run("fsck.fat", &["-n", text]) {
        assert!(sound, "{output}");
    }
    let map = map(&image);
    assert_eq!(map.volumes()[0].kind(), kind);
    assert_eq!(findings(&map), Vec::<String>::new());
    let (start, cluster) = data_start(&image);
    let mut covered: BTreeMap<BlockType, u64> = BTreeMap::new();
    for path in &paths {
        let Some(ranges) = clusters(&image, path) else {
            return;
        };
        assert!(!ranges.is_empty(), "{path}");
        let mut offset = 0;
        for (first, last) in ranges {
            let range = start + (first - 2) * cluster..start + (last - 1) * cluster;
            for piece in map.pieces(range) {
                let file = map
                    .file(piece.file.expect("a file owns it"))
                    .expect("it is in the map");
                assert_eq!(file.path().as_ref(), Some(path), "{piece:?}");
                assert_eq!(piece.file_offset, Some(offset), "{path} {piece:?}");
                offset += piece.length;
                *covered.entry(piece.kind).or_default() += piece.length;
            }
        }
    }
    let total = |kind| {
        let totals = map.volumes()[0].totals();
        totals
            .iter()
            .find(|total| total.kind == kind)
            .map_or(0, |total| total.bytes)
    };
    assert_eq!(total(BlockType::Data), covered[&BlockType::Data]);
    assert!(
        total(BlockType::Directory) > covered[&BlockType::Directory],
        "the root has a place"
    );
    assert!(total(BlockType::Fat) > 0);
}

#[test]
fn clusters_of_fat32_are_where_mshowfat_says() {
    check(
        &["mkfs.fat", "-F", "32", "-s", "1"],
        40 * MIB,
        FileSystemKind::Fat32,
    );
}

#[test]
fn clusters_of_fat16_and_fat12_are_where_mshowfat_says() {
    check(
        &["mkfs.fat", "-F", "16", "-s", "4"],
        20 * MIB,
        FileSystemKind::Fat16,
    );
    check(
        &["mkfs.fat", "-F", "12", "-s", "2"],
        2 * MIB,
        FileSystemKind::Fat12,
    );
}

#[test]
fn deleted_files_of_fat_are_known_by_all_but_their_first_letter() {
    let Some(image) = Image::formatted(2 * MIB, &["mkfs.fat", "-F", "12"]) else {
        return;
    };
    let text = image.path.to_str().expect("temporary names are text");
    let file = image.folder().join("file");
    fs::write(&file, vec![7; 5000]).expect("a file can be written");
    let file = file.to_str().expect("temporary names are text");
    for words in [["mcopy", file, "::GONE.TXT"].as_slice(), &["mdel", "::GONE.TXT"]] {
        let Some((output, done)) = run(words[0], &[&["-i", text], &words[1..]].concat()) else {
            return;
        };
        assert!(done, "{output}");
    }
    let map = map(&image);
    let piece = map
        .all()
        .find(|piece| piece.kind == BlockType::Deleted)
        .expect("its place is free");
    let file = map
        .file(piece.file.expect("it had an owner"))
        .expect("it is in the map");
    assert_eq!(file.life(), Life::Deleted);
    assert_eq!(file.path().as_deref(), Some("/?ONE.TXT"));
    assert_eq!(findings(&map), Vec::<String>::new());
}

#[test]
fn a_loop_a_cross_link_and_a_lost_boot_record_are_found() {
    let Some(image) = Image::formatted(40 * MIB, &["mkfs.fat", "-F", "32", "-s", "1"]) else {
        return;
    };
    let Some(_) = fill(&image) else { return };
    let raw = image.bytes();
    let fat = usize::from(u16::from_le_bytes([raw[14], raw[15]])) * 512;
    let large = clusters(&image, "/LARGE.BIN").expect("mtools are there");
    let other = clusters(&image, "/file-1.with-a-long-name").expect("mtools are there");
    let file = fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("it can be written");
    let link = |from: u64, to: u64| {
        let to = u32::try_from(to).expect("a cluster");
        let at = u64::try_from(fat).expect("small") + from * 4;
        file.write_all_at(&to.to_le_bytes(), at)
            .expect("it can be written");
    };
    // The last cluster of the large file leads back to its first one.
    link(large[large.len() - 1].1, large[0].0);
    assert!(map(&image).volumes()[0].findings().any(FindingKind::Loop));
    // It leads into another file.
    link(large[large.len() - 1].1, other[0].0);
    let crossed = map(&image);
    assert!(crossed.volumes()[0].findings().any(FindingKind::CrossLink));
    assert!(crossed.all().any(|piece| piece.contested));
    // It leads to a nonexistent cluster.
    link(large[large.len() - 1].1, 0x0FFF_0000);
    let wild = findings(&map(&image));
    assert!(wild.iter().any(|finding| finding.contains("Wild")), "{wild:?}");
    file.write_all_at(&[0; 512], 0).expect("it can be written");
    let saved = map(&image);
    assert!(saved.volumes()[0].findings().any(FindingKind::Backup));
    assert!(
        saved
            .files(0)
            .any(|(_, file)| file.path().as_deref() == Some("/LARGE.BIN"))
    );
}
