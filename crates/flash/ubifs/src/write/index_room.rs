//! Room for the index of the next commit: how much that may need, what is moved out of LEBs of little use, and that it fits.
//!
//! Normally as many LEBs stay empty as the whole index takes. Where an index is sparse, as after many small changes, there may be
//! fewer: then only as much is changed as the next commit has room for in any case, gaps between index nodes included, and nothing
//! grows.

use super::index_gaps::Gaps;
use super::merge::Edits;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Place, Subject};
use crate::format::{IndexNode, Key};
use crate::scan::{Found, scan, to_usize};

/// So many LEBs are left in one commit at most: their nodes are read and written again.
const LEFT_LEBS_MAX: usize = 16;
/// So many LEBs are left at least where any are.
const LEFT_LEBS_MIN: usize = 2;
/// So many empty LEBs beyond the reserve are enough.
const SPARE_LEBS: u32 = 5;
/// LEBs that are empty after a commit, for the next one, where others were left: these are empty then, too.
const LATER_LEBS: u32 = 2;
/// Bytes that the index grows by with a change: a branch, and its share of nodes that become two.
const GROWTH_BYTES: u64 = 40;

impl Writer {
    /// Bytes of the largest index node.
    fn index_node_bytes(&self) -> u64 {
        let branches = to_usize(self.ubifs.superblock.fanout) * IndexNode::BRANCH_BYTES;
        u64::try_from(IndexNode::BYTES + branches).unwrap_or(u64::MAX)
    }

    /// Bytes of index nodes that a LEB takes from an offset on, whatever their lengths: a node that does not fit ends it.
    fn index_bytes_from(&self, offset: u32) -> u64 {
        let left = self.ubifs.superblock.leb_bytes.saturating_sub(offset);
        u64::from(left).saturating_sub(self.index_node_bytes())
    }

    /// Bytes of index nodes that the LEB of the head still takes.
    fn head_bytes(&self) -> u64 {
        self.index_head
            .map_or(0, |(_, offset)| self.index_bytes_from(offset))
    }

    /// LEBs that so many bytes of index nodes fill.
    fn index_lebs(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.index_bytes_from(0).max(1))).unwrap_or(u32::MAX)
    }

    /// Bytes of all of the index and what it grows by.
    fn all_index_bytes(&self) -> u64 {
        let growth = u64::try_from(self.ubifs.journal.len()).unwrap_or(u64::MAX) * GROWTH_BYTES;
        self.ubifs.master.index_bytes + growth + 4 * self.index_node_bytes()
    }

    /// Empty LEBs that any commit may need for all of the index and what it grows by, wherever the head is by then.
    pub(super) fn index_reserve(&self) -> u32 {
        self.index_lebs(self.all_index_bytes()).saturating_add(1)
    }

    /// Bytes that a change brings to the index at most: a range that goes has two ends, a node that gets more may become two, on
    /// each level.
    fn change_bytes(&self) -> Result<u64, WriteError> {
        let root = self.ubifs.index.node(self.ubifs.index.root());
        let levels = u64::from(root.map_err(|finding| self.unreadable(finding))?.level) + 2;
        Ok(2 * levels * self.index_node_bytes())
    }

    /// Whether so many empty LEBs are enough for the next commit when it has so many more changes.
    pub(super) fn commit_fits(&self, more: usize, lebs: u32) -> Result<bool, WriteError> {
        let changes = u64::try_from(self.ubifs.journal.changes() + more).unwrap_or(u64::MAX);
        let bytes = self.change_bytes()?.saturating_mul(changes);
        let beside_head = bytes
            .min(self.all_index_bytes())
            .saturating_sub(self.head_bytes());
        if self.index_lebs(beside_head) <= lebs {
            return Ok(true);
        }
        // Only where it matters: it takes a walk of the index.
        let in_gaps = self.gap_bytes(self.index_node_bytes())?;
        Ok(self.index_lebs(beside_head.saturating_sub(in_gaps)) <= lebs)
    }

    /// How many changes a commit has room for in any case in so many LEBs.
    pub(super) fn changes_in(&self, lebs: u32) -> Result<usize, WriteError> {
        let lebs = u64::from(lebs.saturating_sub(1)) * self.index_bytes_from(0);
        let room = self.head_bytes() + lebs + self.gap_bytes(self.index_node_bytes())?;
        let changes = room / self.change_bytes()?;
        Ok(usize::try_from(changes).unwrap_or(usize::MAX))
    }

    /// Adds to the changes of the next commit what is to move, as much as there is room for.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`] where there is none for the changes alone; nothing is written then.
    pub(super) fn with_moves(&self, mut edits: Edits) -> Result<Edits, WriteError> {
        let empty = self.space.empty_count();
        let mut lebs = self.lebs_to_leave();
        let mut gaps = None;
        loop {
            edits.moves = self.nodes_of(&lebs)?;
            if self.index_reserve().saturating_add(LATER_LEBS) <= empty {
                return Ok(edits);
            }
            let needed = self.lebs_for(&edits)?;
            let left = u32::try_from(lebs.len()).unwrap_or(u32::MAX);
            let is_worth_it = lebs.is_empty() || empty.saturating_sub(needed) + left >= LATER_LEBS;
            if needed <= empty && is_worth_it {
                return Ok(edits);
            }
            let all_gaps = match gaps.take() {
                Some(gaps) => gaps,
                None => self.gaps()?,
            };
            edits.gaps = gaps.insert(all_gaps).without(&lebs);
            if self.lebs_beside_gaps(&edits, empty)?.is_some() {
                return Ok(edits);
            }
            edits.gaps = Gaps::default();
            if lebs.is_empty() {
                return Err(self.no_space());
            }
            lebs.truncate(lebs.len() / 2);
        }
    }

    /// LEBs of the index that are mostly dirty, when empty LEBs are few: as many as give those that lack, about.
    fn lebs_to_leave(&self) -> Vec<u32> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let wanted = self.index_reserve().saturating_add(SPARE_LEBS);
        let lacking = u64::from(wanted.saturating_sub(self.space.empty_count()));
        if lacking == 0 {
            return Vec::new();
        }
        let mut worst: Vec<_> = self
            .space
            .iter()
            .filter(|(leb, space)| space.index && !self.space.is_taken(*leb))
            .map(|(leb, space)| (leb, space.free + space.dirty))
            .filter(|(_, gain)| *gain >= leb_bytes / 4)
            .collect();
        worst.sort_by_key(|(_, gain)| std::cmp::Reverse(*gain));
        let (mut gained, mut lebs) = (0, Vec::new());
        for (leb, gain) in worst.into_iter().take(LEFT_LEBS_MAX) {
            if lebs.len() >= LEFT_LEBS_MIN && gained >= lacking * u64::from(leb_bytes) {
                break;
            }
            gained += u64::from(gain);
            lebs.push(leb);
        }
        lebs
    }

    /// The index nodes in LEBs, each with its first key.
    fn nodes_of(&self, lebs: &[u32]) -> Result<Vec<(Key, Place)>, WriteError> {
        let mut nodes = Vec::new();
        for leb in lebs.iter().copied() {
            let raw = fetch::leb(&*self.ubifs.volume, leb)
                .map_err(|damage| self.unreadable_leb(Subject::Index, leb, damage))?;
            for Found { offset, header } in scan(&raw, 0).nodes {
                let place = Place {
                    leb,
                    offset: u32::try_from(offset).expect("less than a LEB"),
                    bytes: header.bytes,
                };
                let node = IndexNode::decode(&raw[offset..offset + to_usize(header.bytes)]);
                if let Some(first) = node
                    .ok()
                    .and_then(|node| node.branches.first().map(|branch| branch.key))
                {
                    nodes.push((first, place));
                }
            }
        }
        Ok(nodes)
    }
}
