//! Errors of an attach. Nothing was written to the device, unless a repair during the attach failed midway
//! ([`AttachError::Repair`]).

use std::sync::Arc;

use media::{NandError, Peb};
use thiserror::Error;

use crate::format::Refusal;
use crate::layout::LayoutError;

/// Reason why a device can't be attached; see the module.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] NandError),
    /// Every block is blank.
    #[error("{device}: all {blocks} blocks are blank: there is no UBI on it yet; format it first")]
    Blank {
        /// Name of the device.
        device: Arc<str>,
        /// Good blocks of the device.
        blocks: u32,
    },
    /// The device holds something other than UBI, or its geometry is wrong.
    #[error(
        "{device}: no UBI: {unreadable} of {blocks} blocks hold something else, and none has an EC header (magic 0x55424923 \
         at its first byte; PEB 0 begins with {start:#010x}); is the block size of {block_bytes} bytes right, and is \
         OOB data in the file?"
    )]
    NotUbi {
        /// Name of the device.
        device: Arc<str>,
        /// Blocks with content.
        unreadable: u32,
        /// Good blocks of the device.
        blocks: u32,
        /// First four bytes of PEB 0.
        start: u32,
        /// Assumed block size in bytes.
        block_bytes: u32,
    },
    /// The header offsets do not suit this chip's geometry.
    #[error("{device}: EC header of {peb}: {source}")]
    Layout {
        /// Name of the device.
        device: Arc<str>,
        /// The block with the EC header.
        peb: Peb,
        /// The mismatch.
        source: LayoutError,
    },
    /// A header has a correct CRC but a value that this build does not support.
    #[error("{device}: {peb}, byte {offset}: {header} header: {source}")]
    Header {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// Offset of the header in the block, bytes.
        offset: u32,
        /// EC or VID.
        header: &'static str,
        /// The unsupported value.
        source: Refusal,
    },
    /// A block belongs to another image or geometry than the others.
    #[error(
        "{device}: {peb}, byte 0: EC header: {field} is {found}, but {expected} in the blocks before; \
         blocks of two images or two geometries are mixed: write the image again to an erased chip"
    )]
    Mixed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The field that differs.
        field: &'static str,
        /// Value in this block.
        found: u32,
        /// Value in the other blocks.
        expected: u32,
    },
    /// Two blocks hold the same LEB with the same sequence number.
    #[error(
        "{device}: {first} and {second} both hold LEB {leb} of volume {volume} with sequence number {sequence_number}; \
         one of them was copied by something other than UBI"
    )]
    SameSequence {
        /// Name of the device.
        device: Arc<str>,
        /// One of the two blocks.
        first: Peb,
        /// The other block.
        second: Peb,
        /// The volume.
        volume: u32,
        /// The LEB.
        leb: u32,
        /// Sequence number of both.
        sequence_number: u64,
    },
    /// An unknown internal volume forbids the attach to implementations that do not know it.
    #[error(
        "{device}: {peb}: internal volume {volume:#x} is unknown and demands that the device is not attached by \
         a UBI that does not know it"
    )]
    UnknownInternalVolume {
        /// Name of the device.
        device: Arc<str>,
        /// A block of the volume.
        peb: Peb,
        /// Volume number.
        volume: u32,
    },
    /// The device is a member of an array that was not closed.
    #[error(
        "{device}: it is a member of an array that was not closed (epoch {epoch}); attach the whole array: this member by itself \
         does not tell what was complete on all of them"
    )]
    OpenMember {
        /// Name of the device.
        device: Arc<str>,
        /// Epoch of the array.
        epoch: u64,
    },
    /// A VID header contradicts its volume.
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
        /// The field that differs.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Value in the volume table or in other blocks.
        expected: u64,
    },
    /// More damage than power cuts can explain.
    #[error(
        "{device}: {corrupted} of {blocks} blocks have data behind a damaged VID header (first: {first}); from {limit} on \
         the chip or its shape is taken to be wrong; list them with a check of the device"
    )]
    TooManyCorrupted {
        /// Name of the device.
        device: Arc<str>,
        /// Number of damaged blocks.
        corrupted: u32,
        /// Good blocks of the device.
        blocks: u32,
        /// The first damaged block.
        first: Peb,
        /// Number of damaged blocks from which on an attach is refused.
        limit: u32,
    },
    /// The device has headers, but no volume table.
    #[error(
        "{device}: the volume table is missing: no block holds volume 0x7fffefff; the image is incomplete, \
         or more than the table was damaged"
    )]
    NoVolumeTable {
        /// Name of the device.
        device: Arc<str>,
    },
    /// Both copies of the volume table are unusable.
    #[error("{device}: both copies of the volume table are unusable: {first}; {second}")]
    VolumeTable {
        /// Name of the device.
        device: Arc<str>,
        /// Location and fault of the first copy.
        first: String,
        /// Location and fault of the second copy.
        second: String,
    },
    /// The volumes reserve more blocks than the device has.
    #[error(
        "{device}: its volumes and UBI itself need {needed} good blocks, and it has {available}; \
         the image was made for a larger chip, or too many blocks went bad: attach it read-only"
    )]
    TooFewBlocks {
        /// Name of the device.
        device: Arc<str>,
        /// Reserved blocks.
        needed: u32,
        /// Good blocks.
        available: u32,
    },
    /// The block chosen for a LEB does not hold it.
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
    /// A repair during the attach failed.
    #[error("{device}: the attach could not put the volume table right: {why}")]
    Repair {
        /// Name of the device.
        device: Arc<str>,
        /// Description of the failure.
        why: String,
    },
}
