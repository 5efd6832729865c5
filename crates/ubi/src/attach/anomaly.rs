//! What a look at every block found that should not be, block by block.

use std::fmt;

use media::Peb;

use crate::format::volume_table::TableError;
use crate::format::{Damage, Refusal};

/// One finding, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The block.
    pub peb: Peb,
    /// First byte in the block that is meant.
    pub offset: u32,
    /// What it is.
    pub kind: AnomalyKind,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnomalyKind {
    /// A block without an EC header, all 0xFF: an erase was cut off, or it was never formatted.
    Blank,
    /// An EC header that can't be read, before a block that is blank or damaged too.
    EcHeader(Damage),
    /// An EC header that can't be read, before a good VID header.
    EcHeaderOfUsed(Damage),
    /// A VID header that can't be read, with nothing or something unreadable behind it: a write was cut off.
    VidHeader(Damage),
    /// A VID header that can't be read, with data behind it.
    VidHeaderWithData(Damage),
    /// A header with a right CRC that says something impossible.
    Refused(Refusal),
    /// Bits flipped beyond what was corrected, or nearly.
    Bits {
        /// Beyond correction.
        uncorrectable: bool,
    },
    /// Another block holds the same LEB and is later.
    Superseded {
        /// Which.
        by: Peb,
    },
    /// The later block of a LEB whose copy was cut off.
    TornCopy,
    /// A block of a volume that is not in the volume table.
    NoSuchVolume {
        /// Its number.
        volume: u32,
    },
    /// A block of an internal volume that is not the volume table.
    Internal {
        /// Its number.
        volume: u32,
    },
    /// A header that contradicts the volume table, or other blocks of its volume, or of the device.
    Contradiction {
        /// What.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What was expected.
        expected: u64,
    },
    /// The CRC of data is wrong.
    Data {
        /// The volume.
        volume: u32,
        /// The LEB.
        leb: u32,
        /// Over the data.
        found: u32,
        /// In the VID header.
        stored: u32,
    },
    /// A copy of the volume table that can't be used.
    VolumeTable(TableError),
    /// The second copy of the volume table is not the first.
    VolumeTableCopies,
    /// A static volume has fewer LEBs than its headers say.
    MissingLebs {
        /// The volume.
        volume: u32,
        /// How many.
        missing: u32,
    },
    /// An update of a volume did not end.
    UpdateMarker {
        /// The volume.
        volume: u32,
    },
}

impl fmt::Display for Anomaly {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, byte {}: {}", self.peb, self.offset, self.kind)
    }
}

impl fmt::Display for AnomalyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => write!(out, "no EC header, the block is blank: its erase counter is lost"),
            Self::EcHeader(damage) => {
                write!(out, "EC header: {damage}; nothing is lost but the erase counter")
            }
            Self::EcHeaderOfUsed(damage) => write!(out, "EC header: {damage}; the block is in use"),
            Self::VidHeader(damage) => {
                write!(
                    out,
                    "VID header: {damage}; no data behind it, as a power cut leaves it"
                )
            }
            Self::VidHeaderWithData(damage) => {
                write!(
                    out,
                    "VID header: {damage}; there is data behind it, so the block is kept as it is"
                )
            }
            Self::Refused(refusal) => write!(out, "header: {refusal}"),
            Self::Bits { uncorrectable: true } => write!(out, "bits are wrong beyond correction"),
            Self::Bits { uncorrectable: false } => {
                write!(out, "so many bits flipped that the block should be moved")
            }
            Self::Superseded { by } => write!(
                out,
                "{by} holds the same LEB and is later; this one will be erased"
            ),
            Self::TornCopy => write!(
                out,
                "a copy that a power cut tore; the block that it was made of is used"
            ),
            Self::NoSuchVolume { volume } => {
                write!(
                    out,
                    "volume {volume} is not in the volume table; the block will be erased"
                )
            }
            Self::Internal { volume } => write!(out, "internal volume {volume:#x}, unknown here"),
            Self::Contradiction {
                field,
                found,
                expected,
            } => write!(out, "{field} is {found}, expected {expected}"),
            Self::Data {
                volume,
                leb,
                found,
                stored,
            } => write!(
                out,
                "data of LEB {leb} of volume {volume}: CRC is {found:#010x}, but the VID header says {stored:#010x}"
            ),
            Self::VolumeTable(error) => write!(out, "copy of the volume table: {error}"),
            Self::VolumeTableCopies => write!(
                out,
                "the second copy of the volume table is not the first, which counts"
            ),
            Self::MissingLebs { volume, missing } => {
                write!(out, "static volume {volume} lacks {missing} of its LEBs")
            }
            Self::UpdateMarker { volume } => write!(
                out,
                "an update of volume {volume} did not end: it holds neither old nor new content"
            ),
        }
    }
}
