//! Statistics of a [`Writer`].

use std::sync::Arc;

use super::Writer;
use super::buffers::HeadKind;

/// Monotonic counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) syncs: u64,
    pub(super) collected_lebs: u64,
    pub(super) collected_bytes: u64,
    pub(super) reclaimed_lebs: u64,
}

/// Statistics of a journal head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadStatistics {
    /// Name of the head in the format.
    pub name: &'static str,
    /// Bytes of nodes appended.
    pub bytes: u64,
    /// Bytes of padding added by syncs.
    pub padding_bytes: u64,
    /// Bytes currently buffered.
    pub buffered_bytes: u64,
}

/// Counters and state of a [`Writer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterStatistics {
    /// Number of commits.
    pub commits: u64,
    /// Number of fsyncs, each of which flushed the write buffers.
    pub syncs: u64,
    /// Number of LEBs garbage-collected.
    pub collected_lebs: u64,
    /// Bytes of nodes moved by garbage collection.
    pub collected_bytes: u64,
    /// Number of LEBs reclaimed without moving a node.
    pub reclaimed_lebs: u64,
    /// The journal heads.
    pub heads: Vec<HeadStatistics>,
    /// Bytes of nodes not known to be durable: the buffered ones, or, after a failed sync, all since the previous
    /// sync.
    pub unwritten_bytes: u64,
    /// Size of the journal, which a mount would have to replay, bytes.
    pub journal_bytes: u64,
    /// Journal size that triggers a commit.
    pub journal_bytes_max: u64,
    /// Size of the index as of the last commit, bytes.
    pub index_bytes: u64,
    /// Number of empty LEBs.
    pub empty_lebs: u32,
    /// LEBs reserved for the index.
    pub reserved_lebs: u32,
    /// Estimate of the space left for file data, bytes.
    pub free_bytes: u64,
    /// Number of orphans: unlinked files that are open.
    pub orphans: u64,
    /// LEBs excluded from garbage collection because nodes in them are unreadable.
    pub unreadable_lebs: u64,
    /// The error that stopped the writer.
    pub failure: Option<Arc<str>>,
}

impl WriterStatistics {
    /// Names of values that can fall, in the flat form of `tidegate stats`; all others only grow.
    pub const LEVELS: &[&str] = &[
        "heads_gc_buffered_bytes",
        "heads_base_buffered_bytes",
        "heads_data_buffered_bytes",
        "journal_bytes",
        "journal_bytes_max",
        "index_bytes",
        "empty_lebs",
        "reserved_lebs",
        "free_bytes",
        "orphans",
        "unreadable_lebs",
        "is_read_only",
    ];
}

impl Writer {
    /// Counters and current state.
    #[must_use]
    pub fn statistics(&self) -> WriterStatistics {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let head = |kind| {
            let counted = self.buffers.counted(kind);
            HeadStatistics {
                name: match kind {
                    HeadKind::Gc => "gc",
                    HeadKind::Base => "base",
                    HeadKind::Data => "data",
                },
                bytes: counted.bytes,
                padding_bytes: counted.padding_bytes,
                buffered_bytes: counted.buffered_bytes,
            }
        };
        WriterStatistics {
            commits: self.counts.commits,
            syncs: self.counts.syncs,
            collected_lebs: self.counts.collected_lebs,
            collected_bytes: self.counts.collected_bytes,
            reclaimed_lebs: self.counts.reclaimed_lebs,
            heads: HeadKind::ALL.map(head).to_vec(),
            unwritten_bytes: self.unwritten_bytes(),
            journal_bytes: self.log.journal_bytes(),
            journal_bytes_max: self.ubifs.superblock.journal_bytes_max,
            index_bytes: self.ubifs.master.index_bytes,
            empty_lebs: self.space.empty_count(),
            reserved_lebs: self.index_reserve(),
            free_bytes: self.free_bytes(),
            orphans: count(self.orphans.len()),
            unreadable_lebs: count(self.unreadable_lebs.len()),
            failure: self.failure(),
        }
    }
}
