//! Recovery of space: positions of the heads, leftovers of an interrupted commit behind them, and the LEB reserved
//! for garbage collection.
//!
//! Until the commit of the recovery, a mount after another power cut replays the same journal over the same index and
//! looks up the same orphans, so nothing that this replay needs is erased.

use media::Leb;
use ubi::Volume;

use super::buffers::HeadKind;
use super::{WriteError, Writer};
use crate::finding::Subject;
use crate::scan::{is_erased, to_usize};
use crate::space::LebSpace;

impl Writer {
    /// Takes the head LEBs of the index and the LPT, and erases leftovers of an interrupted commit in other LEBs.
    pub(super) fn take_fixed_lebs(&mut self) -> Result<(), WriteError> {
        if let Some((leb, offset)) = self.index_head {
            self.space.take(leb);
            self.cut_behind(Subject::Index, (leb, offset))?;
        }
        let lpt_head = (self.lpt.first + self.lpt.head.leb, self.lpt.head.offset);
        self.cut_behind(Subject::Space, lpt_head)?;
        for leb in 0..self.ubifs.superblock.lpt_lebs {
            if !self.lpt.in_use.contains(&leb) && leb != self.lpt.head.leb {
                self.volume.unmap(Leb(self.lpt.first + leb))?;
            }
        }
        for leb in self.space.reclaimable(false) {
            self.volume.unmap(Leb(leb))?;
            self.space.set_empty(leb);
            self.counts.reclaimed_lebs += 1;
        }
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let empty: Vec<u32> = self
            .space
            .iter()
            .filter(|(leb, space)| space.free == leb_bytes && !self.space.is_taken(*leb))
            .map(|(leb, _)| leb)
            .collect();
        for leb in empty {
            if self.volume.is_mapped(Leb(leb))? {
                self.volume.unmap(Leb(leb))?;
            }
        }
        Ok(())
    }

    /// Erases the area behind a head, where an interrupted commit may have written or begun to write. The medium may
    /// show that only by uncorrectable reads.
    fn cut_behind(&self, subject: Subject, (leb, offset): (u32, u32)) -> Result<(), WriteError> {
        let (raw, is_uncorrectable) = match self.ubifs.report.was_clean {
            true => (self.leb_from(leb, offset)?, false),
            false => self.leb_as_it_is(leb, offset)?,
        };
        if !is_uncorrectable && is_erased(&raw[to_usize(offset).min(raw.len())..]) {
            return Ok(());
        }
        let beginning = self.beginning_of_leb(subject, leb, offset)?;
        Ok(self.volume.leb_change(Leb(leb), &beginning)?)
    }

    /// Resumes the heads in the LEBs in which the journal ended.
    pub(super) fn resume_heads(&self) {
        for head in HeadKind::ALL {
            let mut buds = self.ubifs.report.buds.iter().rev();
            let last = buds.find(|bud| bud.head == head.number()).map(|bud| bud.leb);
            let space = last.and_then(|leb| Some((leb, self.space.get(leb)?)));
            if let Some((leb, space)) = space.filter(|(_, space)| space.free > 0) {
                let end = self.ubifs.superblock.leb_bytes - space.free;
                self.buffers.seek(head, Some((leb, end)));
            }
        }
    }

    /// Reserves an empty LEB for garbage collection: the one named by the master node if it is still empty. Linux
    /// updates that number only at a clean unmount, so after a power cut the journal has usually continued in it.
    ///
    /// If the empty LEBs are not enough for this and for the commit of the recovery, collects LEBs into the rest of
    /// the GC head's LEB, as Linux does.
    pub(super) fn settle_gc_leb(&mut self) -> Result<(), WriteError> {
        let is_kept = self.keep_for_gc(self.ubifs.master.gc_leb)?;
        loop {
            let empty = self.space.empty_count();
            let left = empty.checked_sub(u32::from(!is_kept));
            if let Some(left) = left
                && self.has_room_for_commit(left)?
            {
                if let Some(leb) = self.space.empty_leb().filter(|_| !is_kept) {
                    self.keep_for_gc(leb)?;
                }
                return Ok(());
            }
            let Some(victim) = self.victim_for_gc_head() else {
                return match is_kept {
                    // The commit reports the shortage.
                    true => Ok(()),
                    false => Err(self.no_space()),
                };
            };
            self.empty_by_moving(victim)?;
        }
    }

    /// Whether a commit of the current changes fits into `lebs` empty LEBs and the gaps between index nodes.
    fn has_room_for_commit(&self, lebs: u32) -> Result<bool, WriteError> {
        let mut edits = self.edits()?;
        if self.lebs_for(&edits)? <= lebs {
            return Ok(true);
        }
        edits.gaps = self.gaps()?;
        Ok(self.lebs_beside_gaps(&edits, lebs)?.is_some())
    }

    /// The LEB with the fewest live bytes that fit into the rest of the GC head's LEB.
    fn victim_for_gc_head(&self) -> Option<u32> {
        let leb_bytes = self.ubifs.superblock.leb_bytes;
        let (_, end) = self.buffers.position(HeadKind::Gc)?;
        let in_use = |space: LebSpace| leb_bytes - space.free - space.dirty;
        let candidates = self
            .space
            .iter()
            .filter(|(leb, space)| !space.index && space.free < leb_bytes && !self.space.is_taken(*leb))
            .filter(|(leb, _)| !self.unreadable_lebs.contains_key(leb))
            .map(|(leb, space)| (in_use(space), leb))
            .filter(|(bytes, _)| *bytes <= leb_bytes - end);
        candidates.min().map(|(_, leb)| leb)
    }
}
