//! Decoders of disk formats: ext4, FAT, partition tables. Mutates only the blocks of an image that have content.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use fsmap::{Flush, JournalDetail, Options, OwnerMap};
use tempfile::TempDir;
use testkit::hostile::{Decoder, Kind};
use testkit::report_left_out;

const BLOCK: usize = 512;
const MIB: u64 = 1 << 20;
const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Blocks,
    flush: Flush::No,
};

pub fn decoders() -> Vec<Decoder<'static>> {
    let ext4 = ["-q", "-F", "-b", "1024", "-N", "64", "-J", "size=1"];
    let mut all = vec![
        partitions("mbr", mbr(), |_| {}),
        partitions("gpt", gpt(), |raw| fix_gpt(raw)),
    ];
    let plain = [&ext4[..], &["-O", "^metadata_csum"]].concat();
    let old = ["-q", "-F", "-b", "1024", "-N", "64", "-O", "none,dir_index"];
    all.extend(made_by("ext4", "mkfs.ext4", &plain, 4));
    all.extend(made_by("ext2", "mkfs.ext4", &old, 1));
    for (name, bits, mib) in [("fat12", "12", 1), ("fat16", "16", 20), ("fat32", "32", 34)] {
        all.extend(made_by(name, "mkfs.fat", &["-F", bits], mib));
    }
    all
}

/// An image; its blocks with content are the input.
struct Image {
    folder: TempDir,
    places: Vec<u64>,
    content: Vec<u8>,
}

impl Image {
    fn new(raw: &[u8]) -> Self {
        let folder = super::folder();
        std::fs::write(folder.path().join("image"), raw).expect("there is room");
        let (mut places, mut content) = (Vec::new(), Vec::new());
        for (at, block) in (0..).step_by(BLOCK).zip(raw.chunks(BLOCK)) {
            // Skip uniform blocks: holes, and content of files.
            if block.iter().any(|byte| *byte != block[0]) {
                places.push(at);
                content.extend_from_slice(block);
            }
        }
        Self {
            folder,
            places,
            content,
        }
    }

    fn put(&self, content: &[u8]) {
        let options = File::options().write(true).open(self.folder.path().join("image"));
        let file = options.expect("it was made");
        for (at, block) in self.places.iter().zip(content.chunks(BLOCK)) {
            file.write_all_at(block, *at).expect("there is room");
        }
    }

    fn decoder(self, name: &'static str, fix: fn(&mut Vec<u8>)) -> Decoder<'static> {
        Decoder {
            name,
            kind: Kind::Bytes,
            good: vec![self.content.clone()],
            fix,
            decode: Box::new(move |raw| {
                // Restore the original first, because a mutated input may be shorter.
                self.put(&self.content);
                self.put(raw);
                map(&self.folder.path().join("image"))
            }),
        }
    }
}

/// Maps an image and reads the whole map.
fn map(path: &Path) -> bool {
    let Ok(map) = OwnerMap::open(path, &OPTIONS) else {
        return false;
    };
    let mut position = 0;
    for piece in map.all() {
        assert!(
            piece.start == position && piece.length > 0,
            "{piece:?} at {position}"
        );
        position += piece.length;
    }
    for volume in 0..map.volumes().len() {
        for (_, file) in map.files(volume) {
            let _ = file.path();
        }
    }
    true
}

/// An image made by `program`; `None`, with a printed reason, if it is missing.
fn made_by(name: &'static str, program: &str, words: &[&str], mib: u64) -> Option<Decoder<'static>> {
    let folder = super::folder();
    let path = folder.path().join("image");
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("a/b")).expect("made");
    for number in 0..20 {
        std::fs::write(tree.join(format!("a/file-{number}")), vec![7; number * 900]).expect("made");
    }
    let file = File::create(&path).expect("made");
    file.set_len(mib * MIB).expect("there is room");
    let mut command = Command::new(program);
    command.args(words);
    if program == "mkfs.ext4" {
        command.arg("-d").arg(&tree);
    }
    let made = command.arg(&path).output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        report_left_out(format!("{name}: {program} makes none here: {made:?}"));
        return None;
    }
    let mut raw = std::fs::read(&path).expect("it was made");
    if program == "mkfs.fat" {
        fill_fat(&mut raw);
    }
    Some(Image::new(&raw).decoder(name, |_| {}))
}

fn number(raw: &[u8], at: usize, bytes: usize) -> usize {
    raw[at..at + bytes]
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Adds a file, a folder and a long name to the root of a new FAT.
fn fill_fat(raw: &mut [u8]) {
    let (sector, reserved, tables) = (number(raw, 11, 2), number(raw, 14, 2), number(raw, 16, 1));
    let table_sectors = match number(raw, 22, 2) {
        0 => number(raw, 36, 4),
        sectors => sectors,
    };
    let root = (reserved + tables * table_sectors) * sector;
    let entry = |name: &[u8; 11], attributes: u8, cluster: u8, size: u8| {
        let mut entry = [0_u8; 32];
        entry[..11].copy_from_slice(name);
        (entry[11], entry[26], entry[28]) = (attributes, cluster, size);
        entry
    };
    let mut long = [0xFF_u8; 32];
    (long[0], long[11], long[12], long[13], long[26], long[27]) = (0x41, 0x0F, 0, 0, 0, 0);
    for (at, letter) in [1, 3, 5].into_iter().zip(*b"abc") {
        (long[at], long[at + 1]) = (letter, 0);
    }
    let entries = [
        entry(b"FILE    TXT", 0x20, 5, 200),
        entry(b"FOLDER     ", 0x10, 6, 0),
        long,
        entry(b"ABC        ", 0x20, 7, 100),
    ];
    // The first entry is the label; on FAT32 the root cluster may be empty and lack it.
    raw[root + 32..root + 160].copy_from_slice(&entries.concat());
    if raw[root] == 0 {
        raw[root..root + 32].copy_from_slice(&entry(b"LABEL      ", 0x08, 0, 0));
    }
}

fn partitions(name: &'static str, head: Vec<u8>, fix: fn(&mut Vec<u8>)) -> Decoder<'static> {
    let mut raw = vec![0; 8 << 20];
    raw[..head.len()].copy_from_slice(&head);
    let mut image = Image::new(&raw);
    // Use all blocks of the tables, even empty ones.
    image.places = (0..).step_by(BLOCK).take(head.len() / BLOCK).collect();
    image.content = head;
    image.decoder(name, fix)
}

/// Two primary partitions, and a chain of two logical ones.
fn mbr() -> Vec<u8> {
    let mut raw = vec![0_u8; 40 * BLOCK];
    let mut put = |sector: usize, slot: usize, kind: u8, first: u32, count: u32| {
        let at = sector * BLOCK + 446 + 16 * slot;
        raw[at + 4] = kind;
        raw[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
        raw[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
        raw[sector * BLOCK + 510..(sector + 1) * BLOCK].copy_from_slice(&[0x55, 0xAA]);
    };
    put(0, 0, 0x83, 2048, 2048);
    put(0, 1, 0x0C, 4096, 1024);
    put(0, 2, 0x05, 20, 4000);
    put(20, 0, 0x83, 100, 100);
    put(20, 1, 0x05, 10, 1000);
    put(30, 0, 0x83, 300, 100);
    raw
}

/// A header with four entries, and its protective MBR.
pub fn gpt() -> Vec<u8> {
    let mut raw = vec![0_u8; 34 * BLOCK];
    raw[446 + 4] = 0xEE;
    raw[446 + 8..446 + 16].copy_from_slice(&[1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    raw[510..512].copy_from_slice(&[0x55, 0xAA]);
    let header = &mut raw[BLOCK..BLOCK + 92];
    header[..8].copy_from_slice(b"EFI PART");
    let words = [
        (8, 0x10000_u64),
        (12, 92),
        (24, 1),
        (32, 16383),
        (40, 34),
        (48, 16350),
        (72, 2),
        (80, 128),
        (84, 128),
    ];
    for (at, value) in words {
        let width = if [24, 32, 40, 48, 72].contains(&at) { 8 } else { 4 };
        header[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    for (number, (first, last)) in [(2048_u64, 4095_u64), (4096, 8191), (8192, 16000)]
        .into_iter()
        .enumerate()
    {
        let entry = &mut raw[2 * BLOCK + 128 * number..][..128];
        entry[..16].fill(0xAF);
        entry[16..32].fill(u8::try_from(number + 1).expect("few"));
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        entry[56] = b'p';
    }
    fix_gpt(&mut raw);
    raw
}

/// Repairs the CRCs of the entries and of the header, over the lengths that the header states.
fn fix_gpt(raw: &mut [u8]) {
    if raw.len() < 2 * BLOCK {
        return;
    }
    let header = &raw[BLOCK..2 * BLOCK];
    let (size, count, each) = (
        number(header, 12, 4),
        number(header, 80, 4),
        number(header, 84, 4),
    );
    if let Some(entries) = raw
        .get(2 * BLOCK..)
        .and_then(|rest| rest.get(..count.checked_mul(each)?))
    {
        let crc = super::crc32(entries).to_le_bytes();
        raw[BLOCK + 88..BLOCK + 92].copy_from_slice(&crc);
    }
    raw[BLOCK + 16..BLOCK + 20].fill(0);
    if let Some(header) = raw.get(BLOCK..BLOCK + size.min(BLOCK)) {
        let crc = super::crc32(header).to_le_bytes();
        raw[BLOCK + 16..BLOCK + 20].copy_from_slice(&crc);
    }
}
