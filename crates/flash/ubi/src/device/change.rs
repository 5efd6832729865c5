//! The atomic change of a LEB, in two halves.
//!
//! First the new content is written whole into a block of its own, with copy flag and CRC; then the table in memory turns to it, and
//! the old block is erased later. A power cut in the first half leaves a block whose CRC is wrong, which a scan drops; after it,
//! both blocks are whole, and the new one is the later.

use media::{Leb, Nand, Peb};

use super::core::{Core, Trouble};
use crate::peb_table::PebState;

/// New content of a LEB that is on the medium beside the old; see [`crate::MemberVolume::prepare_change`].
#[derive(Debug)]
#[must_use = "it has to be committed or abandoned"]
pub struct PreparedChange {
    pub(super) volume: u32,
    pub(super) leb: Leb,
    pub(super) peb: Peb,
}

impl PreparedChange {
    /// The LEB it is for.
    #[must_use]
    pub const fn leb(&self) -> Leb {
        self.leb
    }
}

impl<N: Nand> Core<N> {
    pub(crate) fn change(
        &mut self,
        volume: u32,
        leb: Leb,
        data: &[u8],
        generation: u64,
    ) -> Result<(), Trouble> {
        self.check_writable()?;
        // A torn first content would be alone, and an attach takes what is alone.
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

    /// It writes nothing, so it can't fail: an array must not be stopped between its members. A device that is frozen erases nothing either.
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
