//! Report of a journal replay: each LEB of the log, each bud, and each node on request.

use crate::finding::{Finding, Place};
use crate::format::{InodeNumber, Key, NodeKind};

/// Report of a journal replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// Whether the file system was unmounted cleanly, so that no write can be torn.
    pub was_clean: bool,
    /// LEBs of the log in use, in log order.
    pub log_lebs: Vec<u32>,
    /// All LEBs of the log that were read, including the one that ended it.
    pub log: Vec<LogLeb>,
    /// Buds, in log order.
    pub buds: Vec<BudReport>,
    /// Number of nodes applied.
    pub nodes: u64,
    /// The applied nodes in replay order, if [`crate::OpenOptions::lists_nodes`] is set.
    pub applied: Vec<AppliedNode>,
    /// Number of removals: deleted inodes, truncations and removed names.
    pub removals: u64,
    /// Files whose recovered size comes from data nodes, because a power cut lost the inode update; with that size.
    pub sizes: Vec<(InodeNumber, u64)>,
    /// Orphans: unlinked inodes that were open, deleted by the replay.
    pub orphans: Vec<InodeNumber>,
    /// Highest sequence number.
    pub sequence_max: u64,
    /// Ends of the log or of a bud that count as torn writes although damage explains them as well: nodes that were
    /// synced last may be missing.
    pub doubts: Vec<Finding>,
}

/// A LEB of the log.
#[derive(Clone, Debug)]
pub struct LogLeb {
    /// The LEB.
    pub leb: u32,
    /// Its nodes, in order.
    pub nodes: Vec<LogNode>,
    /// Whether it belongs to the log.
    pub verdict: LogVerdict,
}

/// Whether a LEB belongs to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogVerdict {
    /// Part of the log.
    Taken,
    /// Empty: the log ends before it.
    Empty,
    /// Stale: it starts with a lower sequence number than the log, which ends before it.
    Older,
    /// Unreadable.
    Unreadable,
}

/// A node of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogNode {
    /// Offset in the LEB.
    pub offset: u32,
    /// Its sequence number.
    pub sequence: u64,
    /// Content of the node.
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
    /// A bud, a LEB of the journal.
    Reference {
        /// The bud's LEB.
        leb: u32,
        /// Offset at which the bud starts.
        offset: u32,
        /// Journal head.
        head: u32,
        /// Whether an earlier reference named the same bud.
        is_repeated: bool,
    },
    /// A hash over the nodes before it.
    Authentication,
    /// A node of a kind that does not belong in the log, or of an older log.
    Ignored(NodeKind),
}

/// A bud, a LEB of the journal.
#[derive(Clone, Debug)]
pub struct BudReport {
    /// The LEB.
    pub leb: u32,
    /// Offset at which the bud starts.
    pub offset: u32,
    /// Journal head: 0 garbage collection, 1 base, 2 data.
    pub head: u32,
    /// Whether a power cut may have torn its end: no clean unmount, and all later buds of the same head are erased.
    pub may_be_torn: bool,
    /// Number of valid nodes that were replayed.
    pub nodes: usize,
    /// Lowest and highest sequence number of these nodes.
    pub sequences: Option<(u64, u64)>,
    /// Number of intact nodes dropped: from an incomplete group or a torn write unit.
    pub dropped: usize,
    /// The dropped nodes.
    pub dropped_nodes: Vec<DroppedNode>,
    /// How it ends.
    pub end: BudEnd,
    /// The rule that identified the end as a torn write.
    pub rule: Option<TornRule>,
}

/// How the content of a bud ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudEnd {
    /// Cleanly.
    Clean,
    /// In a torn write at this offset.
    Torn(u32),
    /// In damage that no power cut explains, first at this offset.
    Damaged(u32),
}

/// Why damage counts as a torn write: the area behind it that is erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornRule {
    /// Everything behind the write unit in which the damage begins.
    BehindStart,
    /// Everything behind the write unit in which the header of the damaged node ends.
    BehindHeader,
    /// Everything behind the write unit in which the damaged node would end.
    BehindNode,
}

impl TornRule {
    /// The wording used in reports.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::BehindStart => "nothing is written behind the write unit in which it begins",
            Self::BehindHeader => "nothing is written behind the write unit in which its header ends",
            Self::BehindNode => "nothing is written behind the write unit in which it would end",
        }
    }
}

/// An intact node that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedNode {
    /// Offset in the LEB.
    pub offset: u32,
    /// Node type.
    pub kind: NodeKind,
    /// Its sequence number.
    pub sequence: u64,
    /// Reason for dropping it.
    pub why: DropRule,
}

/// Reason for dropping an intact node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRule {
    /// The last node of its group is missing.
    UnfinishedGroup,
    /// A copy made by garbage collection in a write unit that may be torn; the original still exists.
    CopyInLastUnit,
}

impl DropRule {
    /// The wording used in reports.
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
    /// Location on the medium.
    pub place: Place,
    /// Its key; for a truncation, which has none, the key of the inode.
    pub key: Key,
    /// Effect on the file system.
    pub effect: Effect,
}

/// Effect of a journal node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The inode is replaced.
    Inode {
        /// Its size.
        bytes: u64,
    },
    /// The inode is deleted with its data and attributes.
    InodeRemoved,
    /// The inode has no links here, but a later node links it again: nothing is deleted.
    InodeKept,
    /// A data block is written.
    Block {
        /// End of the block in the file, bytes.
        end: u64,
    },
    /// A name is added or replaced.
    Name(Vec<u8>),
    /// A name is removed.
    NameRemoved(Vec<u8>),
    /// The file is truncated.
    Truncated {
        /// New size, bytes.
        bytes: u64,
    },
}
