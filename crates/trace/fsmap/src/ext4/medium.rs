//! Shared state of the ext4 readers: the medium, the superblock, and checked reads of blocks.

use std::collections::HashMap;

use super::superblock::{Superblock, ro_compat};
use crate::bytes::index;
use crate::finding::{FindingKind, Findings, Place};
use crate::source::Source;

/// An ext4 file system being read.
#[derive(Debug)]
pub(crate) struct Medium {
    pub source: Source,
    pub superblock: Superblock,
    /// Blocks whose newest committed content is in the journal.
    pub replayed: HashMap<u64, Replayed>,
    /// Whether metadata carries CRC-32C.
    pub checksums: bool,
}

/// Location of a block's newest content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Offset of the copy in the journal.
    pub byte: u64,
    /// The copy starts with zeros where the block starts with the journal's magic.
    pub escaped: bool,
}

impl Medium {
    pub(crate) fn new(source: Source, superblock: Superblock) -> Self {
        Self {
            checksums: superblock.has_ro_compat(ro_compat::METADATA_CSUM),
            source,
            superblock,
            replayed: HashMap::new(),
        }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.superblock.block_bytes
    }

    pub(crate) fn byte_of(&self, block: u64) -> u64 {
        block.saturating_mul(self.superblock.block_bytes)
    }

    /// Whether `count` blocks from `block` are all blocks that a file could own.
    pub(crate) fn holds(&self, block: u64, count: u64) -> bool {
        block >= self.superblock.first_data_block.max(1)
            && block
                .checked_add(count)
                .is_some_and(|end| end <= self.superblock.blocks)
    }

    /// Fills `buffer` with whole blocks from `block`; blocks with newer content in the journal are read from there.
    pub(crate) fn read_blocks(
        &self,
        block: u64,
        buffer: &mut [u8],
        place: &Place,
        findings: &mut Findings,
    ) -> bool {
        if let Err(error) = self.source.read(self.byte_of(block), buffer) {
            findings.add(
                FindingKind::Unreadable,
                place.clone(),
                "readable blocks",
                error.to_string(),
            );
            return false;
        }
        if self.replayed.is_empty() {
            return true;
        }
        for (at, chunk) in (block..).zip(buffer.chunks_mut(index(self.block_bytes()))) {
            let Some(newer) = self.replayed.get(&at) else {
                continue;
            };
            if let Err(error) = self.source.read(newer.byte, chunk) {
                findings.add(
                    FindingKind::Unreadable,
                    Place::Journal,
                    "readable blocks",
                    error.to_string(),
                );
                return false;
            }
            if let Some(first) = chunk.get_mut(..4).filter(|_| newer.escaped) {
                first.copy_from_slice(&super::journal::MAGIC.to_be_bytes());
            }
        }
        true
    }

    /// Reads one block.
    pub(crate) fn read_block(&self, block: u64, place: &Place, findings: &mut Findings) -> Option<Vec<u8>> {
        let mut buffer = vec![0; index(self.block_bytes())];
        self.read_blocks(block, &mut buffer, place, findings)
            .then_some(buffer)
    }
}
