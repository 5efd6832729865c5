//! The shape of the blocks of a partition: sizes of pages, OOB areas and blocks, and the offsets of headers and data.
//!
//! The block size, with OOB, is the distance between EC headers. Without OOB it is nearly always a power of two. With OOB
//! it has several divisions into pages, and the headers decide: the VID header must be found at its offset, and a volume
//! table, which spans several pages, must have right CRCs.

use nand::ecc::Choice;
use thiserror::Error;
use ubi::format::volume_table::RECORD_BYTES;
use ubi::format::{Decoded, EcHeader, HEADER_BYTES, LAYOUT_VOLUME, VidHeader, crc32};

use crate::dump::Dump;

/// Geometry that the user knows; everything else is guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Page size without OOB, bytes.
    pub page_bytes: Option<u32>,
    /// Block size without OOB, bytes.
    pub block_bytes: Option<u32>,
    /// OOB bytes after each page.
    pub oob_bytes: Option<u32>,
    /// The ECC in the OOB areas.
    pub ecc: EccHint,
}

/// The knowledge of the ECC in the OOB areas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EccHint {
    /// It is found by trial, in dumps whose blocks have OOB areas. Without one, pages stay as they were read.
    #[default]
    Find,
    /// Pages stay as they were read.
    Ignore,
    /// These layouts; a dump that none of them fits is a loss.
    Given(Choice),
}

/// Sizes that no chip has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HintsError {
    /// A size is 0 or too large.
    #[error("a {what} of {found} bytes is not from {least} to {most}")]
    Size {
        /// The size that was given.
        what: &'static str,
        /// Its value.
        found: u32,
        /// Smallest value.
        least: u32,
        /// Largest value.
        most: u32,
    },
    /// A block is not made of pages.
    #[error("a block of {block_bytes} bytes does not consist of pages of {page_bytes}")]
    Pages {
        /// Block size.
        block_bytes: u32,
        /// Page size.
        page_bytes: u32,
    },
}

/// Largest block, bytes.
const BLOCK_BYTES_MAX: u32 = 64 << 20;

impl Hints {
    /// Checks that a chip can have these sizes.
    pub fn check(&self) -> Result<(), HintsError> {
        let size = |what, value: Option<u32>, least, most| match value {
            Some(found) if !(least..=most).contains(&found) => Err(HintsError::Size {
                what,
                found,
                least,
                most,
            }),
            _ => Ok(()),
        };
        size("page", self.page_bytes, 1, 1 << 20)?;
        size("block", self.block_bytes, 256, BLOCK_BYTES_MAX)?;
        size("OOB area", self.oob_bytes, 0, 1 << 16)?;
        match (self.block_bytes, self.page_bytes) {
            (Some(block_bytes), Some(page_bytes)) if !block_bytes.is_multiple_of(page_bytes) => {
                Err(HintsError::Pages {
                    block_bytes,
                    page_bytes,
                })
            }
            _ => Ok(()),
        }
    }

    /// The distance between blocks in the dump, if it follows from the hints.
    pub(crate) fn stride(&self, header: &EcHeader) -> Option<u32> {
        let (page, block) = (
            self.page_bytes.unwrap_or_else(|| usual_page(header)),
            self.block_bytes?,
        );
        match self.oob_bytes {
            // An unknown OOB size is guessed by the distance.
            None => None,
            Some(0) => Some(block),
            Some(oob) => (block / page.max(1)).checked_mul(page.checked_add(oob)?),
        }
    }
}

/// Shape of the blocks of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Page size without OOB, bytes. Without OOB it is a guess that reading does not depend on.
    pub page_bytes: u32,
    /// OOB bytes after each page.
    pub oob_bytes: u32,
    /// Block size without OOB, bytes.
    pub block_bytes: u32,
    /// Offset of the VID header in a block without OOB, bytes.
    pub vid_header_offset: u32,
    /// Offset of the data in a block without OOB, bytes.
    pub data_offset: u32,
}

impl Shape {
    /// Distance between blocks in the dump, bytes.
    #[must_use]
    pub fn stride(&self) -> u32 {
        match self.oob_bytes {
            0 => self.block_bytes,
            oob => self.block_bytes / self.page_bytes * (self.page_bytes + oob),
        }
    }

    /// LEB size, bytes, without a volume's alignment.
    #[must_use]
    pub const fn leb_bytes(&self) -> u32 {
        self.block_bytes.saturating_sub(self.data_offset)
    }

    /// Offset in the dump, from the beginning of a block, of this offset in the block without OOB.
    pub(crate) fn place(&self, offset: u32) -> i64 {
        let page = i64::from(self.page_bytes.max(1));
        i64::from(offset) + i64::from(offset) / page * i64::from(self.oob_bytes)
    }

    /// Reads bytes of the block that begins at byte `block` of the dump, without OOB. The
    /// dump corrects them.
    pub(crate) fn read(&self, dump: &Dump, block: i64, offset: u32, out: &mut [u8]) {
        if self.oob_bytes == 0 {
            dump.read(block.saturating_add(offset.into()), out);
            return;
        }
        let (page, unit) = (
            u64::from(self.page_bytes),
            u64::from(self.page_bytes + self.oob_bytes),
        );
        let place = |offset: u64| offset / page * unit + offset % page;
        let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        let mut at = u64::from(offset);
        let mut rest = out;
        while !rest.is_empty() {
            let in_page = usize::try_from(page - at % page).unwrap_or(usize::MAX);
            let (part, further) = rest.split_at_mut(in_page.min(rest.len()));
            dump.read(block.saturating_add(signed(place(at))), part);
            at += u64::try_from(part.len()).unwrap_or(u64::MAX);
            rest = further;
        }
    }

    /// The VID header of a block.
    pub(crate) fn vid_header(&self, dump: &Dump, block: i64) -> Decoded<VidHeader> {
        let mut raw = [0; HEADER_BYTES];
        self.read(dump, block, self.vid_header_offset, &mut raw);
        VidHeader::decode(&raw, self.leb_bytes())
    }

    /// The bytes of the dump that a block covers.
    pub(crate) fn span(&self, block: i64) -> (i64, i64) {
        (block, block.saturating_add(self.stride().into()))
    }
}

/// The largest page that the offsets in an EC header allow: the headers take two pages, or one page with sub-pages.
pub(crate) fn usual_page(header: &EcHeader) -> u32 {
    let (vid, data) = (header.vid_header_offset, header.data_offset);
    let page = match vid >= 1024 && vid.checked_mul(2) == Some(data) {
        true => vid,
        false => data,
    };
    // Data at 6 KiB of 2 KiB pages, and the like: the largest power of two that divides it.
    (page & page.wrapping_neg()).max(1)
}

/// The shapes of blocks that lie `stride` bytes apart, most usual first.
pub(crate) fn candidates(stride: u32, header: &EcHeader, hints: &Hints) -> Vec<Shape> {
    let shape = |page_bytes, oob_bytes, block_bytes| Shape {
        page_bytes,
        oob_bytes,
        block_bytes,
        vid_header_offset: header.vid_header_offset,
        data_offset: header.data_offset,
    };
    let usual = hints.page_bytes.unwrap_or_else(|| usual_page(header));
    let plain = shape(usual, 0, stride);
    let mut found = Vec::new();
    if stride.is_power_of_two() && hints.oob_bytes.unwrap_or(0) == 0 || hints.oob_bytes == Some(0) {
        return vec![plain];
    }
    for pages in (2..=12).map(|bits| 1_u32 << bits) {
        if !stride.is_multiple_of(pages) {
            continue;
        }
        let unit = stride / pages;
        let page = match (hints.page_bytes, hints.oob_bytes) {
            (Some(page), _) => page,
            (None, Some(oob)) => unit.saturating_sub(oob),
            // The largest power of two below the unit.
            (None, None) => 1 << unit.checked_ilog2().unwrap_or(0),
        };
        let oob = unit.saturating_sub(page);
        let is_possible = page >= 256
            && (1..=page / 2).contains(&oob)
            && header.data_offset.is_multiple_of(page)
            && header.data_offset < page.saturating_mul(pages)
            && hints.oob_bytes.is_none_or(|said| said == oob)
            && hints
                .block_bytes
                .is_none_or(|said| Some(said) == page.checked_mul(pages));
        if is_possible {
            found.push(shape(page, oob, page * pages));
        }
    }
    found.sort_by_key(|shape| (shape.page_bytes != usual, std::cmp::Reverse(shape.page_bytes)));
    if hints.oob_bytes.is_none() && hints.block_bytes.is_none_or(|said| said == stride) {
        // Such as the DataFlash, whose pages are no power of two.
        found.push(plain);
    }
    found
}

/// Blocks that are looked at to choose a shape.
const BLOCKS_TRIED: usize = 128;
/// Points of a right record of the volume table: more than all VID headers together.
const RECORD_POINTS: usize = 1024;

/// The shape that fits most headers of the blocks at these offsets; `None` if the headers leave no room for data.
pub(crate) fn shape_of(
    dump: &Dump,
    blocks: &[u64],
    stride: u32,
    header: &EcHeader,
    hints: &Hints,
) -> Option<Shape> {
    let fits = |shape: &Shape| {
        let vid_end = shape.vid_header_offset.checked_add(64);
        shape.vid_header_offset >= 64
            && vid_end.is_some_and(|end| end <= shape.data_offset)
            && shape.data_offset < shape.block_bytes
    };
    let shapes: Vec<Shape> = candidates(stride, header, hints)
        .into_iter()
        .filter(fits)
        .collect();
    if let [only] = shapes.as_slice() {
        return Some(*only);
    }
    let points = |shape: &Shape| -> usize {
        let blocks = blocks.iter().take(BLOCKS_TRIED);
        blocks
            .map(|at| points_of(dump, shape, i64::try_from(*at).unwrap_or(i64::MAX)))
            .sum()
    };
    let scored: Vec<(usize, Shape)> = shapes.into_iter().map(|shape| (points(&shape), shape)).collect();
    // The first one of the best.
    let best = scored.iter().map(|(points, _)| *points).max()?;
    scored
        .into_iter()
        .find(|(points, _)| *points == best)
        .map(|(_, shape)| shape)
}

/// Evidence in a block for a shape.
fn points_of(dump: &Dump, shape: &Shape, block: i64) -> usize {
    let Decoded::Header(header) = shape.vid_header(dump, block) else {
        return 0;
    };
    let bytes = usize::try_from(shape.leb_bytes()).unwrap_or(0);
    if header.volume == LAYOUT_VOLUME {
        let mut raw = vec![0; bytes.min(128 * RECORD_BYTES)];
        shape.read(dump, block, shape.data_offset, &mut raw);
        let is_right =
            |record: &&[u8]| crc32(&record[..RECORD_BYTES - 4]).to_be_bytes() == record[RECORD_BYTES - 4..];
        return 1 + RECORD_POINTS * raw.chunks_exact(RECORD_BYTES).filter(is_right).count();
    }
    let covered = usize::try_from(header.data_size).unwrap_or(0);
    if covered == 0 || covered > bytes {
        return 1;
    }
    let mut data = vec![0; covered];
    shape.read(dump, block, shape.data_offset, &mut data);
    match crc32(&data) == header.data_crc {
        true => 1 + RECORD_POINTS,
        false => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(vid: u32, data: u32) -> EcHeader {
        EcHeader {
            erase_counter: 1,
            vid_header_offset: vid,
            data_offset: data,
            image_sequence: 5,
        }
    }

    #[test]
    fn a_power_of_two_has_no_oob_and_other_strides_have_the_usual_page_first() {
        let first = |stride, vid, data| {
            let shape = candidates(stride, &header(vid, data), &Hints::default())[0];
            (shape.page_bytes, shape.oob_bytes, shape.block_bytes)
        };
        assert_eq!(first(131_072, 2048, 4096), (2048, 0, 131_072));
        assert_eq!(first(2112 * 64, 2048, 4096), (2048, 64, 131_072));
        assert_eq!(first(2112 * 64, 512, 2048), (2048, 64, 131_072));
        assert_eq!(first(4320 * 128, 4096, 8192), (4096, 224, 524_288));
        assert_eq!(first(528 * 32, 256, 512), (512, 16, 16_384));
        // Pages of 1056 bytes, as some serial flash has: no division has the data at a page.
        assert_eq!(first(1056 * 8, 1056, 2112), (32, 0, 8448));
    }

    #[test]
    fn hints_are_obeyed() {
        let hints = Hints {
            page_bytes: Some(4096),
            oob_bytes: Some(128),
            block_bytes: None,
            ..Hints::default()
        };
        let all = candidates(2112 * 64, &header(2048, 4096), &hints);
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].page_bytes, all[0].oob_bytes, all[0].stride()),
            (4096, 128, 2112 * 64)
        );
        let hints = Hints {
            page_bytes: Some(2048),
            oob_bytes: Some(64),
            block_bytes: Some(131_072),
            ..Hints::default()
        };
        assert_eq!(hints.stride(&header(2048, 4096)), Some(2112 * 64));
        hints.check().unwrap();
        let odd = Hints {
            page_bytes: Some(3000),
            ..hints.clone()
        };
        odd.check().expect_err("131072 is no multiple of 3000");
    }
}
