//! The headers of a block: raw bytes, ECC result and decoded form.

use media::{Nand, NandError, NandGeometry, Peb, ReadReport, index};

use crate::format::{Damage, Decoded, EcHeader, HEADER_BYTES, Refusal, VidHeader};
use crate::layout::Layout;
use crate::retry;

/// Result of reading a header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<H> {
    Header { header: H, bits_flipped: bool },
    Erased { bits_flipped: bool },
    Damaged { damage: Damage, uncorrectable: bool },
    Refused(Refusal),
}

/// The raw bytes of both headers of a block, and the ECC result of their reads.
pub(crate) struct RawHeaders {
    ec: [u8; HEADER_BYTES],
    vid: [u8; HEADER_BYTES],
    ec_report: (bool, bool),
    vid_report: (bool, bool),
}

impl RawHeaders {
    /// Reads both headers, in one read if they share a page.
    pub(crate) fn read(nand: &mut dyn Nand, peb: Peb, layout: &Layout) -> Result<Self, NandError> {
        let geometry = nand.geometry();
        let vid_offset = layout.vid_header_offset();
        let mut headers = Self {
            ec: [0; HEADER_BYTES],
            vid: [0; HEADER_BYTES],
            ec_report: (false, false),
            vid_report: (false, false),
        };
        let end = index(vid_offset) + HEADER_BYTES;
        if end <= index(geometry.page_bytes()) {
            let mut both = vec![0; end];
            let report = retry::read(nand, peb, 0, &mut both)?;
            headers.ec.copy_from_slice(&both[..HEADER_BYTES]);
            headers.vid.copy_from_slice(&both[index(vid_offset)..]);
            headers.ec_report = verdict(&report, &geometry);
            headers.vid_report = headers.ec_report;
        } else {
            headers.ec_report = verdict(&retry::read(nand, peb, 0, &mut headers.ec)?, &geometry);
            headers.vid_report = verdict(&retry::read(nand, peb, vid_offset, &mut headers.vid)?, &geometry);
        }
        Ok(headers)
    }

    pub(crate) fn ec(&self) -> Seen<EcHeader> {
        seen(EcHeader::decode(&self.ec), self.ec_report)
    }

    pub(crate) fn vid(&self, leb_bytes: u32) -> Seen<VidHeader> {
        seen(VidHeader::decode(&self.vid, leb_bytes), self.vid_report)
    }
}

/// Returns whether there are bit-flips, and whether they are uncorrectable.
fn verdict(report: &ReadReport, geometry: &NandGeometry) -> (bool, bool) {
    (report.needs_scrub(geometry), !report.is_correct())
}

fn seen<H>(decoded: Decoded<H>, (bits_flipped, uncorrectable): (bool, bool)) -> Seen<H> {
    match decoded {
        // The header's own CRC is correct, whatever the state of the rest of the page.
        Decoded::Header(header) => Seen::Header { header, bits_flipped },
        Decoded::Erased if !uncorrectable => Seen::Erased { bits_flipped },
        Decoded::Erased => Seen::Damaged {
            damage: Damage::Unreadable,
            uncorrectable,
        },
        Decoded::Damaged(damage) => Seen::Damaged {
            damage,
            uncorrectable,
        },
        Decoded::Refused(refusal) => Seen::Refused(refusal),
    }
}
