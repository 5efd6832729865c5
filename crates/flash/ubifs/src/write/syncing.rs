//! Syncs, and tracking of which writes are durable. The writes to a chip's image stay in the host's page cache until
//! synced; a failed sync may have lost any write since the previous sync, even if later ones succeed.

use std::collections::BTreeSet;

use ubi::Volume;

use super::buffers::HeadKind;
use super::{WriteError, Writer};
use crate::format::{InodeNumber, Key, KeyKind};

/// Writes since the last sync of the volume.
#[derive(Default)]
pub(super) struct Unsynced {
    /// Sequence number of the last node at the last sync.
    synced: u64,
    /// Bytes of nodes that the heads had accepted by then.
    synced_bytes: u64,
    /// Inodes written since then.
    inodes: BTreeSet<InodeNumber>,
    /// A sync failed: writes since the previous one may be lost.
    has_failed: bool,
}

impl Unsynced {
    /// Records a write to an inode.
    pub(super) fn note(&mut self, inode: InodeNumber) {
        self.inodes.insert(inode);
    }
}

impl Writer {
    /// Flushes the buffers and syncs: all completed operations survive a power cut.
    pub fn fsync(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self.sync_heads().and_then(|()| self.sync_volume());
        self.guard(result)?;
        self.counts.syncs += 1;
        Ok(())
    }

    /// Flushes all heads in parallel. If only some of the writes succeed, only operations not yet acknowledged are
    /// affected.
    pub(super) fn sync_heads(&mut self) -> Result<(), WriteError> {
        self.flush(&HeadKind::ALL)
    }

    /// Syncs the volume.
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

    /// Best effort: flushes and syncs everything pending, so that the next mount can recover it from the journal.
    pub(super) fn save_journal(&mut self) -> Result<(), WriteError> {
        let written = match self.stopped {
            None => self.sync_heads(),
            Some(_) => Ok(()),
        };
        self.guard(written)?;
        let synced = self.sync_what_was_written();
        self.guard(synced)
    }

    /// Syncs the volume if anything was written since the last sync.
    pub(super) fn sync_what_was_written(&mut self) -> Result<(), WriteError> {
        match self.unsynced.has_failed || self.unsynced.synced == self.sequence {
            true => Ok(()),
            false => self.sync_volume(),
        }
    }

    /// Whether nodes of an inode, including its blocks, may not be durable yet, or may be lost.
    #[must_use]
    pub fn is_unsynced(&self, inode: InodeNumber) -> bool {
        let (first, last) = (Key::inode(inode), Key::last(inode, KeyKind::XattrEntry));
        let mut places = self.ubifs.journal.range(first, last);
        self.unsynced.has_failed && self.unsynced.inodes.contains(&inode)
            || places.any(|(_, place)| self.buffers.is_buffered(place))
    }

    /// Bytes of nodes not known to be durable: the buffered ones, or, after a failed sync, all since the previous
    /// sync.
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
