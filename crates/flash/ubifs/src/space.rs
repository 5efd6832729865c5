//! Lprops (LEB properties: free and dirty space) of the main area, and their sums in the master node.
//!
//! Free space lies behind the last write of a LEB and can be written. Dirty space was written and is obsolete. Space
//! too small for future nodes counts as *dead* (no node fits) or *dark* (not every node fits) and is excluded from
//! the space available to files.

/// The smallest node written into free space: a block of one byte, aligned.
const SMALLEST_NODE_BYTES: u32 = 56;
/// The largest node: an inode with the maximum data.
pub(crate) const LARGEST_NODE_BYTES: u32 = 4256;

/// Lprops of one LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LebSpace {
    /// Free bytes: not written; a multiple of 8.
    pub free: u32,
    /// Dirty bytes: written and obsolete; a multiple of 8.
    pub dirty: u32,
    /// Whether it holds index nodes, and only those.
    pub index: bool,
}

impl LebSpace {
    /// An empty LEB.
    pub(crate) const fn empty(leb_bytes: u32) -> Self {
        Self {
            free: leb_bytes,
            dirty: 0,
            index: false,
        }
    }

    /// A LEB with nodes up to `end` and padding to the write unit.
    pub(crate) const fn written(end: u32, index: bool, leb_bytes: u32, min_io_bytes: u32) -> Self {
        let unit = if min_io_bytes < 8 { 8 } else { min_io_bytes };
        let end = end.next_multiple_of(8);
        let written = end.next_multiple_of(unit);
        Self {
            free: leb_bytes - written,
            dirty: written - end,
            index,
        }
    }
}

/// Sums over the main area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceSums {
    /// Number of empty LEBs.
    pub empty_lebs: u32,
    /// Number of index LEBs.
    pub index_lebs: u32,
    /// Free bytes.
    pub free: u64,
    /// Dirty bytes.
    pub dirty: u64,
    /// Bytes of live nodes outside of index LEBs.
    pub used: u64,
    /// Dead bytes outside of index LEBs.
    pub dead: u64,
    /// Dark bytes outside of index LEBs.
    pub dark: u64,
}

/// Thresholds below which space is dead or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    leb_bytes: u32,
    dead: u32,
    dark: u32,
}

impl Watermarks {
    /// The thresholds for this geometry.
    #[must_use]
    pub const fn new(leb_bytes: u32, min_io_bytes: u32) -> Self {
        Self {
            leb_bytes,
            dead: SMALLEST_NODE_BYTES.next_multiple_of(min_io_bytes),
            dark: LARGEST_NODE_BYTES.next_multiple_of(min_io_bytes),
        }
    }

    /// The dark part of the space in one LEB.
    fn dark_of(self, space: u32) -> u32 {
        match space {
            space if space < self.dark => space,
            // After the largest node, the rest may be too small for any node.
            space if space - self.dark < SMALLEST_NODE_BYTES => space - SMALLEST_NODE_BYTES,
            _ => self.dark,
        }
    }

    /// Computes the sums.
    #[must_use]
    pub fn sum(self, lebs: &[LebSpace]) -> SpaceSums {
        let mut sums = SpaceSums::default();
        for leb in lebs {
            sums.free += u64::from(leb.free);
            sums.dirty += u64::from(leb.dirty);
            sums.empty_lebs += u32::from(leb.free == self.leb_bytes);
            if leb.index {
                sums.index_lebs += 1;
                continue;
            }
            let space = leb.free + leb.dirty;
            sums.used += u64::from(self.leb_bytes - space);
            match space < self.dead {
                true => sums.dead += u64::from(space),
                false => sums.dark += u64::from(self.dark_of(space)),
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_that_is_too_small_is_dead_or_dark() {
        let marks = Watermarks::new(126_976, 2048);
        let leb = |free, dirty| LebSpace {
            free,
            dirty,
            index: false,
        };
        let of = |leb| {
            let sums = marks.sum(&[leb]);
            (sums.dead, sums.dark)
        };
        assert_eq!(of(leb(0, 2040)), (2040, 0));
        assert_eq!(of(leb(2048, 0)), (0, 2048));
        assert_eq!(of(leb(4096, 2040)), (0, 6136));
        assert_eq!(of(leb(6144, 0)), (0, 6144 - 56));
        assert_eq!(of(leb(6144, 56)), (0, 6144));
        assert_eq!(of(leb(126_976, 0)), (0, 6144));
    }

    #[test]
    fn the_last_write_unit_of_a_leb_is_filled_up_by_dirty_bytes() {
        let space = LebSpace::written(4150, false, 126_976, 2048);
        assert_eq!((space.free, space.dirty), (126_976 - 6144, 6144 - 4152));
    }
}
