//! Recovery: updates the space accounting to match the journal replay and cleans up after a power cut.

use std::collections::{BTreeMap, BTreeSet};

use media::Leb;
use ubi::{Volume, VolumeError};

use super::commit::State;
use super::{WriteError, Writer};
use crate::fetch::{self, Extent};
use crate::finding::{Damage, Place, Subject};
use crate::format::{
    DirectoryEntry, Inode, InodeNumber, Key, KeyKind, LOG_LEB, MASTER_DIRTY, MASTER_LEB, MASTER_NO_ORPHANS,
    MASTER_RECOVERED, Master, NodeDefect, NodeKind, SUPERBLOCK_LEB, Superblock, SuperblockFlags,
    check_expected, pad,
};
use crate::report::BudReport;
use crate::scan::{Found, Stop, scan, to_usize};
use crate::space::LebSpace;

impl Writer {
    /// Brings the medium into the state that the replay has in memory, and commits.
    pub(super) fn recover(&mut self, old: &Superblock, superblock: Superblock) -> Result<(), WriteError> {
        let flags = SuperblockFlags(superblock.flags);
        self.ubifs.superblock = superblock;
        if flags.has(SuperblockFlags::SPACE_FIXUP) {
            self.fix_free_space()?;
            self.ubifs.superblock.flags &= !SuperblockFlags::SPACE_FIXUP.0;
        }
        self.settle_master()?;
        self.cut_torn_log()?;
        self.make_room_in_log()?;
        self.unmap_leftovers()?;
        if self.ubifs.superblock != *old {
            self.write_superblock()?;
        }
        if self.ubifs.master.flags & MASTER_DIRTY == 0 {
            // From here on a mount has to expect torn writes. The master's sums match the LPT it refers to, so it is
            // written before any change of space.
            let mut master = self.ubifs.master.clone();
            master.flags |= MASTER_DIRTY;
            self.write_master(master)?;
        }
        self.account_for_buds()?;
        self.fix_sizes()?;
        self.resume_heads();
        self.take_fixed_lebs()?;
        self.settle_gc_leb()?;
        self.commit_to(State::Mounted)
    }

    /// Deletes the extended attributes of deleted inodes and derives the space accounting from the journal. LEBs that
    /// another replay would read stay untouched until the commit of the recovery.
    fn account_for_buds(&mut self) -> Result<(), WriteError> {
        let mut entries = std::mem::take(&mut self.ubifs.journal.dropped_xattrs);
        for inode in self.ubifs.journal.removed_inodes() {
            let (low, high) = (
                Key::first(inode, KeyKind::XattrEntry),
                Key::last(inode, KeyKind::XattrEntry),
            );
            entries.extend(self.index_range(low, high)?.into_iter().map(|(_, place)| place));
        }
        for place in entries {
            self.space.keep_for_replay(place.leb);
            let raw = fetch::node(&*self.volume, place, NodeKind::XattrEntry);
            if let Err(damage @ Damage::Medium(_)) = raw {
                return Err(self.unreadable_leb(Subject::Xattr, place.leb, damage));
            }
            let entry = raw
                .ok()
                .and_then(|raw| DirectoryEntry::decode(&raw, NodeKind::XattrEntry).ok());
            // Garbage collection may have moved the entry: the location may hold an entry of another file.
            let entry = entry.filter(|entry| self.ubifs.journal.is_removed(entry.key.inode_number()));
            if let Some(value) = entry.and_then(|entry| u32::try_from(entry.inode).ok()) {
                self.ubifs.journal.remove_inode(InodeNumber(value));
            }
        }
        if !self.ubifs.report.orphans.is_empty() {
            // The index contains them until then, and Linux also lists values of extended attributes.
            let removed: Vec<InodeNumber> = self.ubifs.journal.removed_inodes().collect();
            for inode in removed {
                let all = self.index_range(Key::inode(inode), Key::last(inode, KeyKind::XattrEntry))?;
                for (_, place) in all {
                    self.space.keep_for_replay(place.leb);
                }
            }
        }
        let mut starts: BTreeMap<u32, u32> = BTreeMap::new();
        for bud in &self.ubifs.report.buds {
            let start = starts.entry(bud.leb).or_insert(bud.offset);
            *start = bud.offset.min(*start);
        }
        let edits = self.edits()?;
        let kept: BTreeSet<Place> = edits.insertions.iter().map(|insertion| insertion.place).collect();
        for (_, place) in &edits.deletions {
            let was_there = starts.get(&place.leb).is_none_or(|start| place.offset < *start);
            if was_there && !kept.contains(place) {
                self.space.add_dirty(*place);
            }
        }
        let buds = self.ubifs.report.buds.clone();
        for (leb, start) in starts {
            let bud = buds.iter().find(|bud| (bud.leb, bud.offset) == (leb, start));
            let Some(bud) = bud else { continue };
            let live: u32 = kept
                .iter()
                .filter(|place| place.leb == leb && place.offset >= start)
                .map(|place| place.bytes.next_multiple_of(8))
                .sum();
            self.account_for_bud(bud, live)?;
        }
        Ok(())
    }

    fn account_for_bud(&mut self, bud: &BudReport, live: u32) -> Result<(), WriteError> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let was_clean = self.ubifs.report.was_clean;
        let (raw, is_uncorrectable) = match was_clean {
            // After a clean unmount no write can be torn.
            true => (self.leb_from(bud.leb, bud.offset)?, false),
            false => self.leb_as_it_is(bud.leb, bud.offset)?,
        };
        let scanned = scan(&raw, to_usize(bud.offset));
        if scanned.nodes.len() < bud.nodes {
            // A node that the replay could read must not be taken for torn.
            let damage = Damage::Contradiction("it reads differently each time");
            return Err(self.unreadable_leb(Subject::Journal, bud.leb, damage));
        }
        // Cut off the nodes that the replay dropped.
        let end = scanned
            .nodes
            .get(bud.nodes)
            .map_or(scanned.end, |dropped| dropped.offset);
        let unit = to_usize(self.ubifs.superblock.min_io_bytes);
        // A complete write ends at a write unit: one that does not is torn, even if all of its nodes are intact.
        // After an uncorrectable read the data may be right by chance, and the next read may fail.
        let is_torn = !end.is_multiple_of(unit) || is_uncorrectable;
        if is_torn || matches!(scanned.stop, Stop::Broken(_)) || end < scanned.end {
            let mut good = self.beginning_of_leb(Subject::Journal, bud.leb, bud.offset)?;
            good.extend_from_slice(&raw[good.len()..end]);
            self.clean_leb(bud.leb, &good)?;
        }
        let written = u32::try_from(end.next_multiple_of(unit)).expect("less than a LEB");
        let before = match bud.offset {
            0 => 0,
            _ => self.space.get(bud.leb).map_or(0, |space| space.dirty),
        };
        self.space.set(
            bud.leb,
            LebSpace {
                free: leb_bytes - written,
                dirty: before + (written - bud.offset) - live,
                index: false,
            },
        );
        self.space.take(bud.leb);
        Ok(())
    }

    /// The content of a LEB, and whether a read was uncorrectable; bytes before `offset` are not read and returned as
    /// 0xFF.
    pub(super) fn leb_as_it_is(&self, leb: u32, offset: u32) -> Result<(Vec<u8>, bool), WriteError> {
        let mut raw = vec![0xFF; to_usize(self.ubifs.superblock.leb_bytes)];
        let from = to_usize(offset).min(raw.len());
        match self.volume.read(Leb(leb), offset, &mut raw[from..]) {
            Ok(()) => Ok((raw, false)),
            Err(VolumeError::Uncorrectable { .. }) => Ok((raw, true)),
            Err(error) => {
                let damage = Damage::Medium(error.to_string().into());
                Err(self.unreadable_leb(Subject::Journal, leb, damage))
            }
        }
    }

    /// The first bytes of a LEB that will be rewritten, exactly as written, or an error. If the medium reports
    /// uncorrectable bits, the CRC of each node must match.
    pub(super) fn beginning_of_leb(
        &self,
        subject: Subject,
        leb: u32,
        bytes: u32,
    ) -> Result<Vec<u8>, WriteError> {
        let offset = 0;
        let place = Place { leb, offset, bytes };
        let unreadable = |damage| self.unreadable_leb(subject, leb, damage);
        let refused = match fetch::correct(&*self.volume, place) {
            Ok(raw) => return Ok(raw),
            Err(damage) => damage,
        };
        let raw = fetch::read(&*self.volume, place).map_err(unreadable)?;
        match scan(&raw, 0).end == raw.len() {
            true => Ok(raw),
            false => Err(unreadable(refused)),
        }
    }

    /// The written part of a LEB from an offset on; the part before it may be missing.
    pub(super) fn leb_from(&self, leb: u32, offset: u32) -> Result<Vec<u8>, WriteError> {
        let extent = match self.ubifs.report.was_clean {
            true => Extent::WrittenFrom(offset),
            false => Extent::Whole,
        };
        fetch::extent_of_leb(&*self.volume, leb, extent)
            .map_err(|damage| self.unreadable_leb(Subject::Journal, leb, damage))
    }

    /// Unmaps LEBs of the log and orphan area that are not in use: earlier unmaps may have been lost.
    fn unmap_leftovers(&self) -> Result<(), WriteError> {
        let superblock = &self.ubifs.superblock;
        let log = LOG_LEB..LOG_LEB + superblock.log_lebs;
        let used = &self.ubifs.report.log_lebs;
        let orphans = log.end + superblock.lpt_lebs..self.space.first();
        let no_orphans = self.ubifs.master.flags & MASTER_NO_ORPHANS != 0;
        let unused = log
            .filter(|leb| !used.contains(leb))
            .chain(orphans.filter(|_| no_orphans));
        for leb in unused {
            if self.volume.is_mapped(Leb(leb))? {
                self.volume.unmap(Leb(leb))?;
            }
        }
        Ok(())
    }

    /// Ensures that both master LEBs end with the current master node. Otherwise rewrites both, the first one first
    /// and flagged as recovered. The flag tells a mount after another power cut that the second LEB is stale,
    /// wherever its nodes are (Linux refuses the two otherwise).
    fn settle_master(&mut self) -> Result<(), WriteError> {
        let unit = self.ubifs.superblock.min_io_bytes;
        let mut ends = Vec::new();
        for leb in [MASTER_LEB, MASTER_LEB + 1] {
            let raw = self.leb_from(leb, 0)?;
            let scanned = scan(&raw, 0);
            let last = scanned.nodes.last().map(|Found { offset, header }| {
                self.sequence = self.sequence.max(header.sequence);
                Master::decode(&raw[*offset..])
            });
            let is_good = matches!(scanned.stop, Stop::Erased)
                && matches!(&last, Some(Ok(last)) if *last == self.ubifs.master);
            ends.push(is_good.then_some(scanned.end));
        }
        let end = match ends.as_slice() {
            [Some(first), Some(second)] if first == second => *first,
            _ => self.write_recovered_master()?,
        };
        self.master_offset = u32::try_from(end)
            .expect("less than a LEB")
            .next_multiple_of(unit);
        // The flag describes how this node was written; the next one is a regular one.
        self.ubifs.master.flags &= !MASTER_RECOVERED;
        Ok(())
    }

    /// Rewrites both master LEBs from the start; returns the end of their content.
    fn write_recovered_master(&mut self) -> Result<usize, WriteError> {
        let master = Master {
            flags: self.ubifs.master.flags | MASTER_RECOVERED,
            ..self.ubifs.master.clone()
        };
        let mut raw = master.encode(self.next_sequence());
        let unit = to_usize(self.ubifs.superblock.min_io_bytes);
        raw.resize(raw.len().next_multiple_of(unit), 0);
        pad(&mut raw[512..]);
        for leb in [MASTER_LEB, MASTER_LEB + 1] {
            self.volume.leb_change(Leb(leb), &raw)?;
        }
        Ok(raw.len())
    }

    fn write_superblock(&mut self) -> Result<(), WriteError> {
        let sequence = self.next_sequence();
        let mut raw = self.ubifs.superblock.encode(sequence);
        raw.resize(
            raw.len()
                .next_multiple_of(to_usize(self.ubifs.superblock.min_io_bytes)),
            0,
        );
        pad(&mut raw[Superblock::BYTES..]);
        Ok(self.volume.leb_change(Leb(SUPERBLOCK_LEB), &raw)?)
    }

    /// Free-space fixup: the image was flashed with pages of 0xFF, which can't be programmed again. Rewrites each LEB
    /// without them.
    fn fix_free_space(&self) -> Result<(), WriteError> {
        let unit = to_usize(self.ubifs.superblock.min_io_bytes);
        for leb in 0..self.ubifs.superblock.lebs {
            if !self.volume.is_mapped(Leb(leb))? {
                continue;
            }
            let raw = self.beginning_of_leb(Subject::Data, leb, self.ubifs.superblock.leb_bytes)?;
            let used = raw
                .iter()
                .rposition(|byte| *byte != 0xFF)
                .map_or(0, |last| last + 1);
            match used {
                0 => self.volume.unmap(Leb(leb))?,
                used => self
                    .volume
                    .leb_change(Leb(leb), &raw[..used.next_multiple_of(unit)])?,
            }
        }
        Ok(())
    }

    /// Sets the size of files whose inode update was lost in a power cut to the end of their data. The inode nodes
    /// are updated in place, as in Linux: the journal may lack the space for all of them, and a commit after only
    /// some of them would leave the rest with their old sizes.
    fn fix_sizes(&mut self) -> Result<(), WriteError> {
        let mut sizes: BTreeMap<u32, Vec<(Place, u64)>> = BTreeMap::new();
        for (number, bytes) in std::mem::take(&mut self.ubifs.journal.sizes) {
            if let Some(place) = self.plain_place(Key::inode(number))? {
                sizes.entry(place.leb).or_default().push((place, bytes));
                self.ubifs.known_inodes.forget(number);
            }
        }
        for (leb, sizes) in sizes {
            let free = self.space.get(leb).map_or(0, |space| space.free);
            let written = self.ubifs.superblock.leb_bytes - free;
            let mut raw = self.beginning_of_leb(Subject::Inode, leb, written)?;
            for (place, bytes) in sizes {
                set_size(&mut raw, place, bytes)
                    .map_err(|defect| self.unreadable_leb(Subject::Inode, leb, defect.into()))?;
            }
            self.volume.leb_change(Leb(leb), &raw)?;
        }
        Ok(())
    }
}

/// Updates the size in an inode node of a LEB.
fn set_size(raw: &mut [u8], place: Place, bytes: u64) -> Result<(), NodeDefect> {
    let (from, to) = (to_usize(place.offset), to_usize(place.offset + place.bytes));
    let node = raw.get_mut(from..to).unwrap_or_default();
    let header = check_expected(node, NodeKind::Inode, place.bytes)?;
    let mut inode = Inode::decode(node)?;
    inode.size_bytes = bytes;
    node.copy_from_slice(&inode.encode(header.sequence, header.group));
    Ok(())
}
