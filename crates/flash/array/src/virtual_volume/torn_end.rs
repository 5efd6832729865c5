//! Tells the broken end of a LEB that a power cut explains from one that was lost through damage.
//!
//! A power cut can tear the pages of the last row on several members at once, and leaves all shares of the LEB. Hence:
//! - If more shares are missing than parity replaces, the row is lost.
//! - Otherwise more unreadable pages in one row than parity replaces may be either, and so may a row computed with a share
//!   that was lost.

use std::sync::Arc;

use media::{Leb, index};
use ubi::{MemberVolume, TornEnd, Volume};

use super::VirtualVolume;
use crate::rotation::Rotation;

impl<M: MemberVolume<Prepared: 'static> + 'static> VirtualVolume<M> {
    /// See [`ubi::Volume::torn_end`].
    pub(super) fn judge_torn_end(&self, leb: Leb, offset: u32) -> TornEnd {
        let lost = self.lost_of(leb);
        let replaced = usize::from(self.rotation.is_some());
        if !lost.is_empty() && self.lacking(leb) > replaced {
            let missing = self.named(&self.missing_of(leb));
            return TornEnd::Lost(format!("{leb} lost its share on {missing}").into());
        }
        let unreadable = match &self.rotation {
            Some(rotation) => self.lost_pages_from(rotation, leb, offset),
            None => self.unreadable_from(leb, offset),
        };
        match unreadable {
            Some(doubt) => TornEnd::Doubtful(doubt),
            None if self.damaged.contains(&leb) => {
                TornEnd::Doubtful(format!("a member had lost its share of {leb}").into())
            }
            None => TornEnd::Plausible,
        }
    }

    /// Describes the first row, from the one at `offset` to the last written one, with more unreadable pages than parity
    /// replaces.
    fn lost_pages_from(&self, rotation: &Rotation, leb: Leb, offset: u32) -> Option<Arc<str>> {
        let rows = self.geometry.leb_bytes / rotation.row_bytes();
        for number in offset / rotation.row_bytes()..rows {
            let row = match self.read_row(rotation, leb, number) {
                Ok(row) => row,
                Err(error) => return Some(error.to_string().into()),
            };
            if !row.lost.is_empty() {
                let members = self.named(&row.lost);
                return Some(format!("{leb}, row {number} can't be read on {members}").into());
            }
            if row.is_erased() {
                break;
            }
        }
        None
    }

    /// Describes the first unreadable page from the one at `offset` on, of an array without parity.
    fn unreadable_from(&self, leb: Leb, offset: u32) -> Option<Arc<str>> {
        let page_bytes = self.geometry.min_io_bytes;
        let pages = offset / page_bytes..self.geometry.leb_bytes / page_bytes;
        let mut page = vec![0; index(page_bytes)];
        pages
            .map(|number| self.read(leb, number * page_bytes, &mut page))
            .find_map(|read| read.err().map(|error| error.to_string().into()))
    }

    /// The names of members, for messages.
    fn named(&self, members: &[usize]) -> String {
        let name = |member: &usize| match self.members.is_absent(*member) {
            true => format!("the absent member {member}"),
            false => self.members.get(*member).name().to_string(),
        };
        let names: Vec<String> = members.iter().map(name).collect();
        names.join(" and ")
    }
}
