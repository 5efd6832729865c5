//! The LEB that is kept empty for garbage collection.
//!
//! The master node names it, and where that node says that the file system was unmounted, Linux unmaps the LEB at its next mount
//! without a look at what is in it. So a [`GcLeb`] can only be made of a LEB that is empty and that nothing else has, and a commit
//! cannot do without one.

use media::Leb;
use ubi::{Volume, VolumeError};

use super::space_table::SpaceTable;
use super::{WriteError, Writer};

/// A LEB that is unmapped, empty in the [`SpaceTable`], and taken there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GcLeb(u32);

impl GcLeb {
    /// Takes a LEB, unmapped; `None` where it is in use or not of the main area.
    fn take(leb: u32, space: &mut SpaceTable, volume: &dyn Volume) -> Result<Option<Self>, VolumeError> {
        if !space.has_empty(leb) {
            return Ok(None);
        }
        if volume.is_mapped(Leb(leb))? {
            volume.unmap(Leb(leb))?;
        }
        space.take(leb);
        Ok(Some(Self(leb)))
    }

    /// Which one.
    pub(super) const fn number(&self) -> u32 {
        self.0
    }

    /// The LEB for a journal head: it stays taken, and is no `GcLeb` any more.
    pub(super) const fn into_head(self) -> u32 {
        self.0
    }
}

impl Writer {
    /// The LEB that the next master node names.
    pub(super) fn gc_leb(&self) -> &GcLeb {
        let kept = self.gc_leb.as_ref();
        kept.expect("recovery takes one before its commit, and a collection that used it makes another before the next commit")
    }

    /// Keeps a LEB for garbage collection if it is empty; whether it is.
    pub(super) fn keep_for_gc(&mut self, leb: u32) -> Result<bool, WriteError> {
        let made = GcLeb::take(leb, &mut self.space, &*self.volume)?;
        let is_made = made.is_some();
        if is_made {
            self.gc_leb = made;
        }
        Ok(is_made)
    }
}
