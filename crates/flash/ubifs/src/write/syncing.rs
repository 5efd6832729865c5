//! Syncs, and what is known to be on the medium. An image of a chip is in the host's page cache until it is synced; a sync that failed may
//! have lost anything of what was written since the one before, whatever later ones say.

use std::collections::BTreeSet;

use ubi::Volume;

use super::buffers::HeadKind;
use super::{WriteError, Writer};
use crate::format::{InodeNumber, Key, KeyKind};

/// Writes since the last sync of the volume.
#[derive(Default)]
pub(super) struct Unsynced {
    /// The last sequence number when the volume was synced.
    synced: u64,
    /// Bytes of nodes that the heads had taken by then.
    synced_bytes: u64,
    /// Of whom something was written since.
    inodes: BTreeSet<InodeNumber>,
    /// A sync failed: what was written since the one before may be lost.
    has_failed: bool,
}

impl Unsynced {
    /// Notes that something of an inode is written.
    pub(super) fn note(&mut self, inode: InodeNumber) {
        self.inodes.insert(inode);
    }
}

impl Writer {
    /// Writes what is buffered: all operations that returned are there after a power cut.
    pub fn fsync(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self.sync_heads().and_then(|()| self.sync_volume());
        self.guard(result)?;
        self.counts.syncs += 1;
        Ok(())
    }

    /// Writes all buffers, at the same time: what only some of them brought to the medium is what no call returned for.
    pub(super) fn sync_heads(&mut self) -> Result<(), WriteError> {
        self.flush(&HeadKind::ALL)
    }

    /// Has the medium keep what was written.
    pub(super) fn sync_volume(&mut self) -> Result<(), WriteError> {
        if let Err(error) = self.volume.sync() {
            self.unsynced.has_failed = true;
            return Err(error.into());
        }
        if !self.unsynced.has_failed {
            self.unsynced = Unsynced {
                synced: self.sequence,
                synced_bytes: self.node_bytes(),
                ..Unsynced::default()
            };
        }
        Ok(())
    }

    /// Writes and syncs what is not on the medium, for who can do no more: a mount recovers from the journal.
    pub(super) fn save_journal(&mut self) -> Result<(), WriteError> {
        let written = match self.stopped {
            None => self.sync_heads(),
            Some(_) => Ok(()),
        };
        self.guard(written)?;
        let synced = self.sync_what_was_written();
        self.guard(synced)
    }

    /// Syncs the volume unless nothing was written since it was.
    pub(super) fn sync_what_was_written(&mut self) -> Result<(), WriteError> {
        match self.unsynced.has_failed || self.unsynced.synced == self.sequence {
            true => Ok(()),
            false => self.sync_volume(),
        }
    }

    /// Whether some of an inode, or of its blocks, may not be on the medium, and never be.
    #[must_use]
    pub fn is_unsynced(&self, inode: InodeNumber) -> bool {
        let (first, last) = (Key::inode(inode), Key::last(inode, KeyKind::XattrEntry));
        let mut places = self.ubifs.journal.range(first, last);
        self.unsynced.has_failed && self.unsynced.inodes.contains(&inode)
            || places.any(|(_, place)| self.buffers.is_buffered(place))
    }

    /// Bytes of nodes that are not on the medium as far as is known: those that are buffered, and after a sync that failed all since the one
    /// before.
    pub(super) fn unwritten_bytes(&self) -> u64 {
        match self.unsynced.has_failed {
            true => self.node_bytes() - self.unsynced.synced_bytes,
            false => self.head_sum(|head| head.buffered_bytes),
        }
    }

    fn node_bytes(&self) -> u64 {
        self.head_sum(|head| head.bytes)
    }

    fn head_sum(&self, bytes: impl Fn(super::buffers::Counted) -> u64) -> u64 {
        HeadKind::ALL
            .iter()
            .map(|head| bytes(self.buffers.counted(*head)))
            .sum()
    }
}
