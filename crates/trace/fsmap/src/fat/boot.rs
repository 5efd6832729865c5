//! The boot record of FAT12, FAT16 and FAT32: the layout of FATs, root and clusters.
//!
//! Spec: Microsoft's "FAT: General Overview of On-Disk Format". A damaged record is read from its backup (sector 6).

use crate::bytes::{byte, le16, le32};
use crate::finding::{FindingKind, Findings, Place};
use crate::source::Source;
use crate::volume::FileSystemKind;

/// FAT32 can't number this many clusters.
const CLUSTERS_MAX: u64 = 0x0FFF_FFF5;

/// Fields of the boot record, checked for plausibility. Values are in bytes, from the start of the file system.
#[derive(Clone, Debug)]
pub(crate) struct Boot {
    pub kind: FileSystemKind,
    pub sector_bytes: u64,
    pub cluster_bytes: u64,
    pub fat_start: u64,
    pub fat_bytes: u64,
    pub fats: u8,
    /// The FAT in use; the others mirror it unless mirroring is off.
    pub active_fat: u8,
    pub mirrored: bool,
    /// Root directory of FAT12 and FAT16; its length is 0 on FAT32.
    pub root_start: u64,
    pub root_bytes: u64,
    /// First cluster of the root of FAT32.
    pub root_cluster: u32,
    /// Offset of cluster 2.
    pub data_start: u64,
    /// Clusters are numbered from 2 to this, exclusive.
    pub cluster_end: u32,
    pub length: u64,
    pub info_sector: u64,
    pub backup_sector: u64,
    pub label: String,
}

/// The name of another file system whose boot sector looks similar, if there is one.
pub(crate) fn foreign(source: &Source) -> Option<&'static str> {
    let mut raw = [0; 512];
    source.read(0, &mut raw).ok()?;
    match &raw[3..11] {
        b"EXFAT   " => Some("exFAT"),
        b"NTFS    " => Some("NTFS"),
        _ => None,
    }
}

pub(crate) fn probe(source: &Source) -> bool {
    foreign(source).is_none() && candidates(source).any(|(_, outcome)| outcome.is_ok())
}

/// The boot sector and its backups, by their offsets.
fn candidates(source: &Source) -> impl Iterator<Item = (u64, Result<Boot, (String, String)>)> + '_ {
    [0, 6 * 512, 6 * 1024, 6 * 2048, 6 * 4096]
        .into_iter()
        .filter_map(|at: u64| {
            let mut raw = [0; 512];
            source.read(at, &mut raw).ok()?;
            Some((at, parse(&raw, source.length())))
        })
        // Only FAT32 has a backup.
        .filter(|(at, outcome)| {
            *at == 0
                || outcome
                    .as_ref()
                    .is_ok_and(|boot| boot.backup_sector * boot.sector_bytes == *at)
        })
}

/// Reads the boot record.
pub(crate) fn read(source: &Source, findings: &mut Findings) -> Option<Boot> {
    for (at, outcome) in candidates(source) {
        match outcome {
            Ok(boot) => {
                if at > 0 {
                    findings.add(
                        FindingKind::Backup,
                        Place::Superblock,
                        "an undamaged boot record",
                        format!("its backup at byte {at}"),
                    );
                }
                return Some(cut(boot, source, findings));
            }
            Err((expected, found)) => findings.add(FindingKind::Field, Place::Superblock, expected, found),
        }
    }
    None
}

/// Limits the file system to the medium.
fn cut(mut boot: Boot, source: &Source, findings: &mut Findings) -> Boot {
    if boot.length > source.length() {
        findings.add(
            FindingKind::OutOfRange,
            Place::Superblock,
            format!("{} bytes as the boot record says", boot.length),
            format!("{} bytes on the medium", source.length()),
        );
        boot.length = source.length();
        let clusters = boot.length.saturating_sub(boot.data_start) / boot.cluster_bytes;
        boot.cluster_end =
            u32::try_from(clusters + 2).map_or(boot.cluster_end, |end| end.min(boot.cluster_end));
    }
    boot
}

fn parse(raw: &[u8; 512], length: u64) -> Result<Boot, (String, String)> {
    let wrong = |expected: &str, found: String| Err((expected.to_owned(), found));
    if le16(raw, 510) != 0xAA55 {
        return wrong("signature 0xaa55", format!("{:#06x}", le16(raw, 510)));
    }
    let sector_bytes = u64::from(le16(raw, 11));
    if !sector_bytes.is_power_of_two() || !(512..=4096).contains(&sector_bytes) {
        return wrong("sectors of 512 to 4096 bytes", sector_bytes.to_string());
    }
    let per_cluster = u64::from(byte(raw, 13));
    if !per_cluster.is_power_of_two() {
        return wrong("a power of two sectors a cluster", per_cluster.to_string());
    }
    let (reserved, fats) = (u64::from(le16(raw, 14)), byte(raw, 16));
    if reserved == 0 || !(1..=4).contains(&fats) {
        return wrong(
            "reserved sectors and 1 to 4 FATs",
            format!("{reserved} and {fats}"),
        );
    }
    let is_32 = le16(raw, 22) == 0;
    let fat_sectors = if is_32 {
        u64::from(le32(raw, 36))
    } else {
        u64::from(le16(raw, 22))
    };
    let sectors = match le16(raw, 19) {
        0 => u64::from(le32(raw, 32)),
        small => u64::from(small),
    };
    let root_bytes = u64::from(le16(raw, 17)) * 32;
    let fat_start = reserved * sector_bytes;
    let root_start = fat_start + u64::from(fats) * fat_sectors * sector_bytes;
    let data_start = (root_start + root_bytes).next_multiple_of(sector_bytes);
    let all = sectors * sector_bytes;
    if fat_sectors == 0 || all <= data_start || data_start > length {
        return wrong(
            "FATs and room for clusters behind them",
            format!("{fat_sectors} sectors of FAT, clusters from byte {data_start} of {all}"),
        );
    }
    let clusters = (all - data_start) / (per_cluster * sector_bytes);
    let kind = match clusters {
        _ if is_32 => FileSystemKind::Fat32,
        // The kernel's limit; other implementations put it a few clusters lower.
        0..=0xFF4 => FileSystemKind::Fat12,
        _ => FileSystemKind::Fat16,
    };
    let fat_bytes = fat_sectors * sector_bytes;
    let entries = match kind {
        FileSystemKind::Fat12 => fat_bytes * 2 / 3,
        FileSystemKind::Fat16 => fat_bytes / 2,
        _ => fat_bytes / 4,
    };
    let end = (clusters + 2).min(entries).min(CLUSTERS_MAX + 2);
    let flags = if is_32 { le16(raw, 40) } else { 0 };
    let mirrored = flags & 0x80 == 0;
    let [chosen, _] = (flags & 0xF).to_le_bytes();
    let active_fat = if mirrored { 0 } else { chosen };
    if active_fat >= fats {
        return wrong("an active FAT among those there are", active_fat.to_string());
    }
    let label = if is_32 { &raw[71..82] } else { &raw[43..54] };
    let sector = |at: usize| if is_32 { u64::from(le16(raw, at)) } else { 0 };
    let within = |sector: u64| if sector < reserved { sector } else { 0 };
    Ok(Boot {
        kind,
        sector_bytes,
        cluster_bytes: per_cluster * sector_bytes,
        fat_start,
        fat_bytes,
        fats,
        active_fat,
        mirrored,
        root_start,
        root_bytes: if is_32 { 0 } else { root_bytes },
        root_cluster: if is_32 { le32(raw, 44) & 0x0FFF_FFFF } else { 0 },
        data_start,
        cluster_end: u32::try_from(end).expect("it is below 2^28"),
        length: all,
        info_sector: within(sector(48)),
        backup_sector: within(sector(50)),
        label: String::from_utf8_lossy(label).trim_end().to_owned(),
    })
}
