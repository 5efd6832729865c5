//! Findings of the checker, and the report that they are part of.

use std::sync::Arc;

use thiserror::Error;

use super::lpt::LptDefect;
use crate::format::{InodeNumber, NodeDefect};

/// A place of the volume that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The LEB.
    pub leb: u32,
    /// The byte in it.
    pub offset: u32,
}

/// Which part of the file system a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// What does not change.
    Superblock,
    /// Where everything is after the last commit.
    Master,
    /// Which LEBs the journal has.
    Log,
    /// What happened since the last commit.
    Journal,
    /// The tree from keys to places.
    Index,
    /// The space of each LEB.
    Lpt,
    /// Inodes without a name that were open.
    Orphans,
    /// A file's attributes.
    Inode,
    /// A block of a file.
    Data,
    /// A name in a directory.
    Entry,
    /// An extended attribute.
    Xattr,
    /// Sums of free, dirty and used space.
    Space,
}

impl Area {
    /// As it is printed.
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

/// A fault that the checker found.
#[derive(Clone, Debug, Error)]
pub enum Fault {
    /// There is no good node.
    #[error(transparent)]
    Node(#[from] NodeDefect),
    /// There is no good part of the LPT.
    #[error(transparent)]
    Lpt(#[from] LptDefect),
    /// The content of a block can't be unpacked.
    #[error(transparent)]
    Content(#[from] crate::decompress::DecompressError),
    /// The volume can't be read.
    #[error("{0}")]
    Medium(Arc<str>),
    /// A place that is not in the volume, or no node can be at.
    #[error(
        "a place of {bytes} bytes in LEB {leb}, offset {offset} is impossible in {lebs} LEBs of {leb_bytes} bytes"
    )]
    Outside {
        /// The LEB.
        leb: u32,
        /// The byte in it.
        offset: u32,
        /// How many.
        bytes: u32,
        /// LEBs of the volume.
        lebs: u32,
        /// Bytes of each.
        leb_bytes: u32,
    },
    /// A number that is not what everything else says.
    #[error("{what} is {found}, expected is {expected}")]
    Value {
        /// Which number.
        what: &'static str,
        /// What the medium says.
        found: u64,
        /// What follows from the rest of the medium.
        expected: u64,
    },
    /// A node's hash is not the one that the node above it has.
    #[error("its hash is not the one that the node above it holds: it was changed")]
    Hash,
    /// Something else.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A part of the index is gone, and with it what it led to.
    #[error("{cause}; what it led to is lost: {below}")]
    Below {
        /// Why it is gone.
        cause: Box<Self>,
        /// What it led to.
        below: String,
    },
}

/// One thing that is wrong.
#[derive(Clone, Debug)]
pub struct CheckFinding {
    /// Which part of the file system it is about.
    pub area: Area,
    /// Whom it concerns.
    pub inode: Option<InodeNumber>,
    /// A path of that inode, so far as one is known: bytes, `/` between names.
    pub path: Option<Vec<u8>>,
    /// Where it is on the medium.
    pub at: Option<At>,
    /// What is wrong.
    pub fault: Fault,
}

/// Report of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything that is wrong, in the order in which it was come by.
    pub findings: Vec<CheckFinding>,
    /// What is not wrong, and worth knowing: that the file system was not unmounted, torn writes.
    pub notes: Vec<String>,
    /// What there is.
    pub counts: Counts,
}

/// Counts of files and nodes, and of those that can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// LEBs of the volume that were read.
    pub lebs_read: u64,
    /// Nodes of the index.
    pub index_nodes: u64,
    /// Nodes in the journal.
    pub journal_nodes: u64,
    /// Directories.
    pub directories: u64,
    /// Files of all other kinds.
    pub files: u64,
    /// Files among them of which a part is lost.
    pub files_damaged: u64,
    /// Names whose inode is lost.
    pub names_without_inode: u64,
    /// Blocks of 4096 bytes.
    pub blocks: u64,
    /// Blocks among them that are lost.
    pub blocks_lost: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Inodes without a name that recovery removes.
    pub orphans: u64,
}
