//! Budget for the index nodes of the next commit: estimates the need, picks sparse index LEBs to empty, checks that
//! the commit fits.
//!
//! Normally enough LEBs stay empty to rewrite the whole index. A sparse index, as after many small changes, may leave
//! fewer: then changes are limited to those that the next commit is guaranteed to fit, including the gaps between
//! index nodes, and growth is refused.

use super::index_gaps::Gaps;
use super::merge::Edits;
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Place, Subject};
use crate::format::{IndexNode, Key};
use crate::scan::{Found, scan, to_usize};

/// Maximum number of index LEBs emptied by one commit; each of their nodes is read and rewritten.
const LEFT_LEBS_MAX: usize = 16;
/// Minimum number of index LEBs emptied, if any.
const LEFT_LEBS_MIN: usize = 2;
/// Empty LEBs beyond the reserve at which no index LEB needs to be emptied.
const SPARE_LEBS: u32 = 5;
/// Empty LEBs to keep for the next commit after index LEBs were emptied; those become empty as well.
const LATER_LEBS: u32 = 2;
/// Growth of the index per change: one branch, and its share of node splits.
const GROWTH_BYTES: u64 = 40;

impl Writer {
    /// Size of the largest index node.
    fn index_node_bytes(&self) -> u64 {
        let branches = to_usize(self.ubifs.superblock.fanout) * IndexNode::BRANCH_BYTES;
        u64::try_from(IndexNode::BYTES + branches).unwrap_or(u64::MAX)
    }

    /// Bytes of index nodes that fit behind `offset` whatever their lengths: a node that does not fit ends the LEB.
    fn index_bytes_from(&self, offset: u32) -> u64 {
        let left = self.ubifs.superblock.leb_bytes.saturating_sub(offset);
        u64::from(left).saturating_sub(self.index_node_bytes())
    }

    /// Bytes of index nodes that fit in the LEB of the index head.
    fn head_bytes(&self) -> u64 {
        self.index_head
            .map_or(0, |(_, offset)| self.index_bytes_from(offset))
    }

    /// LEBs needed for `bytes` of index nodes.
    fn index_lebs(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(self.index_bytes_from(0).max(1))).unwrap_or(u32::MAX)
    }

    /// Size of the whole index and its growth by the next commit.
    fn all_index_bytes(&self) -> u64 {
        let growth = u64::try_from(self.ubifs.journal.len()).unwrap_or(u64::MAX) * GROWTH_BYTES;
        self.ubifs.master.index_bytes + growth + 4 * self.index_node_bytes()
    }

    /// Empty LEBs that a commit may need to rewrite the whole index, including its growth, wherever the index head
    /// is.
    pub(super) fn index_reserve(&self) -> u32 {
        self.index_lebs(self.all_index_bytes()).saturating_add(1)
    }

    /// Upper bound of index bytes written per change: on each level, a deleted range has two ends, and a node that
    /// grows may split.
    fn change_bytes(&self) -> Result<u64, WriteError> {
        let root = self.ubifs.index.node(self.ubifs.index.root());
        let levels = u64::from(root.map_err(|finding| self.unreadable(finding))?.level) + 2;
        Ok(2 * levels * self.index_node_bytes())
    }

    /// Whether `lebs` empty LEBs are enough for the next commit after `more` further changes.
    pub(super) fn commit_fits(&self, more: usize, lebs: u32) -> Result<bool, WriteError> {
        let changes = u64::try_from(self.ubifs.journal.changes() + more).unwrap_or(u64::MAX);
        let bytes = self.change_bytes()?.saturating_mul(changes);
        let beside_head = bytes
            .min(self.all_index_bytes())
            .saturating_sub(self.head_bytes());
        if self.index_lebs(beside_head) <= lebs {
            return Ok(true);
        }
        // Only if needed: this walks the index.
        let in_gaps = self.gap_bytes(self.index_node_bytes())?;
        Ok(self.index_lebs(beside_head.saturating_sub(in_gaps)) <= lebs)
    }

    /// Number of changes that a commit is guaranteed to fit into `lebs` LEBs.
    pub(super) fn changes_in(&self, lebs: u32) -> Result<usize, WriteError> {
        let lebs = u64::from(lebs.saturating_sub(1)) * self.index_bytes_from(0);
        let room = self.head_bytes() + lebs + self.gap_bytes(self.index_node_bytes())?;
        let changes = room / self.change_bytes()?;
        Ok(usize::try_from(changes).unwrap_or(usize::MAX))
    }

    /// Adds to `edits` the index nodes to move out of sparse LEBs, as many as there is space for.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`] if not even the changes fit; nothing is written then.
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

    /// Sparse index LEBs to empty if empty LEBs are scarce: about as many as it takes to make up for the shortage.
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

    /// The index nodes in `lebs`, each with its first key.
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
