//! Loads images onto chips and dumps chips into images, block by block, as `nandwrite` and `nanddump` do.
//!
//! Needs memory for one block, whatever the size. This is no file format of its own: an image is pages in order, each
//! optionally followed by its OOB.

use std::io::{self, Read, Write};

use media::{Nand, NandError, NandGeometry, Page, Peb, ReadReport, index};
use thiserror::Error;

use crate::sidecar::ImageKind;

/// A device whose OOB areas can be read as well.
pub trait RawNand: Nand {
    /// Reads the first `out.len()` bytes of the OOB area of a page.
    fn read_oob(&mut self, peb: Peb, page: Page, out: &mut [u8]) -> Result<(), NandError>;
}

/// Mapping of image blocks to chip blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Image block n goes to the n-th good block: for flashing images.
    SkipBad,
    /// Image block n goes to block n: for restoring dumps that keep the positions of bad blocks.
    InPlace,
}

/// Options of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Mapping of image blocks to chip blocks.
    pub placement: Placement,
    /// Whether the image contains OOB areas, which are not written.
    pub kind: ImageKind,
    /// First block of the chip to write.
    pub first: Peb,
    /// Whether the blocks after the image are erased.
    pub erases_rest: bool,
}

/// Statistics of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Blocks programmed.
    pub programmed_blocks: u32,
    /// Blocks erased and left blank.
    pub erased_blocks: u32,
    /// Bad blocks skipped.
    pub skipped_bad: Vec<Peb>,
    /// Bytes programmed.
    pub programmed_bytes: u64,
}

/// Treatment of bad blocks in a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBlocks {
    /// 0xFF, so that later blocks keep their positions.
    Pad,
    /// Omit them.
    Skip,
    /// The readable data.
    Dump,
}

/// Options of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpOptions {
    /// Treatment of bad blocks.
    pub bad_blocks: BadBlocks,
    /// Whether OOB areas are dumped too.
    pub kind: ImageKind,
    /// First block to dump.
    pub first: Peb,
    /// Number of blocks to dump.
    pub blocks: u32,
}

/// Statistics of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Size of the image in bytes.
    pub bytes: u64,
    /// Bad blocks in the range.
    pub bad_blocks: Vec<Peb>,
    /// Corrected bits.
    pub corrected_bits: u64,
    /// Uncorrectable pages.
    pub uncorrectable: Vec<(Peb, Page)>,
}

/// Error of a load or dump.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The chip's operation failed.
    #[error(transparent)]
    Nand(#[from] NandError),
    /// Reading or writing the image failed.
    #[error("{action} the image failed at byte {at}: {source}")]
    Image {
        /// The operation that failed.
        action: &'static str,
        /// Offset in the image, bytes.
        at: u64,
        /// The host's error.
        source: io::Error,
    },
    /// The image ends inside a page.
    #[error(
        "the image ends after {bytes} bytes, inside a page of {page_bytes} bytes; check the geometry, \
         and give --image-oob exactly when the image holds OOB areas"
    )]
    PartialPage {
        /// Length of the image in bytes.
        bytes: u64,
        /// Page size in the image, bytes.
        page_bytes: usize,
    },
    /// The image is larger than the chip.
    #[error(
        "the image goes on after {good} blocks, which is all that the chip has from {first} on; \
         blocks up to there are written"
    )]
    TooLong {
        /// Blocks programmed from the image.
        good: u32,
        /// First block of the chip to write.
        first: Peb,
    },
    /// The image has data for a bad block.
    #[error("{peb} is bad and the image has data for it; load without --in-place to pass bad blocks over")]
    BadBlock {
        /// The block.
        peb: Peb,
    },
    /// The range to dump exceeds the chip.
    #[error("there are no {count} blocks from {first} on; the chip has {blocks}")]
    Range {
        /// First block.
        first: Peb,
        /// Number of blocks requested.
        count: u32,
        /// Blocks of the chip.
        blocks: u32,
    },
}

/// Erases and programs blocks with the pages of `image`, from `options.first` on. Trailing pages of 0xFF are not
/// programmed, so they remain free space. Calls `progress` with the bytes of the image done so far.
pub fn load(
    device: &mut dyn RawNand,
    image: &mut dyn Read,
    options: LoadOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Loaded, ImageError> {
    let geometry = device.geometry();
    let mut loaded = Loaded::default();
    let mut source = Source::new(image, &geometry, options.kind);
    let mut ended = false;
    for peb in geometry.pebs().skip(index(options.first.0)) {
        let is_bad = device.is_bad(peb)?;
        if is_bad && (options.placement == Placement::SkipBad || ended) {
            loaded.skipped_bad.push(peb);
            continue;
        }
        if !ended {
            ended = !source.next_block()?;
        }
        if ended {
            if options.erases_rest {
                device.erase(peb)?;
                loaded.erased_blocks += 1;
            }
            continue;
        }
        let used = source.used_bytes();
        if is_bad {
            if used > 0 {
                return Err(ImageError::BadBlock { peb });
            }
            loaded.skipped_bad.push(peb);
            continue;
        }
        device.erase(peb)?;
        if used == 0 {
            loaded.erased_blocks += 1;
        } else {
            device.program(peb, 0, &source.data[..used])?;
            loaded.programmed_blocks += 1;
            loaded.programmed_bytes += u64::try_from(used).unwrap_or(u64::MAX);
        }
        progress(source.bytes);
    }
    if !ended && source.next_block()? {
        return Err(ImageError::TooLong {
            good: loaded.programmed_blocks + loaded.erased_blocks,
            first: options.first,
        });
    }
    device.sync()?;
    Ok(loaded)
}

/// Writes the blocks of a chip to `sink`. Uncorrectable pages are written as read, and reported.
pub fn dump(
    device: &mut dyn RawNand,
    sink: &mut dyn Write,
    options: DumpOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Dumped, ImageError> {
    let geometry = device.geometry();
    let end = options.first.0.checked_add(options.blocks);
    let Some(end) = end.filter(|end| *end <= geometry.blocks()) else {
        return Err(ImageError::Range {
            first: options.first,
            count: options.blocks,
            blocks: geometry.blocks(),
        });
    };
    let mut dumped = Dumped::default();
    let mut data = vec![0; index(geometry.block_bytes())];
    for peb in (options.first.0..end).map(Peb) {
        let is_bad = device.is_bad(peb)?;
        if is_bad {
            dumped.bad_blocks.push(peb);
        }
        match (is_bad, options.bad_blocks) {
            (true, BadBlocks::Skip) => continue,
            (true, BadBlocks::Pad) => data.fill(0xFF),
            _ => {
                let report = device.read(peb, 0, &mut data)?;
                note(&mut dumped, peb, is_bad, report);
            }
        }
        let bytes = match options.kind {
            ImageKind::Data => data.clone(),
            ImageKind::DataAndOob => with_oob(device, peb, &data, &geometry)?,
        };
        sink.write_all(&bytes).map_err(|source| ImageError::Image {
            action: "writing",
            at: dumped.bytes,
            source,
        })?;
        dumped.bytes += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        progress(dumped.bytes);
    }
    Ok(dumped)
}

fn note(dumped: &mut Dumped, peb: Peb, is_bad: bool, report: ReadReport) {
    dumped.corrected_bits += u64::from(report.corrected_bits);
    // The content of a bad block is not guaranteed anyway.
    if !is_bad {
        dumped
            .uncorrectable
            .extend(report.uncorrectable.into_iter().map(|page| (peb, page)));
    }
}

fn with_oob(
    device: &mut dyn RawNand,
    peb: Peb,
    data: &[u8],
    geometry: &NandGeometry,
) -> Result<Vec<u8>, NandError> {
    let mut oob = vec![0xFF; index(geometry.oob_bytes())];
    let mut out = Vec::with_capacity(data.len() * 17 / 16);
    for (page, bytes) in (0..).map(Page).zip(data.chunks(index(geometry.page_bytes()))) {
        device.read_oob(peb, page, &mut oob)?;
        out.extend_from_slice(bytes);
        out.extend_from_slice(&oob);
    }
    Ok(out)
}

/// Reads an image as blocks of data.
struct Source<'a> {
    image: &'a mut dyn Read,
    data: Vec<u8>,
    page: Vec<u8>,
    page_bytes: usize,
    subpage_bytes: usize,
    /// Bytes read so far.
    bytes: u64,
}

impl<'a> Source<'a> {
    fn new(image: &'a mut dyn Read, geometry: &NandGeometry, kind: ImageKind) -> Self {
        let oob = match kind {
            ImageKind::Data => 0,
            ImageKind::DataAndOob => index(geometry.oob_bytes()),
        };
        Self {
            image,
            data: vec![0xFF; index(geometry.block_bytes())],
            page: vec![0; index(geometry.page_bytes()) + oob],
            page_bytes: index(geometry.page_bytes()),
            subpage_bytes: index(geometry.subpage_bytes()),
            bytes: 0,
        }
    }

    /// Reads the next block; pages after the end of the image are 0xFF. Returns `false` at the end of the image.
    fn next_block(&mut self) -> Result<bool, ImageError> {
        self.data.fill(0xFF);
        for (number, target) in self.data.chunks_mut(self.page_bytes).enumerate() {
            let found = read_full(self.image, &mut self.page).map_err(|source| ImageError::Image {
                action: "reading",
                at: self.bytes,
                source,
            })?;
            self.bytes += u64::try_from(found).unwrap_or(u64::MAX);
            if found == 0 {
                return Ok(number > 0);
            }
            if found < self.page.len() {
                return Err(ImageError::PartialPage {
                    bytes: self.bytes,
                    page_bytes: self.page.len(),
                });
            }
            target.copy_from_slice(&self.page[..target.len()]);
        }
        Ok(true)
    }

    /// Length of the data up to the last write unit that is not all ones.
    fn used_bytes(&self) -> usize {
        self.data
            .iter()
            .rposition(|byte| *byte != 0xFF)
            .map_or(0, |last| (last + 1).next_multiple_of(self.subpage_bytes))
    }
}

/// Reads until `out` is full or the source ends.
fn read_full(source: &mut dyn Read, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match source.read(&mut out[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChipModel, FaultModel, SimNand};

    fn chip() -> SimNand {
        let geometry = NandGeometry::new(512, 4, 6).unwrap().with_oob(16).unwrap();
        SimNand::new("chip", ChipModel::new(geometry), FaultModel::none())
    }

    const SKIPPING: LoadOptions = LoadOptions {
        placement: Placement::SkipBad,
        kind: ImageKind::Data,
        first: Peb(0),
        erases_rest: false,
    };

    fn whole(bad_blocks: BadBlocks, kind: ImageKind) -> DumpOptions {
        DumpOptions {
            bad_blocks,
            kind,
            first: Peb(0),
            blocks: 6,
        }
    }

    fn dumped(chip: &mut SimNand, options: DumpOptions) -> Vec<u8> {
        let mut out = Vec::new();
        dump(chip, &mut out, options, &mut |_| {}).unwrap();
        out
    }

    #[test]
    fn an_image_passes_bad_blocks_over_and_comes_back_by_skipping_them() {
        let mut chip = chip();
        chip.mark_bad(Peb(1)).unwrap();
        let image: Vec<u8> = (0..3 * 2048_u32).map(|at| (at / 512).to_le_bytes()[0]).collect();
        let loaded = load(&mut chip, &mut &image[..], SKIPPING, &mut |_| {}).unwrap();
        assert_eq!((loaded.programmed_blocks, loaded.skipped_bad.len()), (3, 1));
        let out = dumped(&mut chip, whole(BadBlocks::Skip, ImageKind::Data));
        assert!(out[..image.len()] == image);
        let padded = dumped(&mut chip, whole(BadBlocks::Pad, ImageKind::Data));
        assert!(padded[2048..4096].iter().all(|byte| *byte == 0xFF));
        assert!(padded[4096..8192] == image[2048..]);
        let in_place = LoadOptions {
            placement: Placement::InPlace,
            ..SKIPPING
        };
        load(&mut chip, &mut &padded[..], in_place, &mut |_| {}).unwrap();
        assert!(dumped(&mut chip, whole(BadBlocks::Pad, ImageKind::Data)) == padded);
        let error = load(&mut chip, &mut &image[..], in_place, &mut |_| {}).unwrap_err();
        assert!(matches!(error, ImageError::BadBlock { peb: Peb(1) }), "{error}");
    }

    #[test]
    fn trailing_pages_of_ones_stay_free() {
        let mut chip = chip();
        let mut image = vec![1; 2048];
        image[512..].fill(0xFF);
        load(&mut chip, &mut &image[..], SKIPPING, &mut |_| {}).unwrap();
        assert_eq!(chip.block(Peb(0)).unwrap().programmed_bytes, 512);
    }

    #[test]
    fn oob_areas_are_left_out_of_a_load_and_put_into_a_dump() {
        let mut chip = chip();
        let page = [vec![7; 512], vec![0x11; 16]].concat();
        let with_oob = LoadOptions {
            kind: ImageKind::DataAndOob,
            ..SKIPPING
        };
        load(&mut chip, &mut &page[..], with_oob, &mut |_| {}).unwrap();
        let out = dumped(&mut chip, whole(BadBlocks::Pad, ImageKind::DataAndOob));
        assert_eq!(out.len(), 6 * 4 * 528);
        assert!(out[..512] == [7; 512], "data");
        assert!(out[512..520].iter().any(|byte| *byte != 0x11), "codes of its own");
        assert_eq!(out[520..528], [0xFF; 8], "the rest of the area");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut chip = chip();
        let error = load(&mut chip, &mut &[0; 700][..], SKIPPING, &mut |_| {}).unwrap_err();
        assert!(
            matches!(error, ImageError::PartialPage { bytes: 700, .. }),
            "{error}"
        );
        let error = load(&mut chip, &mut &[0; 7 * 2048][..], SKIPPING, &mut |_| {}).unwrap_err();
        assert!(matches!(error, ImageError::TooLong { good: 6, .. }), "{error}");
        let beyond = DumpOptions {
            first: Peb(4),
            blocks: 3,
            ..whole(BadBlocks::Pad, ImageKind::Data)
        };
        dump(&mut chip, &mut Vec::new(), beyond, &mut |_| {}).unwrap_err();
    }

    #[test]
    fn the_rest_is_erased_when_asked_for() {
        let mut chip = chip();
        chip.program(Peb(5), 0, &[1; 512]).unwrap();
        let options = LoadOptions {
            erases_rest: true,
            ..SKIPPING
        };
        let loaded = load(&mut chip, &mut &[2; 2048][..], options, &mut |_| {}).unwrap();
        assert_eq!((loaded.programmed_blocks, loaded.erased_blocks), (1, 5));
        assert_eq!(chip.block(Peb(5)).unwrap().programmed_bytes, 0);
    }

    #[test]
    fn uncorrectable_pages_are_dumped_as_read_and_named() {
        let mut chip = chip();
        chip.program(Peb(2), 0, &[1; 1024]).unwrap();
        chip.inject_bit_flips(Peb(2), Page(1), 9);
        let mut out = Vec::new();
        let report = dump(
            &mut chip,
            &mut out,
            whole(BadBlocks::Pad, ImageKind::Data),
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(report.uncorrectable, [(Peb(2), Page(1))]);
        assert_eq!(out.len(), 6 * 2048);
    }
}
