//! A commit: the journal becomes part of the index, and the log starts anew.
//!
//! In this order, each step complete on the medium before the next: write buffers; commit start in a new LEB of the log; new index
//! nodes and the LPT, beside the old ones; orphans; the master node, in both of its LEBs. The master is the point of no return: before it the
//! old log, index and LPT count, and the new ones are leftovers; after it the other way round. LEBs that only the old ones need
//! are unmapped after it, and only then may be written.

use std::collections::BTreeSet;

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::gc_leb::GcLeb;
use super::journal::NewNode;
use super::log::Bud;
use super::merge::{Edits, Insertion};
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::Place;
use crate::format::{
    DirectoryEntry, Key, KeyKind, MASTER_DIRTY, MASTER_NO_ORPHANS, MASTER_RECOVERED, NodeKind,
};
use crate::journal::Journal;

/// How the master node says that the file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Mounted,
    Unmounted,
}

impl Writer {
    /// Makes all that was written part of the index. After it, a mount has nothing to replay.
    pub fn commit(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        if self.committed == self.sequence && self.ubifs.journal.len() == 0 {
            return Ok(());
        }
        let result = self.commit_to(State::Mounted);
        self.guard(result)
    }

    /// Work that nobody waits for: what is buffered is written, and a journal that is half full is committed.
    pub fn work(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let is_long = self.log.journal_bytes() > self.ubifs.superblock.journal_bytes_max / 2;
        let result = match is_long && self.committed != self.sequence {
            true => self.commit_to(State::Mounted),
            false => self.sync_heads(),
        };
        self.guard(result)
    }

    /// Commits and notes that the file system is not in use.
    pub fn unmount(mut self) -> Result<(), WriteError> {
        self.close()
    }

    /// The same for who has no more than a reference. Nothing is written after it.
    pub fn close(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let closed = self
            .bury_all()
            .and_then(|()| {
                // A mount looks for orphans only where the one before did not end well.
                let state = match self.orphans.is_empty() {
                    true => State::Unmounted,
                    false => State::Mounted,
                };
                self.commit_to(state)
            })
            .and_then(|()| self.volume.flush().map_err(WriteError::from))
            .and_then(|()| self.volume.sync().map_err(WriteError::from));
        self.guard(closed)?;
        self.broken = Some("it is unmounted".into());
        Ok(())
    }

    pub(super) fn commit_to(&mut self, state: State) -> Result<(), WriteError> {
        if let Some(inode) = self.unwritten_inode.take() {
            // What the index has of a file must not be behind its end: a recovery looks for that in the journal alone.
            self.write_group(&[NewNode::Inode(inode)])?;
        }
        self.sync_heads()?;
        let edits = self.with_moves(self.edits()?)?;
        let commit = self.ubifs.master.commit + 1;
        let heads = self.open_heads();
        let mut sequence = self.sequence;
        let log_start = self.log.start_commit(&*self.volume, commit, &heads, &mut || {
            sequence += 1;
            sequence
        })?;
        self.sequence = sequence;
        self.write_index(edits)?;
        let freed = self.free_index_lebs();
        let old_lpt = self.write_lpt()?;
        self.write_orphans(commit)?;
        let gc_leb = self.gc_leb().number();
        let master = &mut self.ubifs.master;
        (master.commit, master.log_leb, master.gc_leb) = (commit, log_start, gc_leb);
        let kept = master.flags & !(MASTER_DIRTY | MASTER_NO_ORPHANS | MASTER_RECOVERED);
        let dirty = if state == State::Mounted { MASTER_DIRTY } else { 0 };
        let no_orphans = if self.orphans.is_empty() {
            MASTER_NO_ORPHANS
        } else {
            0
        };
        master.flags = kept | dirty | no_orphans;
        self.write_master()?;
        for leb in self
            .log
            .end_commit(log_start, heads)
            .into_iter()
            .chain(freed.iter().copied())
            .chain(old_lpt)
        {
            self.volume.unmap(Leb(leb))?;
        }
        for leb in freed {
            self.space.release(leb);
        }
        self.release_old_buds();
        self.ubifs.journal = Journal::default();
        self.committed = self.sequence;
        self.counts.commits += 1;
        Ok(())
    }

    /// Where the heads are, as the next journal's first buds.
    fn open_heads(&self) -> Vec<Bud> {
        let open = HeadKind::ALL.into_iter().filter_map(|head| {
            let (leb, start) = self.buffers.position(head)?;
            (start < self.ubifs.superblock.leb_bytes).then_some(Bud { leb, start, head })
        });
        open.collect()
    }

    /// LEBs of the journal before are free to be collected.
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

    /// What the journal changes of the index.
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
            for (key, place) in all(key, key)? {
                if known.contains(&place) {
                    continue;
                }
                edits.deletions.push((key, place));
                // Others of the same hash stay.
                if let Some(name) = self.name_at(key, place)
                    && !journal.has_name(key, &name)
                {
                    edits.insertions.push(Insertion { key, name, place });
                }
            }
        }
        Ok(edits)
    }

    /// What the index alone has.
    pub(super) fn index_range(&self, low: Key, high: Key) -> Result<Vec<(Key, Place)>, WriteError> {
        let (mut found, mut lost) = (Vec::new(), Vec::new());
        self.ubifs.index.range(low, high, &mut found, &mut lost);
        match lost.into_iter().next() {
            None => Ok(found),
            Some(finding) => Err(WriteError::Damaged {
                volume: self.name(),
                damage: finding.damage,
            }),
        }
    }

    /// The name that the index leads to; `None` where the LEB holds something else by now, which is possible only where the
    /// journal has that name.
    pub(super) fn name_at(&self, key: Key, place: Place) -> Option<Vec<u8>> {
        let kind = match key.kind() {
            Some(KeyKind::XattrEntry) => NodeKind::XattrEntry,
            _ => NodeKind::Entry,
        };
        let raw = fetch::node(&*self.ubifs.volume, place, kind).ok()?;
        DirectoryEntry::decode(&raw, kind)
            .ok()
            .filter(|entry| entry.key == key)
            .map(|entry| entry.name)
    }
}
