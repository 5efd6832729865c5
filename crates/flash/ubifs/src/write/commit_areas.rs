//! Parts of a commit other than the index: LPT, orphans, and the master node, which makes the commit valid.

use std::collections::{BTreeMap, BTreeSet};

use media::Leb;
use ubi::Volume;

use super::{WriteError, Writer};
use crate::finding::Subject;
use crate::format::{COMMIT_LAST_FLAG, LOG_LEB, MASTER_LEB, MASTER_NO_ORPHANS, Master, Orphans, pad};
use crate::lpt::{LptPlace, Region, TableSpace, lay_out};
use crate::scan::to_usize;

impl Writer {
    /// Writes the LPT without touching the old one. Returns the LEBs that only the old one uses.
    pub(super) fn write_lpt(&mut self, master: &mut Master) -> Result<Vec<u32>, WriteError> {
        let lpt = &mut self.lpt;
        let leb_bytes = lpt.geometry.input.leb_bytes;
        let unit = lpt.geometry.input.min_io_bytes;
        // Everything written so far is obsolete once this commit is done.
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
        // The small model is written in one piece.
        if !lpt.geometry.input.big {
            let bytes = u32::try_from(lpt.geometry.bytes).unwrap_or(u32::MAX);
            regions.retain(|region| region.offset == 0 || leb_bytes - region.offset >= bytes);
        }
        let used: BTreeSet<u32> = lpt.in_use.clone();
        // The LEB in which the new tree continues keeps its content; all others will be erased.
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
        .ok_or_else(|| {
            let place = (master.lpt_leb, master.lpt_offset);
            self.contradiction(Subject::Space, place, "the LPT area has no room for another LPT")
        })?;
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
        let place = |place: LptPlace| (first + place.leb, place.offset);
        (master.lpt_leb, master.lpt_offset) = place(layout.root);
        (master.lpt_head_leb, master.lpt_head_offset) = place(layout.head);
        (master.ltab_leb, master.ltab_offset) = place(layout.table);
        if let Some(saved) = layout.saved {
            (master.lsave_leb, master.lsave_offset) = place(saved);
        }
        Ok(old)
    }

    /// LEBs for the save table, which a mount reads first: those with the most free and dirty space.
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

    /// Writes the orphans. Returns LEBs of the area that become obsolete with the commit: until then a recovery uses
    /// them to delete orphans in the old index.
    ///
    /// The LEBs are replaced one after the other, and a recovery reads both new and old ones. Each inode therefore
    /// keeps its position or moves forward, so that it is listed at any time.
    pub(super) fn write_orphans(&mut self, commit: u64) -> Result<Vec<u32>, WriteError> {
        let superblock = &self.ubifs.superblock;
        let first = LOG_LEB + superblock.log_lebs + superblock.lpt_lebs;
        let lebs = first..first + superblock.orphan_lebs;
        let unit = to_usize(superblock.min_io_bytes);
        let each = (to_usize(superblock.leb_bytes) - Orphans::BYTES) / 8;
        let mut listed = std::mem::take(&mut self.listed_orphans);
        listed.retain(|inode| self.orphans.contains_key(inode));
        let known: BTreeSet<u32> = listed.iter().copied().collect();
        listed.extend(self.orphans.keys().filter(|inode| !known.contains(inode)));
        let numbers: Vec<u64> = listed.iter().copied().map(u64::from).collect();
        self.listed_orphans = listed;
        let mut parts = numbers.chunks(each).peekable();
        let had_orphans = self.ubifs.master.flags & MASTER_NO_ORPHANS == 0;
        let mut unused = Vec::new();
        for leb in lebs {
            let Some(part) = parts.next() else {
                unused.extend(had_orphans.then_some(leb));
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
            None => Ok(unused),
            Some(_) => {
                let why = "more files without a name are open than the orphan area takes";
                Err(self.contradiction(Subject::Orphans, (first, 0), why))
            }
        }
    }

    /// Appends the master node to both of its LEBs, one after the other. The commit is valid from then on.
    pub(super) fn write_master(&mut self, mut master: Master) -> Result<(), WriteError> {
        let superblock = &self.ubifs.superblock;
        let (leb_bytes, unit) = (superblock.leb_bytes, superblock.min_io_bytes);
        let bytes = 512_u32.next_multiple_of(unit);
        let wraps = self.master_offset + bytes > leb_bytes;
        if wraps {
            self.master_offset = 0;
        }
        let sums = self.space.sums();
        let highest = u64::from(self.highest_inode);
        let index_head = self.index_head;
        let (lebs, scanned_leb) = (superblock.lebs, self.scanned_leb());
        master.highest_inode = highest;
        (master.lebs, master.scanned_leb) = (lebs, scanned_leb);
        if let Some((leb, offset)) = index_head {
            (master.index_head_leb, master.index_head_offset) = (leb, offset);
        }
        (master.free_bytes, master.dirty_bytes, master.used_bytes) = (sums.free, sums.dirty, sums.used);
        (master.dead_bytes, master.dark_bytes) = (sums.dead, sums.dark);
        (master.empty_lebs, master.index_lebs) = (sums.empty_lebs, sums.index_lebs);
        let sequence = self.next_sequence();
        let mut raw = master.encode(sequence);
        raw.resize(to_usize(bytes), 0);
        pad(&mut raw[512..]);
        for leb in [MASTER_LEB, MASTER_LEB + 1].map(Leb) {
            match wraps {
                // The other LEB still holds the previous master node.
                true => {
                    self.volume.unmap(leb)?;
                    self.volume.map(leb)?;
                    self.volume.write(leb, 0, &raw)?;
                }
                false => self.volume.write(leb, self.master_offset, &raw)?,
            }
        }
        self.master_offset += bytes;
        self.ubifs.master = master;
        Ok(())
    }
}
