//! Budgeting: makes space before an operation writes, by garbage collection and commits. An operation that passed its
//! budget does not run out of space.
//!
//! A reserve of LEBs stays empty for the index, which the next commit may have to rewrite entirely. Operations that
//! grow files leave a few more, because a deletion needs a little space before it frees any. If the reserve is not
//! available, deletions still proceed as long as the next commit is guaranteed to fit the changes.

use super::buffers::HeadKind;
use super::commit::State;
use super::gc::Collected;
use super::held::OrphanChange;
use super::journal::{NewNode, group_bytes};
use super::{WriteError, Writer};
use crate::space::Watermarks;

/// Size of the largest group of names: a rename over another link that is pinned, both names of maximum length.
const LARGEST_GROUP: u32 = 10 << 10;

/// Maximum number of index changes per operation.
const CHANGES_MAX: usize = 16;

/// Collections without a gain in empty LEBs after which collecting stops.
const IN_VAIN_MAX: u32 = 16;

/// Purpose of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Growth: less space afterwards.
    Growth,
    /// Growth by a user allowed to use the reserved pool.
    GrowthIntoReserve,
    /// Deletion: frees space eventually.
    Removal,
}

impl Purpose {
    /// Empty LEBs required beyond the index reserve before another LEB is taken.
    const fn lebs(self) -> u32 {
        match self {
            Self::Growth | Self::GrowthIntoReserve => 3,
            Self::Removal => 1,
        }
    }
}

/// User class on whose behalf changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceUser {
    /// A user without access to the reserved pool.
    Anybody,
    /// Root, and the user or group that the reserved pool belongs to.
    Privileged,
}

impl Writer {
    /// Sets the user class of later changes.
    pub const fn act_for(&mut self, user: SpaceUser) {
        self.user = user;
    }

    /// Whether a user has access to the reserved pool.
    #[must_use]
    pub const fn space_user(&self, uid: u32, gid: u32) -> SpaceUser {
        let superblock = &self.ubifs.superblock;
        let is_of_group = superblock.reserve_group != 0 && superblock.reserve_group == gid;
        match uid == 0 || uid == superblock.reserve_user || is_of_group {
            true => SpaceUser::Privileged,
            false => SpaceUser::Anybody,
        }
    }

    /// Budget purpose of operations that grow files.
    pub(super) const fn growth(&self) -> Purpose {
        match self.user {
            SpaceUser::Anybody => Purpose::Growth,
            SpaceUser::Privileged => Purpose::GrowthIntoReserve,
        }
    }

    /// Empty LEBs withheld from the purpose: the reserved pool.
    fn kept_lebs(&self, purpose: Purpose) -> u32 {
        let superblock = &self.ubifs.superblock;
        let kept = superblock.reserve_bytes.div_ceil(u64::from(superblock.leb_bytes));
        match purpose {
            Purpose::Growth => u32::try_from(kept).unwrap_or(u32::MAX),
            Purpose::GrowthIntoReserve | Purpose::Removal => 0,
        }
    }

    /// Budgets for a group and writes it.
    pub(super) fn operation(&mut self, nodes: &[NewNode]) -> Result<(), WriteError> {
        self.operation_for(nodes, self.growth(), OrphanChange::None)
    }

    /// Like [`Self::operation`], for a deletion or unlink.
    pub(super) fn removal_operation(
        &mut self,
        nodes: &[NewNode],
        orphan: OrphanChange,
    ) -> Result<(), WriteError> {
        self.operation_for(nodes, Purpose::Removal, orphan)
    }

    pub(super) fn operation_for(
        &mut self,
        nodes: &[NewNode],
        purpose: Purpose,
        orphan: OrphanChange,
    ) -> Result<(), WriteError> {
        self.check_usable()?;
        let bytes = group_bytes(nodes);
        // Commits needed for space come first, before the operation changes memory.
        let result = self
            .make_room_for(HeadKind::Base, LARGEST_GROUP.max(bytes), purpose)
            .and_then(|()| self.reserve(HeadKind::Base, bytes))
            .and_then(|()| self.write_changing(nodes, orphan));
        self.guard(result)
    }

    /// Ensures that the head's LEB has room for `bytes`, or that there are empty LEBs for a new one and for a collection.
    pub(super) fn make_room_for(
        &mut self,
        head: HeadKind,
        bytes: u32,
        purpose: Purpose,
    ) -> Result<(), WriteError> {
        let is_promised = match self.changes_max {
            None => true,
            Some(most) => purpose == Purpose::Removal && self.ubifs.journal.changes() < most,
        };
        match is_promised && self.has_room(head, bytes) {
            true => Ok(()),
            false => self.make_room(purpose),
        }
    }

    /// Collects and commits until enough LEBs are empty beyond the needs of commits and collections.
    fn make_room(&mut self, purpose: Purpose) -> Result<(), WriteError> {
        let (mut commits, mut most_empty, mut most_at_commit, mut in_vain) = (0, 0, 0, 0);
        loop {
            if self.has_reserve(purpose)? {
                return Ok(());
            }
            let empty = self.space.empty_count();
            match empty > most_empty {
                true => (most_empty, in_vain) = (empty, 0),
                false => in_vain += 1,
            }
            if self.exhausted == Some((purpose, self.space.dirtied())) {
                // Nothing has become dirty since the last search failed.
                return Err(self.no_space());
            }
            let may_help = in_vain < IN_VAIN_MAX;
            if may_help
                && (self.reclaim()? == Collected::Something || self.collect()? == Collected::Something)
            {
                continue;
            }
            in_vain = 0;
            if self.space.empty_count() > most_at_commit {
                (most_at_commit, commits) = (self.space.empty_count(), 0);
            }
            // The second commit frees the LEBs that the first one emptied.
            if commits == 2 {
                self.exhausted = Some((purpose, self.space.dirtied()));
                return Err(self.no_space());
            }
            commits += 1;
            self.commit_to(State::Mounted)?;
        }
    }

    /// Whether enough LEBs are empty for the purpose.
    fn has_reserve(&mut self, purpose: Purpose) -> Result<bool, WriteError> {
        let empty = self.space.empty_count();
        let beyond = purpose.lebs().saturating_add(self.kept_lebs(purpose));
        if empty >= beyond.saturating_add(self.index_reserve()) {
            self.changes_max = None;
            return Ok(true);
        }
        let left = empty.checked_sub(beyond).filter(|_| purpose == Purpose::Removal);
        let Some(left) = left else { return Ok(false) };
        let is_enough = self.commit_fits(2 * CHANGES_MAX, left)?;
        if is_enough {
            let most = self.changes_in(left)?;
            self.changes_max = Some(most.saturating_sub(CHANGES_MAX));
        }
        Ok(is_enough)
    }

    /// Estimate of the space left for file data: free and reclaimable dirty bytes, without the reserves and without
    /// space too small for nodes.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let superblock = &self.ubifs.superblock;
        let files: Vec<_> = self
            .space
            .iter()
            .filter(|(leb, space)| {
                !space.index && !self.unreadable_lebs.contains_key(leb) && self.is_worth_collecting(*space)
            })
            .map(|(_, space)| space)
            .collect();
        let sums = Watermarks::new(superblock.leb_bytes, superblock.min_io_bytes).sum(&files);
        let reserve =
            u64::from(self.index_reserve() + Purpose::Growth.lebs()) * u64::from(superblock.leb_bytes);
        let space = (sums.free + sums.dirty).saturating_sub(sums.dead + sums.dark + reserve);
        // 48 bytes of header per block.
        space / 4144 * 4096
    }
}
