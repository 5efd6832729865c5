//! Partition tables: MBR with its chain of logical partitions, and GPT with its backup.
//!
//! GPT takes precedence if a disk has both. Overlapping partitions are reported and the later one is left out. Spec:
//! UEFI 2.10, section 5.

use crate::block_type::BlockType;
use crate::bytes::{byte, index, le16, le32, le64};
use crate::checksum::crc32;
use crate::finding::{FindingKind, Findings, Place};
use crate::resolve::{Claim, Rank, Resolved, resolve};
use crate::source::Source;
use crate::volume::{FileSystemKind, Volume};

/// Maximum size of the entries of a GPT: one megabyte.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of logical partitions to follow.
const LOGICAL_MAX: u32 = 256;
const SECTOR: u64 = 512;

/// A part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The kernel's partition number.
    pub number: u32,
    pub start: u64,
    pub length: u64,
}

/// The tables of a disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub name: &'static str,
    /// In the order of their positions, without overlaps.
    pub partitions: Vec<Partition>,
    /// Offsets and lengths of the tables.
    tables: Vec<(u64, u64)>,
    pub findings: Findings,
}

/// Reads the partition tables, if there are any.
pub(crate) fn read(source: &Source) -> Option<Disk> {
    let mut findings = Findings::default();
    let mut disk = gpt(source, &mut findings).or_else(|| mbr(source, &mut findings))?;
    disk.partitions.sort_by_key(|partition| partition.start);
    let mut end = 0;
    disk.partitions.retain(|partition| {
        let fits = partition.start >= end && partition.length > 0;
        let there = partition.start < source.length();
        if !fits || !there {
            findings.add(
                FindingKind::OutOfRange,
                Place::PartitionTable,
                format!("partition {} behind byte {end}, on the disk", partition.number),
                format!("{} bytes from byte {}", partition.length, partition.start),
            );
            return false;
        }
        end = partition.start.saturating_add(partition.length);
        true
    });
    disk.findings = findings;
    Some(disk)
}

fn gpt(source: &Source, findings: &mut Findings) -> Option<Disk> {
    for sector in [512, 4096] {
        let last = (source.length() / sector).checked_sub(1)? * sector;
        let primary = gpt_at(source, sector, sector);
        if let Some(Ok(disk)) = primary {
            return Some(disk);
        }
        if let Some(Ok(disk)) = gpt_at(source, sector, last) {
            let problem = match primary {
                Some(Err(problem)) => problem,
                _ => "no header".to_owned(),
            };
            findings.add(
                FindingKind::Backup,
                Place::PartitionTable,
                "an undamaged primary GPT",
                problem,
            );
            return Some(disk);
        }
        if let Some(Err(problem)) = primary {
            findings.add(
                FindingKind::Checksum,
                Place::PartitionTable,
                "a GPT that fits its checksums",
                problem,
            );
        }
    }
    None
}

/// `None` if there is not even a damaged header.
fn gpt_at(source: &Source, sector: u64, at: u64) -> Option<Result<Disk, String>> {
    let mut header = vec![0; index(sector)];
    source.read(at, &mut header).ok()?;
    (header.get(..8)? == b"EFI PART").then(|| gpt_entries(source, sector, at, &header))
}

fn gpt_entries(source: &Source, sector: u64, at: u64, header: &[u8]) -> Result<Disk, String> {
    let size = index(u64::from(le32(header, 12)));
    let mut zeroed = header
        .get(..size)
        .ok_or("a header larger than its sector")?
        .to_vec();
    zeroed.get_mut(16..20).ok_or("a header of no size")?.fill(0);
    let (stored, found) = (le32(header, 16), crc32(&zeroed));
    if stored != found {
        return Err(format!("header checksum {found:#010x}, it says {stored:#010x}"));
    }
    let (count, entry_bytes) = (u64::from(le32(header, 80)), u64::from(le32(header, 84)));
    let start = le64(header, 72).saturating_mul(sector);
    let length = count * entry_bytes;
    if entry_bytes < 128 || length > ENTRIES_BYTES_MAX {
        return Err(format!("{count} entries of {entry_bytes} bytes"));
    }
    let mut entries = vec![0; index(length)];
    source
        .read(start, &mut entries)
        .map_err(|error| error.to_string())?;
    let (stored, found) = (le32(header, 88), crc32(&entries));
    if stored != found {
        return Err(format!(
            "checksum of entries {found:#010x}, it says {stored:#010x}"
        ));
    }
    let partitions = (1..)
        .zip(entries.chunks_exact(index(entry_bytes)))
        .filter_map(|(number, raw)| {
            let (first, last) = (le64(raw, 32), le64(raw, 40));
            let used = raw.iter().take(16).any(|byte| *byte != 0) && last >= first;
            used.then(|| Partition {
                number,
                start: first.saturating_mul(sector),
                length: (last - first).saturating_add(1).saturating_mul(sector),
            })
        });
    let backup = le64(header, 32).saturating_mul(sector);
    Ok(Disk {
        name: "GPT",
        partitions: partitions.collect(),
        // Both headers with their entries: those of the backup precede its header.
        tables: vec![
            (0, SECTOR),
            (at, sector),
            (start, length),
            (backup, sector),
            (backup.max(at).saturating_sub(length), length),
        ],
        findings: Findings::default(),
    })
}

fn mbr(source: &Source, findings: &mut Findings) -> Option<Disk> {
    let mut raw = [0; 512];
    source.read(0, &mut raw).ok()?;
    if le16(&raw, 510) != 0xAA55 {
        return None;
    }
    let mut disk = Disk {
        name: "MBR",
        partitions: Vec::new(),
        tables: vec![(0, SECTOR)],
        findings: Findings::default(),
    };
    for number in 1..=4_u32 {
        let entry = entry(&raw, index(u64::from(number - 1)))?;
        match entry.kind {
            0 => {}
            0x05 | 0x0F | 0x85 => logical(source, entry.first, &mut disk, findings),
            _ => disk.partitions.push(Partition {
                number,
                start: entry.first * SECTOR,
                length: entry.count * SECTOR,
            }),
        }
    }
    (!disk.partitions.is_empty()).then_some(disk)
}

struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

/// An entry of a boot sector; `None` if it is not plausible.
fn entry(raw: &[u8], number: usize) -> Option<Entry> {
    let at = 446 + number * 16;
    let possible = [0, 0x80].contains(&byte(raw, at));
    possible.then(|| Entry {
        kind: byte(raw, at + 4),
        first: u64::from(le32(raw, at + 8)),
        count: u64::from(le32(raw, at + 12)),
    })
}

/// Follows the chain of logical partitions within an extended one.
fn logical(source: &Source, base: u64, disk: &mut Disk, findings: &mut Findings) {
    let mut at = base;
    for number in 5..5 + LOGICAL_MAX {
        let mut raw = [0; 512];
        let read = source.read(at * SECTOR, &mut raw).is_ok() && le16(&raw, 510) == 0xAA55;
        let (Some(own), Some(next), true) = (entry(&raw, 0), entry(&raw, 1), read) else {
            let place = Place::Byte(at * SECTOR);
            findings.add(
                FindingKind::Field,
                place,
                "a table of a logical partition",
                "something else",
            );
            return;
        };
        disk.tables.push((at * SECTOR, SECTOR));
        if own.kind != 0 {
            disk.partitions.push(Partition {
                number,
                start: (at + own.first) * SECTOR,
                length: own.count * SECTOR,
            });
        }
        if next.kind == 0 {
            return;
        }
        // The chain may only lead forward.
        if base + next.first <= at {
            findings.add(
                FindingKind::Loop,
                Place::PartitionTable,
                format!("a table behind sector {at}"),
                format!("one at sector {}", base + next.first),
            );
            return;
        }
        at = base + next.first;
    }
}

impl Disk {
    /// A gap between partitions.
    pub(crate) fn gap(&self, start: u64, end: u64) -> Volume {
        let mut claims = vec![Claim::area(0, end - start, BlockType::Unpartitioned, Rank::Gap)];
        for (at, length) in &self.tables {
            let (first, last) = ((*at).max(start), at.saturating_add(*length).min(end));
            if first < last {
                let claim = Claim::area(
                    first - start,
                    last - first,
                    BlockType::PartitionTable,
                    Rank::Layout,
                );
                claims.push(Claim {
                    shared: true,
                    ..claim
                });
            }
        }
        let mut ranges = resolve(claims, &mut Findings::default(), |_| String::new());
        // The two possible positions of the backup's entries may coincide.
        ranges.others.clear();
        ranges.others_reach.clear();
        volume(
            format!("{}, outside of partitions", self.name),
            start,
            end,
            ranges,
        )
    }

    /// A partition without a supported file system.
    pub(crate) fn unknown(&self, partition: Partition, end: u64) -> Volume {
        let length = end - partition.start;
        let claims = vec![Claim::area(0, length, BlockType::Unknown, Rank::Trusted)];
        let ranges = resolve(claims, &mut Findings::default(), |_| String::new());
        let name = format!("partition {}, no file system that is read here", partition.number);
        volume(name, partition.start, end, ranges)
    }
}

fn volume(description: String, start: u64, end: u64, ranges: Resolved) -> Volume {
    Volume {
        kind: FileSystemKind::Disk,
        description,
        base: start,
        length: end - start,
        block_bytes: SECTOR,
        ranges,
        files: crate::files::FileTable::default(),
        inode_tables: Vec::new(),
        logged: Vec::new(),
        findings: Findings::default(),
    }
}
