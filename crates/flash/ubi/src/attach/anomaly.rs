//! Anomalies found by a scan, block by block.

use std::fmt;

use media::{Leb, Peb};

use super::VolumeId;
use crate::format::volume_table::TableError;
use crate::format::{Damage, Refusal};

/// One finding and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The block.
    pub peb: Peb,
    /// Offset of the finding in the block, bytes.
    pub offset: u32,
    /// Kind of finding.
    pub kind: AnomalyKind,
}

/// Kind of an anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnomalyKind {
    /// Blank EC header: an erase was interrupted, or the block was never formatted. After a check the rest of the
    /// block is known to be blank too; a scan does not look, and neither does Linux.
    Blank,
    /// Blank EC header in a block that is not blank. Its data is lost, as UBI takes the block for a blank one.
    BlankEcHeader {
        /// Volume and LEB, if the VID header can be read.
        leb: Option<(VolumeId, Leb)>,
    },
    /// Unreadable EC header before a good VID header.
    EcHeaderOfUsed {
        /// Damage of the EC header.
        damage: Damage,
        /// Volume in the VID header.
        volume: VolumeId,
        /// LEB in the VID header.
        leb: Leb,
    },
    /// Unreadable EC header, and no good VID header after it.
    EcHeader {
        /// Damage of the EC header.
        damage: Damage,
        /// Damage of the VID header; `None` if it is blank.
        vid: Option<Damage>,
        /// Content of the data area.
        behind: Behind,
    },
    /// Unreadable VID header.
    VidHeader {
        /// Damage of the VID header.
        damage: Damage,
        /// Content of the data area.
        behind: Behind,
    },
    /// A header has a correct CRC but impossible values.
    Refused(Refusal),
    /// Bit-flips at or above the scrub threshold, or uncorrectable.
    Bits {
        /// The ECC could not correct them.
        uncorrectable: bool,
    },
    /// Another block holds a later version of the same LEB.
    Superseded {
        /// The later block.
        by: Peb,
    },
    /// The later block of a LEB, whose copy was interrupted.
    TornCopy,
    /// A block of a volume that is not in the volume table.
    NoSuchVolume {
        /// Volume number.
        volume: u32,
    },
    /// A block of an internal volume other than the volume table.
    Internal {
        /// Volume number.
        volume: u32,
    },
    /// A header contradicts the volume table, other blocks of its volume, or other blocks of the device.
    Contradiction {
        /// The field that differs.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Value expected.
        expected: u64,
    },
    /// Data CRC mismatch.
    Data {
        /// The volume.
        volume: u32,
        /// The LEB.
        leb: u32,
        /// CRC of the data.
        found: u32,
        /// CRC in the VID header.
        stored: u32,
    },
    /// An unusable copy of the volume table.
    VolumeTable(TableError),
    /// The two copies of the volume table differ.
    VolumeTableCopies,
    /// A static volume has fewer LEBs than its headers say.
    MissingLebs {
        /// The volume.
        volume: u32,
        /// Number of missing LEBs.
        missing: u32,
    },
    /// An update of a volume was not completed.
    UpdateMarker {
        /// The volume.
        volume: u32,
    },
}

/// Content of the data area of a block whose headers can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Not read: a scan decides by the headers, as Linux does.
    NotRead,
    /// All 0xFF: nothing was written.
    Blank,
    /// Bit-flips above the scrub threshold or uncorrectable, such as an interrupted erase leaves.
    Unreadable,
    /// Data.
    Data,
}

impl AnomalyKind {
    /// Whether the block may have held a LEB that no other block accounts for.
    #[must_use]
    pub const fn may_lose_a_leb(&self) -> bool {
        match self {
            Self::BlankEcHeader { .. } => true,
            Self::EcHeader { behind, .. } | Self::VidHeader { behind, .. } => {
                matches!(behind, Behind::Unreadable | Behind::Data)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, byte {}: {}", self.peb, self.offset, self.kind)
    }
}

const MAY_BE_LOST: &str = "a LEB may be lost, of which volume can't be told";
const ERASES: &str = "an attach for writing erases the block, here and in Linux";

impl fmt::Display for AnomalyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => write!(out, "no EC header, the block is blank: its erase counter is lost"),
            Self::BlankEcHeader {
                leb: Some((volume, leb)),
            } => write!(
                out,
                "no EC header, but the block is not blank: {leb} of {volume} is lost; {ERASES}"
            ),
            Self::BlankEcHeader { leb: None } => {
                write!(
                    out,
                    "no EC header, but the block is not blank: {MAY_BE_LOST}; {ERASES}"
                )
            }
            Self::EcHeaderOfUsed { damage, volume, leb } => write!(
                out,
                "EC header: {damage}; only the erase counter is lost: the VID header is right ({leb} of {volume})"
            ),
            Self::EcHeader { damage, vid, behind } => {
                write!(out, "EC header: {damage}; VID header: ")?;
                match vid {
                    Some(damage) => write!(out, "{damage}; ")?,
                    None => out.write_str("it is blank; ")?,
                }
                match behind {
                    Behind::NotRead => write!(out, "what is behind them was not read"),
                    Behind::Blank => write!(out, "the block is empty: only the erase counter is lost"),
                    Behind::Unreadable => write!(
                        out,
                        "bits behind them are wrong, as a cut erase leaves them: {MAY_BE_LOST}; {ERASES}"
                    ),
                    Behind::Data => write!(out, "there is data behind them: {MAY_BE_LOST}; {ERASES}"),
                }
            }
            Self::VidHeader { damage, behind } => {
                write!(out, "VID header: {damage}; ")?;
                match behind {
                    Behind::NotRead | Behind::Blank => {
                        write!(out, "no data behind it, as a power cut leaves it")
                    }
                    Behind::Unreadable => write!(
                        out,
                        "bits behind it are wrong, as a cut erase leaves them: {MAY_BE_LOST}; {ERASES}"
                    ),
                    Behind::Data => write!(
                        out,
                        "there is data behind it, so the block is kept as it is: {MAY_BE_LOST}"
                    ),
                }
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
