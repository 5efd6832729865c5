//! Marks of an array that is open for writing, and the seal written when it is closed; see [`crate::MemberState`].
//!
//! The block of a mark is in state `Held`: no LEB is mapped to it, and nothing moves it. The content of its pages
//! belongs to the array.

use media::{Nand, Peb, index};

use super::core::{Core, Trouble};
use crate::attach::MARK_OF_ARRAY;
use crate::format::{Compatibility, LAYOUT_VOLUME_LEBS, MARK_VOLUME, VidHeader, VolumeKind};
use crate::peb_table::PebState;
use crate::volume::Appended;

/// The mark that was begun last.
#[derive(Debug)]
pub(crate) struct OpenMark {
    peb: Peb,
    /// Offset of the next page in the data area.
    next_offset: u32,
    /// The block of the mark failed.
    failed: bool,
}

impl Core {
    /// Writes the header of a mark into a free block.
    pub(crate) fn begin_mark(&mut self, epoch: u64, leb: u32) -> Result<(), Trouble> {
        self.check_writable()?;
        let header = VidHeader {
            kind: VolumeKind::Dynamic,
            copied: false,
            compatibility: Compatibility::Reject,
            volume: MARK_VOLUME,
            leb,
            data_size: 0,
            used_lebs: 0,
            data_padding: 0,
            data_crc: 0,
            sequence_number: 0,
            generation: epoch,
        };
        let peb = self.write_fresh(header, 0, &[])?;
        let before = self.mark.replace(OpenMark {
            peb,
            next_offset: 0,
            failed: leb != MARK_OF_ARRAY,
        });
        self.old_marks.extend(before.map(|mark| mark.peb));
        Ok(())
    }

    /// # Panics
    /// If `page` is not exactly one page.
    pub(crate) fn append_to_mark(&mut self, page: &[u8]) -> Result<Appended, Trouble> {
        self.check_writable()?;
        assert_eq!(page.len(), index(self.layout.min_io_bytes()), "it takes pages");
        let leb_bytes = self.layout.leb_bytes();
        let Some(mark) = self
            .mark
            .as_mut()
            .filter(|mark| !mark.failed && mark.next_offset < leb_bytes)
        else {
            return Ok(Appended::Full);
        };
        let at = self.layout.data_offset() + mark.next_offset;
        mark.next_offset += self.layout.min_io_bytes();
        match self.nand.program(mark.peb, at, page) {
            Ok(()) => Ok(Appended::Written),
            Err(error) if error.is_block_failure() => {
                mark.failed = true;
                Ok(Appended::Full)
            }
            Err(error) => Err(self.fatal(error)),
        }
    }

    /// Queues a former mark as the next erase. If there are several, the others are erased at once; otherwise they
    /// would pile up when power is lost in session after session.
    pub(crate) fn drop_old_marks(&mut self) -> Result<(), Trouble> {
        for (place, peb) in std::mem::take(&mut self.old_marks).into_iter().enumerate() {
            if place > 0 {
                self.erase_one()?;
            }
            self.pebs.set_state(peb, PebState::Erase);
            self.erase_queue.push_front(peb, &self.sync_order);
        }
        Ok(())
    }

    /// Erases some of the former marks.
    pub(crate) fn erase_marks(&mut self, marks: &[Peb]) -> Result<(), Trouble> {
        for peb in marks {
            self.old_marks.retain(|old| old != peb);
            self.pebs.set_state(*peb, PebState::Erase);
            self.erase_queue.push_front(*peb, &self.sync_order);
            self.erase_one()?;
        }
        Ok(())
    }

    /// Writes both copies of the volume table with `epoch` in their headers; this is the last write.
    pub(crate) fn seal(&mut self, epoch: u64) -> Result<(), Trouble> {
        self.settle()?;
        let table = self.table();
        (0..LAYOUT_VOLUME_LEBS).try_for_each(|copy| self.write_table_copy(&table, copy, epoch))?;
        self.sync()
    }

    pub(crate) fn drop_marks(&mut self) -> Result<(), Trouble> {
        self.drop_old_marks()?;
        if let Some(OpenMark { peb, failed, .. }) = self.mark.take() {
            let how = if failed {
                PebState::Torture
            } else {
                PebState::Erase
            };
            self.erase_later(peb, how);
        }
        self.flush()?;
        self.sync()
    }
}
