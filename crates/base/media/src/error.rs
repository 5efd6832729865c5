//! What goes wrong with a raw NAND device. Each message names the device, the block and the page or offset.

use std::sync::Arc;

use thiserror::Error;

use crate::{Page, Peb};

/// Why a NAND operation failed. What is on the medium afterwards is said with each kind.
#[derive(Debug, Error)]
pub enum NandError {
    /// There is no such block. Nothing changed.
    #[error("{device}: there is no {peb}; the device has {blocks} blocks, from 0")]
    NoSuchBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The block that was asked for.
        peb: Peb,
        /// Blocks of the device.
        blocks: u32,
    },
    /// The range leaves the block. Nothing changed.
    #[error("{device}: {peb}: {len} bytes at offset {offset} leave the block of {block_bytes} bytes")]
    OutOfBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// First byte of the range in the block.
        offset: u32,
        /// Bytes of the range.
        len: usize,
        /// Bytes of the block.
        block_bytes: u32,
    },
    /// The range to program does not consist of whole sub-pages, or is empty. Nothing changed.
    #[error(
        "{device}: {peb}: {len} bytes at offset {offset} are no whole write units of {subpage_bytes} bytes"
    )]
    Misaligned {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// First byte of the range in the block.
        offset: u32,
        /// Bytes of the range.
        len: usize,
        /// Granularity of programs.
        subpage_bytes: u32,
    },
    /// The range was programmed since the last erase, or lies before something that was. Pages before it that the same
    /// call wrote are programmed; this one is as it was.
    #[error(
        "{device}: {peb}, {page}, offset {offset}: programmed out of order or twice; \
         the next place that may be programmed before an erase is offset {next}"
    )]
    NotErased {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The page.
        page: Page,
        /// First byte in the block that was to be programmed.
        offset: u32,
        /// First byte that may be programmed; the block's size when it is full.
        next: u32,
    },
    /// The block is marked bad: it takes neither programs nor erases. Nothing changed.
    #[error("{device}: {peb} is marked bad and can't be {action}")]
    BadBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// What was to be done, as a participle.
        action: &'static str,
    },
    /// The device reports that a program failed. The page holds anything; what was programmed before it in this block
    /// can be read. The block should be emptied and retired.
    #[error("{device}: {peb}, {page}: the program failed; move the block's data and retire it")]
    ProgramFailed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The page.
        page: Page,
    },
    /// The device reports that an erase failed. The block holds anything and should be retired.
    #[error("{device}: {peb}: the erase failed; retire the block")]
    EraseFailed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
    },
    /// Power is off. The operation that met the cut may have happened, in part or not at all; nothing works until power is on.
    #[error("{device}: power is off")]
    PowerCut {
        /// Name of the device.
        device: Arc<str>,
    },
    /// The device does not allow it: it was opened for reading. Nothing changed.
    #[error("{device}: opened read-only; {peb} can't be {action}")]
    ReadOnly {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// What was to be done, as a participle.
        action: &'static str,
    },
    /// The host failed: the file or the driver behind the device. What is on the medium is unknown.
    #[error("{device}: {action} failed: {source}")]
    Host {
        /// Name of the device.
        device: Arc<str>,
        /// What was being done, with its place.
        action: String,
        /// The host's error.
        source: std::io::Error,
    },
}

impl NandError {
    /// Whether the medium wore out at this block: the answer is to retire the block, not to give up the device.
    #[must_use]
    pub const fn is_block_failure(&self) -> bool {
        matches!(self, Self::ProgramFailed { .. } | Self::EraseFailed { .. })
    }

    /// Whether power is off.
    #[must_use]
    pub const fn is_power_cut(&self) -> bool {
        matches!(self, Self::PowerCut { .. })
    }
}

/// Why a geometry is none.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// The page size.
    #[error("a page of {page_bytes} bytes is no power of two from 8 bytes to 64 KiB")]
    Page {
        /// Bytes of data of a page.
        page_bytes: u32,
    },
    /// The number of pages of a block.
    #[error("{pages_per_block} pages of {page_bytes} bytes make no block from 1 page to 4 GiB")]
    Block {
        /// Bytes of data of a page.
        page_bytes: u32,
        /// Pages of a block.
        pages_per_block: u32,
    },
    /// The number of blocks.
    #[error("a device of {blocks} blocks is not from 1 to 2^31 - 1 blocks")]
    Blocks {
        /// Blocks of the device.
        blocks: u32,
    },
    /// The sub-page size.
    #[error("a sub-page of {subpage_bytes} bytes is no power of two from 8 to the page's {page_bytes} bytes")]
    Subpage {
        /// Bytes of a sub-page.
        subpage_bytes: u32,
        /// Bytes of data of a page.
        page_bytes: u32,
    },
    /// The spare area.
    #[error("an OOB area of {oob_bytes} bytes is larger than the page of {page_bytes} bytes")]
    Oob {
        /// Bytes of spare area of a page.
        oob_bytes: u32,
        /// Bytes of data of a page.
        page_bytes: u32,
    },
}
