//! Background work in single steps: erases, scrubbing, wear levelling, torture tests.
//!
//! Wear levelling: new data goes to the least worn free block, so data that never changes would occupy little worn
//! blocks for ever. If the least worn block in use has [`crate::AttachOptions::wear_threshold`] fewer erases than a
//! worn free block, its data moves there. A move is an atomic change with the same content, and keeps the generation.

use media::{Leb, Peb, index};

use super::blocks::Erased;
use super::core::{Core, Trouble};
use crate::format::{VidHeader, VolumeKind, crc32};
use crate::peb_table::PebState;
use crate::retry;

/// Result of a step of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing to do.
    Idle,
    /// A block was erased and is free.
    Erased(Peb),
    /// A block failed and was marked bad.
    Retired(Peb),
    /// Scrubbing: data was moved off a block with bit-flips.
    Scrubbed {
        /// Source block.
        from: Peb,
        /// Destination block.
        to: Peb,
    },
    /// Wear levelling: data was moved to a more worn block.
    Levelled {
        /// Source block.
        from: Peb,
        /// Destination block.
        to: Peb,
    },
    /// The data of this block is unreadable, so it stays there.
    Unmovable(Peb),
}

impl Core {
    /// The next step: an erase if one is pending, so that moves find free blocks; then scrubbing; then wear
    /// levelling.
    pub(crate) fn work(&mut self) -> Result<Work, Trouble> {
        self.check_writable()?;
        match self.erase_one()? {
            Some(Erased::Free(peb)) => return Ok(Work::Erased(peb)),
            Some(Erased::Bad(peb)) => return Ok(Work::Retired(peb)),
            None => {}
        }
        if let Some((from, to)) = self.pair_to_scrub() {
            return Ok(match self.move_data(from, to)? {
                true => Work::Scrubbed { from, to },
                false => Work::Unmovable(from),
            });
        }
        if let Some((from, to)) = self.pair_to_level() {
            return Ok(match self.move_data(from, to)? {
                true => Work::Levelled { from, to },
                false => Work::Unmovable(from),
            });
        }
        Ok(Work::Idle)
    }

    /// Works until nothing is left to do, and waits until everything survives a crash of the host.
    pub(crate) fn settle(&mut self) -> Result<(), Trouble> {
        // Each step completes an erase, moves a block once, or releases one, so twice the number of blocks is the
        // limit.
        for _ in 0..self.pebs.blocks().saturating_mul(4) {
            if self.work()? == Work::Idle {
                break;
            }
        }
        self.sync()
    }

    fn pair_to_scrub(&self) -> Option<(Peb, Peb)> {
        let from = self.pebs.smallest_by(&[PebState::Scrub], |peb, erases| {
            self.may_move(peb).then_some(erases)
        })?;
        Some((from, self.worn_free_block()?))
    }

    fn pair_to_level(&self) -> Option<(Peb, Peb)> {
        let to = self.worn_free_block()?;
        let worn = self.pebs.erases(to);
        let limit = worn.checked_sub(self.options.wear_threshold)?;
        let from = self.pebs.smallest_by(&[PebState::Used], |peb, erases| {
            (erases <= limit && self.may_move(peb)).then_some(erases)
        })?;
        Some((from, to))
    }

    /// The most worn free block, excluding outliers: at most twice the threshold above the least worn.
    fn worn_free_block(&self) -> Option<Peb> {
        let least = self.pebs.erases(self.pebs.least_worn(PebState::Free)?);
        let limit = least.saturating_add(self.options.wear_threshold.saturating_mul(2));
        self.pebs.smallest_by(&[PebState::Free], |_, erases| {
            (erases < limit || erases == least).then_some(std::cmp::Reverse(erases))
        })
    }

    fn may_move(&self, peb: Peb) -> bool {
        self.pending_changes.is_empty()
            || self
                .owner_of(peb)
                .is_some_and(|(volume, leb)| !self.is_change_pending(volume, leb))
    }

    /// Moves a LEB to another block. Returns `false` if its data is unreadable: it stays, as its readable parts exist
    /// nowhere else.
    fn move_data(&mut self, from: Peb, to: Peb) -> Result<bool, Trouble> {
        let Some((volume, leb)) = self.owner_of(from) else {
            unreachable!("{from} is in use by no LEB");
        };
        let Some((header, data)) = self.read_whole(from, volume)? else {
            self.pebs.set_state(from, PebState::Stuck);
            return Ok(false);
        };
        self.pebs.set_state(to, PebState::Held);
        match self.write_into(to, header, 0, &data) {
            Ok(()) => {
                self.assign(volume, leb, to);
                Ok(true)
            }
            Err(error) if error.is_block_failure() => {
                self.erase_later(to, PebState::Torture);
                self.move_elsewhere(from, volume, leb, header, &data)
            }
            Err(error) => Err(self.fatal(error)),
        }
    }

    fn move_elsewhere(
        &mut self,
        from: Peb,
        volume: u32,
        leb: Leb,
        header: VidHeader,
        data: &[u8],
    ) -> Result<bool, Trouble> {
        assert_eq!(self.state(volume).peb(leb), Some(from), "{leb} moved meanwhile");
        let to = self.write_fresh(header, 0, data)?;
        self.assign(volume, leb, to);
        Ok(true)
    }

    /// Header and data of a block to copy. Trailing erased pages are omitted: a page programmed with 0xFF is not
    /// erased.
    fn read_whole(&mut self, peb: Peb, volume: u32) -> Result<Option<(VidHeader, Vec<u8>)>, Trouble> {
        let header = match self.vid_header(peb) {
            Ok(header) => header,
            Err(Trouble::Uncorrectable) => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        let bytes = match header.kind {
            VolumeKind::Static => header.data_size,
            VolumeKind::Dynamic => self.layout.leb_bytes() - self.state(volume).record.data_padding,
        };
        let mut data = vec![0; index(bytes)];
        let report = retry::read(&mut self.nand, peb, self.layout.data_offset(), &mut data)?;
        if !report.is_correct() {
            return Ok(None);
        }
        if header.kind == VolumeKind::Static {
            let whole = crc32(&data) == header.data_crc;
            return Ok(whole.then_some((
                VidHeader {
                    copied: true,
                    ..header
                },
                data,
            )));
        }
        data.truncate(self.written_bytes(&data));
        if data.is_empty() {
            return Ok(Some((header, data)));
        }
        let copied = VidHeader {
            copied: true,
            data_size: u32::try_from(data.len()).expect("at most a LEB"),
            data_crc: crc32(&data),
            ..header
        };
        Ok(Some((copied, data)))
    }

    /// Length of the data up to the last page that is not all 0xFF.
    pub(crate) fn written_bytes(&self, data: &[u8]) -> usize {
        let last = data.iter().rposition(|byte| *byte != 0xFF);
        last.map_or(0, |last| {
            (last + 1).next_multiple_of(index(self.layout.min_io_bytes()))
        })
        .min(data.len())
    }
}
