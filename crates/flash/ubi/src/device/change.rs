//! The atomic change of a LEB, in two phases.
//!
//! First, the new content is written as a whole into a free block, with copy flag and CRC. Then the EBA table in
//! memory switches to that block, and the old one is erased later. A power cut in the first phase leaves a block with
//! a wrong CRC, which a scan drops; after the first phase both blocks are complete, and the new one has the higher
//! sequence number.

use media::{Leb, Peb};

use super::core::{Core, Trouble};
use crate::peb_table::PebState;

/// New content of a LEB, on the medium beside the old; see [`crate::MemberVolume::prepare_change`].
#[derive(Debug)]
#[must_use = "it has to be committed or abandoned"]
pub struct PreparedChange {
    pub(super) volume: u32,
    pub(super) leb: Leb,
    pub(super) peb: Peb,
}

impl PreparedChange {
    /// The LEB to change.
    #[must_use]
    pub const fn leb(&self) -> Leb {
        self.leb
    }
}

impl Core {
    pub(crate) fn change(
        &mut self,
        volume: u32,
        leb: Leb,
        data: &[u8],
        generation: u64,
    ) -> Result<(), Trouble> {
        self.check_writable()?;
        // An incomplete first content would have no rival, and an attach accepts a block without rivals.
        if self.state(volume).peb(leb).is_none() {
            self.map(volume, leb, 0)?;
        }
        let header = self.copied_header(volume, leb, generation, data);
        let peb = self.write_fresh(header, 0, data)?;
        self.assign(volume, leb, peb);
        Ok(())
    }

    pub(crate) fn prepare_change(
        &mut self,
        volume: u32,
        leb: Leb,
        data: &[u8],
        generation: u64,
    ) -> Result<PreparedChange, Trouble> {
        self.check_writable()?;
        let header = self.copied_header(volume, leb, generation, data);
        let peb = self.write_fresh(header, 0, data)?;
        self.pending_changes.push((volume, leb));
        Ok(PreparedChange { volume, leb, peb })
    }

    /// Writes nothing, so it cannot fail: an array must not stop between its members. A frozen device erases nothing
    /// either.
    pub(crate) fn commit_change(&mut self, change: &PreparedChange) {
        self.assign(change.volume, change.leb, change.peb);
        self.answered(change);
    }

    pub(crate) fn abandon_change(&mut self, change: &PreparedChange) -> Result<(), Trouble> {
        self.erase_later(change.peb, PebState::Erase);
        self.answered(change);
        self.flush()
    }

    fn answered(&mut self, change: &PreparedChange) {
        self.pending_changes
            .retain(|pending| *pending != (change.volume, change.leb));
    }

    pub(crate) fn is_change_pending(&self, volume: u32, leb: Leb) -> bool {
        self.pending_changes.contains(&(volume, leb))
    }
}
