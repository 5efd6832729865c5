//! Restores shares of members from the others, in an array with parity: after damage, after a power cut, and for a new
//! member.
//!
//! A share is written whole into another block with the LEB's generation, and replaces the old one as an atomic change
//! does. After a power cut, the member has either the old share, which can be computed from the others as before, or
//! the new one.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::PoisonError;

use media::{Leb, index};
use ubi::{MemberVolume, Volume, VolumeError};

use super::VirtualVolume;
use super::with_parity::Row;
use crate::history::ArrayState;
use crate::resolve::{LostShare, Resolution};
use crate::rotation::{Rotation, missing_page};

/// The result of mending a LEB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Shares that were rewritten.
    pub mended: Vec<LostShare>,
    /// Pages that can neither be read nor computed from the others.
    pub lost_pages: u32,
    /// Rows that are readable but inconsistent with their parity: one page is wrong, and it is unknown which.
    pub contradictions: u32,
}

impl<M: MemberVolume<Prepared: 'static> + 'static> VirtualVolume<M> {
    /// Reads a LEB with its parity, and rewrites the shares that have unreadable pages. Writers of the LEB wait
    /// meanwhile. Does nothing in an array without parity.
    pub fn mend(&self, leb: Leb) -> Result<Mended, VolumeError> {
        let mut found = Mended::default();
        let Some(rotation) = &self.rotation else {
            return Ok(found);
        };
        self.geometry.check_range(&self.name, leb, 0, 0)?;
        let _no_writer = self.leb_lock(leb).write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_mapped(leb)? {
            return Ok(found);
        }
        let mut rows = (0..self.geometry.leb_bytes / rotation.row_bytes())
            .map(|row| self.read_row(rotation, leb, row))
            .collect::<Result<Vec<_>, _>>()?;
        for row in &mut rows {
            row.distrust_erased_pages();
            found.lost_pages += u32::try_from(row.lost.len()).unwrap_or(u32::MAX);
            found.contradictions += u32::from(row.unreadable.is_empty() && !row.fits());
        }
        let of_member = |member: usize| rows.iter().any(|row| row.unreadable.contains(&member));
        let lacking: Vec<usize> = self
            .members
            .places()
            .filter(|member| of_member(*member))
            .collect();
        for member in lacking {
            if rows.iter().all(|row| !row.lost.contains(&member)) {
                self.replace_share(leb, member, &rows)?;
                found.mended.push(LostShare { leb, member });
            }
        }
        Ok(found)
    }

    /// The first LEB from `from` on whose share the member lost.
    pub(crate) fn next_lost(&self, member: usize, from: Leb) -> Option<Leb> {
        let lost = self.lost.read().unwrap_or_else(PoisonError::into_inner);
        let mut later = lost.range(LostShare { leb: from, member: 0 }..);
        later.find(|share| share.member == member).map(|share| share.leb)
    }

    /// When an array is opened with all members (one of them possibly still being rebuilt): restores lost shares and,
    /// after a power cut, makes the parity of all rows consistent.
    pub(crate) fn restore_redundancy(&self, resolution: &Resolution) -> Result<(), VolumeError> {
        let Some(rotation) = &self.rotation else {
            return Ok(());
        };
        if resolution.update_marker {
            // The content cannot be read before another update.
            return Ok(());
        }
        let lost: BTreeSet<Leb> = self.lost_shares().iter().map(|share| share.leb).collect();
        // The rebuild creates the shares that its member lacks.
        let is_of_rebuild = |leb| {
            self.unfinished()
                .is_some_and(|member| self.lost_of(leb).contains(&member))
        };
        for leb in lost.iter().filter(|leb| !is_of_rebuild(**leb)) {
            self.mend(*leb)?;
        }
        if resolution.state != ArrayState::Open {
            return Ok(());
        }
        for leb in (0..self.geometry.lebs).map(Leb) {
            if !lost.contains(&leb) && self.is_mapped(leb)? {
                self.complete_last_row(rotation, leb)?;
            }
        }
        Ok(())
    }

    /// After a power cut, makes the parity of the last row of a LEB match its readable pages: that row may be torn, all
    /// rows above it are complete. Changes only the parity page, or a page that is unreadable or erased if all others of
    /// its row were written or none was: a row that was acknowledged lacks an erased page if its block is an older copy,
    /// and otherwise either content of the page is right.
    fn complete_last_row(&self, rotation: &Rotation, leb: Leb) -> Result<(), VolumeError> {
        let rows = self.geometry.leb_bytes / rotation.row_bytes();
        let is_blank = |page: &Vec<u8>| page.iter().all(|byte| *byte == 0xFF);
        let mut last = None;
        for number in (0..rows).rev() {
            let row = self.read_row(rotation, leb, number)?;
            if !row.unreadable.is_empty() || !row.pages.iter().all(is_blank) {
                last = Some((number, row));
                break;
            }
        }
        let Some((number, row)) = last else { return Ok(()) };
        let parity = rotation.parity_of(number);
        let others = |of: usize| {
            let pages = row.pages.iter().enumerate();
            pages
                .filter(move |(member, _)| *member != of)
                .map(|(_, page)| page)
        };
        let member = match row.unreadable[..] {
            [] => {
                let page_bytes = index(rotation.page_bytes());
                let fitting = missing_page(others(parity).map(|page| &page[..]), page_bytes);
                if fitting == row.pages[parity] {
                    return Ok(());
                }
                let mut blank = (0..row.pages.len()).filter(|member| is_blank(&row.pages[*member]));
                match (blank.next(), blank.next()) {
                    (Some(erased), None) => erased,
                    _ => parity,
                }
            }
            // If nothing else of the row is written, the page would be taken for erased, and can't be programmed.
            [member] if member == parity || others(member).all(is_blank) || !others(member).any(is_blank) => {
                member
            }
            _ => return Ok(()),
        };
        let mut all = (0..number)
            .map(|row| self.read_row(rotation, leb, row))
            .collect::<Result<Vec<_>, _>>()?;
        // An older copy of a block lacks pages of several rows.
        all.iter_mut().for_each(Row::distrust_erased_pages);
        let fitting = missing_page(others(member).map(|page| &page[..]), index(rotation.page_bytes()));
        let mut last = row.pages.clone();
        last[member] = fitting;
        all.push(Row {
            pages: last,
            lost: Vec::new(),
            unreadable: Vec::new(),
        });
        match all.iter().any(|row| row.lost.contains(&member)) {
            true => Ok(()),
            false => self.replace_share(leb, member, &all),
        }
    }

    /// Writes a member's share from its pages in `rows`, up to the last page that is not erased.
    fn replace_share(&self, leb: Leb, member: usize, rows: &[Row]) -> Result<(), VolumeError> {
        let written = rows
            .iter()
            .rposition(|row| row.pages[member].iter().any(|byte| *byte != 0xFF))
            .map_or(0, |last| last + 1);
        let share: Vec<u8> = rows[..written]
            .iter()
            .flat_map(|row| row.pages[member].iter().copied())
            .collect();
        // The share keeps the LEB's generation: the turn prevents a new one from being assigned meanwhile.
        let _turn = self.turn()?;
        let Some(generation) = self.generation_of(leb)? else {
            return Ok(());
        };
        let results = self
            .members
            .together(vec![(member, share)], move |member, share: Vec<u8>| {
                let prepared = member.prepare_change(leb, &share, generation)?;
                member.commit_change(prepared);
                Ok(())
            });
        self.all_or_frozen(|| format!("mending {leb}"), results)?;
        let mut lost = self.lost.write().unwrap_or_else(PoisonError::into_inner);
        lost.remove(&LostShare { leb, member });
        Ok(())
    }

    /// The generation of a mapped LEB, read from the first member that has its share.
    fn generation_of(&self, leb: Leb) -> Result<Option<NonZeroU64>, VolumeError> {
        let lost = self.lost_of(leb);
        for member in self.members.places().filter(|member| !lost.contains(member)) {
            match self.members.get(member).generation(leb) {
                Ok(Some(generation)) => return Ok(NonZeroU64::new(generation)),
                Ok(None) | Err(VolumeError::Uncorrectable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
