//! Findings: damage on a medium, its place, and the inode that it concerns.

use std::fmt;
use std::sync::Arc;

use media::Leb;
use thiserror::Error;

use crate::decompress::DecompressError;
use crate::encryption::Locked;
use crate::format::{InodeNumber, NodeDefect};

/// A place of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The LEB.
    pub leb: u32,
    /// The byte in it.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
}

/// Subject of a finding: the node or area that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The master node.
    Master,
    /// The log: which LEBs the journal has.
    Log,
    /// A LEB of the journal.
    Journal,
    /// A node of the index. Everything below it is lost.
    Index,
    /// The table of free space (LPT).
    Space,
    /// A LEB with nodes of files.
    Data,
    /// Inodes that have lost their names.
    Orphans,
    /// An inode.
    Inode,
    /// A name in a directory.
    Entry,
    /// An extended attribute.
    Xattr,
    /// A block of 4096 bytes.
    Block(u32),
    /// All that a file holds: it is encrypted.
    Encrypted,
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master => formatter.write_str("master node"),
            Self::Log => formatter.write_str("log"),
            Self::Journal => formatter.write_str("journal"),
            Self::Index => formatter.write_str("index"),
            Self::Space => formatter.write_str("table of free space"),
            Self::Data => formatter.write_str("nodes of files"),
            Self::Orphans => formatter.write_str("orphans"),
            Self::Inode => formatter.write_str("attributes"),
            Self::Entry => formatter.write_str("directory entry"),
            Self::Xattr => formatter.write_str("extended attribute"),
            Self::Block(block) => write!(formatter, "bytes {} on", u64::from(*block) * 4096),
            Self::Encrypted => formatter.write_str("encrypted content"),
        }
    }
}

/// Why it can't be read.
#[derive(Clone, Debug, Error)]
pub enum Damage {
    /// There is no good node.
    #[error(transparent)]
    Node(#[from] NodeDefect),
    /// The node is good, and what it holds can't be unpacked.
    #[error(transparent)]
    Content(#[from] DecompressError),
    /// The volume can't be read.
    #[error("{0}")]
    Medium(Arc<str>),
    /// The place is outside of the volume.
    #[error("the place is outside of the volume's {lebs} LEBs of {leb_bytes} bytes")]
    Outside {
        /// LEBs of the volume.
        lebs: u32,
        /// Bytes of each.
        leb_bytes: u32,
    },
    /// A number that is not what the rest of the medium says.
    #[error("{what} is {found}, expected is {expected}")]
    Value {
        /// Which number.
        what: &'static str,
        /// What is there.
        found: u64,
        /// What follows from the rest.
        expected: u64,
    },
    /// Nodes contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// It is encrypted, and can't be opened.
    #[error(transparent)]
    Locked(#[from] Locked),
}

/// One thing that is wrong.
#[derive(Clone, Debug, Error)]
#[error("{}{subject}: {}, offset {}: {damage}", whose(.inode), Leb(place.leb), place.offset)]
pub struct Finding {
    /// Whom it concerns, so far as that is known.
    pub inode: Option<InodeNumber>,
    /// What is lost.
    pub subject: Subject,
    /// Where.
    pub place: Place,
    /// Why.
    #[source]
    pub damage: Damage,
}

fn whose(inode: &Option<InodeNumber>) -> String {
    inode.map(|inode| format!("{inode}: ")).unwrap_or_default()
}
