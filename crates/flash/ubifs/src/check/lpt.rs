//! The LPT (LEB properties tree): free and dirty space of each LEB of the main area, and whether it holds index
//! nodes.
//!
//! It is the only part of the medium not made of nodes with the common header. Its leaves (pnodes) and inner nodes
//! (nnodes) have four slots each and are bit-packed, least significant bit first; all parts of one kind have the same
//! length, which follows from the superblock. The LPT has two more tables: *ltab*, the space of the LPT's own LEBs,
//! and *lsave*, in the big model, LEBs that a mount should read early. Each of the four kinds starts with:
//!
//! | bits   | field  | meaning                                                                             |
//! |--------|--------|-------------------------------------------------------------------------------------|
//! | 0..16  | CRC-16 | of all following bytes: polynomial 0x8005 reflected, seed all ones                    |
//! | 16..20 | kind   | 0 pnode, 1 nnode, 2 ltab, 3 lsave                                                    |
//! | 20..   | number | pnodes and nnodes of the big model only, see [`LptShape::nnode_number`]; then the fields |
//!
//! Free and dirty bytes of a LEB are stored divided by 8. An empty slot of an nnode holds the LEB number behind the
//! LPT's last LEB: all LEBs below it are empty.
//!
//! This decoder is the checker's own, written from the format's description, since the LPT under test may have been
//! written by this crate.

use thiserror::Error;

use crate::format::{LOG_LEB, Superblock, SuperblockFlags};

/// Number of slots in a pnode or nnode.
pub const LPT_FANOUT: usize = 4;
const FANOUT_BITS: u32 = 2;
const CRC_BITS: u32 = 16;
const KIND_BITS: u32 = 4;

/// Kind of a part of the LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LptKind {
    /// A leaf: lprops of four LEBs.
    Pnode,
    /// An inner node.
    Nnode,
    /// Space of the LPT's own LEBs.
    Ltab,
    /// LEBs that a mount should read early.
    Lsave,
}

impl LptKind {
    /// The name used in error messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pnode => "pnode",
            Self::Nnode => "nnode",
            Self::Ltab => "ltab",
            Self::Lsave => "lsave",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Pnode => 0,
            Self::Nnode => 1,
            Self::Ltab => 2,
            Self::Lsave => 3,
        }
    }
}

/// Why bytes are not a valid part of the LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LptDefect {
    /// The LEB ends within the part.
    #[error("a {} of {expected} bytes is to be here, {room} bytes are left", kind.name())]
    NoRoom {
        /// Kind expected.
        kind: LptKind,
        /// Its length, bytes.
        expected: usize,
        /// Bytes left in the LEB.
        room: usize,
    },
    /// The CRC does not match.
    #[error("{}: CRC is {found:#06x}, it says {stored:#06x}", kind.name())]
    Crc {
        /// Kind expected.
        kind: LptKind,
        /// CRC stored.
        stored: u16,
        /// CRC of the bytes.
        found: u16,
    },
    /// Another kind than expected.
    #[error("kind {found} is here, expected is a {} ({})", expected.name(), expected.number())]
    Kind {
        /// Kind expected.
        expected: LptKind,
        /// Kind found.
        found: u32,
    },
    /// Another number than expected.
    #[error("{}: it is number {found}, expected is {expected}", kind.name())]
    Number {
        /// Kind of the part.
        kind: LptKind,
        /// Number found.
        found: u32,
        /// Number expected.
        expected: u32,
    },
}

/// Space of a LEB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LebSpace {
    /// Bytes at its end that are free: never written.
    pub free_bytes: u32,
    /// Dirty bytes: written, and obsolete.
    pub dirty_bytes: u32,
    /// Whether it holds index nodes.
    pub is_index: bool,
}

/// A location in the LPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LptPlace {
    /// LEB of the volume.
    pub leb: u32,
    /// Offset in the LEB.
    pub offset: u32,
}

/// Lengths and counts of an LPT, derived from the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LptShape {
    /// Big model: nodes are numbered, and there is an lsave.
    pub is_big: bool,
    /// First LEB of the LPT.
    pub first_leb: u32,
    /// LEBs of the LPT.
    pub lebs: u32,
    /// First LEB of the main area.
    pub main_first_leb: u32,
    /// LEBs of the main area.
    pub main_lebs: u32,
    /// Number of nnode levels.
    pub height: u32,
    /// Number of pnodes for the main area.
    pub pnodes: u32,
    /// Number of lsave entries.
    pub saved_lebs: u32,
    leb_bytes: u32,
    number_bits: u32,
    space_bits: u32,
    lpt_leb_bits: u32,
    lpt_offset_bits: u32,
    lpt_space_bits: u32,
    leb_bits: u32,
}

/// Number of bits needed for `number`.
const fn width(number: u32) -> u32 {
    u32::BITS - number.leading_zeros()
}

impl LptShape {
    /// Derives the shape from a superblock; `None` if its values contradict each other.
    #[must_use]
    pub fn new(superblock: &Superblock) -> Option<Self> {
        let first_leb = LOG_LEB.checked_add(superblock.log_lebs)?;
        let main_first_leb = first_leb
            .checked_add(superblock.lpt_lebs)?
            .checked_add(superblock.orphan_lebs)?;
        let main_lebs = superblock.lebs.checked_sub(main_first_leb)?;
        let (lebs_max, leb_bytes) = (superblock.lebs_max, superblock.leb_bytes);
        if main_lebs == 0 || superblock.lpt_lebs == 0 || lebs_max < superblock.lebs || leb_bytes < 8 {
            return None;
        }
        let pnodes_max = (lebs_max - main_first_leb).div_ceil(1 << FANOUT_BITS);
        let mut height = 1;
        while pnodes_max > 1_u32.checked_shl(FANOUT_BITS * height).unwrap_or(u32::MAX) {
            height += 1;
        }
        Some(Self {
            is_big: SuperblockFlags(superblock.flags).has(SuperblockFlags::BIG_LPT),
            first_leb,
            lebs: superblock.lpt_lebs,
            main_first_leb,
            main_lebs,
            height,
            pnodes: main_lebs.div_ceil(1 << FANOUT_BITS),
            saved_lebs: superblock.saved_lebs,
            leb_bytes,
            number_bits: width(lebs_max.div_ceil(1 << FANOUT_BITS) - 1),
            space_bits: width(leb_bytes) - 3,
            lpt_leb_bits: width(superblock.lpt_lebs),
            lpt_offset_bits: width(leb_bytes - 1),
            lpt_space_bits: width(leb_bytes),
            leb_bits: width(lebs_max - 1),
        })
    }

    /// Length of a part of this kind, bytes.
    #[must_use]
    pub fn bytes(&self, kind: LptKind) -> usize {
        let number_bits = if self.is_big { self.number_bits } else { 0 };
        let four = 1 << FANOUT_BITS;
        let bits = match kind {
            LptKind::Pnode => u64::from(number_bits + (2 * self.space_bits + 1) * four),
            LptKind::Nnode => u64::from(number_bits + (self.lpt_leb_bits + self.lpt_offset_bits) * four),
            LptKind::Ltab => u64::from(self.lebs) * u64::from(2 * self.lpt_space_bits),
            LptKind::Lsave => u64::from(self.saved_lebs) * u64::from(self.leb_bits),
        };
        let bytes = (bits + u64::from(CRC_BITS + KIND_BITS)).div_ceil(8);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Number of the nnode in `slot` of `parent`, at `depth` steps below the root, which is number 1.
    #[must_use]
    pub const fn nnode_number(parent: u32, slot: u32, depth: u32) -> u32 {
        let shift = (depth - 1) * FANOUT_BITS;
        (parent ^ (1 << shift)) | (((1 << FANOUT_BITS) + slot) << shift)
    }

    /// Decodes pnode `number`: the lprops of its four LEBs.
    pub fn pnode(&self, raw: &[u8], number: u32) -> Result<[LebSpace; LPT_FANOUT], LptDefect> {
        let mut bits = self.open(raw, LptKind::Pnode, number)?;
        Ok(std::array::from_fn(|_| LebSpace {
            free_bytes: bits.take(self.space_bits) << 3,
            dirty_bytes: bits.take(self.space_bits) << 3,
            is_index: bits.take(1) == 1,
        }))
    }

    /// Decodes nnode `number`: the locations of its four children.
    pub fn nnode(&self, raw: &[u8], number: u32) -> Result<[Option<LptPlace>; LPT_FANOUT], LptDefect> {
        let mut bits = self.open(raw, LptKind::Nnode, number)?;
        Ok(std::array::from_fn(|_| {
            let (leb, offset) = (bits.take(self.lpt_leb_bits), bits.take(self.lpt_offset_bits));
            (leb < self.lebs).then_some(LptPlace {
                leb: self.first_leb + leb,
                offset,
            })
        }))
    }

    /// Decodes the ltab: free and dirty bytes of each LEB of the LPT.
    pub fn ltab(&self, raw: &[u8]) -> Result<Vec<(u32, u32)>, LptDefect> {
        let mut bits = self.open(raw, LptKind::Ltab, 0)?;
        let width = self.lpt_space_bits;
        Ok((0..self.lebs)
            .map(|_| (bits.take(width), bits.take(width)))
            .collect())
    }

    /// Decodes the lsave: LEBs that a mount should read early.
    pub fn lsave(&self, raw: &[u8]) -> Result<Vec<u32>, LptDefect> {
        let mut bits = self.open(raw, LptKind::Lsave, 0)?;
        Ok((0..self.saved_lebs).map(|_| bits.take(self.leb_bits)).collect())
    }

    /// Checks the common header and returns the bits behind it.
    fn open<'a>(&self, raw: &'a [u8], kind: LptKind, number: u32) -> Result<Bits<'a>, LptDefect> {
        let expected = self.bytes(kind);
        let room = raw.len();
        let raw = raw
            .get(..expected)
            .ok_or(LptDefect::NoRoom { kind, expected, room })?;
        let mut bits = Bits { raw, at: 0 };
        let stored = u16::try_from(bits.take(CRC_BITS)).expect("16 bits");
        let found = lpt_crc(&raw[2..]);
        if stored != found {
            return Err(LptDefect::Crc { kind, stored, found });
        }
        let found = bits.take(KIND_BITS);
        if found != kind.number() {
            return Err(LptDefect::Kind {
                expected: kind,
                found,
            });
        }
        if self.is_big && matches!(kind, LptKind::Pnode | LptKind::Nnode) {
            let found = bits.take(self.number_bits);
            // The field may be narrower than an nnode's number.
            let expected = number & ((1 << self.number_bits) - 1);
            if found != expected {
                return Err(LptDefect::Number {
                    kind,
                    found,
                    expected,
                });
            }
        }
        Ok(bits)
    }
}

/// Bit reader, least significant bit first. Reads past the end return zero.
struct Bits<'a> {
    raw: &'a [u8],
    at: u32,
}

impl Bits<'_> {
    fn take(&mut self, width: u32) -> u32 {
        let mut value = 0;
        for bit in 0..width {
            let byte = usize::try_from(self.at / 8).ok().and_then(|at| self.raw.get(at));
            let set = byte.is_some_and(|byte| byte >> (self.at % 8) & 1 == 1);
            value |= u32::from(set) << bit;
            self.at += 1;
        }
        value
    }
}

/// The CRC-16 of the LPT.
#[must_use]
pub fn lpt_crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(u16::MAX, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0xA001,
        })
    })
}
