//! On-flash structures of UBI: big-endian, CRC-32 with initial value all ones and no final inversion.
//!
//! Pure functions from bytes to values and back; nothing here reads a medium. Order of decoding, everywhere: blank,
//! magic, CRC, version, then fields - a field is not looked at before the CRC has vouched for it. Spec:
//! `docs/formats/ubi.md`; its bytes are the golden bytes of the tests here.

mod ec_header;
pub mod fastmap;
mod vid_header;
pub mod volume_table;

#[cfg(test)]
mod mutation_tests;

pub use ec_header::{EcHeader, MAX_ERASE_COUNTER};
pub use vid_header::{Compatibility, VidHeader, VolumeKind};

/// Bytes of an EC header and of a VID header.
pub const HEADER_BYTES: usize = 64;

/// The version of the format that Linux writes and this crate reads.
pub const VERSION: u8 = 1;

/// Most volumes that a device can have.
pub const MAX_VOLUMES: u32 = 128;

/// Volumes from this number up are UBI's own.
pub const INTERNAL_VOLUMES_START: u32 = 0x7FFF_EFFF;

/// The volume that holds the volume table, twice.
pub const LAYOUT_VOLUME: u32 = INTERNAL_VOLUMES_START;

/// LEBs of the layout volume; each holds a whole copy of the volume table.
pub const LAYOUT_VOLUME_LEBS: u32 = 2;

/// The volume whose LEB 0 holds the superblock of a fastmap.
pub const FASTMAP_SUPERBLOCK_VOLUME: u32 = INTERNAL_VOLUMES_START + 1;

/// The volume of the other blocks of a fastmap.
pub const FASTMAP_DATA_VOLUME: u32 = INTERNAL_VOLUMES_START + 2;

/// The volume of the marks that arrays put on their members. Linux does not know it, and the marks have it refuse the device.
/// Spec: `docs/formats/array.md`.
pub const MARK_VOLUME: u32 = INTERNAL_VOLUMES_START + 0x7A2;

/// The CRC-32 of UBI and UBIFS.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    !crc32fast::hash(bytes)
}

/// Result of decoding the 64 bytes of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<H> {
    /// A header whose CRC and fields are right.
    Header(H),
    /// All bytes are 0xFF: nothing was written since the erase.
    Erased,
    /// Something else: no header, a torn one, or one that rotted.
    Damaged(Damage),
    /// The CRC is right, but this build can't read it.
    Refused(Refusal),
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It does not begin as one.
    #[error("magic number is {found:#010x}, expected {expected:#010x}")]
    Magic {
        /// What is there.
        found: u32,
        /// What a header of this sort begins with.
        expected: u32,
    },
    /// It begins as one, but its bytes changed since.
    #[error("CRC of the header is {found:#010x}, but {stored:#010x} is stored in it")]
    Crc {
        /// Over the bytes that are there.
        found: u32,
        /// What the header says.
        stored: u32,
    },
    /// It reads as erased, but the chip says that its bits are wrong.
    #[error("its bits are wrong beyond correction")]
    Unreadable,
}

/// Why a header with a right CRC can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Written by another version of UBI.
    #[error("format version is {found}, this build reads version {VERSION}")]
    Version {
        /// What the header says.
        found: u8,
    },
    /// A field has a value that no UBI writes.
    #[error("{field} is {found}, expected {expected}")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
}

/// Blank, magic, CRC and version: what EC and VID headers have in common. `Header(())` when the fields may be read.
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

/// Puts magic, version and CRC around the fields that are in `raw` already.
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
