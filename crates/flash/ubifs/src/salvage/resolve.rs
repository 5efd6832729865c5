//! Decides which node of each key counts: the last state of every inode and block.
//!
//! Among the nodes that the index does not contradict, the one with the largest sequence number counts. A removal
//! (an inode node with 0 links that no later one takes back) ends all older nodes of its inode. A truncation, and any
//! node of the inode with a smaller size, end the older blocks behind that size.

use std::collections::{BTreeMap, HashSet};

use super::evidence::{Evidence, Lost};
use super::guess::{Decision, Guesses};
use super::records::{
    BlockRecord, BrokenRecord, Harvest, InodeRecord, Record, State, Units, by_key, next_inode, of_inode,
};
use super::table::{Row, Table};
use crate::finding::Place;
use crate::format::{BLOCK_BYTES, EntryKind, InodeNumber, Key, KeyKind, SEQUENCE_END};

/// Sequence numbers of damaged nodes are believed up to this distance from the largest good one.
const AHEAD_MAX: u64 = 1 << 20;

/// The last state of an inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) number: InodeNumber,
    /// The node that gives the attributes: its place in the list of inode records.
    pub(super) live: Option<u32>,
    pub(super) is_removed: bool,
    /// A newer node is lost.
    pub(super) is_older: bool,
}

/// The state of the decisions.
pub(super) struct Resolver<'a> {
    pub(super) harvest: &'a Harvest,
    pub(super) evidence: &'a Evidence,
    pub(super) units: Units,
    /// A power cut may have torn the last writes.
    pub(super) may_be_torn: bool,
    /// Nodes of files are damaged: a missing node may have been lost.
    pub(super) has_scars: bool,
    pub(super) sequence_max: u64,
    pub(super) fates: Vec<Fate>,
    pub(super) guesses: Guesses,
    pub(super) table: Table,
    /// Sizes of files whose data reaches beyond the size in the inode.
    pub(super) sizes: BTreeMap<InodeNumber, u64>,
    /// End of the data of files without an inode.
    pub(super) ends: BTreeMap<u32, u64>,
}

impl<'a> Resolver<'a> {
    /// The last states of all inodes.
    pub(super) fn resolve_inodes(&mut self) {
        let mut rest = self.harvest.inodes.as_slice();
        let mut first = 0_usize;
        while let Some((number, versions)) = next_inode(&mut rest) {
            let fate = self.fate(number, versions, first);
            first += versions.len();
            self.add_inode_row(&fate);
            self.fates.push(fate);
        }
    }

    fn fate(&mut self, number: InodeNumber, versions: &[InodeRecord], first: usize) -> Fate {
        let key = Key::inode(number);
        let newest = |is_wanted: &dyn Fn(&InodeRecord) -> bool| {
            let wanted = versions
                .iter()
                .enumerate()
                .filter(|(_, version)| is_wanted(version));
            wanted.max_by_key(|(_, version)| (version.sequence, version.state.is_possible()))
        };
        let last = newest(&|version| version.state != State::Dropped);
        let is_removed = last.is_some_and(|(_, version)| version.links == 0);
        let possible = newest(&|version| version.state.is_possible() && version.links > 0);
        let sequence = possible.map_or(0, |(_, version)| version.sequence);
        let is_older = self.lost(key).is_some_and(|lost| lost.is_proven)
            && !self.evidence.is_of_journal(sequence)
            || self.broken(key, sequence).is_some();
        // An older node, which the index contradicts, is better than none.
        let donor =
            || newest(&|version| version.state == State::Dead && version.links > 0).filter(|_| is_older);
        let live = possible.or_else(donor).filter(|_| !is_removed);
        Fate {
            number,
            live: live.and_then(|(at, _)| u32::try_from(first + at).ok()),
            is_removed,
            is_older,
        }
    }

    fn add_inode_row(&mut self, fate: &Fate) {
        let Some(record) = self.record_of(fate) else {
            return;
        };
        let key = record.key;
        if fate.is_older {
            let place = self.lost_place(key, record.sequence);
            self.guesses.add(
                Some(fate.number),
                Decision::OlderAttributes,
                place.or(Some(self.units.place(record.unit, record.bytes.into()))),
            );
        }
        self.table.rows.push(Row {
            key,
            unit: record.unit,
            bytes: record.bytes,
            is_guess: fate.is_older || self.is_guess(record),
        });
    }

    fn lost_place(&self, key: Key, sequence: u64) -> Option<Place> {
        let broken = self.broken(key, sequence).map(|broken| broken.place);
        broken.or_else(|| self.lost(key).map(|lost| lost.place))
    }

    /// Whether a record counts without proof.
    pub(super) fn is_guess<R: Record>(&self, record: &R) -> bool {
        match record.state() {
            State::Indexed => false,
            State::Open => {
                !self.evidence.is_of_journal(record.sequence()) || !self.evidence.is_proven(record.key())
            }
            State::Claimed | State::Dead | State::Dropped => true,
        }
    }

    pub(super) fn record_of(&self, fate: &Fate) -> Option<&'a InodeRecord> {
        self.harvest.inodes.get(usize::try_from(fate.live?).ok()?)
    }

    pub(super) fn fate_of(&self, number: InodeNumber) -> Option<&Fate> {
        let at = self
            .fates
            .binary_search_by_key(&number, |fate| fate.number)
            .ok()?;
        self.fates.get(at)
    }

    /// The node that gives the attributes of an inode.
    pub(super) fn live(&self, number: InodeNumber) -> Option<&'a InodeRecord> {
        self.record_of(self.fate_of(number)?)
    }

    pub(super) fn is_removed(&self, number: InodeNumber) -> bool {
        self.fate_of(number).is_some_and(|fate| fate.is_removed)
    }

    /// The location to which the index leads for a key, if no valid node is there.
    pub(super) fn lost(&self, key: Key) -> Option<&'a Lost> {
        let lost = &self.evidence.lost;
        let from = lost.partition_point(|lost| lost.key < key);
        let of_key = lost[from..].iter().take_while(|lost| lost.key == key);
        of_key.max_by_key(|lost| lost.is_proven)
    }

    /// A damaged node with this key that may be newer than `sequence`.
    pub(super) fn broken(&self, key: Key, sequence: u64) -> Option<&'a BrokenRecord> {
        let all = &self.harvest.broken;
        let from = all.partition_point(|broken| broken.key < key);
        let limit = self.sequence_max.saturating_add(AHEAD_MAX).min(SEQUENCE_END);
        let of_key = all[from..].iter().take_while(|broken| broken.key == key).take(64);
        of_key
            .filter(|broken| broken.sequence > sequence && broken.sequence < limit)
            .filter(|broken| !(broken.is_last && self.may_be_torn))
            .filter(|broken| self.evidence.is_of_journal(broken.sequence) || !self.evidence.is_proven(key))
            .max_by_key(|broken| broken.sequence)
    }

    /// The last states of all blocks.
    pub(super) fn resolve_blocks(&mut self, named: &HashSet<u32>) {
        let mut rest = self.harvest.blocks.as_slice();
        while let Some((number, blocks)) = next_inode(&mut rest) {
            if self.is_removed(number) {
                continue;
            }
            let inode = self.live(number);
            let is_indexed = blocks.iter().any(|block| block.state == State::Indexed);
            let is_known = inode.is_some() || is_indexed || named.contains(&number.0) || self.has_scars;
            if is_known {
                self.resolve_file(number, inode, blocks);
            }
        }
        self.add_lost_blocks();
    }

    fn resolve_file(&mut self, number: InodeNumber, inode: Option<&InodeRecord>, blocks: &[BlockRecord]) {
        let cuts = self.cuts(number);
        let mut end = 0;
        let mut beyond = None;
        for versions in by_key(blocks) {
            let possible = versions.iter().filter(|block| block.state.is_possible());
            let winner = possible.max_by_key(|block| block.sequence);
            let sequence = winner.map_or(0, |block| block.sequence);
            let key = versions[0].key;
            if let Some(broken) = self.broken(key, sequence) {
                if cuts
                    .end(broken.sequence)
                    .is_none_or(|end| u64::from(key.low()) < end)
                {
                    self.add_lost_row(key, broken.place);
                }
                continue;
            }
            let Some(winner) = winner.filter(|block| !self.is_cut(block, &cuts)) else {
                continue;
            };
            if winner.state != State::Indexed
                && !self.evidence.is_of_journal(winner.sequence)
                && self.lost(key).is_some_and(|lost| lost.is_proven)
            {
                continue;
            }
            let block_end = u64::from(key.low()) * u64::from(BLOCK_BYTES) + u64::from(winner.size);
            end = end.max(block_end);
            if inode.is_some_and(|inode| block_end > inode.size) {
                beyond = Some(*winner);
            }
            self.table.rows.push(Row {
                key,
                unit: winner.unit,
                bytes: winner.bytes,
                is_guess: self.is_guess(winner),
            });
        }
        match inode {
            None => {
                self.ends.insert(number.0, end);
            }
            Some(inode) => {
                if let Some(block) = beyond.filter(|_| is_file(inode)) {
                    self.extend(number, inode, &block, end);
                }
            }
        }
    }

    /// Takes the end of the data as the size of a file.
    fn extend(&mut self, number: InodeNumber, inode: &InodeRecord, block: &BlockRecord, end: u64) {
        self.sizes.insert(number, end);
        // A power cut loses the inode that follows the data: that is part of each recovery.
        let is_usual = self.may_be_torn
            && self.evidence.is_of_journal(block.sequence)
            && block.sequence > inode.sequence;
        if !is_usual {
            let decision = Decision::Size {
                stored: inode.size,
                found: end,
            };
            let place = self.units.place(inode.unit, inode.bytes.into());
            self.guesses.add(Some(number), decision, Some(place));
        }
    }

    /// Whether a truncation removed a block.
    fn is_cut(&self, block: &BlockRecord, cuts: &Cuts) -> bool {
        let from = match block.state {
            // The commit already considered older truncations.
            State::Indexed => self.evidence.boundary.unwrap_or(0).max(block.sequence),
            _ => block.sequence,
        };
        cuts.end(from)
            .is_some_and(|end| u64::from(block.key.low()) >= end)
    }

    /// Adds the location of a node that is lost, so that a read reports it.
    pub(super) fn add_lost_row(&mut self, key: Key, place: Place) {
        if let (Some(unit), Ok(bytes)) = (
            self.units.unit(place.leb, place.offset),
            u16::try_from(place.bytes),
        ) {
            self.table.rows.push(Row {
                key,
                unit,
                bytes,
                is_guess: false,
            });
        }
    }

    /// Adds the locations of lost blocks, so that a read reports them.
    fn add_lost_blocks(&mut self) {
        self.table.rows.sort_unstable_by_key(|row| row.key);
        let known = self.table.rows.len();
        let evidence = self.evidence;
        let mut cuts_of = (InodeNumber(0), Cuts::default());
        for lost in &evidence.lost {
            let number = lost.key.inode_number();
            let is_known = self.table.rows[..known]
                .binary_search_by_key(&lost.key, |row| row.key)
                .is_ok();
            if lost.key.kind() != Some(KeyKind::Data) || is_known || self.is_removed(number) {
                continue;
            }
            let after = if lost.is_proven {
                evidence.boundary.unwrap_or(0)
            } else {
                0
            };
            if cuts_of.0 != number {
                cuts_of = (number, self.cuts(number));
            }
            if cuts_of
                .1
                .end(after)
                .is_some_and(|end| u64::from(lost.key.low()) >= end)
            {
                continue;
            }
            if lost.is_proven {
                self.add_lost_row(lost.key, lost.place);
                if self.live(number).is_none() {
                    let end = (u64::from(lost.key.low()) + 1) * u64::from(BLOCK_BYTES);
                    let known = self.ends.entry(number.0).or_insert(0);
                    *known = end.max(*known);
                }
            } else if self.live(number).is_some() {
                let block = lost.key.low();
                self.guesses
                    .add(Some(number), Decision::OlderBlock { block }, Some(lost.place));
            }
        }
    }
}

/// Whether an inode is of a regular file.
pub(super) fn is_file(inode: &InodeRecord) -> bool {
    EntryKind::from_mode(inode.mode.into()) == Some(EntryKind::File)
}

/// Truncations of a file: sequence numbers, ascending, each with the first removed block of this and all later ones.
#[derive(Default)]
pub(super) struct Cuts(Vec<(u64, u64)>);

impl Resolver<'_> {
    fn cuts(&self, number: InodeNumber) -> Cuts {
        let blocks = |bytes: u64| bytes.div_ceil(u64::from(BLOCK_BYTES));
        let cuts = &self.harvest.cuts;
        let from = cuts.partition_point(|cut| cut.inode < number.0);
        let truncations = cuts[from..].iter().take_while(|cut| cut.inode == number.0);
        // The journal has its truncations as nodes, unless they are damaged.
        let sizes = of_inode(&self.harvest.inodes, number).iter().filter(|version| {
            version.state != State::Dropped
                && (self.has_scars || !self.evidence.is_of_journal(version.sequence))
        });
        Cuts::of(
            truncations
                .map(|cut| (cut.sequence, blocks(cut.new_bytes)))
                .chain(sizes.map(|version| (version.sequence, blocks(version.size)))),
        )
    }

    /// Truncations of a file before it was deleted.
    pub(super) fn cuts_before_deletion(&self, number: InodeNumber) -> Cuts {
        let blocks = |bytes: u64| bytes.div_ceil(u64::from(BLOCK_BYTES));
        let cuts = &self.harvest.cuts;
        let from = cuts.partition_point(|cut| cut.inode < number.0);
        let truncations = cuts[from..].iter().take_while(|cut| cut.inode == number.0);
        let versions = of_inode(&self.harvest.inodes, number).iter();
        let sizes = versions.filter(|version| version.state != State::Dropped && version.links > 0);
        Cuts::of(
            truncations
                .map(|cut| (cut.sequence, blocks(cut.new_bytes)))
                .chain(sizes.map(|version| (version.sequence, blocks(version.size)))),
        )
    }
}

impl Cuts {
    fn of(cuts: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut cuts: Vec<(u64, u64)> = cuts.collect();
        cuts.sort_unstable();
        let mut smallest = u64::MAX;
        for (_, end) in cuts.iter_mut().rev() {
            smallest = smallest.min(*end);
            *end = smallest;
        }
        Self(cuts)
    }

    /// The first block that a truncation after `sequence` removed.
    pub(super) fn end(&self, sequence: u64) -> Option<u64> {
        let next = self.0.partition_point(|(at, _)| *at <= sequence);
        self.0.get(next).map(|(_, end)| *end)
    }
}
