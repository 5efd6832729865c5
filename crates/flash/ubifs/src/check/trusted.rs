//! Checks of the values that Linux trusts at a mount that has nothing to recover, without a look at the medium.
//! The list, with what becomes of files where an entry is wrong: `docs/formats/ubifs.md`, "Trusted at a mount". What
//! other modules of the checker hold to is not repeated here.

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use super::fault::{Area, At, Fault};
use super::lpt::LebSpace;
use super::medium::{Spot, blank, to_usize};
use crate::format::LogReference;

/// Content of the LPT and the log, as far as they can be read.
pub(super) struct Known<'a> {
    /// Of each LEB of the main area.
    pub(super) spaces: &'a [LebSpace],
    pub(super) buds: &'a [LogReference],
}

impl Known<'_> {
    fn space(&self, checker: &Checker<'_>, leb: u32) -> Option<LebSpace> {
        let number = leb.checked_sub(checker.main_first())?;
        self.spaces.get(to_usize(number)).copied()
    }

    fn has_bud(&self, leb: u32) -> bool {
        self.buds.iter().any(|bud| bud.leb == leb)
    }
}

/// Checks all of it.
pub(super) fn check(checker: &mut Checker<'_>, known: &Known<'_>) {
    gc_leb(checker, known);
    index_head(checker, known);
    buds(checker, known);
    free_ends(checker, known);
    sequences(checker);
}

/// Linux counts the LEB as empty, whatever the LPT says, and unmaps it. A recovery looks for another one.
fn gc_leb(checker: &mut Checker<'_>, known: &Known<'_>) {
    if checker.is_dirty() {
        return;
    }
    let (leb, at) = (checker.master.gc_leb, checker.master_at);
    let Some(space) = known.space(checker, leb) else {
        let fault =
            Fault::Contradiction("no LEB is kept for garbage collection, and the file system was unmounted");
        return checker.tell(Area::Master, None, at, fault);
    };
    let leb_bytes = checker.superblock.leb_bytes;
    if space.free_bytes != leb_bytes {
        let fault = Fault::Value {
            what: "what is free of the LEB that is kept for garbage collection",
            found: space.free_bytes.into(),
            expected: leb_bytes.into(),
        };
        checker.tell(Area::Master, None, at, fault);
    }
    if known.has_bud(leb) {
        let fault = Fault::Contradiction("the LEB that is kept for garbage collection is one of the journal");
        checker.tell(Area::Master, None, at, fault);
    }
}

/// The next commit writes index nodes there.
fn index_head(checker: &mut Checker<'_>, known: &Known<'_>) {
    let (leb, offset) = (checker.master.index_head_leb, checker.master.index_head_offset);
    let Some(space) = known.space(checker, leb) else {
        return;
    };
    let at = checker.master_at;
    let expected = checker.superblock.leb_bytes.saturating_sub(space.free_bytes);
    if !space.is_index || known.has_bud(leb) {
        let fault = Fault::Contradiction("the head of the index is in a LEB that is not the index's");
        checker.tell(Area::Master, None, at, fault);
    } else if offset != expected {
        let fault = Fault::Value {
            what: "where the head of the index goes on",
            found: offset.into(),
            expected: expected.into(),
        };
        checker.tell(Area::Master, None, at, fault);
    } else if !checker.is_dirty() {
        let why = "something is written behind the head of the index";
        erased_behind(checker, leb, offset, Area::Index, why);
    }
}

/// A LEB of the journal goes on where the last commit found its end. A commit that was interrupted names it once more.
fn buds(checker: &mut Checker<'_>, known: &Known<'_>) {
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    for bud in known.buds {
        let offset = first.entry(bud.leb).or_insert(bud.offset);
        *offset = bud.offset.min(*offset);
    }
    for (leb, offset) in first {
        let Some(space) = known.space(checker, leb) else {
            continue;
        };
        let at = Some(At { leb, offset });
        let expected = checker.superblock.leb_bytes.saturating_sub(space.free_bytes);
        if space.is_index {
            let fault = Fault::Contradiction("the log names a LEB of the index");
            checker.tell(Area::Log, None, at, fault);
        } else if offset > 0 && offset != expected {
            let fault = Fault::Value {
                what: "where the journal starts in the LEB",
                found: offset.into(),
                expected: expected.into(),
            };
            checker.tell(Area::Log, None, at, fault);
        }
    }
}

/// A LEB that is partly free is written on where the LPT says that it is free.
fn free_ends(checker: &mut Checker<'_>, known: &Known<'_>) {
    let leb_bytes = checker.superblock.leb_bytes;
    let buds: BTreeSet<u32> = known.buds.iter().map(|bud| bud.leb).collect();
    for (leb, space) in (checker.main_first()..).zip(known.spaces) {
        let is_partly_free = (1..leb_bytes).contains(&space.free_bytes);
        // Of the index only the head is written on, and buds were read to their ends.
        if is_partly_free && !space.is_index && !buds.contains(&leb) {
            let why = "something is written where the LEB is said to be free";
            erased_behind(checker, leb, leb_bytes - space.free_bytes, Area::Space, why);
        }
    }
}

/// Nodes are numbered on from the largest number in master node, log and journal; nodes of other LEBs are not looked at.
fn sequences(checker: &mut Checker<'_>) {
    let (seen, known) = (checker.sequences.of_index, checker.sequences.of_journal);
    if let Some((sequence, spot)) = seen.filter(|(sequence, _)| *sequence > known) {
        let fault = Fault::Value {
            what: "the sequence number, above all that a mount looks at,",
            found: sequence,
            expected: known,
        };
        let at = At {
            leb: spot.leb,
            offset: spot.offset,
        };
        checker.tell(Area::Index, None, Some(at), fault);
    }
}

/// Tells where something is written in a LEB from an offset on.
pub(super) fn erased_behind(checker: &mut Checker<'_>, leb: u32, offset: u32, area: Area, why: &'static str) {
    let at = At { leb, offset };
    let fault = match checker.medium.leb(leb) {
        Ok(raw) if blank(raw.get(to_usize(offset)..).unwrap_or_default()) => return,
        Ok(_) => Fault::Contradiction(why),
        Err(fault) => fault,
    };
    checker.tell(area, None, Some(at), fault);
}

/// The largest sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequences {
    /// In the master node, the log and the journal, which a mount reads.
    of_journal: u64,
    /// In the index and in what it leads to, and where.
    of_index: Option<(u64, Spot)>,
}

impl Sequences {
    /// One that a mount sees.
    pub(super) fn add(&mut self, sequence: u64) {
        self.of_journal = self.of_journal.max(sequence);
    }

    /// One of a node of the index or of a file.
    pub(super) fn add_of_index(&mut self, raw: &[u8], spot: Spot) {
        let sequence = raw.get(8..).and_then(<[u8]>::first_chunk::<8>);
        let sequence = sequence.map_or(0, |raw| u64::from_le_bytes(*raw));
        if self.of_index.is_none_or(|(largest, _)| sequence > largest) {
            self.of_index = Some((sequence, spot));
        }
    }
}
