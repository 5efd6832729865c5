//! Checks before a read-write mount writes anything: the index is readable, the LPT counts all nodes of index and
//! files as used, and the heads of index and LPT are behind all nodes.
//!
//! LEBs that the LPT calls empty or without live nodes are erased unread, and everything behind the heads is cut off.
//! A master node that refers to another index or LPT, or has wrong head positions, would therefore destroy files.
//! Linux verifies only the head of the index.

use std::collections::BTreeMap;

use super::{WriteError, Writer};
use crate::file_system::Ubifs;
use crate::finding::{Damage, Finding, Place, Subject};
use crate::format::{LOG_LEB, MASTER_LEB};
use crate::index::Step;
use crate::lpt::{LptContent, LptGeometry, LptPlace};
use crate::scan::to_usize;

/// Values of the master node and the index that a [`Writer`] starts with.
pub(super) struct Verified {
    /// Position of the next index node.
    pub(super) index_head: (u32, u32),
    /// Position of the next LPT node.
    pub(super) lpt_head: LptPlace,
    /// Highest inode number in the index.
    pub(super) highest_inode: u32,
}

/// Use of a LEB by the index.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    bytes: u64,
    end: u64,
    /// Whether it holds index nodes; `None`: no node.
    index: Option<bool>,
}

/// Checks that the index, the LPT and the heads of both agree.
///
/// # Errors
/// [`WriteError::Untrusted`]; nothing is written.
pub(super) fn verify(ubifs: &Ubifs, lpt: &LptContent) -> Result<Verified, WriteError> {
    let verifier = Verifier { ubifs, lpt };
    let index_head = verifier.index_head()?;
    let lpt_head = verifier.lpt_head()?;
    verifier.buds()?;
    let highest_inode = verifier.index()?;
    Ok(Verified {
        index_head,
        lpt_head,
        highest_inode,
    })
}

struct Verifier<'a> {
    ubifs: &'a Ubifs,
    lpt: &'a LptContent,
}

impl Verifier<'_> {
    fn refuse(&self, subject: Subject, place: Place, damage: Damage) -> WriteError {
        WriteError::Untrusted {
            volume: self.ubifs.volume.name(),
            finding: Box::new(Finding {
                inode: None,
                subject,
                place,
                damage,
            }),
        }
    }

    /// Reports a wrong value in the master node.
    fn refuse_master(&self, what: &'static str, found: u64, expected: u64) -> WriteError {
        let place = Place {
            leb: MASTER_LEB,
            offset: 0,
            bytes: 0,
        };
        let damage = Damage::Value {
            what,
            found,
            expected,
        };
        self.refuse(Subject::Master, place, damage)
    }

    fn main_first(&self) -> u32 {
        let superblock = &self.ubifs.superblock;
        LOG_LEB + superblock.log_lebs + superblock.lpt_lebs + superblock.orphan_lebs
    }

    fn index_head(&self) -> Result<(u32, u32), WriteError> {
        let master = &self.ubifs.master;
        let (leb, offset) = (master.index_head_leb, master.index_head_offset);
        let number = leb.checked_sub(self.main_first()).map(to_usize);
        let space = number.and_then(|number| self.lpt.lebs.get(number));
        let end = space.filter(|space| space.index);
        let end = end.map_or(0, |space| self.ubifs.superblock.leb_bytes - space.free);
        match end == offset && end > 0 {
            true => Ok((leb, offset)),
            false => Err(self.refuse_master(
                "the offset of the head of the index in its LEB",
                offset.into(),
                end.into(),
            )),
        }
    }

    fn lpt_head(&self) -> Result<LptPlace, WriteError> {
        let master = &self.ubifs.master;
        let first = LptGeometry::first_leb(self.ubifs.superblock.log_lebs);
        let offset = master.lpt_head_offset;
        let leb = master.lpt_head_leb.checked_sub(first);
        let number = leb.map_or(usize::MAX, to_usize);
        let (Some(leb), Some(space), Some(end)) =
            (leb, self.lpt.spaces.get(number), self.lpt.ends.get(number))
        else {
            let found = master.lpt_head_leb.into();
            return Err(self.refuse_master("the LEB of the head of the LPT", found, first.into()));
        };
        let expected = self.ubifs.superblock.leb_bytes - space.free;
        match offset == expected && *end <= u64::from(offset) {
            true => Ok(LptPlace { leb, offset }),
            false => Err(self.refuse_master(
                "the offset of the head of the LPT in its LEB",
                offset.into(),
                u64::from(expected).max(*end),
            )),
        }
    }

    /// Checks that buds start where the last commit ended their LEBs, or at 0 if they were used only since.
    fn buds(&self) -> Result<(), WriteError> {
        let mut starts: BTreeMap<u32, u32> = BTreeMap::new();
        for bud in &self.ubifs.report.buds {
            let start = starts.entry(bud.leb).or_insert(bud.offset);
            *start = bud.offset.min(*start);
        }
        for (leb, offset) in starts {
            let number = leb.checked_sub(self.main_first()).map(to_usize);
            let space = number.and_then(|number| self.lpt.lebs.get(number));
            let end = space.map(|space| self.ubifs.superblock.leb_bytes - space.free);
            let is_of_files = space.is_some_and(|space| !space.index);
            if !is_of_files || offset > 0 && Some(offset) != end {
                let place = Place {
                    leb,
                    offset,
                    bytes: 0,
                };
                let why = "the log does not go on where the LPT says that the LEB is free";
                return Err(self.refuse(Subject::Journal, place, Damage::Contradiction(why)));
            }
        }
        Ok(())
    }

    /// Walks the index; returns the highest inode number.
    fn index(&self) -> Result<u32, WriteError> {
        let mut uses = vec![Use::default(); self.lpt.lebs.len()];
        let (first, mut index_bytes, mut highest) = (self.main_first(), 0, 0);
        let walked = self.ubifs.index.walk(&mut |step| {
            let (place, index) = match step {
                Step::Node(place) => (place, true),
                Step::Leaf(key, place) => {
                    highest = key.inode_number().0.max(highest);
                    (place, false)
                }
            };
            let bytes = u64::from(place.bytes).next_multiple_of(8);
            index_bytes += if index { bytes } else { 0 };
            let number = place.leb.checked_sub(first).map(to_usize);
            let Some(used) = number.and_then(|number| uses.get_mut(number)) else {
                return Err(Damage::Contradiction("the index leads out of the main area"));
            };
            if used.index.is_some_and(|known| known != index) {
                return Err(Damage::Contradiction("a LEB holds both the index and files"));
            }
            used.index = Some(index);
            used.bytes += bytes;
            used.end = used.end.max(u64::from(place.offset) + bytes);
            Ok(())
        });
        walked.map_err(|(place, damage)| self.refuse(Subject::Index, place, damage))?;
        let expected = self.ubifs.master.index_bytes;
        if index_bytes != expected {
            return Err(self.refuse_master("the size of the index", expected, index_bytes));
        }
        for ((leb, space), used) in (first..).zip(&self.lpt.lebs).zip(uses) {
            let leb_bytes = self.ubifs.superblock.leb_bytes;
            let (written, in_use) = (leb_bytes - space.free, leb_bytes - space.free - space.dirty);
            let is_of_index = used.index.is_none_or(|index| index == space.index);
            if is_of_index && used.bytes <= in_use.into() && used.end <= written.into() {
                continue;
            }
            let place = Place {
                leb,
                offset: 0,
                bytes: 0,
            };
            let why = "the LPT does not count as used what the index leads to in this LEB";
            return Err(self.refuse(Subject::Index, place, Damage::Contradiction(why)));
        }
        Ok(highest)
    }
}

impl Writer {
    /// The LEB that the next master node names as scanned last: Linux refuses to mount if it is outside the main
    /// area.
    pub(super) fn scanned_leb(&self) -> u32 {
        let (leb, first) = (self.ubifs.master.scanned_leb, self.space.first());
        match (first..self.ubifs.superblock.lebs).contains(&leb) {
            true => leb,
            false => first,
        }
    }
}
