//! The erase-counter header: the first bytes of every physical eraseblock, written right after the erase.
//!
//! | bytes  | field          | meaning                                                       |
//! |--------|----------------|---------------------------------------------------------------|
//! | 0..4   | magic          | `UBI#`                                                        |
//! | 4      | version        | 1                                                             |
//! | 8..16  | erase counter  | erases of this block so far, at most 2^31 - 1                 |
//! | 16..20 | VID offset     | start of the VID header, bytes                                |
//! | 20..24 | data offset    | start of user data, bytes                                     |
//! | 24..28 | image sequence | same in every block of one image; 0 from old writers: unknown |
//! | 60..64 | CRC-32         | of bytes 0..60                                                |
//!
//! Other bytes are written as zero and ignored. Spec: `docs/formats/ubi.md`.

use super::{Decoded, HEADER_BYTES, Refusal, be32, be64, decode_frame, encode_frame, put32, put64};

const MAGIC: u32 = 0x5542_4923;

/// The largest erase counter that UBI accepts.
pub const MAX_ERASE_COUNTER: u32 = 0x7FFF_FFFF;

/// The fields of an EC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcHeader {
    /// Erases of this block so far.
    pub erase_counter: u32,
    /// Offset of the VID header in the block, bytes.
    pub vid_header_offset: u32,
    /// Offset of user data in the block, bytes.
    pub data_offset: u32,
    /// Image sequence number; 0 if unknown.
    pub image_sequence: u32,
}

impl EcHeader {
    /// Decodes a header. [`Decoded::Refused`] for another version or an impossible erase counter.
    #[must_use]
    pub fn decode(raw: &[u8; HEADER_BYTES]) -> Decoded<Self> {
        match decode_frame(raw, MAGIC) {
            Decoded::Header(()) => {}
            Decoded::Erased => return Decoded::Erased,
            Decoded::Damaged(damage) => return Decoded::Damaged(damage),
            Decoded::Refused(refusal) => return Decoded::Refused(refusal),
        }
        let erases = be64(raw, 8);
        match u32::try_from(erases) {
            Ok(erase_counter) if erase_counter <= MAX_ERASE_COUNTER => Decoded::Header(Self {
                erase_counter,
                vid_header_offset: be32(raw, 16),
                data_offset: be32(raw, 20),
                image_sequence: be32(raw, 24),
            }),
            _ => Decoded::Refused(Refusal::Field {
                field: "erase counter",
                found: erases,
                expected: "at most 2147483647",
            }),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        put64(&mut raw, 8, u64::from(self.erase_counter));
        put32(&mut raw, 16, self.vid_header_offset);
        put32(&mut raw, 20, self.data_offset);
        put32(&mut raw, 24, self.image_sequence);
        encode_frame(&mut raw, MAGIC);
        raw
    }
}
