//! Anomalies that the scan of all blocks found, block by block.

use std::fmt;

use media::{Leb, Peb};

use super::VolumeId;
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

/// Kind of an anomaly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnomalyKind {
    /// No EC header, all 0xFF: an erase was cut off, or the block was never formatted. A check has looked at the rest of the
    /// block, which is blank too; a scan, as Linux, has not.
    Blank,
    /// No EC header, all 0xFF, before something that isn't blank: it is lost, as UBI takes the block for a blank one.
    BlankEcHeader {
        /// Volume and LEB, where the VID header can be read.
        leb: Option<(VolumeId, Leb)>,
    },
    /// An EC header that can't be read, before a good VID header.
    EcHeaderOfUsed {
        /// What is wrong with it.
        damage: Damage,
        /// The volume of the VID header.
        volume: VolumeId,
        /// The LEB of the VID header.
        leb: Leb,
    },
    /// An EC header that can't be read, before no good VID header.
    EcHeader {
        /// What is wrong with it.
        damage: Damage,
        /// What is wrong with the VID header; `None` when it is blank.
        vid: Option<Damage>,
        /// What is behind the headers.
        behind: Behind,
    },
    /// A VID header that can't be read.
    VidHeader {
        /// What is wrong with it.
        damage: Damage,
        /// What is behind it.
        behind: Behind,
    },
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

/// Content of the data area of a block whose headers can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Not looked at: a scan decides by the headers, as Linux does.
    NotRead,
    /// All 0xFF: nothing was written.
    Blank,
    /// Bits are wrong, as an erase that was cut off leaves them.
    Unreadable,
    /// Something.
    Data,
}

impl AnomalyKind {
    /// Whether the block may have held a LEB of which nothing else is known.
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
