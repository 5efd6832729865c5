//! Guesses the geometry of a chip from the EC and VID headers in its image.
//!
//! Every block begins with an EC header, so the distance between EC headers is the block size, with or without OOB.
//! The difference between the actual offset of a VID header and the offset in the EC header gives the OOB size. The
//! page size is ambiguous: the guess is the largest common page size that the offsets allow. Reading with a page
//! smaller than the chip's is harmless; for writing, specify the geometry.

use std::io::{self, Read};

use media::index;

use crate::format::{Decoded, EcHeader, HEADER_BYTES, VidHeader};

/// A geometry that fits the headers of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuessedShape {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Sub-page size in bytes; equals the page size if the chip has no sub-pages.
    pub subpage_bytes: u32,
    /// Block size in bytes, without OOB.
    pub block_bytes: u32,
    /// OOB bytes after each page of the image; 0 if the image has no OOB.
    pub oob_bytes: u32,
}

/// OOB sizes of common chips, in bytes.
const OOB_SIZES: [u32; 12] = [8, 16, 32, 64, 112, 128, 218, 224, 256, 448, 640, 744];

/// Bytes to read before the next search for headers.
const STEP_BYTES: usize = 256 << 10;

/// Guesses the geometry from the beginning of an image. Reads until enough headers were found, at most `bytes_max`
/// bytes. Returns `None` if fewer than two blocks have headers.
pub fn guess_shape(image: impl Read, bytes_max: u64) -> io::Result<Option<GuessedShape>> {
    let mut image = image.take(bytes_max);
    let mut start = Vec::new();
    let mut headers = EcHeaders::default();
    while !headers.are_enough() {
        let before = start.len();
        start.resize(before + STEP_BYTES, 0);
        let read = read_full(&mut image, &mut start[before..])?;
        start.truncate(before + read);
        headers.look(&start);
        if read == 0 {
            break;
        }
    }
    Ok(shape_of(&start, &headers.found))
}

/// Reads until the buffer is full or the image ends; returns the number of bytes.
fn read_full(image: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match image.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn shape_of(image: &[u8], headers: &[(usize, EcHeader)]) -> Option<GuessedShape> {
    let (first, header) = *headers.first()?;
    let stride = headers
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .reduce(greatest_common_divisor)?;
    let stride = u32::try_from(stride).ok()?;
    let (page_bytes, subpage_bytes) = pages(&header)?;
    if stride.is_power_of_two() && stride > header.data_offset {
        return Some(GuessedShape {
            page_bytes,
            subpage_bytes,
            block_bytes: stride,
            oob_bytes: 0,
        });
    }
    let vid_at = vid_header_after(image, first, index(stride));
    OOB_SIZES.into_iter().find_map(|oob_bytes| {
        let pages = stride / (page_bytes + oob_bytes);
        let pages_before = header.vid_header_offset / page_bytes;
        let expected = index(header.vid_header_offset + pages_before * oob_bytes);
        let fits = stride.is_multiple_of(page_bytes + oob_bytes)
            && pages.is_power_of_two()
            && vid_at.is_none_or(|found| found == expected);
        fits.then_some(GuessedShape {
            page_bytes,
            subpage_bytes,
            block_bytes: pages * page_bytes,
            oob_bytes,
        })
    })
}

/// Number of headers that reveals the pattern even if some blocks have none.
const HEADERS_ENOUGH: usize = 64;

/// Number of headers that reveals it if each is as far from the one before: no block is left out.
const EQUAL_HEADERS_ENOUGH: usize = 16;

/// 512-byte pages with 8 bytes of OOB are the smallest unit of a block.
const STEP: usize = 8;

/// The EC headers found so far in an image that is read in chunks.
#[derive(Default)]
struct EcHeaders {
    found: Vec<(usize, EcHeader)>,
    /// First offset that was not searched yet.
    next: usize,
}

impl EcHeaders {
    fn are_enough(&self) -> bool {
        let mut distances = self.found.windows(2).map(|pair| pair[1].0 - pair[0].0);
        let first = distances.next();
        let are_equal = distances.all(|distance| Some(distance) == first);
        self.found.len() >= HEADERS_ENOUGH || are_equal && self.found.len() >= EQUAL_HEADERS_ENOUGH
    }

    /// Continues the search up to the end of `image`.
    fn look(&mut self, image: &[u8]) {
        let has_magic = |chunk: &[u8]| chunk.starts_with(b"UBI#");
        while !self.are_enough() {
            let rest = image.get(self.next..).unwrap_or_default();
            let Some(places) = rest.len().checked_sub(HEADER_BYTES) else {
                return;
            };
            let chunks = rest.chunks_exact(STEP).take(places / STEP + 1);
            let Some(chunk) = chunks.clone().position(has_magic) else {
                self.next += chunks.len() * STEP;
                return;
            };
            let at = self.next + chunk * STEP;
            let raw = image[at..].first_chunk::<HEADER_BYTES>();
            if let Some(Decoded::Header(header)) = raw.map(EcHeader::decode) {
                self.found.push((at, header));
            }
            self.next = at + STEP;
        }
    }
}

fn vid_header_after(image: &[u8], block: usize, stride: usize) -> Option<usize> {
    let end = (block + stride).min(image.len());
    (block..end).step_by(8).map(|at| at - block).find(|at| {
        let raw = image
            .get(block + at..)
            .and_then(<[u8]>::first_chunk::<HEADER_BYTES>);
        raw.is_some_and(|raw| {
            raw.starts_with(b"UBI!") && !matches!(VidHeader::decode(raw, u32::MAX), Decoded::Damaged(_))
        })
    })
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Page and sub-page size that lead to these offsets.
fn pages(header: &EcHeader) -> Option<(u32, u32)> {
    let (vid, data) = (header.vid_header_offset, header.data_offset);
    // The headers take two pages, or one page with sub-pages; chips with pages below 1 KiB have the latter.
    let page = if vid >= 1024 && data == vid.checked_mul(2)? {
        vid
    } else {
        data
    };
    let subpage = if vid < page && vid.is_power_of_two() {
        vid
    } else {
        page
    };
    (page.is_power_of_two() && (8..=64 << 10).contains(&page)).then_some((page, subpage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(page: usize, pages: usize, oob: usize, vid: u32, data: u32) -> Vec<u8> {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: vid,
            data_offset: data,
            image_sequence: 5,
        };
        let mut block = vec![0xFF; page * pages];
        block[..HEADER_BYTES].copy_from_slice(&header.encode());
        let with_oob: Vec<u8> = block
            .chunks(page)
            .flat_map(|page| [page, &vec![0xFE; oob][..]].concat())
            .collect();
        with_oob.repeat(3)
    }

    #[test]
    fn the_shape_follows_from_the_headers_with_and_without_oob() {
        for (page, pages, oob, vid, data, subpage) in [
            (2048, 64, 0, 512, 2048, 512),
            (2048, 64, 64, 512, 2048, 512),
            (2048, 64, 64, 2048, 4096, 2048),
            (4096, 128, 224, 4096, 8192, 4096),
            (512, 32, 16, 256, 512, 256),
            (8192, 128, 0, 8192, 16384, 8192),
        ] {
            let image = image(page, pages, oob, vid, data);
            let shape = guess_shape(&image[..], u64::MAX).unwrap().unwrap();
            let expected = GuessedShape {
                page_bytes: u32::try_from(page).unwrap(),
                subpage_bytes: subpage,
                block_bytes: u32::try_from(page * pages).unwrap(),
                oob_bytes: u32::try_from(oob).unwrap(),
            };
            assert_eq!(shape, expected);
        }
    }

    #[test]
    fn no_more_of_an_image_is_read_than_shows_enough_headers() {
        let mut image = image(2048, 64, 0, 512, 2048).repeat(100);
        let read_of = |image: &[u8]| {
            let mut rest = image;
            let shape = guess_shape(&mut rest, u64::MAX).unwrap().unwrap();
            assert_eq!(shape.block_bytes, 128 << 10);
            image.len() - rest.len()
        };
        assert_eq!(read_of(&image), 2 << 20, "16 blocks of 128 KiB");
        // Without the header of a block the others take longer to show the size.
        image[5 * (128 << 10)] = 0;
        assert_eq!(
            read_of(&image),
            65 * (128 << 10) + (128 << 10),
            "65 blocks, in steps"
        );
    }

    #[test]
    fn what_is_no_ubi_has_no_shape() {
        for image in [&[0xFF; 100_000][..], &[], b"UBI#"] {
            assert_eq!(guess_shape(image, u64::MAX).unwrap(), None);
        }
    }
}
