//! Pinned inodes: an inode that a mount still uses outlives its last link until it is unpinned. Meanwhile it is an
//! orphan, which a commit lists so that a mount after a power cut deletes it.
//!
//! Lock order: the table of pins has its own lock, which is a leaf: no other lock is taken while it is held.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::journal::NewNode;
use super::{WriteError, Writer};
use crate::format::{InodeNumber, Orphans};
use crate::scan::to_usize;

/// Pin count of each inode.
#[derive(Default)]
pub(super) struct Holds(Mutex<HashMap<u32, u64>>);

impl Holds {
    fn counts(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, inode: InodeNumber) -> bool {
        self.counts().contains_key(&inode.0)
    }

    fn add(&self, inode: InodeNumber) {
        *self.counts().entry(inode.0).or_default() += 1;
    }

    /// Returns whether the last pin is gone.
    fn remove(&self, inode: InodeNumber, times: u64) -> bool {
        let mut counts = self.counts();
        let Some(count) = counts.get_mut(&inode.0) else {
            return false;
        };
        *count = count.saturating_sub(times);
        let is_gone = *count == 0;
        if is_gone {
            counts.remove(&inode.0);
        }
        is_gone
    }

    pub(super) fn clear(&self) {
        self.counts().clear();
    }
}

/// State of an orphan on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orphan {
    /// The last node of the inode in the journal of this commit says that it has no links: a replay deletes it.
    RemovedIn(u64),
    /// A later node was written, or a commit was made.
    Alive,
}

/// Change of the orphan list that belongs to a group of nodes. It takes effect with the nodes: a commit that makes
/// space for them still lists the previous orphans, because after a power cut nothing else would cause the inode to
/// be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrphanChange {
    None,
    /// The inode loses its last link and stays as an orphan.
    Begins(InodeNumber),
    /// The inode is linked again, or deleted.
    Ends(InodeNumber),
}

impl Writer {
    /// Pins an inode: it outlives its last link until it is unpinned the same number of times.
    pub fn hold(&self, inode: InodeNumber) {
        self.holds.add(inode);
    }

    /// Unpins an inode. Returns `true` if it has no link and no pin left; the caller has to delete it with
    /// [`Writer::bury`].
    pub fn let_go(&self, inode: InodeNumber, times: u64) -> bool {
        self.holds.remove(inode, times) && self.orphans.contains_key(&inode.0)
    }

    /// Deletes an orphan unless it is pinned.
    pub fn bury(&mut self, inode: InodeNumber) -> Result<(), WriteError> {
        if self.holds.has(inode) {
            return Ok(());
        }
        match self.orphans.get(&inode.0) {
            None => Ok(()),
            Some(Orphan::RemovedIn(commit)) if *commit == self.ubifs.master.commit => {
                self.check_usable()?;
                let removal = self.removal_of(inode)?;
                self.orphans.remove(&inode.0);
                self.forget(removal);
                Ok(())
            }
            Some(_) => {
                let mut file = self.ubifs.inode(inode)?;
                file.data = Vec::new();
                self.removal_operation(&[NewNode::Inode(file)], OrphanChange::Ends(inode))
            }
        }
    }

    /// Deletes all orphans.
    pub(super) fn bury_all(&mut self) -> Result<(), WriteError> {
        self.holds.clear();
        let orphans: Vec<u32> = self.orphans.keys().copied().collect();
        for inode in orphans {
            match self.bury(InodeNumber(inode)) {
                // Left to the next mount.
                Err(WriteError::NoSpace { .. } | WriteError::Read(_)) => {}
                other => other?,
            }
        }
        Ok(())
    }

    pub(super) fn is_held(&self, inode: InodeNumber) -> bool {
        self.holds.has(inode)
    }

    /// The orphan change for an inode that loses its last link; fails if the orphan area is full.
    pub(super) fn new_orphan(&self, inode: InodeNumber) -> Result<OrphanChange, WriteError> {
        match self.orphans.len() < self.orphans_max() {
            true => Ok(OrphanChange::Begins(inode)),
            false => Err(WriteError::Orphans {
                volume: self.name(),
                largest: self.orphans_max(),
            }),
        }
    }

    /// The orphan change for an inode that is linked again.
    pub(super) fn named_again(&self, inode: InodeNumber) -> OrphanChange {
        match self.orphans.contains_key(&inode.0) {
            true => OrphanChange::Ends(inode),
            false => OrphanChange::None,
        }
    }

    /// Writes a group that was budgeted for, together with its orphan change.
    pub(super) fn write_changing(
        &mut self,
        nodes: &[NewNode],
        change: OrphanChange,
    ) -> Result<(), WriteError> {
        let (inode, before) = match change {
            OrphanChange::None => return self.write_group(nodes),
            OrphanChange::Begins(inode) => (inode, self.orphans.insert(inode.0, Orphan::Alive)),
            OrphanChange::Ends(inode) => (inode, self.orphans.remove(&inode.0)),
        };
        let written = self.write_group(nodes);
        if written.is_err() {
            match before {
                Some(orphan) => self.orphans.insert(inode.0, orphan),
                None => self.orphans.remove(&inode.0),
            };
        }
        written
    }

    /// Capacity of the orphan area, inodes.
    fn orphans_max(&self) -> usize {
        let superblock = &self.ubifs.superblock;
        let each = (to_usize(superblock.leb_bytes) - Orphans::BYTES) / 8;
        each * to_usize(superblock.orphan_lebs)
    }
}
