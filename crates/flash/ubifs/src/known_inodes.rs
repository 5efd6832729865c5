//! Inode cache: the inodes read or written last, to save repeated reads of their nodes.
//!
//! Entries are keyed by inode number and tagged with the location of the node; a lookup hits only if the index still
//! points there. The writer must invalidate an entry whenever its node moves ([`KnownInodes::forget`]), since the old
//! location may later hold another inode's node, or a newer version. The number of entries and the data per inode are
//! bounded (long link targets and attribute values are not cached).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::finding::Place;
use crate::format::{Inode, InodeNumber};

/// Capacity. One more inode clears the cache: recency of use is not tracked.
const INODES_MAX: usize = 256;
/// Maximum data (beyond the fixed fields) of a cached inode, bytes.
const DATA_BYTES_MAX: usize = 64;

/// The cache: inodes with the locations of their nodes.
#[derive(Default)]
pub(crate) struct KnownInodes(Mutex<HashMap<InodeNumber, (Place, Inode)>>);

impl KnownInodes {
    fn lock(&self) -> MutexGuard<'_, HashMap<InodeNumber, (Place, Inode)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached inode, if its node is at `place`.
    pub(crate) fn get(&self, number: InodeNumber, place: Place) -> Option<Inode> {
        let known = self.lock();
        let (_, inode) = known.get(&number).filter(|(at, _)| *at == place)?;
        Some(inode.clone())
    }

    /// Caches an inode whose node is at `place`.
    pub(crate) fn remember(&self, number: InodeNumber, place: Place, inode: &Inode) {
        let mut known = self.lock();
        if inode.data.len() > DATA_BYTES_MAX {
            known.remove(&number);
            return;
        }
        if known.len() >= INODES_MAX && !known.contains_key(&number) {
            known.clear();
        }
        known.insert(number, (place, inode.clone()));
    }

    /// Invalidates an inode: its node has moved or is gone.
    pub(crate) fn forget(&self, number: InodeNumber) {
        self.lock().remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn place(offset: u32) -> Place {
        Place {
            leb: 9,
            offset,
            bytes: 160,
        }
    }

    #[test]
    fn an_inode_is_known_at_its_place_alone_until_it_is_forgotten() {
        let (known, number) = (KnownInodes::default(), InodeNumber(70));
        let inode = Inode::unknown(number);
        known.remember(number, place(8), &inode);
        assert_eq!(known.get(number, place(8)), Some(inode));
        assert_eq!(known.get(number, place(16)), None);
        known.forget(number);
        assert_eq!(known.get(number, place(8)), None);
    }

    #[test]
    fn neither_many_inodes_nor_large_ones_are_kept() {
        let known = KnownInodes::default();
        let large = Inode {
            data: vec![0; DATA_BYTES_MAX + 1],
            ..Inode::unknown(InodeNumber(1))
        };
        known.remember(InodeNumber(1), place(0), &Inode::unknown(InodeNumber(1)));
        known.remember(InodeNumber(1), place(0), &large);
        assert_eq!(
            known.get(InodeNumber(1), place(0)),
            None,
            "the small one is outdated"
        );
        for number in (0..1000).map(InodeNumber) {
            known.remember(number, place(0), &Inode::unknown(number));
        }
        assert!(known.lock().len() <= INODES_MAX);
    }
}
