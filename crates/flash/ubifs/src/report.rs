//! Report of a replay, for people and programs: each LEB of the log, each LEB of the journal, each node on demand.

use crate::finding::Place;
use crate::format::{InodeNumber, Key, NodeKind};

/// Report of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Whether the file system was unmounted, so that nothing can be torn.
    pub was_clean: bool,
    /// LEBs of the log that were in use, in their order.
    pub log_lebs: Vec<u32>,
    /// All LEBs of the log that were looked at, the one at which it ends too.
    pub log: Vec<LogLeb>,
    /// The LEBs of the journal, in the order of the log.
    pub buds: Vec<BudReport>,
    /// Nodes that were applied.
    pub nodes: u64,
    /// The same nodes one by one, in their order, where [`crate::OpenOptions::lists_nodes`] asks for them.
    pub applied: Vec<AppliedNode>,
    /// Removed inodes, truncations and removed names among them.
    pub removals: u64,
    /// Files whose size follows from data that a power cut left without their inode, with that size.
    pub sizes: Vec<(InodeNumber, u64)>,
    /// Inodes without a name that were open, and are removed.
    pub orphans: Vec<InodeNumber>,
    /// The largest sequence number.
    pub sequence_max: u64,
}

/// A LEB of the log.
#[derive(Clone, Debug)]
pub struct LogLeb {
    /// The LEB.
    pub leb: u32,
    /// What its nodes are, in their order.
    pub nodes: Vec<LogNode>,
    /// What was made of it.
    pub verdict: LogVerdict,
}

/// Whether a LEB of the log counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// It belongs to the log.
    Taken,
    /// Nothing is in it: the log ends before it.
    Empty,
    /// It starts with an older sequence number than the log: it is left over, and the log ends before it.
    Older,
    /// It can't be read.
    Unreadable,
}

/// A node of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogNode {
    /// The byte in the LEB.
    pub offset: u32,
    /// Its sequence number.
    pub sequence: u64,
    /// What it says.
    pub what: LogEntry,
}

/// Content of a node of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// A commit starts.
    CommitStart {
        /// Its number.
        commit: u64,
    },
    /// A LEB of the journal.
    Reference {
        /// The bud's LEB.
        leb: u32,
        /// Where the bud starts in it.
        offset: u32,
        /// Journal head.
        head: u32,
        /// Whether the log named it before.
        is_repeated: bool,
    },
    /// A hash over the nodes before it.
    Authentication,
    /// It does not belong here, or is of an older log.
    Ignored(NodeKind),
}

/// A LEB of the journal.
#[derive(Clone, Debug)]
pub struct BudReport {
    /// The LEB.
    pub leb: u32,
    /// Where the bud starts in it.
    pub offset: u32,
    /// Journal head: 0 garbage collection, 1 base, 2 data.
    pub head: u32,
    /// Whether a power cut may have torn its end: the file system was not unmounted, and no later bud of its head holds anything.
    pub may_be_torn: bool,
    /// Nodes that count.
    pub nodes: usize,
    /// The smallest and the largest sequence number of them.
    pub sequences: Option<(u64, u64)>,
    /// Good nodes that don't: of an incomplete group, or of a torn write unit.
    pub dropped: usize,
    /// The same one by one.
    pub dropped_nodes: Vec<DroppedNode>,
    /// How it ends.
    pub end: BudEnd,
    /// By which rule the end is a torn write.
    pub rule: Option<TornRule>,
}

/// How a LEB of the journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudEnd {
    /// As it should.
    Clean,
    /// In a write that a power cut tore, at this offset.
    Torn(u32),
    /// Something was broken that no power cut explains, first at this offset.
    Damaged(u32),
}

/// Why what is broken is a torn write: what is erased behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornRule {
    /// All behind the write unit in which the broken bytes begin.
    BehindStart,
    /// All behind the write unit in which the header of the broken node ends.
    BehindHeader,
    /// All behind the write unit in which the broken node would end.
    BehindNode,
}

impl TornRule {
    /// As it is printed.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::BehindStart => "nothing is written behind the write unit in which it begins",
            Self::BehindHeader => "nothing is written behind the write unit in which its header ends",
            Self::BehindNode => "nothing is written behind the write unit in which it would end",
        }
    }
}

/// A good node that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedNode {
    /// The byte in the LEB.
    pub offset: u32,
    /// What it is.
    pub kind: NodeKind,
    /// Its sequence number.
    pub sequence: u64,
    /// Why it does not count.
    pub why: DropRule,
}

/// Why a good node does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// The last node of its group is missing.
    UnfinishedGroup,
    /// It is a copy by garbage collection in the write unit that may be torn, and the original is still there.
    CopyInLastUnit,
}

impl DropRule {
    /// As it is printed.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnfinishedGroup => "its group has no last node",
            Self::CopyInLastUnit => "a copy in the last write unit, the original is still there",
        }
    }
}

/// A node of the journal that was applied.
#[derive(Clone, Debug)]
pub struct AppliedNode {
    /// Its sequence number.
    pub sequence: u64,
    /// Where it is.
    pub place: Place,
    /// Its key; truncations have none, but an inode.
    pub key: Key,
    /// What it did.
    pub effect: Effect,
}

/// Effect of a node of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The inode is as the node says.
    Inode {
        /// Its size.
        bytes: u64,
    },
    /// The inode is removed with all that it has.
    InodeRemoved,
    /// The inode has no name, and a later node gives it one: nothing is removed.
    InodeKept,
    /// A block of the file.
    Block {
        /// Where it ends in the file.
        end: u64,
    },
    /// A name.
    Name(Vec<u8>),
    /// The name is removed.
    NameRemoved(Vec<u8>),
    /// The file is cut.
    Truncated {
        /// To so many bytes.
        bytes: u64,
    },
}
