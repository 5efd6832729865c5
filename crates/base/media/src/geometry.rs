//! The geometry of a raw NAND device, and every conversion between blocks, pages and bytes.
//!
//! Invariants, checked by the constructors: the page size is a power of two from 8 bytes to 64 KiB; the sub-page size
//! is a power of two that divides it; the size of a block and of the device fit their types; only the OOB size may be
//! 0.

use crate::{ByteCount, GeometryError, NandError, Page, Peb};

/// The geometry of a raw NAND device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NandGeometry {
    page_bytes: u32,
    oob_bytes: u32,
    subpage_bytes: u32,
    pages_per_block: u32,
    blocks: u32,
    bitflip_threshold: u32,
    write_unit_bytes: u32,
}

/// The part of a range that lies in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePart {
    /// The page.
    pub page: Page,
    /// First byte within the page.
    pub start: u32,
    /// Length in bytes, at least 1.
    pub len: u32,
    /// Offset of the part within the whole range, to index the caller's buffer.
    pub at: usize,
}

/// Converts a 32-bit number to an index or a size in memory.
///
/// # Panics
/// If addresses have fewer than 32 bits, which is the case on no supported host.
#[must_use]
#[inline]
pub fn index(number: u32) -> usize {
    usize::try_from(number).expect("addresses have at least 32 bits")
}

/// Scrub threshold set by [`NandGeometry::new`]: 3 of 4 correctable bits, as Linux rounds 3/4 of the strength.
const USUAL_BITFLIP_THRESHOLD: u32 = 3;

const LARGEST_PAGE_BYTES: u32 = 64 << 10;
const SMALLEST_PAGE_BYTES: u32 = 8;

impl NandGeometry {
    /// A device of `blocks` blocks of `pages_per_block` pages of `page_bytes`: no sub-pages, one OOB byte per 32 data
    /// bytes, scrub threshold of 3 corrected bits per step.
    pub fn new(page_bytes: u32, pages_per_block: u32, blocks: u32) -> Result<Self, GeometryError> {
        if !page_bytes.is_power_of_two() || !(SMALLEST_PAGE_BYTES..=LARGEST_PAGE_BYTES).contains(&page_bytes)
        {
            return Err(GeometryError::Page { page_bytes });
        }
        if pages_per_block == 0 || pages_per_block.checked_mul(page_bytes).is_none() {
            return Err(GeometryError::Block {
                page_bytes,
                pages_per_block,
            });
        }
        if blocks == 0 || blocks > u32::MAX / 2 {
            return Err(GeometryError::Blocks { blocks });
        }
        Ok(Self {
            page_bytes,
            oob_bytes: page_bytes / 32,
            subpage_bytes: page_bytes,
            pages_per_block,
            blocks,
            bitflip_threshold: USUAL_BITFLIP_THRESHOLD,
            write_unit_bytes: page_bytes,
        })
    }

    /// Sets the sub-page size.
    pub fn with_subpage(self, subpage_bytes: u32) -> Result<Self, GeometryError> {
        if !subpage_bytes.is_power_of_two()
            || !(SMALLEST_PAGE_BYTES..=self.page_bytes).contains(&subpage_bytes)
        {
            return Err(GeometryError::Subpage {
                subpage_bytes,
                page_bytes: self.page_bytes,
            });
        }
        Ok(Self {
            subpage_bytes,
            ..self
        })
    }

    /// Sets the OOB bytes per page.
    pub fn with_oob(self, oob_bytes: u32) -> Result<Self, GeometryError> {
        if oob_bytes > self.page_bytes {
            return Err(GeometryError::Oob {
                oob_bytes,
                page_bytes: self.page_bytes,
            });
        }
        Ok(Self { oob_bytes, ..self })
    }

    /// Sets the number of blocks.
    pub fn with_blocks(self, blocks: u32) -> Result<Self, GeometryError> {
        let checked = Self::new(self.page_bytes, self.pages_per_block, blocks)?;
        Ok(Self {
            blocks: checked.blocks,
            ..self
        })
    }

    /// Sets the scrub threshold in corrected bits per ECC step; 0 is taken as 1.
    #[must_use]
    pub fn with_bitflip_threshold(self, bits: u32) -> Self {
        Self {
            bitflip_threshold: bits.max(1),
            ..self
        }
    }

    /// Sets the write unit, which is efficient to write at once and may be torn, in pages; 0 is taken as 1.
    #[must_use]
    pub fn with_write_unit_pages(self, pages: u32) -> Self {
        Self {
            write_unit_bytes: self.page_bytes.saturating_mul(pages.max(1)),
            ..self
        }
    }

    /// Size of the range that a power cut may leave with holes: any combination of pages of the write unit in
    /// progress may be written. One page for a chip, a row for an array (Linux: `writebufsize`).
    #[must_use]
    pub const fn write_unit_bytes(&self) -> u32 {
        self.write_unit_bytes
    }

    /// Page size in bytes, without OOB: the smallest unit of a program on devices without sub-pages.
    #[must_use]
    pub const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// OOB bytes per page.
    #[must_use]
    pub const fn oob_bytes(&self) -> u32 {
        self.oob_bytes
    }

    /// Granularity of programs: offsets and lengths are multiples of it. Each sub-page takes one program between
    /// erases, so a page takes `page_bytes / subpage_bytes` of them (the NOP count of data sheets).
    #[must_use]
    pub const fn subpage_bytes(&self) -> u32 {
        self.subpage_bytes
    }

    /// Pages per block.
    #[must_use]
    pub const fn pages_per_block(&self) -> u32 {
        self.pages_per_block
    }

    /// Blocks of the device, including bad ones.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Scrub threshold: corrected bits in one ECC step from which on data should be moved.
    #[must_use]
    pub const fn bitflip_threshold(&self) -> u32 {
        self.bitflip_threshold
    }

    /// Block size in bytes, without OOB.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        self.page_bytes * self.pages_per_block
    }

    /// Size of the whole device in bytes, including bad blocks.
    #[must_use]
    pub fn total_bytes(&self) -> ByteCount {
        ByteCount(u64::from(self.block_bytes()) * u64::from(self.blocks))
    }

    /// Offset of a block in an image without OOB.
    #[must_use]
    pub fn block_start(&self, peb: Peb) -> ByteCount {
        ByteCount(u64::from(peb.0) * u64::from(self.block_bytes()))
    }

    /// The page that contains byte `offset` of a block.
    #[must_use]
    pub const fn page_of(&self, offset: u32) -> Page {
        Page(offset / self.page_bytes)
    }

    /// Offset of a page in its block, bytes.
    ///
    /// # Panics
    /// If the block has no such page.
    #[must_use]
    pub fn page_start(&self, page: Page) -> u32 {
        assert!(
            page.0 < self.pages_per_block,
            "{page} of {}",
            self.pages_per_block
        );
        page.0 * self.page_bytes
    }

    /// All blocks, in order.
    pub fn pebs(&self) -> impl Iterator<Item = Peb> + use<> {
        (0..self.blocks).map(Peb)
    }

    /// Splits `len` bytes from `offset` of a block at the page boundaries.
    pub fn page_parts(&self, offset: u32, len: usize) -> impl Iterator<Item = PagePart> + use<> {
        let page_bytes = self.page_bytes;
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let here = u32::try_from(at).ok()?.checked_add(offset)?;
            let start = here % page_bytes;
            let left = u32::try_from(len - at).unwrap_or(u32::MAX);
            let part = PagePart {
                page: Page(here / page_bytes),
                start,
                len: left.min(page_bytes - start),
                at,
            };
            at += usize::try_from(part.len).ok()?;
            Some(part)
        })
    }

    /// Checks that `peb` exists.
    pub fn check_peb(&self, device: &str, peb: Peb) -> Result<(), NandError> {
        if peb.0 < self.blocks {
            return Ok(());
        }
        Err(NandError::NoSuchBlock {
            device: device.into(),
            peb,
            blocks: self.blocks,
        })
    }

    /// Checks that `len` bytes from `offset` lie in block `peb`.
    pub fn check_read(&self, device: &str, peb: Peb, offset: u32, len: usize) -> Result<(), NandError> {
        self.check_peb(device, peb)?;
        let end = u64::try_from(len)
            .ok()
            .and_then(|len| len.checked_add(u64::from(offset)));
        if end.is_some_and(|end| end <= u64::from(self.block_bytes())) {
            return Ok(());
        }
        Err(NandError::OutOfBlock {
            device: device.into(),
            peb,
            offset,
            len,
            block_bytes: self.block_bytes(),
        })
    }

    /// As [`Self::check_read`], and checks that the range consists of whole sub-pages and is not empty.
    pub fn check_program(&self, device: &str, peb: Peb, offset: u32, len: usize) -> Result<(), NandError> {
        self.check_read(device, peb, offset, len)?;
        let whole = u32::try_from(len).is_ok_and(|len| len > 0 && len.is_multiple_of(self.subpage_bytes));
        if whole && offset.is_multiple_of(self.subpage_bytes) {
            return Ok(());
        }
        Err(NandError::Misaligned {
            device: device.into(),
            peb,
            offset,
            len,
            subpage_bytes: self.subpage_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> NandGeometry {
        NandGeometry::new(2048, 64, 8)
            .and_then(|geometry| geometry.with_subpage(512))
            .unwrap()
    }

    #[test]
    fn a_shape_that_no_device_has_is_refused() {
        for (page, pages, blocks) in [
            (0, 64, 8),
            (2000, 64, 8),
            (128 << 10, 64, 8),
            (2048, 0, 8),
            (2048, 1 << 21, 8),
            (2048, 64, 0),
        ] {
            NandGeometry::new(page, pages, blocks).expect_err("not a geometry");
        }
        for subpage in [0, 3, 4096] {
            geometry().with_subpage(subpage).expect_err("not a sub-page");
        }
        geometry().with_oob(2049).expect_err("more OOB than data");
    }

    #[test]
    fn a_range_is_cut_at_page_boundaries() {
        let parts: Vec<_> = geometry().page_parts(2000, 2150).collect();
        let part = |page, start, len, at| PagePart {
            page: Page(page),
            start,
            len,
            at,
        };
        assert_eq!(
            parts,
            [part(0, 2000, 48, 0), part(1, 0, 2048, 48), part(2, 0, 54, 2096)]
        );
        assert_eq!(geometry().page_parts(5, 0).count(), 0);
    }

    #[test]
    fn what_leaves_the_device_or_is_misaligned_is_an_error_that_says_so() {
        let geometry = geometry();
        let text = geometry.check_peb("chip", Peb(8)).unwrap_err().to_string();
        assert_eq!(text, "chip: there is no PEB 8; the device has 8 blocks, from 0");
        geometry
            .check_read("chip", Peb(7), 131_072, 0)
            .expect("the end is no error");
        geometry
            .check_read("chip", Peb(7), 131_072, 1)
            .expect_err("past the end");
        geometry
            .check_read("chip", Peb(7), u32::MAX, usize::MAX)
            .expect_err("overflow");
        geometry
            .check_program("chip", Peb(0), 512, 1536)
            .expect("whole sub-pages");
        for (offset, len) in [(0, 100), (100, 512), (0, 0)] {
            geometry
                .check_program("chip", Peb(0), offset, len)
                .expect_err("misaligned");
        }
    }
}
