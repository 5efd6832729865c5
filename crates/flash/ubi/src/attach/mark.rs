//! Array marks on members, as a scan finds them.
//!
//! A member of an array that is open for writing has a block of [`MARK_VOLUME`](crate::format::MARK_VOLUME), which
//! makes Linux refuse the device. Its VID header carries the epoch of the array in place of the generation; the
//! content of its pages belongs to the array. Closing an array writes the epoch into the headers of both copies of
//! the volume table, and erases the mark. Spec: `docs/formats/array.md`.

use media::{NandError, Peb, index};

use super::Scanned;
use super::select::vid_header;
use crate::format::LAYOUT_VOLUME;
use crate::retry;

/// LEB number of a mark written by the array.
pub(crate) const MARK_OF_ARRAY: u32 = 0;

/// LEB number of a mark that says that the member was attached for writing without its array.
pub(crate) const MARK_OF_ONE: u32 = 1;

/// A block that marks a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The block.
    pub peb: Peb,
    /// Epoch of the array: the number of times it was opened for writing.
    pub epoch: u64,
    /// Sequence number of the mark's VID header.
    pub sequence_number: u64,
    /// Written when the member was attached without its array.
    pub alone: bool,
}

/// The epoch in the headers of the volume table, written when an array is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The epoch of the array.
    pub epoch: u64,
    /// The member's last sequence number at that time.
    pub sequence_number: u64,
}

/// State of an array, as recorded on one of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// No record: it is no member, or its array was never opened for writing by a version that marks members.
    Unmarked,
    /// The array was closed.
    Closed {
        /// Epoch of the array.
        epoch: u64,
    },
    /// The array is open, or was not closed.
    Open {
        /// Epoch of the array.
        epoch: u64,
    },
    /// The array was not closed, and the member was written to without it after that.
    WrittenAlone {
        /// Epoch of the array.
        epoch: u64,
    },
}

impl Scanned {
    /// The marks, in no particular order.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.survey.marks
    }

    /// State of the array that the device is a member of.
    #[must_use]
    pub fn member_state(&self) -> MemberState {
        self.survey.member_state()
    }

    /// The latest epoch in the headers of the volume table.
    pub fn seal(&mut self) -> Result<Option<Seal>, NandError> {
        let mut seal: Option<Seal> = None;
        for peb in self
            .survey
            .table_blocks()
            .map(|found| found.peb)
            .collect::<Vec<_>>()
        {
            let header = vid_header(&self.survey, &mut self.nand, peb)?;
            let Some(header) = header.filter(|header| header.generation > 0) else {
                continue;
            };
            let this = Seal {
                epoch: header.generation,
                sequence_number: header.sequence_number,
            };
            let key = |seal: &Seal| (seal.epoch, seal.sequence_number);
            seal = seal.into_iter().chain([this]).max_by_key(key);
        }
        Ok(seal)
    }

    /// The last sequence number of blocks that are neither a mark nor the volume table.
    #[must_use]
    pub const fn last_data_sequence_number(&self) -> u64 {
        self.survey.last_data_sequence_number
    }

    /// The last sequence number of blocks without a generation, which no array wrote.
    #[must_use]
    pub const fn last_untagged_sequence_number(&self) -> u64 {
        self.survey.last_untagged_sequence_number
    }

    /// Reads the pages of a mark up to the first blank one; skips unreadable pages.
    pub fn read_mark(&mut self, mark: &Mark, take: &mut dyn FnMut(&[u8])) -> Result<(), NandError> {
        let layout = self.survey.layout;
        let mut page = vec![0; index(layout.min_io_bytes())];
        for offset in (0..layout.leb_bytes()).step_by(page.len()) {
            let at = layout.data_offset() + offset;
            let report = retry::read(&mut self.nand, mark.peb, at, &mut page)?;
            match report.is_correct() {
                true if page.iter().all(|byte| *byte == 0xFF) => break,
                true => take(&page),
                false => {}
            }
        }
        Ok(())
    }
}

impl super::Survey {
    fn table_blocks(&self) -> impl Iterator<Item = &super::Found> {
        let of_table =
            |found: &&super::Found| self.profiles[usize::from(found.profile)].volume == LAYOUT_VOLUME;
        self.found.iter().filter(|found| found.chosen).filter(of_table)
    }

    pub(crate) fn member_state(&self) -> MemberState {
        let epoch = self.marks.iter().map(|mark| mark.epoch).max();
        let sealed = self
            .table_blocks()
            .map(|found| found.generation)
            .max()
            .unwrap_or(0);
        match epoch {
            Some(epoch) if self.marks.iter().any(|mark| mark.alone) => MemberState::WrittenAlone { epoch },
            Some(epoch) => MemberState::Open { epoch },
            None if sealed > 0 => MemberState::Closed { epoch: sealed },
            None => MemberState::Unmarked,
        }
    }
}

impl std::fmt::Display for MemberState {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unmarked => write!(out, "no mark of an array"),
            Self::Closed { epoch } => write!(out, "member of an array that was closed (epoch {epoch})"),
            Self::Open { epoch } => write!(
                out,
                "member of an array that was not closed (epoch {epoch}): by itself it may hold what the array would drop"
            ),
            Self::WrittenAlone { epoch } => write!(
                out,
                "member of an array that was not closed (epoch {epoch}), and written to by itself after that"
            ),
        }
    }
}
