//! Room for what is to be written, before any of it is: by collecting, and by commits. What is promised there holds.
//!
//! A reserve of LEBs stays empty for the index, which the next commit may have to write entirely. What makes files grow leaves
//! some more: removing something takes a little room before it gives any. Where the reserve can't be had, things are still removed, as
//! long as the next commit has room for what changed.

use super::buffers::HeadKind;
use super::commit::State;
use super::gc::Collected;
use super::held::OrphanChange;
use super::journal::{NewNode, group_bytes};
use super::{WriteError, Writer};
use crate::space::Watermarks;

/// The largest group of names: a rename of one link over another that is held, both of them as long as can be.
const LARGEST_GROUP: u32 = 10 << 10;

/// Changes that an operation brings at most.
const CHANGES_MAX: usize = 16;

/// Collections without one more empty LEB, after which there is no use in more of them.
const IN_VAIN_MAX: u32 = 16;

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// There will be less room afterwards.
    Growth,
    /// The same for who may use the reserve that the superblock keeps for him.
    GrowthIntoReserve,
    /// There will be more, some time.
    Removal,
}

impl Purpose {
    /// Empty LEBs that there have to be beyond the reserve of the index before another one is taken.
    const fn lebs(self) -> u32 {
        match self {
            Self::Growth | Self::GrowthIntoReserve => 3,
            Self::Removal => 1,
        }
    }
}

/// User on whose behalf changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceUser {
    /// Who leaves the reserve alone that the superblock names.
    Anybody,
    /// Root, and the reserve's owner.
    Privileged,
}

impl Writer {
    /// Whom the changes from here on are made for.
    pub const fn act_for(&mut self, user: SpaceUser) {
        self.user = user;
    }

    /// Whether a user of the system is one that the reserve is kept for.
    #[must_use]
    pub const fn space_user(&self, uid: u32, gid: u32) -> SpaceUser {
        let superblock = &self.ubifs.superblock;
        let is_of_group = superblock.reserve_group != 0 && superblock.reserve_group == gid;
        match uid == 0 || uid == superblock.reserve_user || is_of_group {
            true => SpaceUser::Privileged,
            false => SpaceUser::Anybody,
        }
    }

    /// What room is made for when files grow.
    pub(super) const fn growth(&self) -> Purpose {
        match self.user {
            SpaceUser::Anybody => Purpose::Growth,
            SpaceUser::Privileged => Purpose::GrowthIntoReserve,
        }
    }

    /// LEBs that stay empty for whom the reserve is kept.
    fn kept_lebs(&self, purpose: Purpose) -> u32 {
        let superblock = &self.ubifs.superblock;
        let kept = superblock.reserve_bytes.div_ceil(u64::from(superblock.leb_bytes));
        match purpose {
            Purpose::Growth => u32::try_from(kept).unwrap_or(u32::MAX),
            Purpose::GrowthIntoReserve | Purpose::Removal => 0,
        }
    }

    /// Writes a group, after making room for it.
    pub(super) fn operation(&mut self, nodes: &[NewNode]) -> Result<(), WriteError> {
        self.operation_for(nodes, self.growth(), OrphanChange::None)
    }

    /// The same for one that removes something, or takes a name.
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
        // All commits that it takes come before any of it is in memory.
        let result = self
            .make_room_for(HeadKind::Base, LARGEST_GROUP.max(bytes), purpose)
            .and_then(|()| self.reserve(HeadKind::Base, bytes))
            .and_then(|()| self.write_changing(nodes, orphan));
        self.guard(result)
    }

    /// A LEB for the head, unless the one that it has takes so many bytes; others for the head of a collection.
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

    /// Sees to it that LEBs are empty beyond what commits and collections need.
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
                // Nothing became dirty since nothing was found.
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
            // The second one frees what the first one moved.
            if commits == 2 {
                self.exhausted = Some((purpose, self.space.dirtied()));
                return Err(self.no_space());
            }
            commits += 1;
            self.commit_to(State::Mounted)?;
        }
    }

    /// Whether enough LEBs are empty for what is to be done.
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

    /// Bytes that files can still have, about: what is free or dirty where that can be had, without the reserves and what is too
    /// small for nodes.
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
        // Each block has a header.
        space / 4144 * 4096
    }
}
