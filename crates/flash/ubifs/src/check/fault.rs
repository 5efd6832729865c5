//! Findings and report of the checker.

use std::sync::Arc;

use thiserror::Error;

use super::lpt::LptDefect;
use crate::format::{InodeNumber, NodeDefect};

/// Location of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// LEB number.
    pub leb: u32,
    /// Offset in the LEB.
    pub offset: u32,
}

/// The part of the file system that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Superblock.
    Superblock,
    /// Master node.
    Master,
    /// Log.
    Log,
    /// Journal.
    Journal,
    /// Index.
    Index,
    /// LPT.
    Lpt,
    /// Orphan area.
    Orphans,
    /// Inode.
    Inode,
    /// Data node.
    Data,
    /// Directory entry.
    Entry,
    /// An extended attribute.
    Xattr,
    /// Sums of free, dirty and used space.
    Space,
}

impl Area {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Master => "master node",
            Self::Log => "log",
            Self::Journal => "journal",
            Self::Index => "index",
            Self::Lpt => "LPT",
            Self::Orphans => "orphans",
            Self::Inode => "inode",
            Self::Data => "data",
            Self::Entry => "directory entry",
            Self::Xattr => "extended attribute",
            Self::Space => "space",
        }
    }
}

/// A fault found by the checker.
#[derive(Clone, Debug, Error)]
pub enum Fault {
    /// Invalid node.
    #[error(transparent)]
    Node(#[from] NodeDefect),
    /// Invalid part of the LPT.
    #[error(transparent)]
    Lpt(#[from] LptDefect),
    /// A block can't be decompressed.
    #[error(transparent)]
    Content(#[from] crate::decompress::DecompressError),
    /// The volume can't be read.
    #[error("{0}")]
    Medium(Arc<str>),
    /// A location outside the volume, or one at which no node can be.
    #[error(
        "a place of {bytes} bytes in LEB {leb}, offset {offset} is impossible in {lebs} LEBs of {leb_bytes} bytes"
    )]
    Outside {
        /// LEB number.
        leb: u32,
        /// Offset in the LEB.
        offset: u32,
        /// Length, bytes.
        bytes: u32,
        /// Number of LEBs in the volume.
        lebs: u32,
        /// LEB size, bytes.
        leb_bytes: u32,
    },
    /// A value contradicts the rest of the medium.
    #[error("{what} is {found}, expected is {expected}")]
    Value {
        /// Name of the value.
        what: &'static str,
        /// Value on the medium.
        found: u64,
        /// Value that follows from the rest of the medium.
        expected: u64,
    },
    /// The hash of a node differs from the one in its parent.
    #[error("its hash is not the one that the node above it holds: it was changed")]
    Hash,
    /// Any other contradiction.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A part of the index is lost, with everything below it.
    #[error("{cause}; what it led to is lost: {below}")]
    Below {
        /// Why it is lost.
        cause: Box<Self>,
        /// Range of keys below it.
        below: String,
    },
}

/// A fault with its location.
#[derive(Clone, Debug)]
pub struct CheckFinding {
    /// Part of the file system.
    pub area: Area,
    /// Inode concerned.
    pub inode: Option<InodeNumber>,
    /// A path of that inode, if known: bytes, with `/` between names.
    pub path: Option<Vec<u8>>,
    /// Location on the medium.
    pub at: Option<At>,
    /// The fault.
    pub fault: Fault,
}

/// Report of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// All faults, in the order in which they were found.
    pub findings: Vec<CheckFinding>,
    /// Ends of the log or of a journal head that count as torn writes, as for a mount, although damage explains them as
    /// well: nodes that were synced last may be missing.
    pub doubts: Vec<String>,
    /// Observations that are no faults: an unclean unmount, torn writes.
    pub notes: Vec<String>,
    /// Counts of files and nodes.
    pub counts: Counts,
}

/// Counts of files and nodes, and of the damaged ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// LEBs read.
    pub lebs_read: u64,
    /// Index nodes.
    pub index_nodes: u64,
    /// Journal nodes.
    pub journal_nodes: u64,
    /// Directories.
    pub directories: u64,
    /// Files of all other types.
    pub files: u64,
    /// Files with lost parts.
    pub files_damaged: u64,
    /// Names whose inode is lost.
    pub names_without_inode: u64,
    /// Blocks of 4096 bytes.
    pub blocks: u64,
    /// Lost blocks.
    pub blocks_lost: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Orphans that recovery deletes.
    pub orphans: u64,
}
