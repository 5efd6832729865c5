//! On-flash structures of UBI: big-endian, CRC-32 with initial value all ones and no final inversion.
//!
//! Pure functions between bytes and values; nothing here reads a medium. Decoding order, everywhere: blank, magic,
//! CRC, version, then fields - a field is not read before the CRC has been verified. Spec: `docs/formats/ubi.md`,
//! whose bytes are the golden bytes of the tests here.

mod ec_header;
pub mod fastmap;
mod vid_header;
pub mod volume_table;

#[cfg(test)]
mod mutation_tests;

pub use ec_header::{EcHeader, MAX_ERASE_COUNTER};
pub use vid_header::{Compatibility, VidHeader, VolumeKind};

/// Size of an EC header and of a VID header in bytes.
pub const HEADER_BYTES: usize = 64;

/// Format version of Linux and of this crate.
pub const VERSION: u8 = 1;

/// Maximum number of volumes of a device.
pub const MAX_VOLUMES: u32 = 128;

/// First number of internal volumes.
pub const INTERNAL_VOLUMES_START: u32 = 0x7FFF_EFFF;

/// The layout volume, which holds two copies of the volume table.
pub const LAYOUT_VOLUME: u32 = INTERNAL_VOLUMES_START;

/// LEBs of the layout volume; each holds a complete copy of the volume table.
pub const LAYOUT_VOLUME_LEBS: u32 = 2;

/// The volume whose LEB 0 holds the superblock of a fastmap.
pub const FASTMAP_SUPERBLOCK_VOLUME: u32 = INTERNAL_VOLUMES_START + 1;

/// The volume of the other blocks of a fastmap.
pub const FASTMAP_DATA_VOLUME: u32 = INTERNAL_VOLUMES_START + 2;

/// The volume of the marks that arrays put on their members. Linux does not know it; its compatibility value makes
/// Linux refuse the device. Spec: `docs/formats/array.md`.
pub const MARK_VOLUME: u32 = INTERNAL_VOLUMES_START + 0x7A2;

/// CRC-32 of UBI and UBIFS.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    !crc32fast::hash(bytes)
}

/// Result of decoding the 64 bytes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<H> {
    /// A header with correct CRC and fields.
    Header(H),
    /// All bytes are 0xFF: nothing was written since the erase.
    Erased,
    /// No header, an incomplete one, or a corrupt one.
    Damaged(Damage),
    /// The CRC is correct, but this build does not support the header.
    Refused(Refusal),
}

/// Reason why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Wrong magic number.
    #[error("magic number is {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// Value found.
        found: u32,
        /// Magic number of this header.
        expected: u32,
    },
    /// CRC mismatch.
    #[error("CRC of the header is {found:#010x}, but {stored:#010x} is stored in it")]
    Crc {
        /// CRC of the bytes.
        found: u32,
        /// CRC stored in the header.
        stored: u32,
    },
    /// Reads as erased, but with uncorrectable bits.
    #[error("its bits are wrong beyond correction")]
    Unreadable,
}

/// Reason why a header with a correct CRC can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Written by another version of UBI.
    #[error("format version is {found}, this build reads version {VERSION}")]
    Version {
        /// Version in the header.
        found: u8,
    },
    /// A field has a value that UBI never writes.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Allowed values.
        expected: &'static str,
    },
}

/// Checks common to EC and VID headers: blank, magic, CRC and version. `Header(())` means that the fields may be
/// decoded.
fn decode_frame(raw: &[u8; HEADER_BYTES], magic: u32) -> Decoded<()> {
    let found = be32(raw, 0);
    if found != magic {
        if raw.iter().all(|byte| *byte == 0xFF) {
            return Decoded::Erased;
        }
        return Decoded::Damaged(Damage::Magic {
            found,
            expected: magic,
        });
    }
    let (found, stored) = (crc32(&raw[..CRC_OFFSET]), be32(raw, CRC_OFFSET));
    if found != stored {
        return Decoded::Damaged(Damage::Crc { found, stored });
    }
    if raw[4] != VERSION {
        return Decoded::Refused(Refusal::Version { found: raw[4] });
    }
    Decoded::Header(())
}

/// Adds magic, version and CRC to the fields already in `raw`.
fn encode_frame(raw: &mut [u8; HEADER_BYTES], magic: u32) {
    put32(raw, 0, magic);
    raw[4] = VERSION;
    let crc = crc32(&raw[..CRC_OFFSET]);
    put32(raw, CRC_OFFSET, crc);
}

const CRC_OFFSET: usize = 60;

fn bytes_at<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    raw[at..at + N].try_into().expect("the range has N bytes")
}

fn be16(raw: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes_at(raw, at))
}

fn be32(raw: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes_at(raw, at))
}

fn be64(raw: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes_at(raw, at))
}

fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
    raw[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put16(raw: &mut [u8], at: usize, value: u16) {
    put(raw, at, &value.to_be_bytes());
}

fn put32(raw: &mut [u8], at: usize, value: u32) {
    put(raw, at, &value.to_be_bytes());
}

fn put64(raw: &mut [u8], at: usize, value: u64) {
    put(raw, at, &value.to_be_bytes());
}
