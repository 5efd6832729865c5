//! The geometry of a card's flash, and every conversion between sectors, units, slots, pages, banks and super blocks.
//!
//! A *unit* is the granularity of the translation layer's map (4 KiB by default). A *slot* is the space for one unit
//! in flash. A *row* (super page) is the same page of all banks; a *super block* is the same block of all banks, and
//! the granularity of erases and garbage collection. Slots of a super block are numbered along its rows: unit of the
//! page, bank, page.
//!
//! Invariants, checked by [`CardGeometry::new`]: nothing is 0; a page consists of whole units; slot numbers fit 32
//! bits.

use crate::cell::{CellKind, WordLines};
use crate::error::CardError;

/// Converts a number to an index into memory.
///
/// # Panics
/// If addresses have fewer than 32 bits.
#[must_use]
pub(crate) fn index(number: u32) -> usize {
    usize::try_from(number).expect("addresses have at least 32 bits")
}

/// Sector size in bytes.
pub const SECTOR_BYTES: u32 = 512;

/// Geometry of a card's flash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardGeometry {
    /// Number of banks, which program in parallel.
    pub banks: u32,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Size of a mapping unit in bytes.
    pub unit_bytes: u32,
    /// Pages of a block of one bank.
    pub word_lines: WordLines,
    /// Sectors visible to the host.
    pub sectors: u64,
    /// Number of super blocks, including those for garbage collection.
    pub super_blocks: u32,
}

/// A page of one bank: the bank, and the page of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// Bank.
    pub bank: u32,
    /// Page of the block.
    pub page: u32,
}

/// Parameters of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bits per cell.
    pub cell: CellKind,
    /// Number of banks.
    pub banks: u32,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Size of a mapping unit in bytes.
    pub unit_bytes: u32,
    /// Word lines per block.
    pub word_lines: u32,
    /// Capacity visible to the host, bytes.
    pub capacity_bytes: u64,
    /// Over-provisioning, in thousandths of the capacity.
    pub spare_permille: u32,
}

/// Largest capacity in bytes, that of the largest cards sold. The maps of a card take 8 bytes of memory a unit: 1 GiB.
const CAPACITY_BYTES_MAX: u64 = 512 << 30;

/// Minimum of super blocks beyond the capacity, whatever the over-provisioning: one being filled by the host, one by
/// the collector, and two free ones.
pub const SPARE_SUPER_BLOCKS_MIN: u32 = 4;

impl CardGeometry {
    /// Checks and completes the parameters.
    ///
    /// # Errors
    /// If they violate an invariant; the message names the number.
    pub fn new(shape: Shape) -> Result<Self, CardError> {
        let wrong = |what: &'static str, found: u64, expected: &'static str| CardError::Number {
            what,
            found,
            expected,
        };
        if !(1..=256).contains(&shape.banks) {
            return Err(wrong("banks", u64::from(shape.banks), "1 to 256"));
        }
        if !(SECTOR_BYTES..=1 << 17).contains(&shape.unit_bytes) || !shape.unit_bytes.is_power_of_two() {
            return Err(wrong(
                "unit_bytes",
                u64::from(shape.unit_bytes),
                "a power of two from 512 to 131072",
            ));
        }
        if shape.page_bytes == 0
            || !shape.page_bytes.is_multiple_of(shape.unit_bytes)
            || shape.page_bytes > 1 << 20
        {
            return Err(wrong(
                "page_bytes",
                u64::from(shape.page_bytes),
                "whole units, at most 1 MiB",
            ));
        }
        if !(1..=4096).contains(&shape.word_lines) {
            return Err(wrong("word_lines", u64::from(shape.word_lines), "1 to 4096"));
        }
        if shape.spare_permille > 1000 {
            return Err(wrong(
                "spare_permille",
                u64::from(shape.spare_permille),
                "0 to 1000",
            ));
        }
        if shape.capacity_bytes == 0 || !shape.capacity_bytes.is_multiple_of(u64::from(shape.unit_bytes)) {
            return Err(wrong("capacity_bytes", shape.capacity_bytes, "whole units"));
        }
        if shape.capacity_bytes > CAPACITY_BYTES_MAX {
            return Err(wrong("capacity_bytes", shape.capacity_bytes, "at most 512 GiB"));
        }
        let word_lines = WordLines::new(shape.cell, shape.word_lines);
        let block_bytes =
            u64::from(word_lines.pages()) * u64::from(shape.page_bytes) * u64::from(shape.banks);
        let visible = shape.capacity_bytes.div_ceil(block_bytes);
        let spare = (visible * u64::from(shape.spare_permille)).div_ceil(1000);
        let super_blocks = visible + spare.max(u64::from(SPARE_SUPER_BLOCKS_MIN));
        let slots = super_blocks * (block_bytes / u64::from(shape.unit_bytes));
        if slots >= u64::from(u32::MAX) {
            return Err(wrong(
                "capacity_bytes",
                shape.capacity_bytes,
                "fewer than 2^32 units of flash",
            ));
        }
        Ok(Self {
            banks: shape.banks,
            page_bytes: shape.page_bytes,
            unit_bytes: shape.unit_bytes,
            word_lines,
            sectors: shape.capacity_bytes / u64::from(SECTOR_BYTES),
            super_blocks: u32::try_from(super_blocks).expect("fewer blocks than slots, which fit"),
        })
    }

    /// Sectors per unit.
    #[must_use]
    pub const fn unit_sectors(&self) -> u32 {
        self.unit_bytes / SECTOR_BYTES
    }

    /// Units per page.
    #[must_use]
    pub const fn page_units(&self) -> u32 {
        self.page_bytes / self.unit_bytes
    }

    /// Units per row (super page).
    #[must_use]
    pub const fn row_units(&self) -> u32 {
        self.page_units() * self.banks
    }

    /// Slots per super block.
    #[must_use]
    pub fn block_slots(&self) -> u32 {
        self.row_units() * self.word_lines.pages()
    }

    /// Pages per super block, over all banks.
    #[must_use]
    pub fn block_pages(&self) -> u32 {
        self.banks * self.word_lines.pages()
    }

    /// Units visible to the host.
    #[must_use]
    pub fn units(&self) -> u32 {
        u32::try_from(self.sectors / u64::from(self.unit_sectors())).expect("checked by new")
    }

    /// Slots of all super blocks.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.super_blocks * self.block_slots()
    }

    /// The bank and page of a slot, numbered within its super block.
    #[must_use]
    pub const fn page_of(&self, slot_of_block: u32) -> PagePlace {
        let page = slot_of_block / self.page_units();
        PagePlace {
            bank: page % self.banks,
            page: page / self.banks,
        }
    }

    /// The units that a range of sectors touches: the first, and their number.
    #[must_use]
    pub fn units_of(&self, sector: u64, sectors: u32) -> (u32, u32) {
        let size = u64::from(self.unit_sectors());
        let first = sector / size;
        let end = (sector + u64::from(sectors)).div_ceil(size);
        let number = |unit: u64| u32::try_from(unit).unwrap_or(u32::MAX);
        (number(first), number(end - first))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn shape() -> Shape {
        Shape {
            cell: CellKind::Mlc,
            banks: 16,
            page_bytes: 8192,
            unit_bytes: 4096,
            word_lines: 64,
            capacity_bytes: 16 << 30,
            spare_permille: 70,
        }
    }

    /// 16 banks x 128 pages x 8 KiB = 16 MiB per super block; 16 GiB are 1024 of them, and 7 % of that are 72.
    #[test]
    fn a_card_of_16_gib_has_1024_super_blocks_and_its_spare() {
        let geometry = CardGeometry::new(shape()).unwrap();
        assert_eq!(geometry.super_blocks, 1024 + 72);
        assert_eq!(geometry.block_slots(), 4096);
        assert_eq!(geometry.units(), 4 << 20);
    }

    /// Slot 33 is unit 1 of page 16 of the super block, which is page 1 of bank 0.
    #[test]
    fn slots_run_along_the_rows() {
        let geometry = CardGeometry::new(shape()).unwrap();
        assert_eq!(geometry.page_of(33), PagePlace { bank: 0, page: 1 });
        assert_eq!(geometry.page_of(3), PagePlace { bank: 1, page: 0 });
    }

    #[test]
    fn ranges_of_sectors_touch_the_units_they_lie_in() {
        let geometry = CardGeometry::new(shape()).unwrap();
        assert_eq!(geometry.units_of(8, 8), (1, 1));
        assert_eq!(geometry.units_of(7, 2), (0, 2));
        assert_eq!(geometry.units_of(0, 1024), (0, 128));
    }

    #[test]
    fn shapes_that_cannot_be_are_refused_with_the_number() {
        for (wrong, word) in [
            (Shape { banks: 0, ..shape() }, "banks"),
            (
                Shape {
                    unit_bytes: 3000,
                    ..shape()
                },
                "unit_bytes",
            ),
            (
                Shape {
                    page_bytes: 6000,
                    ..shape()
                },
                "page_bytes",
            ),
            (
                Shape {
                    word_lines: 0,
                    ..shape()
                },
                "word_lines",
            ),
            (
                Shape {
                    capacity_bytes: 1 << 50,
                    ..shape()
                },
                "capacity_bytes",
            ),
            (
                Shape {
                    spare_permille: 2000,
                    ..shape()
                },
                "spare_permille",
            ),
        ] {
            let message = CardGeometry::new(wrong).expect_err(word).to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
