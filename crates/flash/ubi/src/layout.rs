//! Offsets of headers and data within the blocks of a device, and all conversions derived from them.
//!
//! Invariants, checked by the constructors: the headers fit before the data and do not overlap; the data starts at a
//! page boundary; the data area is not empty.

use media::{NandGeometry, index};
use thiserror::Error;

use crate::format::HEADER_BYTES;

/// Offsets and sizes shared by all blocks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    vid_header_offset: u32,
    data_offset: u32,
    leb_bytes: u32,
    header_io_bytes: u32,
    min_io_bytes: u32,
}

/// The offsets do not suit the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The VID header does not lie between the EC header and the data.
    #[error(
        "the VID header is said to be at byte {vid_header_offset} and the data at {data_offset}, \
         but 64 bytes of EC header come before and 64 of VID header between"
    )]
    Overlap {
        /// Offset of the VID header.
        vid_header_offset: u32,
        /// Offset of the data.
        data_offset: u32,
    },
    /// The data does not start at a page boundary of this chip, or the data area is empty.
    #[error(
        "the data is said to start at byte {data_offset}, which is no multiple of the page of {page_bytes} bytes \
         inside of a block of {block_bytes}; is the page size right?"
    )]
    Data {
        /// Offset of the data.
        data_offset: u32,
        /// Page size in bytes.
        page_bytes: u32,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// The chip's minimum program size exceeds the distance between the headers.
    #[error(
        "the VID header is at byte {vid_header_offset}, but the chip programs {header_io_bytes} bytes at once: \
         it can be read, not written; is the sub-page size right?"
    )]
    Unwritable {
        /// Offset of the VID header.
        vid_header_offset: u32,
        /// Smallest unit that the chip programs.
        header_io_bytes: u32,
    },
}

const HEADER: u32 = 64;

impl Layout {
    /// Linux's default for a chip: the VID header in the second sub-page, the data in the first page after it.
    pub fn usual(geometry: &NandGeometry) -> Result<Self, LayoutError> {
        Self::with_vid_header_at(geometry, HEADER.next_multiple_of(geometry.subpage_bytes()))
    }

    /// As [`Layout::usual`], but with another VID header offset.
    pub fn with_vid_header_at(geometry: &NandGeometry, vid_header_offset: u32) -> Result<Self, LayoutError> {
        let data = vid_header_offset
            .checked_add(HEADER)
            .and_then(|end| end.checked_next_multiple_of(geometry.page_bytes()));
        let layout = Self::found(geometry, vid_header_offset, data.unwrap_or(u32::MAX))?;
        layout.check_writable()?;
        Ok(layout)
    }

    /// The offsets found in an EC header. The chip may be able to read this layout but not write it: see
    /// [`Layout::check_writable`].
    pub fn found(
        geometry: &NandGeometry,
        vid_header_offset: u32,
        data_offset: u32,
    ) -> Result<Self, LayoutError> {
        let vid_end = vid_header_offset.checked_add(HEADER);
        if vid_header_offset < HEADER || vid_end.is_none_or(|end| end > data_offset) {
            return Err(LayoutError::Overlap {
                vid_header_offset,
                data_offset,
            });
        }
        let (page_bytes, block_bytes) = (geometry.page_bytes(), geometry.block_bytes());
        if !data_offset.is_multiple_of(page_bytes) || data_offset >= block_bytes {
            return Err(LayoutError::Data {
                data_offset,
                page_bytes,
                block_bytes,
            });
        }
        Ok(Self {
            vid_header_offset,
            data_offset,
            leb_bytes: block_bytes - data_offset,
            header_io_bytes: geometry.subpage_bytes(),
            min_io_bytes: page_bytes,
        })
    }

    /// Checks that this chip can program each header separately.
    pub fn check_writable(&self) -> Result<(), LayoutError> {
        let (program, _) = self.vid_program();
        let apart = HEADER.next_multiple_of(self.header_io_bytes) <= program;
        let ends = u32::try_from(self.vid_program_bytes()).expect("less than a block") + program;
        if apart && ends <= self.data_offset {
            return Ok(());
        }
        Err(LayoutError::Unwritable {
            vid_header_offset: self.vid_header_offset,
            header_io_bytes: self.header_io_bytes,
        })
    }

    /// Offset of the VID header in bytes.
    #[must_use]
    pub const fn vid_header_offset(&self) -> u32 {
        self.vid_header_offset
    }

    /// Offset of the data in bytes.
    #[must_use]
    pub const fn data_offset(&self) -> u32 {
        self.data_offset
    }

    /// LEB size in bytes, without alignment.
    #[must_use]
    pub const fn leb_bytes(&self) -> u32 {
        self.leb_bytes
    }

    /// Unit of data writes in bytes.
    #[must_use]
    pub const fn min_io_bytes(&self) -> u32 {
        self.min_io_bytes
    }

    /// The bytes that program an EC header at offset 0 of the block.
    pub(crate) fn ec_program(&self, header: &[u8; HEADER_BYTES]) -> Vec<u8> {
        let mut bytes = vec![0; index(HEADER.next_multiple_of(self.header_io_bytes))];
        bytes[..HEADER_BYTES].copy_from_slice(header);
        bytes
    }

    /// The offset and bytes that program a VID header.
    pub(crate) fn vid_program_of(&self, header: &[u8; HEADER_BYTES]) -> (u32, Vec<u8>) {
        let (start, shift) = self.vid_program();
        let mut bytes = vec![0; self.vid_program_bytes()];
        bytes[shift..shift + HEADER_BYTES].copy_from_slice(header);
        (start, bytes)
    }

    fn vid_program(&self) -> (u32, usize) {
        let shift = self.vid_header_offset % self.header_io_bytes;
        (self.vid_header_offset - shift, index(shift))
    }

    fn vid_program_bytes(&self) -> usize {
        let shift = self.vid_header_offset % self.header_io_bytes;
        index((shift + HEADER).next_multiple_of(self.header_io_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip(page: u32, subpage: u32) -> NandGeometry {
        NandGeometry::new(page, 64, 100)
            .and_then(|geometry| geometry.with_subpage(subpage))
            .unwrap()
    }

    #[test]
    fn offsets_are_those_that_linux_chooses() {
        for (page, subpage, vid, data) in [
            (2048, 512, 512, 2048),
            (2048, 2048, 2048, 4096),
            (4096, 1024, 1024, 4096),
            (8192, 8192, 8192, 16384),
            (512, 256, 256, 512),
        ] {
            let layout = Layout::usual(&chip(page, subpage)).unwrap();
            assert_eq!((layout.vid_header_offset(), layout.data_offset()), (vid, data));
            assert_eq!(layout.leb_bytes(), page * 64 - data);
        }
    }

    #[test]
    fn offsets_that_overlap_or_leave_the_block_are_refused() {
        let chip = chip(2048, 512);
        for (vid, data) in [
            (0, 2048),
            (63, 2048),
            (2000, 2048),
            (u32::MAX - 3, 2048),
            (512, 1000),
            (512, 2048 * 64),
            (512, u32::MAX),
        ] {
            Layout::found(&chip, vid, data).expect_err("no layout");
        }
    }

    #[test]
    fn a_layout_for_sub_pages_can_be_read_but_not_written_without_them() {
        let layout = Layout::found(&chip(2048, 2048), 512, 2048).unwrap();
        layout.check_writable().expect_err("both headers in one program");
        Layout::found(&chip(2048, 512), 512, 2048)
            .and_then(|layout| layout.check_writable())
            .expect("apart");
    }

    #[test]
    fn a_header_in_the_middle_of_a_program_is_found_there() {
        let layout = Layout::with_vid_header_at(&chip(2048, 512), 1984).unwrap();
        let (start, bytes) = layout.vid_program_of(&[7; HEADER_BYTES]);
        assert_eq!((start, bytes.len(), layout.data_offset()), (1536, 512, 2048));
        assert_eq!(bytes[448..512], [7; 64]);
    }
}
