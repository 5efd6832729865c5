//! ext2, ext3 and ext4, read from their own structures.
//!
//! Order of work: superblock, group descriptors, journal (blocks that a mount would replay are read from it), inode
//! tables in large sequential reads, trees, then names in the order of the medium, and last the bitmaps for all other
//! blocks. Spec: Documentation/filesystems/ext4 of the kernel. Checksums are checked if the file system has them: a
//! structure with a wrong one is reported and given a lower rank, never refused.

mod blocks;
mod directory;
mod free_space;
mod groups;
mod inode;
mod journal;
mod medium;
mod scan;
mod superblock;

use self::journal::Journal;
pub(crate) use self::journal::Logged;
use self::medium::Medium;
use self::superblock::{Superblock, compat, incompat};
use crate::OpenError;
use crate::finding::{FindingKind, Findings, Place};
use crate::options::{JournalDetail, Options};
use crate::probe::{Probed, problems};
use crate::resolve::{Claim, resolve};
use crate::source::Source;
use crate::volume::{FileSystemKind, Volume};

pub(crate) use self::superblock::{probe, probe_backups};

/// Maps the file system on `source`, which starts at byte `base` of the opened image or device.
pub(crate) fn map(source: &Source, base: u64, options: &Options) -> Result<Volume, OpenError> {
    let mut findings = Findings::default();
    let superblock = superblock::read(source, &mut findings).ok_or_else(|| OpenError::Unsupported {
        path: source.path().to_owned(),
        reason: "no superblock of ext4 could be read".to_owned(),
    })?;
    let mut medium = Medium::new(source.clone(), superblock);
    note_features(&medium.superblock, &mut findings);
    let mut groups = groups::read(&medium, &mut findings);
    let journal = find_journal(&medium, &groups, &mut findings);
    if let Some(journal) = journal.as_ref().filter(|journal| journal.must_replay()) {
        medium.replayed = journal.replay(&medium, &mut findings);
        findings.note(format!(
            "not unmounted: {} blocks are read from the journal, as a mount would replay them",
            medium.replayed.len()
        ));
        if journal.has_fast_commits() {
            findings.note("fast commits are not replayed: the newest changes may be missing");
        }
        if !medium.replayed.is_empty() {
            // Problems of the old copies are obsolete.
            let mut again = Findings::default();
            groups = groups::read(&medium, &mut again);
        }
    }
    let mut claims = Vec::new();
    let mut inode_tables = Vec::new();
    groups::claim_layout(&medium, &groups, &mut claims, &mut inode_tables);
    let mut scan = scan::Scan::new(&medium, claims);
    scan.tables(&groups, &mut findings);
    let scan::Scanned {
        mut claims,
        mut files,
        inline,
    } = scan.finish(&mut findings);
    let mut logged = Vec::new();
    if let Some(journal) = journal {
        logged = detail_journal(&medium, &journal, &mut claims, options, &mut findings);
    }
    let show = |claim: &Claim| match files.get(claim.file) {
        Some(record) => format!("{} of inode {}", claim.kind, record.inode),
        None => claim.kind.to_string(),
    };
    let mut ranges = resolve(claims, &mut findings, show);
    let mut names = directory::Names::new(&mut files, &mut findings);
    names.read_all(&medium, &ranges.owners);
    for directory in &inline {
        names.read_inline(&medium, directory);
    }
    files.connect(&mut findings);
    ranges.owners = free_space::fill(&medium, &groups, &ranges.owners, &mut findings);
    let superblock = &medium.superblock;
    Ok(Volume {
        kind: FileSystemKind::Ext,
        description: describe(superblock),
        base,
        length: medium.byte_of(superblock.blocks),
        block_bytes: superblock.block_bytes,
        ranges,
        files,
        inode_tables,
        logged,
        findings,
    })
}

/// Identifies the file system by its superblock.
pub(crate) fn summary(source: &Source, base: u64) -> Option<Probed> {
    let mut findings = Findings::default();
    let superblock = superblock::read(source, &mut findings)?;
    Some(Probed {
        kind: FileSystemKind::Ext,
        description: describe(&superblock),
        base,
        length: superblock.blocks.saturating_mul(superblock.block_bytes),
        problems: problems(&findings),
    })
}

fn describe(superblock: &Superblock) -> String {
    const EXTENTS: u32 = 0x40;
    let name = if superblock.has_incompat(EXTENTS) {
        "ext4"
    } else if superblock.has_compat(compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    };
    let label = String::from_utf8_lossy(&superblock.label).into_owned();
    let label = if label.is_empty() {
        label
    } else {
        format!(" {label:?}")
    };
    format!(
        "{name}{label}, {} blocks of {} bytes, {} groups",
        superblock.blocks, superblock.block_bytes, superblock.groups
    )
}

fn note_features(superblock: &Superblock, findings: &mut Findings) {
    let unknown = superblock.incompat & !incompat::KNOWN;
    if unknown != 0 {
        findings.add(
            FindingKind::Unsupported,
            Place::Superblock,
            format!("incompatible features within {:#x}", incompat::KNOWN),
            format!("{unknown:#x} beside them; what they change is not known"),
        );
    }
    if superblock.has_incompat(incompat::JOURNAL_DEV) {
        findings.note("this is a journal device, not a file system");
    }
    if superblock.has_compat(compat::HAS_JOURNAL) && superblock.journal_inode == 0 {
        findings.note("the journal is on another device and is not read");
    }
    if superblock.last_orphan != 0 {
        findings.note("files were open and removed when this was written; they are kept as orphans");
    }
}

/// Reads the journal's inode and superblock.
fn find_journal(medium: &Medium, groups: &[groups::Group], findings: &mut Findings) -> Option<Journal> {
    let number = medium.superblock.journal_inode;
    if !medium.superblock.has_compat(compat::HAS_JOURNAL) || number == 0 {
        return None;
    }
    // The inode is walked again with all others, which then reports its problems.
    let mut quiet = Findings::default();
    let extents = scan::extents_of(medium, groups, number, &mut quiet)?;
    Journal::read(medium, extents, findings)
}

/// Replaces the claims of the journal by ones with the types of its blocks.
fn detail_journal(
    medium: &Medium,
    journal: &Journal,
    claims: &mut Vec<Claim>,
    options: &Options,
    findings: &mut Findings,
) -> Vec<Logged> {
    let Some(owner) = claims
        .iter()
        .find(|claim| claim.kind == crate::BlockType::Journal)
        .copied()
    else {
        return Vec::new();
    };
    claims.retain(|claim| claim.kind != crate::BlockType::Journal);
    let (parts, logged) = match options.journal {
        JournalDetail::Areas => (journal.areas(), Vec::new()),
        JournalDetail::Blocks => journal.blocks(medium, findings),
    };
    claims.extend(parts.into_iter().map(|part| Claim {
        file: owner.file,
        rank: owner.rank,
        ..part
    }));
    logged
}
