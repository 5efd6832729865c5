//! A commit: the journal becomes part of the index, and the log starts anew.
//!
//! In this order, each step complete on the medium before the next: write buffers; commit start in a new LEB of the log; new index
//! nodes and the LPT, beside the old ones; orphans; the master node, in both of its LEBs. The master is the point of no return: before it the
//! old log, index and LPT count, and the new ones are leftovers; after it the other way round. LEBs that only the old ones need
//! are unmapped after it, and only then may be written.

use std::collections::{BTreeMap, BTreeSet};

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::log::Bud;
use super::merge::{Edits, Insertion, merge};
use super::{WriteError, Writer};
use crate::fetch;
use crate::finding::{Damage, Place};
use crate::format::{
    COMMIT_LAST_FLAG, DirectoryEntry, Key, KeyKind, LOG_LEB, MASTER_DIRTY, MASTER_LEB, MASTER_NO_ORPHANS,
    MASTER_RECOVERED, NodeKind, Orphans, pad,
};
use crate::index::Index;
use crate::journal::Journal;
use crate::lpt::{LptPlace, Region, TableSpace, lay_out};
use crate::scan::to_usize;
use crate::space::LebSpace;

/// How the master node says that the file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Mounted,
    Unmounted,
}

/// Index nodes on their way to the medium.
struct IndexHead {
    leb: u32,
    /// Where the buffer starts.
    offset: u32,
    buffer: Vec<u8>,
}

impl Writer {
    /// Makes all that was written part of the index. After it, a mount has nothing to replay.
    pub fn commit(&mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let result = self.commit_to(State::Mounted);
        self.guard(result)
    }

    /// Commits and notes that the file system is not in use.
    pub fn unmount(mut self) -> Result<(), WriteError> {
        self.check_usable()?;
        let held: Vec<u32> = self.held.keys().copied().collect();
        for inode in held {
            self.held.insert(inode, 1);
            self.let_go(crate::format::InodeNumber(inode))?;
        }
        self.commit_to(State::Unmounted)?;
        self.volume.flush()?;
        Ok(self.volume.sync()?)
    }

    pub(super) fn commit_to(&mut self, state: State) -> Result<(), WriteError> {
        self.sync_heads()?;
        let edits = self.edits(true)?;
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
        let master = &mut self.ubifs.master;
        (master.commit, master.log_leb) = (commit, log_start);
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
            .chain(self.gc_leb)
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

    /// What the journal changes of the index; with `moves`, also index nodes that are to leave LEBs of little use.
    pub(super) fn edits(&self, moves: bool) -> Result<Edits, WriteError> {
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
        if moves {
            edits.moves = self.index_moves()?;
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

    fn write_index(&mut self, edits: Edits) -> Result<(), WriteError> {
        if edits.is_empty() {
            return Ok(());
        }
        for insertion in &edits.insertions {
            debug_assert!(
                self.space
                    .get(insertion.place.leb)
                    .is_some_and(|space| !space.index)
            );
        }
        let fanout = self.ubifs.superblock.fanout;
        let volume = std::sync::Arc::clone(&self.ubifs.volume);
        let cache_bytes = self.ubifs.index.cache_bytes();
        let index = std::mem::replace(
            &mut self.ubifs.index,
            Index::new(
                std::sync::Arc::clone(&volume),
                Place {
                    leb: 0,
                    offset: 0,
                    bytes: 0,
                },
                cache_bytes,
            ),
        );
        let mut head = self.index_head.map(|(leb, offset)| IndexHead {
            leb,
            offset,
            buffer: Vec::new(),
        });
        let merged = merge(&index, fanout, edits, &mut |node| {
            let sequence = self.next_sequence();
            self.append_index(&mut head, &node.encode(sequence))
                .map_err(Failed::Write)
        });
        let merged = merged.map_err(|failed| match failed {
            Failed::Write(error) => error,
            Failed::Damage(damage) => WriteError::Damaged {
                volume: self.name(),
                damage,
            },
        })?;
        self.index_head = match head {
            Some(head) => Some(self.flush_index(head)?),
            None => None,
        };
        let freed: u64 = merged
            .freed
            .iter()
            .map(|place| u64::from(place.bytes.next_multiple_of(8)))
            .sum();
        for place in &merged.freed {
            self.space.add_dirty(*place);
        }
        let master = &mut self.ubifs.master;
        master.index_bytes = master.index_bytes + merged.new_bytes - freed;
        let root = merged.root;
        (master.root_leb, master.root_offset, master.root_bytes) = (root.leb, root.offset, root.bytes);
        self.ubifs.index = Index::new(volume, root, cache_bytes);
        Ok(())
    }

    fn append_index(&mut self, head: &mut Option<IndexHead>, node: &[u8]) -> Result<Place, WriteError> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let bytes = u32::try_from(node.len()).expect("less than a LEB");
        let end = |head: &IndexHead| head.offset + u32::try_from(head.buffer.len()).expect("less than a LEB");
        if let Some(full) = head.take_if(|head| end(head) + bytes > leb_bytes) {
            let (leb, _) = self.flush_index(full)?;
            self.space.release(leb);
        }
        let head = match head {
            Some(head) => head,
            None => {
                let leb = self
                    .space
                    .take_empty()
                    .ok_or_else(|| self.damaged("no LEB is left for the index"))?;
                self.space.set(
                    leb,
                    LebSpace {
                        index: true,
                        ..LebSpace::empty(leb_bytes)
                    },
                );
                self.volume.unmap(Leb(leb))?;
                head.insert(IndexHead {
                    leb,
                    offset: 0,
                    buffer: Vec::new(),
                })
            }
        };
        let place = Place {
            leb: head.leb,
            offset: end(head),
            bytes,
        };
        head.buffer.extend_from_slice(node);
        head.buffer.resize(head.buffer.len().next_multiple_of(8), 0);
        Ok(place)
    }

    /// Writes what is buffered; returns where the head is then.
    fn flush_index(&mut self, mut head: IndexHead) -> Result<(u32, u32), WriteError> {
        let end = head.buffer.len();
        head.buffer.resize(
            end.next_multiple_of(to_usize(self.ubifs.superblock.min_io_bytes)),
            0,
        );
        pad(&mut head.buffer[end..]);
        let bytes = u32::try_from(head.buffer.len()).expect("less than a LEB");
        if bytes > 0 {
            self.volume.write(Leb(head.leb), head.offset, &head.buffer)?;
        }
        let padding = u32::try_from(head.buffer.len() - end).expect("less than a unit");
        self.space.fill(head.leb, bytes, padding);
        Ok((head.leb, head.offset + bytes))
    }

    /// LEBs of the index that nothing leads into any more are empty as of this commit; until the master is written they stay taken.
    fn free_index_lebs(&mut self) -> Vec<u32> {
        let freed = self.space.reclaimable(true);
        for leb in &freed {
            self.space.set_empty(*leb);
            self.space.take(*leb);
        }
        freed
    }

    /// Writes the LPT beside the old one. Returns LEBs that only the old one is in.
    fn write_lpt(&mut self) -> Result<Vec<u32>, WriteError> {
        let lpt = &mut self.lpt;
        let leb_bytes = lpt.geometry.input.leb_bytes;
        let unit = lpt.geometry.input.min_io_bytes;
        // All that was written so far is of no use once this commit is done.
        for space in &mut lpt.spaces {
            space.dirty = leb_bytes - space.free;
        }
        let area = lpt.geometry.input.lpt_lebs;
        let next = |leb: u32| (leb + 1) % area;
        let mut regions = Vec::new();
        let least = unit.max(lpt.geometry.leaf_bytes);
        if lpt.head.offset + least <= leb_bytes {
            regions.push(lpt.head);
        }
        let mut leb = next(lpt.head.leb);
        while leb != lpt.head.leb {
            if !lpt.in_use.contains(&leb) {
                regions.push(Region { leb, offset: 0 });
            }
            leb = next(leb);
        }
        // The small model is one piece.
        if !lpt.geometry.input.big {
            let bytes = u32::try_from(lpt.geometry.bytes).unwrap_or(u32::MAX);
            regions.retain(|region| region.offset == 0 || leb_bytes - region.offset >= bytes);
        }
        let used: BTreeSet<u32> = lpt.in_use.clone();
        // LEBs that the new tree goes on in keep what they have; all others will be erased.
        let goes_on = regions
            .iter()
            .find(|region| region.offset > 0)
            .map(|region| region.leb);
        for (leb, space) in (0..).zip(&mut lpt.spaces) {
            if Some(leb) != goes_on {
                *space = TableSpace {
                    free: leb_bytes,
                    dirty: 0,
                };
            }
        }
        let saved = self.saved_lebs();
        let layout = lay_out(
            &self.lpt.geometry,
            self.space.all(),
            &saved,
            &regions,
            self.lpt.spaces.clone(),
        )
        .ok_or_else(|| self.damaged("the LPT area has no room for another LPT"))?;
        let first = self.lpt.first;
        for write in &layout.writes {
            let leb = Leb(first + write.at.leb);
            if write.at.offset == 0 {
                self.volume.unmap(leb)?;
            }
            self.volume.write(leb, write.at.offset, &write.bytes)?;
        }
        let now: BTreeSet<u32> = layout.writes.iter().map(|write| write.at.leb).collect();
        let old = used.difference(&now).map(|leb| first + leb).collect();
        self.lpt.in_use = now;
        self.lpt.spaces = layout.spaces;
        self.lpt.head = layout.head;
        let master = &mut self.ubifs.master;
        let place = |place: LptPlace| (first + place.leb, place.offset);
        (master.lpt_leb, master.lpt_offset) = place(layout.root);
        (master.lpt_head_leb, master.lpt_head_offset) = place(layout.head);
        (master.ltab_leb, master.ltab_offset) = place(layout.table);
        if let Some(saved) = layout.saved {
            (master.lsave_leb, master.lsave_offset) = place(saved);
        }
        Ok(old)
    }

    /// LEBs that a mount wants to know first: with the most space, and empty ones.
    fn saved_lebs(&self) -> Vec<u32> {
        let count = to_usize(self.lpt.geometry.input.saved_lebs);
        let mut lebs: BTreeMap<_, _> = BTreeMap::new();
        for (leb, space) in self.space.iter() {
            lebs.insert((std::cmp::Reverse(space.free + space.dirty), leb), leb);
        }
        let first = self.space.first();
        lebs.into_values()
            .chain(std::iter::repeat(first))
            .take(count)
            .collect()
    }

    fn write_orphans(&mut self, commit: u64) -> Result<(), WriteError> {
        let superblock = &self.ubifs.superblock;
        let first = LOG_LEB + superblock.log_lebs + superblock.lpt_lebs;
        let lebs = first..first + superblock.orphan_lebs;
        let unit = to_usize(superblock.min_io_bytes);
        let each = (to_usize(superblock.leb_bytes) - Orphans::BYTES) / 8;
        let numbers: Vec<u64> = self.orphans.iter().map(|inode| u64::from(*inode)).collect();
        let mut parts = numbers.chunks(each).peekable();
        for leb in lebs {
            let Some(part) = parts.next() else {
                if self.ubifs.master.flags & MASTER_NO_ORPHANS == 0 {
                    self.volume.unmap(Leb(leb))?;
                }
                continue;
            };
            let last = if parts.peek().is_none() {
                COMMIT_LAST_FLAG
            } else {
                0
            };
            let node = Orphans {
                commit: commit | last,
                inodes: part.to_vec(),
            };
            let sequence = self.next_sequence();
            let mut raw = node.encode(sequence);
            let end = raw.len().next_multiple_of(8);
            raw.resize(end.next_multiple_of(unit), 0);
            pad(&mut raw[end..]);
            self.volume.leb_change(Leb(leb), &raw)?;
        }
        match parts.next() {
            None => Ok(()),
            Some(_) => Err(self.damaged("more files without a name are open than the orphan area takes")),
        }
    }

    /// Appends the master node to both of its LEBs, one after the other.
    pub(super) fn write_master(&mut self) -> Result<(), WriteError> {
        let superblock = &self.ubifs.superblock;
        let (leb_bytes, unit) = (superblock.leb_bytes, superblock.min_io_bytes);
        let bytes = 512_u32.next_multiple_of(unit);
        let wraps = self.master_offset + bytes > leb_bytes;
        if wraps {
            self.master_offset = 0;
        }
        let sums = self.space.sums();
        let highest = u64::from(self.highest_inode);
        let (gc_leb, index_head) = (self.gc_leb, self.index_head);
        let lebs = superblock.lebs;
        let master = &mut self.ubifs.master;
        master.highest_inode = highest;
        master.lebs = lebs;
        master.gc_leb = gc_leb.unwrap_or(master.gc_leb);
        if let Some((leb, offset)) = index_head {
            (master.index_head_leb, master.index_head_offset) = (leb, offset);
        }
        (master.free_bytes, master.dirty_bytes, master.used_bytes) = (sums.free, sums.dirty, sums.used);
        (master.dead_bytes, master.dark_bytes) = (sums.dead, sums.dark);
        (master.empty_lebs, master.index_lebs) = (sums.empty_lebs, sums.index_lebs);
        let sequence = self.next_sequence();
        let mut raw = self.ubifs.master.encode(sequence);
        raw.resize(to_usize(bytes), 0);
        pad(&mut raw[512..]);
        for leb in [MASTER_LEB, MASTER_LEB + 1].map(Leb) {
            match wraps {
                // The other LEB still has the one before.
                true => {
                    self.volume.unmap(leb)?;
                    self.volume.map(leb)?;
                    self.volume.write(leb, 0, &raw)?;
                }
                false => self.volume.write(leb, self.master_offset, &raw)?,
            }
        }
        self.master_offset += bytes;
        Ok(())
    }
}

/// Why a merge failed.
enum Failed {
    Write(WriteError),
    Damage(Damage),
}

impl From<Damage> for Failed {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}
