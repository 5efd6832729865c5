//! FAT12, FAT16 and FAT32, read from their own structures.
//!
//! Each cluster is walked once, even if several chains lead to it: the first one keeps it; a second one is reported and
//! ends there. FAT has no inodes; the number of a file is the position of its entry (byte / 32), which the kernel's
//! driver calls `i_pos`, and 1 for the root.

mod boot;
mod directory;
mod name;
mod table;

use self::boot::Boot;
pub(crate) use self::boot::{foreign, probe};
use self::directory::Walk;
use self::table::{Link, Table};
use crate::OpenError;
use crate::block_type::BlockType;
use crate::bytes::le32;
use crate::finding::{FindingKind, Findings, Place};
use crate::probe::{Probed, problems};
use crate::resolve::{Claim, NO_FILE, Rank, push_joined, resolve};
use crate::source::Source;
use crate::volume::Volume;

/// Maps the file system on `source`, which starts at byte `base` of the opened image or device.
pub(crate) fn map(source: &Source, base: u64) -> Result<Volume, OpenError> {
    let mut findings = Findings::default();
    let boot = boot::read(source, &mut findings).ok_or_else(|| OpenError::Unsupported {
        path: source.path().to_owned(),
        reason: "no boot record of FAT could be read".to_owned(),
    })?;
    let mut claims = Vec::new();
    claim_layout(source, &boot, &mut claims, &mut findings);
    let mut table = Table::new(source, &boot);
    table.compare_copies(&mut findings);
    let mut walk = Walk::new(source, &boot, &mut table, claims);
    walk.run(&mut findings);
    let (mut files, claims) = walk.finish();
    let show = |claim: &Claim| match files.get(claim.file) {
        Some(record) => format!("{} of entry {}", claim.kind, record.inode),
        None => claim.kind.to_string(),
    };
    let mut ranges = resolve(claims, &mut findings, show);
    files.connect(&mut findings);
    ranges.owners = fill(&boot, &mut table, &ranges.owners, &mut findings);
    Ok(Volume {
        kind: boot.kind,
        description: describe(&boot),
        base,
        length: boot.length,
        block_bytes: boot.cluster_bytes,
        ranges,
        files,
        inode_tables: Vec::new(),
        logged: Vec::new(),
        findings,
    })
}

/// Identifies the file system by its boot record.
pub(crate) fn summary(source: &Source, base: u64) -> Option<Probed> {
    let mut findings = Findings::default();
    let boot = boot::read(source, &mut findings)?;
    Some(Probed {
        kind: boot.kind,
        description: describe(&boot),
        base,
        length: boot.length,
        problems: problems(&findings),
    })
}

fn describe(boot: &Boot) -> String {
    let label = if boot.label.is_empty() {
        String::new()
    } else {
        format!(" {:?}", boot.label)
    };
    format!(
        "{}{label}, {} clusters of {} bytes",
        boot.kind.as_str(),
        boot.cluster_end.saturating_sub(2),
        boot.cluster_bytes
    )
}

fn claim_layout(source: &Source, boot: &Boot, claims: &mut Vec<Claim>, findings: &mut Findings) {
    let sector = boot.sector_bytes;
    let mut area = |start: u64, length: u64, kind| {
        let end = start.saturating_add(length).min(boot.length);
        claims.push(Claim::area(start, end.saturating_sub(start), kind, Rank::Layout));
    };
    let mut special = vec![(0, BlockType::BootRecord)];
    if boot.info_sector > 0 {
        special.push((boot.info_sector, BlockType::FsInfo));
        check_info(source, boot.info_sector * sector, findings);
    }
    if boot.backup_sector > 0 {
        special.push((boot.backup_sector, BlockType::BootRecord));
        // Boot record and FSInfo have the same distance in the backup as in the original.
        let copy = boot.backup_sector + boot.info_sector;
        if boot.info_sector > 0 && copy * sector < boot.fat_start {
            special.push((copy, BlockType::FsInfo));
        }
    }
    special.sort_unstable();
    special.dedup_by_key(|(at, _)| *at);
    let mut at = 0;
    for (number, kind) in special {
        area(at * sector, (number - at) * sector, BlockType::Reserved);
        area(number * sector, sector, kind);
        at = number + 1;
    }
    area(
        at * sector,
        boot.fat_start.saturating_sub(at * sector),
        BlockType::Reserved,
    );
    for number in 0..u64::from(boot.fats) {
        area(
            boot.fat_start + number * boot.fat_bytes,
            boot.fat_bytes,
            BlockType::Fat,
        );
    }
    let root_end = boot.root_start + boot.root_bytes;
    area(
        root_end,
        boot.data_start.saturating_sub(root_end),
        BlockType::Reserved,
    );
    let used = boot.data_start + u64::from(boot.cluster_end.saturating_sub(2)) * boot.cluster_bytes;
    area(used, boot.length.saturating_sub(used), BlockType::Free);
}

fn check_info(source: &Source, start: u64, findings: &mut Findings) {
    let mut raw = [0; 512];
    let signatures = match source.read(start, &mut raw) {
        Ok(()) => (le32(&raw, 0), le32(&raw, 484)),
        Err(_) => (0, 0),
    };
    if signatures != (0x4161_5252, 0x6141_7272) {
        findings.add(
            FindingKind::Field,
            Place::Byte(start),
            "FSInfo with signatures 0x41615252 and 0x61417272",
            format!("{:#010x} and {:#010x}", signatures.0, signatures.1),
        );
    }
}

/// Completes sorted owners with the FAT's information about unclaimed clusters.
fn fill(boot: &Boot, table: &mut Table<'_>, owners: &[Claim], findings: &mut Findings) -> Vec<Claim> {
    let mut out: Vec<Claim> = Vec::with_capacity(owners.len());
    let mut position = 0;
    let end = Claim::area(boot.length, 1, BlockType::Free, Rank::Layout);
    for owner in owners.iter().chain([&end]) {
        let stale = owner.rank == Rank::Stale;
        if owner.start > position {
            gap(boot, table, position, owner.start, None, &mut out, findings);
        }
        if stale {
            gap(
                boot,
                table,
                owner.start,
                owner.end(),
                Some(owner),
                &mut out,
                findings,
            );
        } else if owner.start < boot.length {
            push_joined(&mut out, *owner);
        }
        position = position.max(owner.end());
    }
    out
}

fn gap(
    boot: &Boot,
    table: &mut Table<'_>,
    start: u64,
    end: u64,
    deleted: Option<&Claim>,
    out: &mut Vec<Claim>,
    findings: &mut Findings,
) {
    let mut position = start;
    let mut lost: Option<(u64, u64)> = None;
    while position < end {
        let cluster = position.saturating_sub(boot.data_start) / boot.cluster_bytes + 2;
        let next = boot.data_start + (cluster - 1) * boot.cluster_bytes;
        let part_end = next.min(end).max(position + 1);
        let number = u32::try_from(cluster).unwrap_or(u32::MAX);
        let link = if position >= boot.data_start && number < boot.cluster_end {
            table.link(number, findings)
        } else {
            Link::Free
        };
        let length = part_end - position;
        let kind = match (link, deleted) {
            (Link::Free, Some(_)) => BlockType::Deleted,
            (Link::Free, None) => BlockType::Free,
            (Link::Bad, _) => BlockType::BadBlocks,
            _ => BlockType::Unknown,
        };
        let base = Claim::area(position, length, kind, Rank::Trusted);
        let claim = match deleted {
            Some(owner) if kind == BlockType::Deleted => Claim {
                file: owner.file,
                file_offset: owner.file_offset + (position - owner.start),
                rank: Rank::Stale,
                ..base
            },
            _ => Claim {
                file: NO_FILE,
                ..base
            },
        };
        push_joined(out, claim);
        if kind == BlockType::Unknown {
            lost = Some(lost.map_or((position, 1), |(first, count)| (first, count + 1)));
        }
        position = part_end;
    }
    if let Some((first, count)) = lost {
        findings.add(
            FindingKind::UsedButUnowned,
            Place::Byte(first),
            "clusters that a file owns, or free ones",
            format!("{count} clusters of chains without a file"),
        );
    }
}
