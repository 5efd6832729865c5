//! The volume-identifier header: written when a physical eraseblock is mapped to a LEB.
//!
//! | bytes  | field           | meaning                                                                  |
//! |--------|-----------------|--------------------------------------------------------------------------|
//! | 0..4   | magic           | `UBI!`                                                                   |
//! | 4      | version         | 1                                                                        |
//! | 5      | volume kind     | 1 dynamic, 2 static                                                      |
//! | 6      | copy flag       | 1 if the data was written here as a whole: data size and CRC cover it    |
//! | 7      | compatibility   | treatment of an internal volume by a reader that does not know it        |
//! | 8..12  | volume          | number of the volume                                                     |
//! | 12..16 | LEB             | number of the logical eraseblock in the volume                           |
//! | 20..24 | data size       | bytes that the data CRC covers                                           |
//! | 24..28 | used LEBs       | static volumes: number of LEBs with data                                 |
//! | 28..32 | data padding    | bytes at the end of the block left free by the volume's alignment        |
//! | 32..36 | data CRC        | CRC-32 of `data size` bytes of data                                      |
//! | 40..48 | sequence number | increases with every VID header written on the device                    |
//! | 48..56 | generation      | ours; in bytes that Linux reserves, ignores, and keeps when it moves one |
//! | 60..64 | CRC-32          | of bytes 0..60                                                           |
//!
//! Other bytes are written as zero and ignored. Spec: `docs/formats/ubi.md`.

use super::{
    Decoded, HEADER_BYTES, INTERNAL_VOLUMES_START, MAX_VOLUMES, Refusal, be32, be64, decode_frame,
    encode_frame, put32, put64,
};

const MAGIC: u32 = 0x5542_4921;

/// Type of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeKind {
    /// Written at any time by its user, who verifies the content.
    Dynamic,
    /// Written as a whole; every LEB has a CRC.
    Static,
}

impl VolumeKind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Dynamic),
            2 => Some(Self::Static),
            _ => None,
        }
    }

    pub(super) fn to_byte(self) -> u8 {
        match self {
            Self::Dynamic => 1,
            Self::Static => 2,
        }
    }
}

/// Treatment of an internal volume by a reader that does not know it. User volumes have [`Compatibility::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compatibility {
    /// A user volume.
    None,
    /// Erase its blocks.
    Delete,
    /// Attach read-only.
    ReadOnly,
    /// Keep its blocks untouched.
    Preserve,
    /// Refuse the device.
    Reject,
}

impl Compatibility {
    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Delete),
            2 => Some(Self::ReadOnly),
            4 => Some(Self::Preserve),
            5 => Some(Self::Reject),
            _ => None,
        }
    }

    fn to_byte(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Delete => 1,
            Self::ReadOnly => 2,
            Self::Preserve => 4,
            Self::Reject => 5,
        }
    }
}

/// The fields of a VID header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VidHeader {
    /// Static or dynamic.
    pub kind: VolumeKind,
    /// Copy flag: the data was written here as a whole; `data_size` and `data_crc` cover it.
    pub copied: bool,
    /// Compatibility value, for internal volumes.
    pub compatibility: Compatibility,
    /// Volume number.
    pub volume: u32,
    /// LEB number in the volume.
    pub leb: u32,
    /// Bytes that `data_crc` covers.
    pub data_size: u32,
    /// Static volumes: LEBs with data.
    pub used_lebs: u32,
    /// Bytes at the end of the block that the volume does not use.
    pub data_padding: u32,
    /// CRC-32 of `data_size` bytes of data.
    pub data_crc: u32,
    /// Increases with every VID header written.
    pub sequence_number: u64,
    /// Tag set by the owner of the volume; 0 for none.
    pub generation: u64,
}

impl VidHeader {
    /// Decodes a header of a device with LEBs of `leb_bytes` bytes.
    #[must_use]
    pub fn decode(raw: &[u8; HEADER_BYTES], leb_bytes: u32) -> Decoded<Self> {
        match decode_frame(raw, MAGIC) {
            Decoded::Header(()) => {}
            Decoded::Erased => return Decoded::Erased,
            Decoded::Damaged(damage) => return Decoded::Damaged(damage),
            Decoded::Refused(refusal) => return Decoded::Refused(refusal),
        }
        match Self::fields(raw).and_then(|header| header.check(leb_bytes).map(|()| header)) {
            Ok(header) => Decoded::Header(header),
            Err(refusal) => Decoded::Refused(refusal),
        }
    }

    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut raw = [0; HEADER_BYTES];
        raw[5] = self.kind.to_byte();
        raw[6] = u8::from(self.copied);
        raw[7] = self.compatibility.to_byte();
        put32(&mut raw, 8, self.volume);
        put32(&mut raw, 12, self.leb);
        put32(&mut raw, 20, self.data_size);
        put32(&mut raw, 24, self.used_lebs);
        put32(&mut raw, 28, self.data_padding);
        put32(&mut raw, 32, self.data_crc);
        put64(&mut raw, 40, self.sequence_number);
        put64(&mut raw, 48, self.generation);
        encode_frame(&mut raw, MAGIC);
        raw
    }

    fn fields(raw: &[u8; HEADER_BYTES]) -> Result<Self, Refusal> {
        let refuse = |field, at: usize, expected| Refusal::Field {
            field,
            found: u64::from(raw[at]),
            expected,
        };
        Ok(Self {
            kind: VolumeKind::from_byte(raw[5]).ok_or(refuse("volume kind", 5, "1 or 2"))?,
            copied: match raw[6] {
                0 => false,
                1 => true,
                _ => return Err(refuse("copy flag", 6, "0 or 1")),
            },
            compatibility: Compatibility::from_byte(raw[7]).ok_or(refuse(
                "compatibility",
                7,
                "0, 1, 2, 4 or 5",
            ))?,
            volume: be32(raw, 8),
            leb: be32(raw, 12),
            data_size: be32(raw, 20),
            used_lebs: be32(raw, 24),
            data_padding: be32(raw, 28),
            data_crc: be32(raw, 32),
            sequence_number: be64(raw, 40),
            generation: be64(raw, 48),
        })
    }

    /// Checks that the fields are consistent, by the rules of Linux.
    fn check(&self, leb_bytes: u32) -> Result<(), Refusal> {
        let require = |holds: bool, field, found: u32, expected| {
            holds.then_some(()).ok_or(Refusal::Field {
                field,
                found: u64::from(found),
                expected,
            })
        };
        let internal = self.volume >= INTERNAL_VOLUMES_START;
        require(
            self.volume < MAX_VOLUMES || (internal && self.volume <= SIGNED_MAX),
            "volume",
            self.volume,
            "below 128, or from 2147479551 to 2147483647",
        )?;
        require(
            internal == (self.compatibility != Compatibility::None),
            "compatibility",
            u32::from(self.compatibility.to_byte()),
            "0 for volumes of the user alone",
        )?;
        require(self.leb <= SIGNED_MAX, "LEB", self.leb, "at most 2147483647")?;
        require(
            self.data_padding < leb_bytes / 2,
            "data padding",
            self.data_padding,
            "less than half a LEB",
        )?;
        require(
            self.data_size <= leb_bytes,
            "data size",
            self.data_size,
            "at most a LEB",
        )?;
        match self.kind {
            VolumeKind::Dynamic => self.check_dynamic(&require),
            VolumeKind::Static => self.check_static(leb_bytes, &require),
        }
    }

    fn check_dynamic(&self, require: &Require<'_>) -> Result<(), Refusal> {
        require(
            self.used_lebs == 0,
            "used LEBs of a dynamic volume",
            self.used_lebs,
            "0",
        )?;
        if self.copied {
            return require(
                self.data_size > 0,
                "data size of a copy",
                self.data_size,
                "at least 1",
            );
        }
        require(
            self.data_size == 0,
            "data size of a dynamic volume",
            self.data_size,
            "0 without the copy flag",
        )?;
        require(
            self.data_crc == 0,
            "data CRC of a dynamic volume",
            self.data_crc,
            "0 without the copy flag",
        )
    }

    fn check_static(&self, leb_bytes: u32, require: &Require<'_>) -> Result<(), Refusal> {
        require(
            self.leb < self.used_lebs,
            "LEB of a static volume",
            self.leb,
            "below used LEBs",
        )?;
        if self.leb + 1 < self.used_lebs {
            return require(
                self.data_size == leb_bytes - self.data_padding,
                "data size of a static volume",
                self.data_size,
                "a whole LEB, as it is not the last",
            );
        }
        require(
            self.data_size > 0 && self.data_size <= leb_bytes - self.data_padding,
            "data size of the last LEB of a static volume",
            self.data_size,
            "from 1 to what a LEB holds",
        )
    }
}

type Require<'a> = dyn Fn(bool, &'static str, u32, &'static str) -> Result<(), Refusal> + 'a;

/// Linux keeps volume and LEB numbers in signed 32-bit integers.
const SIGNED_MAX: u32 = 0x7FFF_FFFF;
