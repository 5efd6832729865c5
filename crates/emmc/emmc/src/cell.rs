//! Word lines: which pages of a block share cells, and so which pages an interrupted program destroys.
//!
//! A word line holds one page for each bit of its cells. Pages are programmed along a staircase: the lowest bit of
//! word line `s`, then the next bit of `s - 1`, and so on. For two bits that is the distance-3 pairing of seeds/002
//! section 2.1.1 (pages 0 and 2, 1 and 4, 3 and 6 ...), with the exceptions of the first and the last word line.
//!
//! Invariant: the pages of a block are a permutation of all (word line, bit) pairs, and a lower bit always comes
//! first.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::geometry::index;

/// Number of bits per cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellKind {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
}

impl CellKind {
    /// Bits per cell, which equals pages per word line.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
        }
    }
}

impl fmt::Display for CellKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Slc => "SLC",
            Self::Mlc => "MLC",
            Self::Tlc => "TLC",
        })
    }
}

/// Position of a page within its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRole {
    /// Word line, from 0.
    pub word_line: u32,
    /// Bit of the cells, 0 the lowest (LSB).
    pub bit: u8,
}

/// The pages of one block, in program order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordLines {
    kind: CellKind,
    roles: Vec<PageRole>,
    /// For each page the pages of its word line with lower bits; unused entries repeat the page itself.
    partners: Vec<[u32; 2]>,
}

impl WordLines {
    /// A block of `word_lines` word lines.
    #[must_use]
    pub fn new(kind: CellKind, word_lines: u32) -> Self {
        let mut roles: Vec<PageRole> = (0..word_lines)
            .flat_map(|word_line| (0..kind.bits()).map(move |bit| PageRole { word_line, bit }))
            .collect();
        roles.sort_by_key(|role| (role.word_line + u32::from(role.bit), role.bit));
        let mut page_of = vec![[0_u32; 3]; index(word_lines)];
        let mut partners = Vec::with_capacity(roles.len());
        for (page, role) in (0..).zip(&roles) {
            let of_word_line = &mut page_of[index(role.word_line)];
            of_word_line[usize::from(role.bit)] = page;
            partners.push(match role.bit {
                0 => [page, page],
                1 => [of_word_line[0], page],
                _ => [of_word_line[0], of_word_line[1]],
            });
        }
        Self {
            kind,
            roles,
            partners,
        }
    }

    /// Kind of the cells.
    #[must_use]
    pub const fn kind(&self) -> CellKind {
        self.kind
    }

    /// Pages per block.
    #[must_use]
    pub fn pages(&self) -> u32 {
        u32::try_from(self.roles.len()).expect("a block has fewer than 2^32 pages")
    }

    /// Word line and bit of a page.
    ///
    /// # Panics
    /// If the block has no such page.
    #[must_use]
    pub fn role(&self, page: u32) -> PageRole {
        self.roles[index(page)]
    }

    /// The pages that a failed program of `page` destroys: those of its word line with lower bits.
    pub fn lower_partners(&self, page: u32) -> impl Iterator<Item = u32> + use<> {
        let [first, second] = self.partners[index(page)];
        [first, second]
            .into_iter()
            .filter(move |partner| *partner != page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed form for two bits: lsb(w) = 2w - 1, msb(w) = 2w + 2, but 0 for the first and 2W - 1 for the last.
    #[test]
    fn two_bit_cells_pair_pages_three_apart_as_the_paper_has_it() {
        let block = WordLines::new(CellKind::Mlc, 64);
        assert_eq!(block.pages(), 128);
        for word_line in 0..64 {
            let lsb = if word_line == 0 { 0 } else { 2 * word_line - 1 };
            let msb = if word_line == 63 { 127 } else { 2 * word_line + 2 };
            assert_eq!(block.role(lsb), PageRole { word_line, bit: 0 });
            assert_eq!(block.role(msb), PageRole { word_line, bit: 1 });
            assert_eq!(block.lower_partners(lsb).count(), 0);
            assert_eq!(block.lower_partners(msb).collect::<Vec<_>>(), [lsb]);
        }
    }

    /// Staircase of three: L0 | L1 C0 | L2 C1 M0 | L3 C2 M1: M0 is page 5 and endangers pages 0 (L0) and 2 (C0).
    #[test]
    fn three_bit_cells_climb_the_staircase() {
        let block = WordLines::new(CellKind::Tlc, 4);
        let roles: Vec<(u32, u8)> = (0..12)
            .map(|page| block.role(page))
            .map(|role| (role.word_line, role.bit))
            .collect();
        let stairs = [
            (0, 0),
            (1, 0),
            (0, 1),
            (2, 0),
            (1, 1),
            (0, 2),
            (3, 0),
            (2, 1),
            (1, 2),
            (3, 1),
            (2, 2),
            (3, 2),
        ];
        assert_eq!(roles, stairs);
        assert_eq!(block.lower_partners(5).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(block.lower_partners(2).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn cells_of_one_bit_endanger_nobody() {
        let block = WordLines::new(CellKind::Slc, 8);
        assert_eq!(block.pages(), 8);
        assert!((0..8).all(|page| block.lower_partners(page).count() == 0));
    }
}
