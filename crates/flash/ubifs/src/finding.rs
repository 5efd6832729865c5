//! Findings: damage on a medium, with its location and the inode concerned.

use std::fmt;
use std::sync::Arc;

use media::Leb;
use thiserror::Error;

use crate::decompress::DecompressError;
use crate::encryption::Locked;
use crate::format::{InodeNumber, NodeDefect};

/// A location in a volume (node reference).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// LEB number.
    pub leb: u32,
    /// Offset in the LEB.
    pub offset: u32,
    /// Length, bytes.
    pub bytes: u32,
}

/// Subject of a finding: the node or area that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The master node.
    Master,
    /// The log.
    Log,
    /// A LEB of the journal.
    Journal,
    /// An index node. Everything below it is lost.
    Index,
    /// The LPT.
    Space,
    /// A LEB with leaf nodes.
    Data,
    /// The orphan area.
    Orphans,
    /// An inode.
    Inode,
    /// A directory entry.
    Entry,
    /// An extended attribute.
    Xattr,
    /// A block of 4096 bytes.
    Block(u32),
    /// The whole content of an encrypted file.
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

/// Why something is unreadable.
#[derive(Clone, Debug, Error)]
pub enum Damage {
    /// No valid node.
    #[error(transparent)]
    Node(#[from] NodeDefect),
    /// The node is valid, but its content can't be decompressed.
    #[error(transparent)]
    Content(#[from] DecompressError),
    /// The volume can't be read.
    #[error("{0}")]
    Medium(Arc<str>),
    /// The location is outside of the volume.
    #[error("the place is outside of the volume's {lebs} LEBs of {leb_bytes} bytes")]
    Outside {
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
        /// Value found.
        found: u64,
        /// Value that follows from the rest of the medium.
        expected: u64,
    },
    /// Nodes contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The end of a journal head or of the log is unreadable, through damage or a power cut.
    #[error(
        "taken for a write that a power cut tore, but it may be damage, and what was synced last be lost: {0}"
    )]
    Doubtful(Arc<str>),
    /// A block of a file lies behind its end, in whole or in part.
    #[error("the file goes on behind its end, which its size of {size_bytes} bytes says: content is cut off")]
    BeyondSize {
        /// Size of the file by its inode.
        size_bytes: u64,
    },
    /// Encrypted, and no key opens it.
    #[error(transparent)]
    Locked(#[from] Locked),
}

/// A damaged node or area.
#[derive(Clone, Debug, Error)]
#[error("{}{subject}: {}, offset {}: {damage}", whose(.inode), Leb(place.leb), place.offset)]
pub struct Finding {
    /// Inode concerned, if known.
    pub inode: Option<InodeNumber>,
    /// Node or area lost.
    pub subject: Subject,
    /// Location.
    pub place: Place,
    /// Reason.
    #[source]
    pub damage: Damage,
}

fn whose(inode: &Option<InodeNumber>) -> String {
    inode.map(|inode| format!("{inode}: ")).unwrap_or_default()
}
