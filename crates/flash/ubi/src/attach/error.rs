//! Why a device can't be attached. Nothing was written to it, but where what an attach puts right failed in the middle
//! ([`AttachError::Repair`]).

use std::sync::Arc;

use media::{NandError, Peb};
use thiserror::Error;

use crate::format::Refusal;
use crate::layout::LayoutError;

/// Why a device can't be attached; see the module.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The device below failed.
    #[error("{0}")]
    Device(#[from] NandError),
    /// Every block is blank.
    #[error("{device}: all {blocks} blocks are blank: there is no UBI on it yet; format it first")]
    Blank {
        /// Name of the device.
        device: Arc<str>,
        /// Good blocks of it.
        blocks: u32,
    },
    /// Something else is on the device, or its shape is another.
    #[error(
        "{device}: no UBI: {unreadable} of {blocks} blocks hold something else, and none has an EC header (magic 0x55424923 \
         at its first byte; PEB 0 begins with {start:#010x}); is the block size of {block_bytes} bytes right, and is \
         OOB data in the file?"
    )]
    NotUbi {
        /// Name of the device.
        device: Arc<str>,
        /// Blocks that hold something.
        unreadable: u32,
        /// Good blocks of it.
        blocks: u32,
        /// First four bytes of it.
        start: u32,
        /// What was taken for the block size.
        block_bytes: u32,
    },
    /// Headers are further apart than this chip's shape allows.
    #[error("{device}: EC header of {peb}: {source}")]
    Layout {
        /// Name of the device.
        device: Arc<str>,
        /// Whose EC header it was.
        peb: Peb,
        /// What is wrong.
        source: LayoutError,
    },
    /// A header says something that this build can't read, though its CRC is right.
    #[error("{device}: {peb}, byte {offset}: {header} header: {source}")]
    Header {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// Of the header in the block.
        offset: u32,
        /// EC or VID.
        header: &'static str,
        /// What is wrong.
        source: Refusal,
    },
    /// A block does not belong to the others.
    #[error(
        "{device}: {peb}, byte 0: EC header: {field} is {found}, but {expected} in the blocks before; \
         blocks of two images or two geometries are mixed: write the image again to an erased chip"
    )]
    Mixed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// Which field.
        field: &'static str,
        /// Its value.
        found: u32,
        /// Its value in other blocks.
        expected: u32,
    },
    /// Two blocks claim to be the same LEB, and neither is the later one.
    #[error(
        "{device}: {first} and {second} both hold LEB {leb} of volume {volume} with sequence number {sequence_number}; \
         one of them was copied by something other than UBI"
    )]
    SameSequence {
        /// Name of the device.
        device: Arc<str>,
        /// One of them.
        first: Peb,
        /// The other.
        second: Peb,
        /// The volume.
        volume: u32,
        /// The LEB.
        leb: u32,
        /// Of both.
        sequence_number: u64,
    },
    /// An internal volume says that who does not know it must keep away.
    #[error(
        "{device}: {peb}: internal volume {volume:#x} is unknown and demands that the device is not attached by \
         a UBI that does not know it"
    )]
    UnknownInternalVolume {
        /// Name of the device.
        device: Arc<str>,
        /// A block of it.
        peb: Peb,
        /// Its number.
        volume: u32,
    },
    /// A member of an array that was not closed.
    #[error(
        "{device}: it is a member of an array that was not closed (epoch {epoch}); attach the whole array: this member by itself \
         does not tell what was complete on all of them"
    )]
    OpenMember {
        /// Name of the device.
        device: Arc<str>,
        /// Of the array.
        epoch: u64,
    },
    /// A VID header does not fit the volume it names.
    #[error(
        "{device}: {peb}: VID header of volume {volume}: {field} is {found}, expected {expected}; \
         list what is wrong with a check of the device"
    )]
    Inconsistent {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The volume.
        volume: u32,
        /// Which field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What the volume table or other blocks say.
        expected: u64,
    },
    /// Too much is damaged for this to be the work of power cuts.
    #[error(
        "{device}: {corrupted} of {blocks} blocks have data behind a damaged VID header (first: {first}); from {limit} on \
         the chip or its shape is taken to be wrong; list them with a check of the device"
    )]
    TooManyCorrupted {
        /// Name of the device.
        device: Arc<str>,
        /// How many.
        corrupted: u32,
        /// Of so many good ones.
        blocks: u32,
        /// The first.
        first: Peb,
        /// How many are too many.
        limit: u32,
    },
    /// There are headers, but no volume table.
    #[error(
        "{device}: the volume table is missing: no block holds volume 0x7fffefff; the image is incomplete, \
         or more than the table was damaged"
    )]
    NoVolumeTable {
        /// Name of the device.
        device: Arc<str>,
    },
    /// No copy of the volume table can be used.
    #[error("{device}: both copies of the volume table are unusable: {first}; {second}")]
    VolumeTable {
        /// Name of the device.
        device: Arc<str>,
        /// Where the first copy is and what is wrong with it.
        first: String,
        /// The same of the second.
        second: String,
    },
    /// The volumes have been promised more blocks than there are.
    #[error(
        "{device}: its volumes and UBI itself need {needed} good blocks, and it has {available}; \
         the image was made for a larger chip, or too many blocks went bad: attach it read-only"
    )]
    TooFewBlocks {
        /// Name of the device.
        device: Arc<str>,
        /// Blocks that are promised.
        needed: u32,
        /// Good blocks.
        available: u32,
    },
    /// A choice that names a block which does not hold the LEB.
    #[error("{device}: {peb} does not hold LEB {leb} of volume {volume}")]
    NoSuchCandidate {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The volume.
        volume: u32,
        /// The LEB.
        leb: u32,
    },
    /// What an attach has to put right could not be written.
    #[error("{device}: the attach could not put the volume table right: {why}")]
    Repair {
        /// Name of the device.
        device: Arc<str>,
        /// Why.
        why: String,
    },
}
