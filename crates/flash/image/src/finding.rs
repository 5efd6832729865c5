//! Findings: each thing in a dump that was lost, left out or decided, with its location.

use std::fmt;

use media::Leb;
use ubi::format::volume_table::TableError;
use ubi::format::{Damage, Refusal};

/// Whether content is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something was decided, ignored or guessed, and no content is known to be missing.
    Note,
    /// Content is, or may be, missing or wrong.
    Loss,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Offset in the dump's file, bytes.
    pub at: Option<u64>,
    /// Name of the volume, if it concerns one.
    pub volume: Option<String>,
    /// The event, and what was done about it.
    pub what: What,
}

impl Finding {
    pub(crate) fn new(at: Option<u64>, what: What) -> Self {
        Self {
            at,
            volume: None,
            what,
        }
    }

    /// Whether content is missing.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.what.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(volume) = &self.volume {
            write!(out, "volume {volume}: ")?;
        }
        if let Some(at) = self.at {
            write!(out, "byte {at:#x}: ")?;
        }
        self.what.fmt(out)
    }
}

/// The event of a [`Finding`], and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The host can't read a part of the dump.
    Unreadable {
        /// Length, bytes.
        bytes: u64,
    },
    /// There are more headers than a chip has blocks.
    TooManyHeaders,
    /// UBI headers inside of blocks of another partition, or of files of a UBIFS.
    Nested {
        /// Number of headers.
        headers: usize,
    },
    /// No ECC layout fits the OOB areas.
    NoEcc {
        /// The result of the search.
        reason: String,
        /// Whether the layout was given.
        is_given: bool,
    },
    /// Steps of a block have more wrong bits than the ECC corrects.
    Uncorrectable {
        /// Number of steps.
        steps: usize,
        /// The LEB in the block, unless the damage lies outside of the content of a volume.
        leb: Option<Leb>,
        /// Whether nothing else tells whether the content is right.
        loses_data: bool,
    },
    /// Pages with data whose parity is erased: they were written without ECC, and are not corrected.
    Unprotected {
        /// Number of pages.
        pages: u64,
    },
    /// The distance between the blocks of these headers is unknown.
    UnknownDistance {
        /// Number of headers.
        headers: usize,
    },
    /// The headers contradict the size of a block.
    NoShape {
        /// Distance between blocks, bytes.
        stride: u32,
    },
    /// A size that was given contradicts the headers.
    OtherSize {
        /// The option.
        option: &'static str,
        /// As given, bytes.
        given: u32,
        /// By the headers, bytes.
        found: u32,
    },
    /// The dump holds a second partition with this image sequence.
    SecondCopy {
        /// The image sequence.
        sequence: u32,
        /// Whether its first block is known. Otherwise blocks may be in the wrong one of the two.
        is_certain: bool,
    },
    /// More images with one sequence than are told apart: this one and those behind it are one partition.
    TooManyCopies {
        /// The image sequence.
        sequence: u32,
        /// Number of images that are partitions of their own.
        copies: usize,
    },
    /// A damaged EC header in front of a good VID header.
    EcHeader,
    /// A damaged VID header.
    VidHeader {
        /// The damage.
        damage: Damage,
        /// Whether the data area is erased, as after a power cut.
        is_blank: bool,
    },
    /// A header that no version of UBI known here writes.
    Refused(Refusal),
    /// Blocks inside of the partition without headers that are not erased.
    NoHeaders {
        /// Number of blocks.
        blocks: usize,
    },
    /// A block that the dump holds in part.
    CutBlock {
        /// Bytes that are missing.
        missing: u64,
        /// Whether data of a LEB is among them.
        loses_data: bool,
    },
    /// Neither copy of the volume table can be read.
    NoTable,
    /// A copy of the volume table is missing or unreadable.
    TableCopy {
        /// Number of the copy.
        copy: u32,
    },
    /// A record of the volume table is unreadable in all copies.
    TableRecord(TableError),
    /// Blocks of a volume that the table does not list.
    Removed {
        /// Number of the volume.
        volume: u32,
        /// Number of its blocks.
        blocks: usize,
    },
    /// The newest block of a LEB is an incomplete copy.
    TornCopy {
        /// The LEB.
        leb: Leb,
    },
    /// Two blocks claim a LEB with the same sequence number.
    SameSequence {
        /// The LEB.
        leb: Leb,
    },
    /// An update of the volume was not completed.
    UpdateMarker,
    /// LEBs inside of the content of a volume are missing.
    MissingLebs {
        /// First LEB.
        first: Leb,
        /// Number of LEBs.
        lebs: u32,
        /// Whether they had content, as far as known: the user of a dynamic volume may have unmapped them.
        loses_data: bool,
    },
    /// LEBs with numbers, or of volumes with a number of LEBs, that no chip of about the dump's size has.
    FarLebs {
        /// First LEB.
        first: Leb,
        /// Number of LEBs.
        lebs: usize,
        /// Numbers below this one are possible.
        limit: u32,
    },
    /// A squashfs is longer than its volume, or than what was written to it.
    CutSquashfs {
        /// LEBs of the squashfs, by its superblock.
        lebs: u32,
        /// LEBs that it can have here.
        there: u32,
    },
    /// The volume table lists a volume that has no LEB.
    NoLebs {
        /// Whether it may have had content.
        loses_data: bool,
    },
    /// The data of a LEB of a static volume has a wrong CRC.
    StaticCrc {
        /// The LEB.
        leb: Leb,
    },
    /// A LEB of the journal of a UBIFS, to which its log leads, is not in the dump.
    LostBud {
        /// The LEB.
        leb: Leb,
    },
    /// A LEB of the log of a UBIFS is not in the dump, and the log goes on behind it.
    LostLog {
        /// The LEB.
        leb: Leb,
    },
    /// A UBIFS that was made for LEBs of another size.
    OtherLebSize {
        /// LEB size of the file system, bytes.
        leb_bytes: u32,
    },
    /// A damaged UBIFS superblock.
    RebuiltSuperblock {
        /// Number of LEBs of the rebuilt one.
        lebs: u32,
    },
}

impl What {
    /// Whether content is missing.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Unreadable { .. }
            | Self::TooManyHeaders
            | Self::UnknownDistance { .. }
            | Self::NoShape { .. }
            | Self::VidHeader { is_blank: false, .. }
            | Self::Refused(_)
            | Self::CutBlock { loses_data: true, .. }
            | Self::SecondCopy {
                is_certain: false, ..
            }
            | Self::TooManyCopies { .. }
            | Self::NoTable
            | Self::TableRecord(_)
            | Self::UpdateMarker
            | Self::MissingLebs { loses_data: true, .. }
            | Self::FarLebs { .. }
            | Self::CutSquashfs { .. }
            | Self::NoLebs { loses_data: true }
            | Self::NoEcc { is_given: true, .. }
            | Self::Uncorrectable { loses_data: true, .. }
            | Self::LostBud { .. }
            | Self::LostLog { .. }
            | Self::StaticCrc { .. } => Severity::Loss,
            Self::Nested { .. }
            | Self::Unprotected { .. }
            | Self::OtherSize { .. }
            | Self::SecondCopy { is_certain: true, .. }
            | Self::EcHeader
            | Self::VidHeader { is_blank: true, .. }
            | Self::NoHeaders { .. }
            | Self::CutBlock {
                loses_data: false, ..
            }
            | Self::MissingLebs {
                loses_data: false, ..
            }
            | Self::NoLebs { loses_data: false }
            | Self::NoEcc { is_given: false, .. }
            | Self::Uncorrectable {
                loses_data: false, ..
            }
            | Self::TableCopy { .. }
            | Self::Removed { .. }
            | Self::TornCopy { .. }
            | Self::SameSequence { .. }
            | Self::OtherLebSize { .. }
            | Self::RebuiltSuperblock { .. } => Severity::Note,
        }
    }

    /// Name of the kind, for documents.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "unreadable",
            Self::TooManyHeaders => "too-many-headers",
            Self::Nested { .. } => "nested",
            Self::NoEcc { .. } => "no-ecc",
            Self::Uncorrectable { .. } => "uncorrectable",
            Self::Unprotected { .. } => "unprotected",
            Self::UnknownDistance { .. } => "unknown-distance",
            Self::NoShape { .. } => "no-shape",
            Self::OtherSize { .. } => "other-size",
            Self::SecondCopy { .. } => "second-copy",
            Self::TooManyCopies { .. } => "too-many-copies",
            Self::EcHeader => "ec-header",
            Self::VidHeader { .. } => "vid-header",
            Self::Refused(_) => "refused",
            Self::NoHeaders { .. } => "no-headers",
            Self::CutBlock { .. } => "cut-block",
            Self::NoTable => "no-table",
            Self::TableCopy { .. } => "table-copy",
            Self::TableRecord(_) => "table-record",
            Self::Removed { .. } => "removed",
            Self::TornCopy { .. } => "torn-copy",
            Self::SameSequence { .. } => "same-sequence",
            Self::UpdateMarker => "update-marker",
            Self::MissingLebs { .. } => "missing-lebs",
            Self::FarLebs { .. } => "far-lebs",
            Self::CutSquashfs { .. } => "cut-squashfs",
            Self::NoLebs { .. } => "no-lebs",
            Self::StaticCrc { .. } => "static-crc",
            Self::LostBud { .. } => "lost-bud",
            Self::LostLog { .. } => "lost-log",
            Self::OtherLebSize { .. } => "other-leb-size",
            Self::RebuiltSuperblock { .. } => "rebuilt-superblock",
        }
    }
}

/// "1 block", "2 blocks".
fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { bytes } => {
                write!(
                    out,
                    "{bytes} bytes can't be read by the host; they count as erased"
                )
            }
            Self::TooManyHeaders => {
                out.write_str("more UBI headers than a chip has blocks; the rest is left out")
            }
            Self::Nested { headers } => write!(
                out,
                "{} inside of blocks of another partition, or of files of a UBIFS: parts of an image in a volume or file; \
                 left out",
                counted(*headers, "UBI header")
            ),
            Self::UnknownDistance { headers } => write!(
                out,
                "{} without a second one at a plausible distance, so the block size is unknown; left out: give it by --page, \
                 --block and --oob",
                counted(*headers, "UBI header")
            ),
            Self::NoShape { stride } => write!(
                out,
                "UBI headers {stride} bytes apart, whose offsets no block of that size has; left out: give the geometry by \
                 --page, --block and --oob"
            ),
            Self::SecondCopy { sequence, is_certain } => write!(
                out,
                "a second image with the sequence {sequence} begins here; it is a partition of its own{}",
                if *is_certain {
                    ""
                } else {
                    ", and blocks in front of this place may be its blocks too: --offset and --length separate the two"
                }
            ),
            Self::TooManyCopies { sequence, copies } => write!(
                out,
                "image {} with the sequence {sequence} begins here; it and those behind it are read as a part of image {copies}, which \
                 mixes their blocks: --offset and --length separate them",
                copies + 1
            ),
            Self::EcHeader => out.write_str("the EC header is damaged; the block is used by its VID header"),
            Self::VidHeader {
                damage,
                is_blank: true,
            } => {
                write!(
                    out,
                    "VID header: {damage}; nothing is behind it, as after a power cut"
                )
            }
            Self::VidHeader { damage, .. } => write!(
                out,
                "VID header: {damage}; the LEB in this block can't be told and is left out"
            ),
            Self::Refused(refusal) => write!(out, "header: {refusal}; the block is left out"),
            Self::NoHeaders { blocks } => write!(
                out,
                "{} without UBI headers that hold something else, such as bad blocks (this is the first); left out",
                counted(*blocks, "block")
            ),
            Self::CutBlock { missing, loses_data } => write!(
                out,
                "the dump lacks {missing} bytes of this block, which count as erased{}",
                if *loses_data {
                    ""
                } else {
                    "; no data of a LEB is among them"
                }
            ),
            Self::NoEcc { reason, is_given } => write!(
                out,
                "the OOB areas are not used: {reason}; pages stay as they were read{}",
                if *is_given {
                    ""
                } else {
                    ", and --ecc gives a layout"
                }
            ),
            Self::Uncorrectable {
                steps,
                leb,
                loses_data,
            } => {
                if let Some(leb) = leb {
                    write!(out, "{leb}: ")?;
                }
                write!(
                    out,
                    "{} of the ECC {} more wrong bits than it corrects and {} as read; {}",
                    counted(*steps, "step"),
                    if *steps == 1 { "has" } else { "have" },
                    if *steps == 1 { "stays" } else { "stay" },
                    match (leb, loses_data) {
                        (_, true) =>
                            "the content is wrong there, unless it was written without this ECC (--ecc none)",
                        (Some(_), false) => "the CRCs of the content tell what is lost",
                        (None, false) => "no content of a volume is among them",
                    }
                )
            }
            Self::Unprotected { pages } => write!(
                out,
                "{pages} {} written without ECC, since the parity is erased; not corrected",
                if *pages == 1 { "page was" } else { "pages were" }
            ),
            Self::OtherSize { option, given, found } => write!(
                out,
                "{option} {given} contradicts the headers, which have {found} bytes; it is not used"
            ),
            Self::NoTable => out.write_str(
                "neither copy of the volume table can be read: the volumes have numbers in place of names",
            ),
            Self::TableCopy { copy } => write!(
                out,
                "copy {copy} of the volume table can't be read; the other one is used"
            ),
            Self::TableRecord(error) => write!(
                out,
                "volume table: {error}; the volume has its number in place of its name"
            ),
            Self::Removed { volume, blocks } => write!(
                out,
                "{} of volume {volume}, which the volume table does not list: it was removed; left out",
                counted(*blocks, "block")
            ),
            Self::TornCopy { leb } => {
                write!(
                    out,
                    "{leb}: its newest block is an incomplete copy; the one before is used"
                )
            }
            Self::SameSequence { leb } => write!(
                out,
                "{leb}: two blocks have it with the same sequence number; the first whole one is used"
            ),
            Self::UpdateMarker => out.write_str(
                "an update was not completed: its content may be neither the old one nor the new one",
            ),
            Self::FarLebs { first, lebs, limit } => write!(
                out,
                "{} left out, the first is {first}: their headers need a chip of more than {limit} blocks, many times this dump",
                counted(*lebs, "LEB")
            ),
            Self::CutSquashfs { lebs, there } => write!(
                out,
                "the squashfs needs {lebs} LEBs by its superblock, and the volume has {there}: the image is cut, or its \
                 superblock is damaged"
            ),
            Self::MissingLebs {
                first,
                lebs,
                loses_data,
            } => {
                match lebs {
                    1 => write!(out, "{first} is missing and reads as 0xff")?,
                    _ => write!(
                        out,
                        "{lebs} LEBs are missing and read as 0xff, the first is {first}"
                    )?,
                }
                out.write_str(if *loses_data {
                    ""
                } else {
                    "; nothing says that they were ever written"
                })
            }
            Self::NoLebs { loses_data: true } => out.write_str(
                "no block of this static volume was found, and there are blocks without readable headers",
            ),
            Self::NoLebs { loses_data: false } => out.write_str(
                "no block of this volume was found: it is empty, or its blocks are not in this dump",
            ),
            Self::StaticCrc { leb } => write!(out, "{leb}: its data has a wrong CRC and is kept as it is"),
            Self::LostBud { leb } => write!(
                out,
                "journal: {leb} is missing, to which the log leads: files that were written since the last commit may be as \
                 before, or have holes"
            ),
            Self::LostLog { leb } => write!(
                out,
                "log: {leb} is missing, and the log goes on behind it: files that were written since the last commit may be as \
                 before, or have holes"
            ),
            Self::OtherLebSize { leb_bytes } => write!(
                out,
                "the file system was made for LEBs of {leb_bytes} bytes and is read with these"
            ),
            Self::RebuiltSuperblock { lebs } => write!(
                out,
                "the superblock is damaged; it was rebuilt by the other areas, with {lebs} LEBs"
            ),
        }
    }
}
