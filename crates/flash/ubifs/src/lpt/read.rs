//! Reads the LPT.

use std::collections::BTreeSet;

use thiserror::Error;
use ubi::Volume;

use super::geometry::{FANOUT, LptGeometry};
use super::layout::inner_number;
use super::nodes::{LptDefect, LptPlace, TableSpace};
use crate::fetch::{self, Extent};
use crate::finding::Damage;
use crate::format::{Master, Superblock};
use crate::scan::to_usize;
use crate::space::LebSpace;

/// Why the LPT is unreadable.
#[derive(Clone, Debug, Error)]
#[error("LPT: LEB {leb} of its area, offset {offset}: {why}")]
pub struct LptError {
    /// LEB number relative to the LPT area.
    pub leb: u32,
    /// Offset in that LEB.
    pub offset: u32,
    /// The fault.
    pub why: LptProblem,
}

/// Fault of the LPT.
#[derive(Clone, Debug, Error)]
pub enum LptProblem {
    /// An invalid node or table.
    #[error(transparent)]
    Defect(#[from] LptDefect),
    /// An unreadable location.
    #[error(transparent)]
    Damage(#[from] Damage),
}

/// Content of the LPT area.
pub(crate) struct LptContent {
    /// Lprops of the main area.
    pub(crate) lebs: Vec<LebSpace>,
    /// Space of the LPT's own LEBs.
    pub(crate) spaces: Vec<TableSpace>,
    /// LEBs of the area used by the tree and the tables.
    pub(crate) in_use: BTreeSet<u32>,
    /// End of the used part in each LEB of the area.
    pub(crate) ends: Vec<u64>,
}

/// Reads the whole LPT. `load` reads a LEB of the area.
pub(crate) fn read(
    geometry: &LptGeometry,
    root: LptPlace,
    table: LptPlace,
    saved: Option<LptPlace>,
    load: &mut dyn FnMut(u32) -> Result<Vec<u8>, Damage>,
) -> Result<LptContent, LptError> {
    let mut reader = Reader {
        geometry,
        load,
        lebs: vec![None; to_usize(geometry.input.lpt_lebs)],
        spaces: vec![LebSpace::empty(geometry.input.leb_bytes); to_usize(geometry.input.main_lebs)],
        ends: vec![0; to_usize(geometry.input.lpt_lebs)],
    };
    if let Some(saved) = saved {
        // Only checked: the next commit writes a new one, but a mount by Linux before that needs it.
        reader.bytes(saved, geometry.saved_bytes)?;
    }
    let raw = reader.bytes(table, geometry.table_bytes)?;
    let spaces = geometry
        .decode_table(raw)
        .map_err(|why| error(table, why.into()))?;
    reader.inner(root, 0, 0)?;
    let in_use = (0..)
        .zip(&reader.lebs)
        .filter(|(_, raw)| raw.is_some())
        .map(|(leb, _)| leb)
        .collect();
    Ok(LptContent {
        lebs: reader.spaces,
        spaces,
        in_use,
        ends: reader.ends,
    })
}

const fn error(place: LptPlace, why: LptProblem) -> LptError {
    LptError {
        leb: place.leb,
        offset: place.offset,
        why,
    }
}

struct Reader<'a> {
    geometry: &'a LptGeometry,
    load: &'a mut dyn FnMut(u32) -> Result<Vec<u8>, Damage>,
    lebs: Vec<Option<Vec<u8>>>,
    spaces: Vec<LebSpace>,
    ends: Vec<u64>,
}

impl Reader<'_> {
    /// Reads from a location to the end of its LEB; a part of `bytes` bytes is expected there.
    fn bytes(&mut self, place: LptPlace, bytes: u32) -> Result<&[u8], LptError> {
        let short = || error(place, LptDefect::Short.into());
        let end = self.ends.get_mut(to_usize(place.leb)).ok_or_else(short)?;
        *end = (u64::from(place.offset) + u64::from(bytes)).max(*end);
        let slot = self.lebs.get_mut(to_usize(place.leb)).ok_or_else(short)?;
        let raw = match slot {
            Some(raw) => raw,
            None => slot.insert((self.load)(place.leb).map_err(|damage| error(place, damage.into()))?),
        };
        raw.get(to_usize(place.offset)..).ok_or_else(short)
    }

    fn inner(&mut self, place: LptPlace, depth: u32, column: u32) -> Result<(), LptError> {
        let geometry = self.geometry;
        let raw = self.bytes(place, geometry.inner_bytes)?;
        let children = geometry
            .decode_inner(raw, inner_number(depth, column))
            .map_err(|why| error(place, why.into()))?;
        for (number, child) in (0..).zip(children) {
            let column = column * FANOUT + number;
            // A subtree that was never written is empty.
            let Some(child) = child else { continue };
            match depth + 1 == geometry.height {
                true => self.leaf(child, column)?,
                false => self.inner(child, depth + 1, column)?,
            }
        }
        Ok(())
    }

    fn leaf(&mut self, place: LptPlace, number: u32) -> Result<(), LptError> {
        let geometry = self.geometry;
        let raw = self.bytes(place, geometry.leaf_bytes)?;
        let found = geometry
            .decode_leaf(raw, number)
            .map_err(|why| error(place, why.into()))?;
        let from = to_usize(number).saturating_mul(to_usize(FANOUT));
        for (space, found) in self.spaces.iter_mut().skip(from).zip(found) {
            *space = found;
        }
        Ok(())
    }
}

/// Reads the LPT that the master node refers to.
pub(crate) fn load(
    volume: &dyn Volume,
    superblock: &Superblock,
    master: &Master,
) -> Result<LptContent, LptError> {
    let geometry = LptGeometry::of(superblock);
    let first = LptGeometry::first_leb(superblock.log_lebs);
    let place = |leb: u32, offset| LptPlace {
        // Locations before the area map behind its end.
        leb: leb.checked_sub(first).unwrap_or(geometry.input.lpt_lebs),
        offset,
    };
    read(
        &geometry,
        place(master.lpt_leb, master.lpt_offset),
        place(master.ltab_leb, master.ltab_offset),
        geometry
            .input
            .big
            .then(|| place(master.lsave_leb, master.lsave_offset)),
        &mut |leb| fetch::extent_of_leb(volume, first + leb, Extent::WrittenFrom(0)),
    )
}
