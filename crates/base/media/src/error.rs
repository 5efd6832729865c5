//! Errors of raw NAND devices. Each message names the device, the block and the page or offset.

use std::sync::Arc;

use thiserror::Error;

use crate::{Page, Peb};

/// Error of a NAND operation. Each variant documents the state of the medium afterwards.
#[derive(Debug, Error)]
pub enum NandError {
    /// The block does not exist. Nothing changed.
    #[error("{device}: there is no {peb}; the device has {blocks} blocks, from 0")]
    NoSuchBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The requested block.
        peb: Peb,
        /// Blocks of the device.
        blocks: u32,
    },
    /// The range exceeds the block. Nothing changed.
    #[error("{device}: {peb}: {len} bytes at offset {offset} leave the block of {block_bytes} bytes")]
    OutOfBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// First byte of the range in the block.
        offset: u32,
        /// Length of the range in bytes.
        len: usize,
        /// Block size in bytes.
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
        /// Length of the range in bytes.
        len: usize,
        /// Granularity of programs in bytes.
        subpage_bytes: u32,
    },
    /// The range was programmed since the last erase, or precedes a programmed one. Earlier pages written by the same
    /// call are programmed; this page is unchanged.
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
        /// First byte of the range in the block.
        offset: u32,
        /// First programmable byte; the block size if the block is full.
        next: u32,
    },
    /// The block is marked bad: it takes neither programs nor erases. Nothing changed.
    #[error("{device}: {peb} is marked bad and can't be {action}")]
    BadBlock {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The refused action, as a participle.
        action: &'static str,
    },
    /// The device reports a failed program. The content of the page is undefined; data programmed earlier in this
    /// block is readable. The block should be emptied and retired.
    #[error("{device}: {peb}, {page}: the program failed; move the block's data and retire it")]
    ProgramFailed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The page.
        page: Page,
    },
    /// The device reports a failed erase. The content of the block is undefined; the block should be retired.
    #[error("{device}: {peb}: the erase failed; retire the block")]
    EraseFailed {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
    },
    /// Power is off. The interrupted operation has taken effect in part, in whole, or not at all; all operations fail
    /// until power is on.
    #[error("{device}: power is off")]
    PowerCut {
        /// Name of the device.
        device: Arc<str>,
    },
    /// The device was opened read-only. Nothing changed.
    #[error("{device}: opened read-only; {peb} can't be {action}")]
    ReadOnly {
        /// Name of the device.
        device: Arc<str>,
        /// The block.
        peb: Peb,
        /// The refused action, as a participle.
        action: &'static str,
    },
    /// The host failed: the file or the driver behind the device. The state of the medium is unknown.
    #[error("{device}: {action} failed: {source}")]
    Host {
        /// Name of the device.
        device: Arc<str>,
        /// The failed action and its location.
        action: String,
        /// The host's error.
        source: std::io::Error,
    },
}

impl NandError {
    /// Whether the block failed: the caller should retire the block rather than give up the device.
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

/// Reason why a geometry is invalid.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// Invalid page size.
    #[error("a page of {page_bytes} bytes is no power of two from 8 bytes to 64 KiB")]
    Page {
        /// Page size in bytes, without OOB.
        page_bytes: u32,
    },
    /// Invalid number of pages per block.
    #[error("{pages_per_block} pages of {page_bytes} bytes make no block from 1 page to 4 GiB")]
    Block {
        /// Page size in bytes, without OOB.
        page_bytes: u32,
        /// Pages per block.
        pages_per_block: u32,
    },
    /// Invalid number of blocks.
    #[error("a device of {blocks} blocks is not from 1 to 2^31 - 1 blocks")]
    Blocks {
        /// Blocks of the device.
        blocks: u32,
    },
    /// Invalid sub-page size.
    #[error("a sub-page of {subpage_bytes} bytes is no power of two from 8 to the page's {page_bytes} bytes")]
    Subpage {
        /// Sub-page size in bytes.
        subpage_bytes: u32,
        /// Page size in bytes, without OOB.
        page_bytes: u32,
    },
    /// Invalid OOB size.
    #[error("an OOB area of {oob_bytes} bytes is larger than the page of {page_bytes} bytes")]
    Oob {
        /// OOB bytes per page.
        oob_bytes: u32,
        /// Page size in bytes, without OOB.
        page_bytes: u32,
    },
}
