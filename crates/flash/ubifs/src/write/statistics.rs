//! Statistics of a [`Writer`].

use std::sync::Arc;

use super::Writer;
use super::buffers::HeadKind;

/// Counters that only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) commits: u64,
    pub(super) syncs: u64,
    pub(super) collected_lebs: u64,
    pub(super) collected_bytes: u64,
    pub(super) reclaimed_lebs: u64,
}

/// A journal head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadStatistics {
    /// Its name in the format.
    pub name: &'static str,
    /// Bytes of nodes that were appended.
    pub bytes: u64,
    /// Bytes of padding that syncs added.
    pub padding_bytes: u64,
    /// Bytes that are buffered.
    pub buffered_bytes: u64,
}

/// Counters and state of a [`Writer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriterStatistics {
    /// Commits.
    pub commits: u64,
    /// Times that the write buffers were written for an fsync.
    pub syncs: u64,
    /// LEBs that were collected.
    pub collected_lebs: u64,
    /// Bytes of nodes that collections moved.
    pub collected_bytes: u64,
    /// LEBs that became empty by themselves.
    pub reclaimed_lebs: u64,
    /// The journal heads.
    pub heads: Vec<HeadStatistics>,
    /// Bytes of nodes that are not on the medium as far as is known: those that are buffered, and after a sync that failed all since the one
    /// before.
    pub unwritten_bytes: u64,
    /// Bytes of the journal: a mount would have to replay them.
    pub journal_bytes: u64,
    /// More of them make a commit necessary.
    pub journal_bytes_max: u64,
    /// Bytes of the index as of the last commit.
    pub index_bytes: u64,
    /// LEBs that are empty.
    pub empty_lebs: u32,
    /// LEBs that are kept for the index.
    pub reserved_lebs: u32,
    /// What files can have, about.
    pub free_bytes: u64,
    /// Files that are open without a name.
    pub orphans: u64,
    /// LEBs that are not collected, as not all that is in use in them can be read.
    pub unreadable_lebs: u64,
    /// The error since which nothing is written any more.
    pub failure: Option<Arc<str>>,
}

impl Writer {
    /// What it did so far and how it is.
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
