//! Space of the LEBs of the main area (LEB properties, lprops), and the sums of it that the master node has.
//!
//! Free space is behind the last write of a LEB and can be written. Dirty space was written and holds nothing any more. Space
//! that is too small for the nodes to come counts as *dead* (no node fits) or *dark* (not every node fits): it is left out of
//! what files may have.

/// The smallest node that is written into free space: a block of a byte, aligned.
const SMALLEST_NODE_BYTES: u32 = 56;
/// The largest node: an inode with all data it can have.
pub(crate) const LARGEST_NODE_BYTES: u32 = 4256;

/// Space of one LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LebSpace {
    /// Bytes that were not written; a multiple of 8.
    pub free: u32,
    /// Bytes that were written and hold nothing; a multiple of 8.
    pub dirty: u32,
    /// Whether it holds nodes of the index, and nothing else.
    pub index: bool,
}

impl LebSpace {
    /// Nothing but space.
    pub(crate) const fn empty(leb_bytes: u32) -> Self {
        Self {
            free: leb_bytes,
            dirty: 0,
            index: false,
        }
    }

    /// A LEB with nodes up to `end`, the last write unit filled up.
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

/// Sums over all LEBs of the main area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceSums {
    /// LEBs with nothing in them.
    pub empty_lebs: u32,
    /// LEBs of the index.
    pub index_lebs: u32,
    /// Bytes that were not written.
    pub free: u64,
    /// Bytes that hold nothing any more.
    pub dirty: u64,
    /// Bytes of nodes, in LEBs that are not of the index.
    pub used: u64,
    /// Dead bytes of these.
    pub dead: u64,
    /// Dark bytes of these.
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
    /// Of a file system of this shape.
    #[must_use]
    pub const fn new(leb_bytes: u32, min_io_bytes: u32) -> Self {
        Self {
            leb_bytes,
            dead: SMALLEST_NODE_BYTES.next_multiple_of(min_io_bytes),
            dark: LARGEST_NODE_BYTES.next_multiple_of(min_io_bytes),
        }
    }

    /// How much of the space of one LEB is dark.
    fn dark_of(self, space: u32) -> u32 {
        match space {
            space if space < self.dark => space,
            // Behind the largest node there may be room for no other one.
            space if space - self.dark < SMALLEST_NODE_BYTES => space - SMALLEST_NODE_BYTES,
            _ => self.dark,
        }
    }

    /// Sums up.
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
