//! Guesses: decisions that the medium does not prove, one line each.

use std::fmt;

use media::Leb;

use crate::finding::Place;
use crate::format::InodeNumber;

/// Guesses that are kept; further ones are counted.
const GUESSES_MAX: usize = 1 << 16;

/// A decision that the medium does not prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The file concerned.
    pub inode: Option<InodeNumber>,
    /// The decision and its reason.
    pub decision: Decision,
    /// Location of the node that it is based on, or of the one that is missing.
    pub place: Option<Place>,
}

/// A decision and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is no superblock.
    Superblock,
    /// There is no master node.
    Master,
    /// The LEBs are in another order than the index says.
    Renumbered,
    /// Keys of a part of the index that is lost.
    NewestNodes {
        /// First inode in that part.
        first: InodeNumber,
        /// Last inode in that part.
        last: InodeNumber,
        /// Inodes, blocks and names that were decided in this way.
        nodes: u64,
    },
    /// The start of the last commit in the log is lost.
    Boundary,
    /// The log leads to a LEB of the journal in which no node is left.
    EmptyBud,
    /// The inode is lost; an older node of it gives owner, mode and times.
    OlderAttributes,
    /// The inode is lost, and nothing gives owner, mode and times.
    NoAttributes,
    /// The node to which the index leads is lost, and the log: another one of the same length is taken for its copy.
    Moved,
    /// The index of the value of an extended attribute is lost.
    NewestValue,
    /// The data reaches beyond the size in the inode.
    Size {
        /// Size in the inode.
        stored: u64,
        /// End of the data.
        found: u64,
    },
    /// No name leads to it.
    Nameless,
    /// It has more names than its inode says; this older one is left out.
    ExtraName {
        /// Directory of the name.
        directory: InodeNumber,
    },
    /// A directory is below itself; the name that leads to it is left out.
    Cycle,
    /// The names found need more bytes than the directory's inode says: removed ones may be among them.
    RemovedNames {
        /// Bytes by the inode.
        stored: u64,
        /// Bytes of the names found.
        found: u64,
    },
    /// The last nodes of a LEB belong to an operation whose end is missing; they are left out.
    Unfinished,
    /// Numbers of the sequence are missing after the last commit.
    MissingNodes {
        /// Their number.
        nodes: u64,
    },
    /// A block with this number was in the file before, and is not found.
    OlderBlock {
        /// Number of the block.
        block: u32,
    },
}

impl fmt::Display for Decision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => formatter.write_str("there is no superblock: usual parameters are taken"),
            Self::Master => formatter.write_str("there is no master node: the newest index nodes are taken"),
            Self::Renumbered => formatter.write_str(
                "the LEBs are in another order than the index says: its nodes decide by their offsets",
            ),
            Self::NewestNodes { first, last, nodes } => write!(
                formatter,
                "the index of inodes {} to {} is lost: {nodes} nodes are taken by their sequence numbers",
                first.0, last.0
            ),
            Self::Boundary => formatter.write_str(
                "the log has no start of the last commit: the newest node of the index is taken as its end, and files written \
                 later may be as before",
            ),
            Self::EmptyBud => formatter.write_str(
                "the log leads to this part of the journal, in which nothing is left, cut off or lost: files may be as before",
            ),
            Self::OlderAttributes => {
                formatter.write_str("its attributes are lost: those of an older node are taken")
            }
            Self::NoAttributes => formatter.write_str("its attributes are lost: usual ones are taken"),
            Self::Moved => formatter.write_str(
                "the node to which the index leads is lost: another one is taken for its copy, as the log is lost, too",
            ),
            Self::NewestValue => formatter.write_str(
                "the index of the value of an extended attribute is lost: the newest one is taken",
            ),
            Self::Size { stored, found } => write!(
                formatter,
                "its size is {stored} bytes by the inode, its data ends at {found}, which is taken"
            ),
            Self::Nameless => formatter.write_str("no name leads to it: it is in the folder for found files"),
            Self::ExtraName { directory } => write!(
                formatter,
                "it has more names than its inode says: an older one in {directory} is left out"
            ),
            Self::Cycle => {
                formatter.write_str("the directory is below itself: the name that leads to it is left out")
            }
            Self::RemovedNames { stored, found } => write!(
                formatter,
                "its names have {stored} bytes by the inode, {found} are found: removed ones may be among them"
            ),
            Self::Unfinished => {
                formatter.write_str("the end of an operation is missing: the nodes before it are left out")
            }
            Self::MissingNodes { nodes } => write!(
                formatter,
                "{nodes} nodes written after the last commit are not here, cut off or lost: files may be as before"
            ),
            Self::OlderBlock { block } => write!(
                formatter,
                "an older index node says that there was data from byte {} on, which is lost or was removed",
                u64::from(*block) * 4096
            ),
        }
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(inode) = self.inode {
            write!(formatter, "{inode}: ")?;
        }
        self.decision.fmt(formatter)?;
        match self.place {
            Some(place) => write!(formatter, ": {}, offset {}", Leb(place.leb), place.offset),
            None => Ok(()),
        }
    }
}

/// Collects guesses up to a limit.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    pub(super) list: Vec<Guess>,
    pub(super) further: u64,
}

impl Guesses {
    pub(super) fn add(&mut self, inode: Option<InodeNumber>, decision: Decision, place: Option<Place>) {
        match self.list.len() < GUESSES_MAX {
            true => self.list.push(Guess {
                inode,
                decision,
                place,
            }),
            false => self.further += 1,
        }
    }
}
