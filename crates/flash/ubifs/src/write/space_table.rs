//! Current free and dirty space of each LEB of the main area (lprops), and which LEBs are taken: by the journal, for
//! its replay, as the index head, for garbage collection.

use std::collections::BTreeSet;

use crate::finding::Place;
use crate::scan::to_usize;
use crate::space::{LebSpace, SpaceSums, Watermarks};

/// Lprops of the main area.
pub(super) struct SpaceTable {
    first: u32,
    leb_bytes: u32,
    marks: Watermarks,
    lebs: Vec<LebSpace>,
    taken: BTreeSet<u32>,
    /// Total of bytes that became dirty.
    dirtied: u64,
    /// Start of the next search for an empty LEB; it rotates, to spread wear.
    next: usize,
}

impl SpaceTable {
    pub(super) fn new(first: u32, leb_bytes: u32, min_io_bytes: u32, mut lebs: Vec<LebSpace>) -> Self {
        // The index flag of an empty LEB is stale and dropped. If files were written to such a LEB, the space left in
        // it would be taken for index space.
        for space in lebs.iter_mut().filter(|space| space.free == leb_bytes) {
            *space = LebSpace::empty(leb_bytes);
        }
        Self {
            first,
            leb_bytes,
            marks: Watermarks::new(leb_bytes, min_io_bytes),
            lebs,
            taken: BTreeSet::new(),
            dirtied: 0,
            next: 0,
        }
    }

    /// The first LEB of the main area.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// All LEBs with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, LebSpace)> {
        (self.first..).zip(self.lebs.iter().copied())
    }

    pub(super) fn all(&self) -> &[LebSpace] {
        &self.lebs
    }

    pub(super) fn sums(&self) -> SpaceSums {
        self.marks.sum(&self.lebs)
    }

    /// `None` for LEBs outside the main area.
    pub(super) fn get(&self, leb: u32) -> Option<LebSpace> {
        let index = to_usize(leb.checked_sub(self.first)?);
        self.lebs.get(index).copied()
    }

    pub(super) fn set(&mut self, leb: u32, space: LebSpace) {
        let place = leb.checked_sub(self.first).map(to_usize);
        if let Some(known) = place.and_then(|place| self.lebs.get_mut(place)) {
            assert!(
                space
                    .free
                    .checked_add(space.dirty)
                    .is_some_and(|sum| sum <= self.leb_bytes),
                "LEB {leb} would have {space:?} of {} bytes",
                self.leb_bytes
            );
            *known = space;
        }
    }

    /// Total of bytes that became dirty: while it is unchanged, another attempt to make space is futile.
    pub(super) const fn dirtied(&self) -> u64 {
        self.dirtied
    }

    /// Marks the node at a location as obsolete.
    pub(super) fn add_dirty(&mut self, place: Place) {
        self.dirtied += u64::from(place.bytes);
        if let Some(space) = self.get(place.leb) {
            let dirty = space.dirty + place.bytes.next_multiple_of(8);
            self.set(place.leb, LebSpace { dirty, ..space });
        }
    }

    /// Records `bytes` written to the LEB, `dirty` of them obsolete.
    pub(super) fn fill(&mut self, leb: u32, bytes: u32, dirty: u32) {
        if let Some(space) = self.get(leb) {
            let filled = LebSpace {
                free: space.free - bytes,
                dirty: space.dirty + dirty,
                ..space
            };
            self.set(leb, filled);
        }
    }

    pub(super) fn set_empty(&mut self, leb: u32) {
        self.set(leb, LebSpace::empty(self.leb_bytes));
    }

    pub(super) fn take(&mut self, leb: u32) {
        self.taken.insert(leb);
    }

    /// Takes a LEB, unless it is empty: until the next commit, a replay may read obsolete nodes in it.
    pub(super) fn keep_for_replay(&mut self, leb: u32) {
        if self.get(leb).is_some_and(|space| space.free < self.leb_bytes) {
            self.take(leb);
        }
    }

    pub(super) fn release(&mut self, leb: u32) {
        self.taken.remove(&leb);
    }

    pub(super) fn is_taken(&self, leb: u32) -> bool {
        self.taken.contains(&leb)
    }

    /// Number of empty LEBs that are not taken.
    pub(super) fn empty_count(&self) -> u32 {
        let empty = self.iter().filter(|(leb, space)| self.is_empty(*leb, *space));
        u32::try_from(empty.count()).unwrap_or(u32::MAX)
    }

    fn is_empty(&self, leb: u32, space: LebSpace) -> bool {
        space.free == self.leb_bytes && !self.is_taken(leb)
    }

    /// Whether a LEB of the main area is empty and not taken.
    pub(super) fn has_empty(&self, leb: u32) -> bool {
        self.get(leb).is_some_and(|space| self.is_empty(leb, space))
    }

    /// The next empty LEB.
    pub(super) fn empty_leb(&mut self) -> Option<u32> {
        let count = self.lebs.len();
        let found = (0..count).map(|step| (self.next + step) % count).find(|place| {
            let leb = self.first + u32::try_from(*place).unwrap_or(u32::MAX);
            self.is_empty(leb, self.lebs[*place])
        })?;
        self.next = (found + 1) % count;
        Some(self.first + u32::try_from(found).ok()?)
    }

    /// Takes an empty LEB.
    pub(super) fn take_empty(&mut self) -> Option<u32> {
        let leb = self.empty_leb()?;
        self.take(leb);
        Some(leb)
    }

    /// LEBs without live nodes that are not taken.
    pub(super) fn reclaimable(&self, index: bool) -> Vec<u32> {
        let all = self.iter().filter(|(leb, space)| {
            space.index == index
                && space.dirty > 0
                && space.free + space.dirty == self.leb_bytes
                && !self.is_taken(*leb)
        });
        all.map(|(leb, _)| leb).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found bug: an LPT can flag an empty LEB as an index LEB. When it was reserved for garbage collection and files
    /// were written to it, the next commit without an empty LEB would have looked there for gaps between index nodes,
    /// of which it has none.
    #[test]
    fn an_empty_leb_is_for_nothing_whatever_it_was_for() {
        let index = true;
        let full = LebSpace {
            free: 0,
            dirty: 8,
            index,
        };
        let empty = LebSpace {
            index,
            ..LebSpace::empty(4096)
        };
        let mut table = SpaceTable::new(20, 4096, 512, vec![full, empty]);
        assert!(table.has_empty(21) && !table.has_empty(20));
        assert_eq!(table.take_empty(), Some(21));
        table.fill(21, 512, 0);
        let is_of_index = |leb| table.get(leb).map(|space| space.index);
        assert_eq!((is_of_index(20), is_of_index(21)), (Some(true), Some(false)));
    }
}
