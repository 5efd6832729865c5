//! The LEB kept empty for garbage collection.
//!
//! The master node names it, and at the first mount after a clean unmount Linux unmaps this LEB without looking at
//! its content. A [`GcLeb`] can therefore only be made from an empty LEB that is not taken, and a commit requires
//! one.

use media::Leb;
use ubi::{Volume, VolumeError};

use super::space_table::SpaceTable;
use super::{WriteError, Writer};

/// A LEB that is unmapped, and empty and taken in the [`SpaceTable`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GcLeb(u32);

impl GcLeb {
    /// Takes and unmaps a LEB; `None` if it is in use or outside the main area.
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

    /// LEB number.
    pub(super) const fn number(&self) -> u32 {
        self.0
    }

    /// Hands the LEB to a journal head: it stays taken but is no longer the `GcLeb`.
    pub(super) const fn into_head(self) -> u32 {
        self.0
    }
}

impl Writer {
    /// The LEB that the next master node will name.
    pub(super) fn gc_leb(&self) -> &GcLeb {
        let kept = self.gc_leb.as_ref();
        kept.expect("recovery takes one before its commit, and a collection that used it makes another before the next commit")
    }

    /// Reserves a LEB for garbage collection if it is empty; returns whether it was.
    pub(super) fn keep_for_gc(&mut self, leb: u32) -> Result<bool, WriteError> {
        let made = GcLeb::take(leb, &mut self.space, &*self.volume)?;
        let is_made = made.is_some();
        if is_made {
            self.gc_leb = made;
        }
        Ok(is_made)
    }
}
