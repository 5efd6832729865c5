//! Inodes that somebody above knows: they outlive their last name until they are let go. Until then they are orphans, which a
//! commit writes down, so that a mount after a power cut removes them.
//!
//! Lock order: the table of who is known is behind a lock of its own, and nobody who holds it takes another.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::journal::NewNode;
use super::{WriteError, Writer};
use crate::format::{InodeNumber, Orphans};
use crate::scan::to_usize;

/// How often each inode is known above.
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

    /// Returns whether nobody knows it any more.
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
    /// The last that the journal of this commit says of it is that it has no links: a replay removes it.
    RemovedIn(u64),
    /// More was written since, or a commit was made.
    Alive,
}

/// Change of the orphan list that goes with a group of nodes. It takes effect with the nodes: a commit that makes room for them still
/// lists the orphans of before, as after a power cut nothing else would say that the inode is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrphanChange {
    None,
    /// It is kept without a name from then on.
    Begins(InodeNumber),
    /// It gets a name, or goes.
    Ends(InodeNumber),
}

impl Writer {
    /// Holds an inode: it outlives its last name until it is let go as often.
    pub fn hold(&self, inode: InodeNumber) {
        self.holds.add(inode);
    }

    /// Lets an inode go. `true`: it has no name and nobody knows it any more; it is to be buried ([`Writer::bury`]).
    pub fn let_go(&self, inode: InodeNumber, times: u64) -> bool {
        self.holds.remove(inode, times) && self.orphans.contains_key(&inode.0)
    }

    /// Removes an inode that has no name, unless somebody holds it.
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

    /// Removes all that have no name.
    pub(super) fn bury_all(&mut self) -> Result<(), WriteError> {
        self.holds.clear();
        let orphans: Vec<u32> = self.orphans.keys().copied().collect();
        for inode in orphans {
            match self.bury(InodeNumber(inode)) {
                // The next mount does it.
                Err(WriteError::NoSpace { .. } | WriteError::Read(_)) => {}
                other => other?,
            }
        }
        Ok(())
    }

    pub(super) fn is_held(&self, inode: InodeNumber) -> bool {
        self.holds.has(inode)
    }

    /// An inode that is to be kept without a name, unless there are too many of them.
    pub(super) fn new_orphan(&self, inode: InodeNumber) -> Result<OrphanChange, WriteError> {
        match self.orphans.len() < self.orphans_max() {
            true => Ok(OrphanChange::Begins(inode)),
            false => Err(WriteError::Orphans {
                volume: self.name(),
                largest: self.orphans_max(),
            }),
        }
    }

    /// An inode that is to have a name, if it had none.
    pub(super) fn named_again(&self, inode: InodeNumber) -> OrphanChange {
        match self.orphans.contains_key(&inode.0) {
            true => OrphanChange::Ends(inode),
            false => OrphanChange::None,
        }
    }

    /// Writes a group that there is room for, and with it changes who is an orphan.
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

    /// How many inodes without a name the area for them takes.
    fn orphans_max(&self) -> usize {
        let superblock = &self.ubifs.superblock;
        let each = (to_usize(superblock.leb_bytes) - Orphans::BYTES) / 8;
        each * to_usize(superblock.orphan_lebs)
    }
}
