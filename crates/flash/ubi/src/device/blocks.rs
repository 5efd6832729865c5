//! Allocation, erase, torture test and retirement of blocks.
//!
//! A new EC header follows each erase immediately: a power cut in between loses the erase counter of the block, which
//! the next attach replaces with the mean.

use media::{Nand, NandError, Peb, index};

use super::core::{Core, Trouble};
use crate::format::{EcHeader, MAX_ERASE_COUNTER};
use crate::peb_table::PebState;
use crate::retry;

/// Result of an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Erased {
    Free(Peb),
    Bad(Peb),
}

/// Bit patterns that a suspicious block must retain: every bit as 0 and as 1, with equal and opposite neighbours.
const TORTURE_PATTERNS: [u8; 3] = [0xA5, 0x5A, 0x00];

impl Core {
    /// Allocates the least worn free block; erases one first if necessary.
    pub(crate) fn take_free(&mut self) -> Result<Peb, Trouble> {
        loop {
            if let Some(peb) = self.pebs.least_worn(PebState::Free) {
                self.pebs.set_state(peb, PebState::Held);
                return Ok(peb);
            }
            if self.erase_one()?.is_none() {
                return Err(Trouble::NoFreeBlock);
            }
        }
    }

    /// Erases the next block of the queue. A suspicious block is tortured first; a block that fails is retired.
    pub(crate) fn erase_one(&mut self) -> Result<Option<Erased>, Trouble> {
        self.check_writable()?;
        let next = self.erase_queue.pop(&self.sync_order);
        let Some(peb) = next.map_err(|error| self.fatal(error))? else {
            return Ok(None);
        };
        let tested = match self.pebs.state(peb) {
            PebState::Torture => self.torture(peb),
            _ => Ok(()),
        };
        match tested.and_then(|()| self.erase(peb)) {
            Ok(()) => {
                self.pebs.set_state(peb, PebState::Free);
                Ok(Some(Erased::Free(peb)))
            }
            Err(error) if error.is_block_failure() => self.retire(peb).map(|()| Some(Erased::Bad(peb))),
            Err(error) => Err(self.fatal(error)),
        }
    }

    /// Erases a block and writes its EC header.
    pub(crate) fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.erase_bare(peb)?;
        let header = EcHeader {
            erase_counter: self.pebs.erases(peb),
            vid_header_offset: self.layout.vid_header_offset(),
            data_offset: self.layout.data_offset(),
            image_sequence: self.image_sequence,
        };
        self.nand
            .program(peb, 0, &self.layout.ec_program(&header.encode()))
    }

    fn erase_bare(&mut self, peb: Peb) -> Result<(), NandError> {
        let erases = self.pebs.erases(peb).saturating_add(1).min(MAX_ERASE_COUNTER);
        retry::erase(&mut self.nand, peb)?;
        self.pebs.set_erases(peb, erases);
        Ok(())
    }

    /// Torture test: whether a block retains written data. A failure is reported like a failed erase.
    fn torture(&mut self, peb: Peb) -> Result<(), NandError> {
        let mut block = vec![0; index(self.geometry.block_bytes())];
        for pattern in TORTURE_PATTERNS {
            self.erase_bare(peb)?;
            self.expect_pattern(peb, &mut block, 0xFF)?;
            block.fill(pattern);
            self.nand.program(peb, 0, &block)?;
            self.expect_pattern(peb, &mut block, pattern)?;
        }
        Ok(())
    }

    fn expect_pattern(&mut self, peb: Peb, block: &mut [u8], pattern: u8) -> Result<(), NandError> {
        let report = retry::read(&mut self.nand, peb, 0, block)?;
        let kept = !report.needs_scrub(&self.geometry) && block.iter().all(|byte| *byte == pattern);
        kept.then_some(()).ok_or_else(|| NandError::EraseFailed {
            device: self.device.clone(),
            peb,
        })
    }

    /// Marks a block bad and takes one block from the reserve. If the reserve is exhausted, the device becomes
    /// read-only, since data of a volume might find no block.
    fn retire(&mut self, peb: Peb) -> Result<(), Trouble> {
        if let Err(error) = self.nand.mark_bad(peb) {
            return Err(self.fatal(error));
        }
        let spare = self.available_blocks();
        self.pebs.set_state(peb, PebState::Bad);
        if self.bad_block_reserve > 0 {
            self.bad_block_reserve -= 1;
        } else if spare == 0 {
            self.freeze(format!(
                "{peb} went bad, and no block is left that is kept back for it"
            ));
        }
        Ok(())
    }

    /// Erases all queued blocks.
    pub(crate) fn flush(&mut self) -> Result<(), Trouble> {
        while self.erase_one()?.is_some() {}
        Ok(())
    }
}
