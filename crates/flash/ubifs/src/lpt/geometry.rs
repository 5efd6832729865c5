//! Geometry of the LPT: node counts and field widths, derived from the superblock.
//!
//! The height of the tree and the field widths depend on the number of LEBs that the file system may grow to; the
//! number of nodes depends on its current size. The *small* model fits in one LEB and is rewritten by each commit. In
//! the *big* model, nodes are numbered and written individually, and there is a save table (lsave).

use crate::format::{LOG_LEB, Superblock, SuperblockFlags};

/// Children of an inner node (nnode), and LEBs per leaf (pnode).
pub(crate) const FANOUT: u32 = 4;
/// Minimum size of the LPT area, LEBs.
pub(crate) const LPT_LEBS_MIN: u32 = 2;

const CRC_BITS: u32 = 16;
const TYPE_BITS: u32 = 4;
/// Size of a new LPT area as a multiple of the tree.
const SLACK: u64 = 4;

/// Parameters that determine the shape of an LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LptInput {
    pub(crate) leb_bytes: u32,
    pub(crate) min_io_bytes: u32,
    /// LEBs of the main area, currently.
    pub(crate) main_lebs: u32,
    /// LEBs of the file system, currently.
    pub(crate) lebs: u32,
    /// Maximum LEBs of the file system.
    pub(crate) lebs_max: u32,
    pub(crate) lpt_lebs: u32,
    /// Entries of the save table (lsave).
    pub(crate) saved_lebs: u32,
    pub(crate) big: bool,
}

/// Geometry of an LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LptGeometry {
    pub(crate) input: LptInput,
    /// Levels of inner nodes.
    pub(crate) height: u32,
    /// Number of leaves (pnodes).
    pub(crate) leaves: u32,
    /// Number of inner nodes (nnodes).
    pub(crate) inner_nodes: u32,
    pub(super) number_bits: u32,
    pub(super) leb_bits: u32,
    pub(super) space_bits: u32,
    pub(super) table_space_bits: u32,
    pub(super) lpt_leb_bits: u32,
    pub(super) offset_bits: u32,
    pub(crate) leaf_bytes: u32,
    pub(crate) inner_bytes: u32,
    /// Length of the LEB table (ltab).
    pub(crate) table_bytes: u32,
    /// Length of the save table (lsave).
    pub(crate) saved_bytes: u32,
    /// Length of all nodes and tables, including the space wasted at the ends of LEBs.
    pub(crate) bytes: u64,
}

/// Number of bits needed for `number`.
const fn width(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

impl LptGeometry {
    pub(crate) fn new(input: LptInput) -> Self {
        let LptInput {
            leb_bytes,
            main_lebs,
            lpt_lebs,
            big,
            ..
        } = input;
        let leaves_max = (main_lebs + input.lebs_max - input.lebs).div_ceil(FANOUT);
        let mut height = 1;
        let mut reach = u64::from(FANOUT);
        while reach < u64::from(leaves_max) {
            height += 1;
            reach *= u64::from(FANOUT);
        }
        let leaves = main_lebs.div_ceil(FANOUT);
        let (mut row, mut inner_nodes) = (leaves, 0);
        for _ in 0..height {
            row = row.div_ceil(FANOUT);
            inner_nodes += row;
        }
        let number_bits = width(input.lebs_max.div_ceil(FANOUT) - 1);
        let leb_bits = width(input.lebs_max - 1);
        let space_bits = width(leb_bytes) - 3;
        let table_space_bits = width(leb_bytes);
        let (lpt_leb_bits, offset_bits) = (width(lpt_lebs), width(leb_bytes - 1));
        let head = CRC_BITS + TYPE_BITS;
        let numbered = head + if big { number_bits } else { 0 };
        let leaf_bytes = (numbered + (2 * space_bits + 1) * FANOUT).div_ceil(8);
        let inner_bytes = (numbered + (lpt_leb_bits + offset_bits) * FANOUT).div_ceil(8);
        let table_bytes = (head + lpt_lebs * table_space_bits * 2).div_ceil(8);
        let saved_bytes = (head + leb_bits * input.saved_lebs).div_ceil(8);
        let nodes =
            u64::from(leaves) * u64::from(leaf_bytes) + u64::from(inner_nodes) * u64::from(inner_bytes);
        let tables = u64::from(table_bytes) + if big { u64::from(saved_bytes) } else { 0 };
        let bytes = with_wastage(nodes + tables, leaf_bytes.max(inner_bytes), &input);
        Self {
            input,
            height,
            leaves,
            inner_nodes,
            number_bits,
            leb_bits,
            space_bits,
            table_space_bits,
            lpt_leb_bits,
            offset_bits,
            leaf_bytes,
            inner_bytes,
            table_bytes,
            saved_bytes,
            bytes,
        }
    }

    /// The geometry of an existing file system.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        Self::new(LptInput {
            leb_bytes: superblock.leb_bytes,
            min_io_bytes: superblock.min_io_bytes,
            main_lebs: superblock.lebs
                - (LOG_LEB + superblock.log_lebs + superblock.lpt_lebs + superblock.orphan_lebs),
            lebs: superblock.lebs,
            lebs_max: superblock.lebs_max,
            lpt_lebs: superblock.lpt_lebs,
            saved_lebs: superblock.saved_lebs,
            big: SuperblockFlags(superblock.flags).has(SuperblockFlags::BIG_LPT),
        })
    }

    /// Chooses the model and the size of the LPT area of a new file system. `input.main_lebs` is the total for the
    /// main area and the LPT area; returns `None` if it is too small.
    pub(crate) fn choose(input: LptInput) -> Option<Self> {
        let both = input.main_lebs;
        let with = |lpt_lebs: u32, big| {
            let main_lebs = both.checked_sub(lpt_lebs).filter(|lebs| *lebs > 0)?;
            Some(Self::new(LptInput {
                main_lebs,
                lpt_lebs,
                big,
                ..input
            }))
        };
        let leb_bytes = u64::from(input.leb_bytes);
        let mut shape = with(LPT_LEBS_MIN, false)?;
        if shape.bytes > leb_bytes {
            shape = with(LPT_LEBS_MIN, true)?;
        }
        let big = shape.input.big;
        for _ in 0..64 {
            let needed = u32::try_from((shape.bytes * SLACK).div_ceil(leb_bytes)).ok()?;
            if needed <= shape.input.lpt_lebs {
                return (u64::from(shape.table_bytes) <= leb_bytes).then_some(shape);
            }
            shape = with(needed, big)?;
        }
        None
    }

    /// The first LEB of the LPT area.
    pub(crate) const fn first_leb(log_lebs: u32) -> u32 {
        LOG_LEB + log_lebs
    }
}

/// Adds the space wasted because no node crosses the end of a LEB and the last write is padded to its unit.
fn with_wastage(bytes: u64, wasted: u32, input: &LptInput) -> u64 {
    let (leb_bytes, wasted) = (u64::from(input.leb_bytes), u64::from(wasted));
    let mut rest = bytes + wasted;
    let mut all = wasted;
    while rest > leb_bytes {
        rest = rest + wasted - leb_bytes;
        all += wasted;
    }
    let unit = u64::from(input.min_io_bytes);
    bytes + all + (rest.next_multiple_of(unit) - rest)
}
