//! Checks the values that Linux trusts, without reading the medium, at a mount with nothing to recover. Values
//! covered by other modules of the checker are not repeated here. Full list, with the damage a wrong value causes:
//! `docs/formats/ubifs.md`, "Trusted at a mount".

use std::collections::{BTreeMap, BTreeSet};

use super::Checker;
use super::fault::{Area, At, Fault};
use super::lpt::LebSpace;
use super::medium::{Spot, blank, to_usize};
use crate::format::LogReference;

/// Readable content of the LPT and the log.
pub(super) struct Known<'a> {
    /// Lprops of the main area.
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

/// Runs all checks of this module.
pub(super) fn check(checker: &mut Checker<'_>, known: &Known<'_>) {
    gc_leb(checker, known);
    index_head(checker, known);
    buds(checker, known);
    free_ends(checker, known);
    sequences(checker);
}

/// Checks that the GC LEB is empty. Linux unmaps it whatever the LPT says; a recovery picks another one.
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

/// Checks the index head, behind which the next commit writes index nodes.
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

/// Checks that each bud starts where the last commit ended its LEB. An interrupted commit may have referenced it
/// again further on.
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

/// Checks that free space is erased: partly free LEBs are filled up from where the LPT says.
fn free_ends(checker: &mut Checker<'_>, known: &Known<'_>) {
    let leb_bytes = checker.superblock.leb_bytes;
    let buds: BTreeSet<u32> = known.buds.iter().map(|bud| bud.leb).collect();
    for (leb, space) in (checker.main_first()..).zip(known.spaces) {
        let is_partly_free = (1..leb_bytes).contains(&space.free_bytes);
        // In index LEBs only the head is appended to, and buds were read to their ends.
        if is_partly_free && !space.is_index && !buds.contains(&leb) {
            let why = "something is written where the LEB is said to be free";
            erased_behind(checker, leb, leb_bytes - space.free_bytes, Area::Space, why);
        }
    }
}

/// Checks sequence numbers: a mount continues from the highest one in master node, log and journal, without reading
/// other LEBs.
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

/// Reports a LEB that is not erased behind an offset.
pub(super) fn erased_behind(checker: &mut Checker<'_>, leb: u32, offset: u32, area: Area, why: &'static str) {
    let at = At { leb, offset };
    let fault = match checker.medium.leb(leb) {
        Ok(raw) if blank(raw.get(to_usize(offset)..).unwrap_or_default()) => return,
        Ok(_) => Fault::Contradiction(why),
        Err(fault) => fault,
    };
    checker.tell(area, None, Some(at), fault);
}

/// Highest sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sequences {
    /// Among the nodes that a mount reads: master node, log and journal.
    of_journal: u64,
    /// Among index nodes and the nodes below, with its location.
    of_index: Option<(u64, Spot)>,
}

impl Sequences {
    /// Adds a node that a mount reads.
    pub(super) fn add(&mut self, sequence: u64) {
        self.of_journal = self.of_journal.max(sequence);
    }

    /// Adds an index node or a node below the index.
    pub(super) fn add_of_index(&mut self, raw: &[u8], spot: Spot) {
        let sequence = raw.get(8..).and_then(<[u8]>::first_chunk::<8>);
        let sequence = sequence.map_or(0, |raw| u64::from_le_bytes(*raw));
        if self.of_index.is_none_or(|(largest, _)| sequence > largest) {
            self.of_index = Some((sequence, spot));
        }
    }
}
