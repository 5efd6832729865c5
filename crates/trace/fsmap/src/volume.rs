//! The map of one file system: its ranges, its files, and its findings.

use std::ops::Range;

use crate::block_type::BlockType;
use crate::ext4::Logged;
use crate::files::{FileTable, Path};
use crate::finding::Findings;
use crate::resolve::{Claim, Resolved};

/// A file system that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext2, ext3 or ext4, by its own structures.
    Ext,
    /// FAT with 12-bit entries.
    Fat12,
    /// FAT with 16-bit entries.
    Fat16,
    /// FAT with 32-bit entries.
    Fat32,
    /// A mounted file system, by FIEMAP and GETFSMAP.
    Mounted,
    /// None: partition tables and the gaps between partitions.
    Disk,
}

impl FileSystemKind {
    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Fat12 => "FAT12",
            Self::Fat16 => "FAT16",
            Self::Fat32 => "FAT32",
            Self::Mounted => "mounted",
            Self::Disk => "disk",
        }
    }
}

/// Location of an inode table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeTableArea {
    /// First byte of the table.
    pub start: u64,
    pub length: u64,
    /// Number of the first inode in it.
    pub first_inode: u64,
    pub inode_bytes: u64,
}

/// The map of one file system. Offsets count from its start.
#[derive(Debug)]
pub struct Volume {
    pub(crate) kind: FileSystemKind,
    /// Full name of the file system, for example with a version.
    pub(crate) description: String,
    /// Offset of the file system in the opened input.
    pub(crate) base: u64,
    pub(crate) length: u64,
    /// The unit of allocation.
    pub(crate) block_bytes: u64,
    pub(crate) ranges: Resolved,
    pub(crate) files: FileTable,
    pub(crate) inode_tables: Vec<InodeTableArea>,
    /// Copies in the journal, in the order of their positions.
    pub(crate) logged: Vec<Logged>,
    pub(crate) findings: Findings,
}

impl Volume {
    /// Type of the file system.
    pub fn kind(&self) -> FileSystemKind {
        self.kind
    }

    /// Full name of the file system.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Offset in the opened input.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The unit of allocation in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Number of files, directories and others.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Its problems.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Index of the range that contains `byte`, or of the next one.
    pub(crate) fn range_at(&self, byte: u64) -> usize {
        self.ranges.owners.partition_point(|claim| claim.end() <= byte)
    }

    /// The claims that lost a part of a range.
    pub(crate) fn others(&self, range: Range<u64>) -> impl Iterator<Item = &Claim> {
        let ranges = &self.ranges;
        let end = ranges.others.partition_point(|claim| claim.start < range.end);
        (0..end)
            .rev()
            .take_while(move |at| ranges.others_reach[*at] > range.start)
            .map(move |at| &ranges.others[at])
            .filter(move |claim| claim.end() > range.start)
    }

    /// Numbers of the inodes in a range of an inode table.
    pub(crate) fn inodes_in(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let at = self
            .inode_tables
            .partition_point(|area| area.start + area.length <= range.start);
        let area = self
            .inode_tables
            .get(at)
            .filter(|area| area.start <= range.start)?;
        let first = (range.start - area.start) / area.inode_bytes;
        let end = range.end.min(area.start + area.length);
        let last = (end.max(range.start + 1) - 1 - area.start) / area.inode_bytes;
        Some((area.first_inode + first, area.first_inode + last))
    }

    pub(crate) fn paths(&self, file: u32) -> impl Iterator<Item = Path> + '_ {
        self.files.paths(file)
    }

    /// Bytes by type, in the order of [`BlockType::ALL`]; types with none are left out.
    pub fn totals(&self) -> Vec<Total> {
        let mut totals: Vec<Total> = BlockType::ALL
            .iter()
            .map(|kind| Total {
                kind: *kind,
                bytes: 0,
                ranges: 0,
            })
            .collect();
        for claim in &self.ranges.owners {
            if let Some(total) = totals.iter_mut().find(|total| total.kind == claim.kind) {
                total.bytes += claim.length;
                total.ranges += 1;
            }
        }
        totals.retain(|total| total.ranges > 0);
        totals
    }
}

/// Sum of one type in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// The type.
    pub kind: BlockType,
    /// Bytes.
    pub bytes: u64,
    /// Ranges.
    pub ranges: u64,
}
