//! A commit merges the journal into the index and starts a new log.
//!
//! The steps, each complete on the medium before the next: write buffers; commit start node in a new log LEB; new
//! index nodes and the LPT, without touching the old ones; orphans; a sync; the master node, in both of its LEBs. The
//! master node is the point of no return: before it the old log, index and LPT are valid and the new ones are
//! garbage, after it the reverse. LEBs used only by the old state are unmapped after it, and may be written only
//! then. The same holds in memory: reads use the old index and the journal until the master node is written.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::gc_leb::GcLeb;
use super::journal::NewNode;
use super::log::Bud;
use super::merge::{Edits, Insertion};
use super::{Stopped, WriteError, Writer};
use crate::finding::Place;
use crate::format::{Key, KeyKind, MASTER_DIRTY, MASTER_NO_ORPHANS, MASTER_RECOVERED};
use crate::journal::Journal;

/// State of the file system as recorded in the master node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Mounted,
    Unmounted,
}

impl Writer {
    /// Merges all operations into the index. A mount after it has nothing to replay.
    pub fn commit(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        if self.committed == self.sequence && self.ubifs.journal.len() == 0 {
            return Ok(());
        }
        let result = self.commit_to(State::Mounted);
        self.guard(result)
    }

    /// Background work: writes and syncs buffered nodes, and commits a journal that is more than half full. Does not
    /// sync if nothing was written since the last sync. A failed commit does not prevent the sync.
    pub fn work(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let is_long = self.log.journal_bytes() > self.ubifs.superblock.journal_bytes_max / 2;
        let committed = match is_long && self.committed != self.sequence {
            true => self.commit_to(State::Mounted),
            false => Ok(()),
        };
        let committed = self.guard(committed);
        committed.and(self.save_journal())
    }

    /// Commits and marks the file system as cleanly unmounted.
    pub fn unmount(mut self) -> Result<(), WriteError> {
        self.close()
    }

    /// Like [`Self::unmount`], by reference. Nothing is written after it. If it fails, earlier writes are synced as
    /// far as possible.
    pub fn close(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let closed = self.close_journal();
        let closed = self.guard(closed);
        match closed {
            Ok(()) => self.stopped = Some(Stopped::Unmounted),
            // A failure is recorded; the first error is the one reported.
            Err(_) => drop(self.save_journal()),
        }
        closed
    }

    fn close_journal(&mut self) -> Result<(), WriteError> {
        self.bury_all()?;
        // A mount looks for orphans only after an unclean unmount.
        let state = match self.orphans.is_empty() {
            true => State::Unmounted,
            false => State::Mounted,
        };
        self.commit_to(state)?;
        self.volume.flush()?;
        self.sync_volume()
    }

    pub(super) fn commit_to(&mut self, state: State) -> Result<(), WriteError> {
        if let Some(inode) = self.unwritten_inode.take() {
            // The index must not contain blocks behind the end of their file: recovery looks for those only in the
            // journal.
            self.write_group(&[NewNode::Inode(inode)])?;
        }
        self.sync_heads()?;
        let edits = self.with_moves(self.edits()?)?;
        // Reads use the old master node until the new state is complete on the medium.
        let mut master = self.ubifs.master.clone();
        master.commit += 1;
        let heads = self.open_heads();
        let mut sequence = self.sequence;
        let started = self
            .log
            .start_commit(&*self.volume, master.commit, &heads, &mut || {
                sequence += 1;
                sequence
            });
        master.log_leb = started?;
        self.sequence = sequence;
        let index = self.write_index(edits, &mut master)?;
        let freed = self.free_index_lebs();
        let old_lpt = self.write_lpt(&mut master)?;
        let old_orphans = self.write_orphans(master.commit)?;
        master.gc_leb = self.gc_leb().number();
        let kept = master.flags & !(MASTER_DIRTY | MASTER_NO_ORPHANS | MASTER_RECOVERED);
        let dirty = if state == State::Mounted { MASTER_DIRTY } else { 0 };
        let no_orphans = if self.orphans.is_empty() {
            MASTER_NO_ORPHANS
        } else {
            0
        };
        master.flags = kept | dirty | no_orphans;
        let log_start = master.log_leb;
        // In an image file, the host might otherwise write the master node before the nodes it refers to.
        self.sync_volume()?;
        self.write_master(master)?;
        if let Some(index) = index {
            self.ubifs.index.turn_to(index.root, &index.freed, index.written);
        }
        self.gap_bytes = OnceLock::new();
        self.ubifs.journal = Journal::default();
        self.committed = self.sequence;
        self.counts.commits += 1;
        let old_log = self.log.end_commit(log_start, heads);
        for leb in old_log
            .into_iter()
            .chain(freed.iter().copied())
            .chain(old_lpt)
            .chain(old_orphans)
        {
            self.volume.unmap(Leb(leb))?;
        }
        for leb in freed {
            self.space.release(leb);
        }
        self.release_old_buds();
        Ok(())
    }

    /// Positions of the heads: the first buds of the new journal.
    fn open_heads(&self) -> Vec<Bud> {
        let open = HeadKind::ALL.into_iter().filter_map(|head| {
            let (leb, start) = self.buffers.position(head)?;
            (start < self.ubifs.superblock.leb_bytes).then_some(Bud { leb, start, head })
        });
        open.collect()
    }

    /// Makes the LEBs of the old journal available to garbage collection.
    fn release_old_buds(&mut self) {
        let keep: BTreeSet<u32> = self
            .log
            .buds
            .iter()
            .map(|bud| bud.leb)
            .chain(self.index_head.map(|(leb, _)| leb))
            .chain(self.gc_leb.as_ref().map(GcLeb::number))
            .collect();
        let all: Vec<u32> = self.space.iter().map(|(leb, _)| leb).collect();
        for leb in all {
            if !keep.contains(&leb) {
                self.space.release(leb);
            }
        }
        for head in HeadKind::ALL {
            let full = self
                .buffers
                .position(head)
                .is_some_and(|(leb, _)| !self.log.buds.iter().any(|bud| bud.leb == leb));
            if full {
                self.buffers.seek(head, None);
            }
        }
    }

    /// The index changes that the journal amounts to.
    pub(super) fn edits(&self) -> Result<Edits, WriteError> {
        let mut edits = Edits::default();
        let journal = &self.ubifs.journal;
        let all = |low, high| self.index_range(low, high);
        for inode in journal.removed_inodes() {
            edits
                .deletions
                .extend(all(Key::inode(inode), Key::last(inode, KeyKind::XattrEntry))?);
        }
        for (inode, end) in journal.block_ends() {
            if !journal.is_removed(inode) {
                edits
                    .deletions
                    .extend(all(Key::data(inode, end), Key::last(inode, KeyKind::Data))?);
            }
        }
        let known: BTreeSet<Place> = edits.deletions.iter().map(|(_, place)| *place).collect();
        for (key, place) in journal.all_plain() {
            edits.deletions.extend(
                all(key, key)?
                    .into_iter()
                    .filter(|(_, place)| !known.contains(place)),
            );
            edits.insertions.push(Insertion {
                key,
                name: Vec::new(),
                place,
            });
        }
        for (key, names) in journal.all_names() {
            for name in names {
                edits.insertions.extend(name.place.map(|place| Insertion {
                    key,
                    name: name.name.clone(),
                    place,
                }));
            }
            let indexed = all(key, key)?.into_iter().map(|(_, place)| place);
            let indexed: Vec<Place> = indexed.filter(|place| !known.contains(place)).collect();
            edits.deletions.extend(indexed.iter().map(|place| (key, *place)));
            // Other names with the same hash stay.
            for (place, name) in self.indexed_names(key, indexed.into_iter())? {
                edits.insertions.push(Insertion { key, name, place });
            }
        }
        Ok(edits)
    }

    /// Branches in the index between two keys, without the journal.
    pub(super) fn index_range(&self, low: Key, high: Key) -> Result<Vec<(Key, Place)>, WriteError> {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        self.ubifs.index.range(low, high, &mut found, &mut lost);
        match lost.into_iter().next() {
            None => Ok(found),
            Some(finding) => Err(self.unreadable(Box::new(finding))),
        }
    }
}
