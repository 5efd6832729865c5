//! Whole disks: partition tables are found, and the content of partitions is found by sectors of the disk.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;

use fsmap::{BlockType, FileSystemKind, FindingKind, Flush, JournalDetail, Options, OwnerMap};
use support::Image;

const OPTIONS: Options = Options {
    offset: None,
    journal: JournalDetail::Areas,
    flush: Flush::No,
};
const MIB: u64 = 1 << 20;
const EXT: u64 = 2 * MIB;
const FAT: u64 = 20 * MIB;

/// A disk of 32 MiB with ext4 from 2 MiB and FAT from 20 MiB, and no table yet.
fn disk() -> Option<(Image, fs::File)> {
    let ext = Image::formatted(16 * MIB, &["mkfs.ext4", "-q", "-F", "-L", "first"])?;
    let fat = Image::formatted(4 * MIB, &["mkfs.fat", "-F", "12"])?;
    let disk = Image::empty(32 * MIB);
    let file = fs::File::options().read(true).write(true).open(&disk.path).ok()?;
    file.write_all_at(&ext.bytes(), EXT).ok()?;
    file.write_all_at(&fat.bytes(), FAT).ok()?;
    Some((disk, file))
}

/// An entry of a boot sector: kind, first sector, number of sectors.
fn entry(kind: u8, first: u64, count: u64) -> Vec<u8> {
    let number = |value: u64| u32::try_from(value / 512).expect("small").to_le_bytes();
    [&[0, 0, 0, 0, kind, 0, 0, 0][..], &number(first), &number(count)].concat()
}

fn boot_sector(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = vec![0; 512];
    for (number, entry) in entries.iter().enumerate() {
        raw[446 + number * 16..][..16].copy_from_slice(entry);
    }
    raw[510..].copy_from_slice(&[0x55, 0xAA]);
    raw
}

fn crc32(data: &[u8]) -> [u8; 4] {
    let crc = data.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0xEDB8_8320
            } else {
                crc >> 1
            }
        })
    });
    (!crc).to_le_bytes()
}

/// Header and entries of one copy of a GPT.
fn gpt(own: u64, other: u64, entries_at: u64) -> (Vec<u8>, Vec<u8>) {
    let mut entries = vec![0; 128 * 128];
    for (number, (first, length)) in [(EXT, 16 * MIB), (FAT, 4 * MIB)].into_iter().enumerate() {
        let raw = &mut entries[number * 128..][..128];
        raw[..16].fill(0x11);
        raw[32..40].copy_from_slice(&(first / 512).to_le_bytes());
        raw[40..48].copy_from_slice(&((first + length) / 512 - 1).to_le_bytes());
    }
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"EFI PART");
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    for (at, value) in [(24, own), (32, other), (72, entries_at)] {
        header[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    header[80..84].copy_from_slice(&128_u32.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header[88..92].copy_from_slice(&crc32(&entries));
    let crc = crc32(&header[..92]);
    header[16..20].copy_from_slice(&crc);
    (header, entries)
}

fn assert_both_are_found(map: &OwnerMap) {
    let kinds: Vec<(FileSystemKind, u64)> = map
        .volumes()
        .iter()
        .filter(|volume| volume.kind() != FileSystemKind::Disk)
        .map(|volume| (volume.kind(), volume.base()))
        .collect();
    assert_eq!(kinds, [(FileSystemKind::Ext, EXT), (FileSystemKind::Fat12, FAT)]);
    let kind = |byte| map.owner(byte).map(|piece| piece.kind);
    assert_eq!(kind(0), Some(BlockType::PartitionTable));
    assert_eq!(kind(MIB), Some(BlockType::Unpartitioned));
    assert_eq!(kind(EXT + 1024), Some(BlockType::Superblock));
    assert_eq!(kind(FAT), Some(BlockType::BootRecord));
    let covered: u64 = map.all().map(|piece| piece.length).sum();
    assert_eq!(covered, 32 * MIB);
}

#[test]
fn partitions_of_an_mbr_are_mapped_logical_ones_too() {
    let Some((disk, file)) = disk() else { return };
    // The second one is logical, within an extended one from 19 MiB.
    let extended = 19 * MIB;
    let table = [entry(0x83, EXT, 16 * MIB), entry(0x05, extended, 12 * MIB)];
    file.write_all_at(&boot_sector(&table), 0)
        .expect("it can be written");
    let inner = [entry(0x01, MIB, 4 * MIB)];
    file.write_all_at(&boot_sector(&inner), extended)
        .expect("it can be written");
    let map = OwnerMap::open(&disk.path, &OPTIONS).expect("a disk can be mapped");
    assert_both_are_found(&map);
    assert!(map.is_sound());
    assert_eq!(
        map.owner(extended).map(|piece| piece.kind),
        Some(BlockType::PartitionTable)
    );
    assert!(
        map.volumes()
            .iter()
            .any(|volume| volume.description().starts_with("partition 5, FAT12"))
    );
}

#[test]
fn a_chain_of_logical_partitions_that_leads_back_ends() {
    let Some((disk, file)) = disk() else { return };
    let extended = 19 * MIB;
    let table = [entry(0x83, EXT, 16 * MIB), entry(0x05, extended, 12 * MIB)];
    file.write_all_at(&boot_sector(&table), 0)
        .expect("it can be written");
    let inner = [entry(0x01, MIB, 4 * MIB), entry(0x05, 0, 4 * MIB)];
    file.write_all_at(&boot_sector(&inner), extended)
        .expect("it can be written");
    let map = OwnerMap::open(&disk.path, &OPTIONS).expect("a disk can be mapped");
    assert_both_are_found(&map);
    assert!(map.volumes()[0].findings().any(FindingKind::Loop));
}

#[test]
fn a_gpt_is_read_from_its_backup_when_the_first_is_damaged() {
    let Some((disk, file)) = disk() else { return };
    let last = 32 * MIB / 512 - 1;
    let protective = boot_sector(&[entry(0xEE, 512, 32 * MIB - 512)]);
    let (first, entries) = gpt(1, last, 2);
    let (second, _) = gpt(last, 1, last - 32);
    for (at, bytes) in [
        (0, protective),
        (1, first),
        (2, entries.clone()),
        (last - 32, entries),
        (last, second),
    ] {
        file.write_all_at(&bytes, at * 512).expect("it can be written");
    }
    let map = OwnerMap::open(&disk.path, &OPTIONS).expect("a disk can be mapped");
    assert_both_are_found(&map);
    assert!(map.is_sound());
    file.write_all_at(&[1], 2 * 512 + 33).expect("it can be written");
    let map = OwnerMap::open(&disk.path, &OPTIONS).expect("a disk can be mapped");
    assert_both_are_found(&map);
    assert!(map.volumes()[0].findings().any(FindingKind::Backup));
}

#[test]
fn an_offset_names_one_file_system_of_a_disk() {
    let Some((disk, _file)) = disk() else { return };
    let options = Options {
        offset: Some(EXT),
        ..OPTIONS
    };
    let map = OwnerMap::open(&disk.path, &options).expect("there is one");
    assert_eq!(
        map.owner(EXT + 1024).map(|piece| piece.kind),
        Some(BlockType::Superblock)
    );
    assert!(map.volumes()[0].description().contains("first"));
}
