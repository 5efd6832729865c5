//! The verdict of index nodes on the nodes that a scan found.
//!
//! The index of the last commit is exact: a node written before it is part of the file system only if the index leads
//! to it. If the master node or a part of the index is lost, the remaining index nodes are taken from the newest one
//! down, each for the keys that no newer one covers. That an index node does not lead to an older node with a key
//! between its keys proves in any case that the older node had been removed or replaced: sequence numbers are never
//! used twice, and copies of garbage collection keep them.
//!
//! An index node vouches only for nodes that are older than its commit. Its commit is newer than every node to which
//! an index node up to this one leads; for the last commit the commit start of the log says it exactly.

use std::collections::{BTreeMap, HashMap, HashSet};

use ubi::Volume;

use super::records::{Harvest, IndexRecord, Record, State, Units};
use crate::fetch;
use crate::finding::Place;
use crate::format::{IndexNode, Key, KeyKind, Master, NodeKind};

/// Gaps that are told apart.
const GAPS_MAX: usize = 1 << 16;

/// Keys for which the verdict of an index node holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// The first and the last key.
    low: u64,
    high: u64,
    /// Nodes up to this sequence number are known to the index.
    bound: u64,
    /// Sequence number of the index node.
    sequence: u64,
    /// Part of the index of the last commit.
    is_proven: bool,
}

/// A location to which the index leads, and that holds no valid node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    pub(super) key: Key,
    pub(super) place: Place,
    pub(super) is_proven: bool,
}

/// Keys below a lost index node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    pub(super) low: u64,
    pub(super) high: u64,
    /// Location of the index node.
    pub(super) place: Place,
}

/// Result of the search through the index.
pub(super) struct Evidence {
    units: Units,
    intervals: Vec<Interval>,
    pub(super) lost: Vec<Lost>,
    pub(super) gaps: Vec<Gap>,
    /// Last sequence number of the last commit, if known.
    pub(super) boundary: Option<u64>,
    /// The log has the start of the last commit.
    pub(super) has_start: bool,
    /// LEBs of the journal since the last commit, each with the offset at which it begins.
    pub(super) buds: BTreeMap<u32, u32>,
    /// Nodes taken in place of lost ones that are probably the same: key and unit.
    pub(super) moved: Vec<(Key, u32)>,
    /// LEBs have other numbers than the index says.
    pub(super) is_renumbered: bool,
}

/// A branch to a leaf.
#[derive(Clone, Copy, Debug)]
struct Claim {
    key: Key,
    unit: u32,
    bytes: u32,
    sequence: u64,
    is_proven: bool,
}

/// Sequence numbers of index nodes, each with that of a node to which it leads.
type Targets = Vec<(u64, u64)>;

impl Evidence {
    /// Collects the evidence, and sets the states of all records.
    pub(super) fn collect(
        volume: &dyn Volume,
        harvest: &mut Harvest,
        master: Option<&Master>,
        memory_bytes: usize,
    ) -> Self {
        let units = Units::new(volume.geometry().leb_bytes);
        let start = master.and_then(|master| {
            let of_commit = harvest
                .starts
                .iter()
                .filter(|(_, commit)| *commit == master.commit);
            of_commit.map(|(sequence, _)| *sequence).max()
        });
        let mut search = Search {
            volume,
            units,
            index: &harvest.index,
            visited: vec![false; harvest.index.len()],
            uncovered: BTreeMap::from([(0, u64::MAX)]),
            claims: Vec::new(),
            intervals: Vec::new(),
            gaps: Vec::new(),
            claims_max: memory_bytes / size_of::<Claim>(),
            rejected: 0,
        };
        search.walk_proven(master);
        search.walk_others();
        let Search {
            mut claims,
            intervals,
            mut gaps,
            ..
        } = search;
        gaps.sort_unstable_by_key(|gap| (gap.low, gap.high));
        gaps.dedup_by(|next, last| {
            let is_overlapping = next.low <= last.high;
            if is_overlapping {
                last.high = last.high.max(next.high);
            }
            is_overlapping
        });
        let numbers = renumber(&mut claims, harvest, units);
        let is_renumbered = numbers.is_some();
        claims.sort_unstable_by_key(|claim| (claim.key, claim.unit, !claim.is_proven, claim.sequence));
        claims.dedup_by_key(|claim| (claim.key, claim.unit));
        let mut evidence = Self {
            units,
            intervals,
            lost: Vec::new(),
            gaps,
            boundary: None,
            has_start: start.is_some(),
            buds: BTreeMap::new(),
            moved: Vec::new(),
            is_renumbered,
        };
        let (targets, newest) = evidence.mark(&claims, harvest, units);
        let proven = newest.max(start);
        evidence.buds = buds(harvest, start, numbers.as_ref());
        evidence.boundary = start.or(proven);
        if is_renumbered {
            evidence
                .intervals
                .iter_mut()
                .for_each(|interval| interval.is_proven = false);
        }
        evidence.set_bounds(targets, proven.unwrap_or(0), start);
        evidence.take_copies(harvest, start.is_some());
        evidence.bury(harvest);
        evidence
    }

    /// Marks the records to which claims lead. Returns the sequence numbers of the index node and of the node for the
    /// claims that are not proven, and the newest node of those that are.
    fn mark(&mut self, claims: &[Claim], harvest: &mut Harvest, units: Units) -> (Targets, Option<u64>) {
        let (mut targets, mut newest) = (Targets::new(), None);
        for claim in claims {
            let state = match claim.is_proven {
                true => State::Indexed,
                false => State::Claimed,
            };
            let found = match claim.key.kind() {
                Some(KeyKind::Inode) => mark_in(&mut harvest.inodes, claim, state),
                Some(KeyKind::Data) => mark_in(&mut harvest.blocks, claim, state),
                Some(KeyKind::Entry | KeyKind::XattrEntry) => mark_in(&mut harvest.names, claim, state),
                None => continue,
            };
            match found {
                Some(sequence) if claim.is_proven => newest = newest.max(Some(sequence)),
                Some(sequence) => targets.push((claim.sequence, sequence)),
                None => self.lost.push(Lost {
                    key: claim.key,
                    place: units.place(claim.unit, claim.bytes),
                    is_proven: claim.is_proven,
                }),
            }
        }
        (targets, newest)
    }

    /// Sets the bounds of all intervals, sorts and merges them.
    fn set_bounds(&mut self, mut newest: Targets, proven: u64, start: Option<u64>) {
        newest.sort_unstable();
        let mut highest = 0;
        for (_, target) in &mut newest {
            highest = highest.max(*target);
            *target = highest;
        }
        let up_to = |sequence: u64| {
            let count = newest.partition_point(|(index, _)| *index <= sequence);
            count.checked_sub(1).map_or(0, |last| newest[last].1)
        };
        for interval in &mut self.intervals {
            interval.bound = match (interval.is_proven, start) {
                (true, _) => proven,
                (false, Some(start)) if interval.sequence > start => up_to(interval.sequence).max(start),
                (false, _) => up_to(interval.sequence),
            };
        }
        self.intervals.sort_unstable_by_key(|interval| interval.low);
        self.intervals.dedup_by(|next, last| {
            let is_same = last.high.checked_add(1) == Some(next.low)
                && (last.bound, last.is_proven) == (next.bound, next.is_proven);
            if is_same {
                last.high = next.high;
            }
            is_same
        });
        self.intervals.shrink_to_fit();
    }

    /// Takes copies of garbage collection since the last commit. The index leads to the originals, whose LEBs may be
    /// erased; the copies keep their sequence numbers. In a LEB of the journal, every node that is older than the
    /// commit is such a copy. Without a log, it is probably the newest node of the key and length that is lost.
    fn take_copies(&mut self, harvest: &mut Harvest, has_log: bool) {
        let mut found = HashSet::new();
        self.take_copies_in(&mut harvest.inodes, has_log, &mut found);
        self.take_copies_in(&mut harvest.blocks, has_log, &mut found);
        self.take_copies_in(&mut harvest.names, has_log, &mut found);
        self.lost
            .retain(|lost| !found.contains(&(lost.key, lost.place.bytes)));
    }

    fn take_copies_in<R: Record>(
        &mut self,
        records: &mut [R],
        has_log: bool,
        found: &mut HashSet<(Key, u32)>,
    ) {
        let lost: HashSet<(Key, u32)> = self
            .lost
            .iter()
            .map(|lost| (lost.key, lost.place.bytes))
            .collect();
        for group in records.chunk_by_mut(|one, other| one.key() == other.key()) {
            let key = group[0].key();
            let interval = self.interval(key);
            let bound = interval.map(|interval| interval.bound);
            // An index node of an earlier commit does not know the copies that were made before the last one.
            let may_be_copied = !has_log || interval.is_some_and(|interval| !interval.is_proven);
            let is_old = |record: &R, bound: Option<u64>| {
                record.state() == State::Open && bound.is_some_and(|bound| record.sequence() <= bound)
            };
            let is_lost = |record: &R| lost.contains(&(key, record.bytes().into()));
            for record in group.iter_mut().filter(|record| is_old(record, self.boundary)) {
                if has_log && self.is_in_bud(record.unit()) {
                    record.set_state(State::Indexed);
                    found.insert((key, record.bytes().into()));
                }
            }
            if may_be_copied {
                let wanted = group
                    .iter_mut()
                    .filter(|record| is_old(record, bound) && is_lost(record));
                if let Some(record) = wanted.max_by_key(|record| record.sequence()) {
                    record.set_state(State::Claimed);
                    self.moved.push((key, record.unit()));
                    found.insert((key, record.bytes().into()));
                }
            }
        }
    }

    fn is_in_bud(&self, unit: u32) -> bool {
        let place = self.units.place(unit, 0);
        self.buds
            .get(&place.leb)
            .is_some_and(|from| place.offset >= *from)
    }

    /// Marks the records that the index contradicts.
    fn bury(&self, harvest: &mut Harvest) {
        self.bury_in(&mut harvest.inodes);
        self.bury_in(&mut harvest.blocks);
        self.bury_in(&mut harvest.names);
    }

    fn bury_in<R: Record>(&self, records: &mut [R]) {
        for record in records {
            let is_old = |interval: &Interval| record.sequence() <= interval.bound;
            if record.state() == State::Open && self.interval(record.key()).is_some_and(is_old) {
                record.set_state(State::Dead);
            }
        }
    }

    fn interval(&self, key: Key) -> Option<&Interval> {
        let key = key.order();
        let count = self.intervals.partition_point(|interval| interval.low <= key);
        let interval = &self.intervals[count.checked_sub(1)?];
        (key <= interval.high).then_some(interval)
    }

    /// Whether the index of the last commit is known for a key.
    pub(super) fn is_proven(&self, key: Key) -> bool {
        self.interval(key).is_some_and(|interval| interval.is_proven)
    }

    /// Whether a node was written after the last commit, as far as known.
    pub(super) fn is_of_journal(&self, sequence: u64) -> bool {
        self.boundary.is_some_and(|boundary| sequence > boundary)
    }
}

/// Whether the keys of an index node are those that its parent leads to.
fn fits(node: &IndexNode, low: u64, high: Option<u64>) -> bool {
    let ends = node.branches.first().zip(node.branches.last());
    ends.is_some_and(|(first, last)| {
        let behind = high.map_or(u64::MAX, |high| high.saturating_add(1));
        first.key.order() >= low && last.key.order() <= behind
    })
}

/// LEBs of the journal by the references after the start of the commit.
fn buds(harvest: &Harvest, start: Option<u64>, numbers: Option<&HashMap<u32, u32>>) -> BTreeMap<u32, u32> {
    let mut buds = BTreeMap::new();
    for (sequence, reference) in &harvest.references {
        if start.is_some_and(|start| *sequence > start) {
            let leb = match numbers {
                None => Some(reference.leb),
                Some(numbers) => numbers.get(&reference.leb).copied(),
            };
            let Some(leb) = leb else { continue };
            let offset = buds.entry(leb).or_insert(reference.offset);
            *offset = reference.offset.min(*offset);
        }
    }
    buds
}

/// Claims that decide about the numbers of LEBs, and versions of a key that are compared.
const VOTES_MAX: usize = 1 << 17;
const VERSIONS_MAX: usize = 4;

/// Translates the LEBs of claims if the volume has its LEBs in another order, as a dump without UBI headers does: most
/// nodes are then at the right offset of a wrong LEB.
fn renumber(claims: &mut Vec<Claim>, harvest: &Harvest, units: Units) -> Option<HashMap<u32, u32>> {
    let mut votes: HashMap<(u32, u32), u32> = HashMap::new();
    for claim in claims.iter().take(VOTES_MAX) {
        match claim.key.kind() {
            Some(KeyKind::Inode) => vote(&harvest.inodes, claim, units, &mut votes),
            Some(KeyKind::Data) => vote(&harvest.blocks, claim, units, &mut votes),
            Some(KeyKind::Entry | KeyKind::XattrEntry) => vote(&harvest.names, claim, units, &mut votes),
            None => {}
        }
    }
    let mut best: HashMap<u32, (u32, u32)> = HashMap::new();
    let mut sorted: Vec<((u32, u32), u32)> = votes.into_iter().collect();
    sorted.sort_unstable();
    for ((named, found), count) in sorted {
        let known = best.entry(named).or_insert((0, found));
        if count > known.0 || count == known.0 && found == named {
            *known = (count, found);
        }
    }
    let sum = |is_same: bool| {
        let of = best
            .iter()
            .filter(|(named, (_, found))| (*named == found) == is_same);
        of.map(|(_, (count, _))| u64::from(*count)).sum::<u64>()
    };
    if sum(false) <= sum(true) {
        return None;
    }
    claims.retain_mut(|claim| {
        let place = units.place(claim.unit, claim.bytes);
        let found = best
            .get(&place.leb)
            .and_then(|(_, found)| units.unit(*found, place.offset));
        claim.is_proven = false;
        claim.unit = found.unwrap_or(claim.unit);
        found.is_some()
    });
    Some(
        best.into_iter()
            .map(|(named, (_, found))| (named, found))
            .collect(),
    )
}

/// Counts the LEBs that have the node of a claim at its offset.
fn vote<R: Record>(records: &[R], claim: &Claim, units: Units, votes: &mut HashMap<(u32, u32), u32>) {
    let named = units.place(claim.unit, claim.bytes);
    let from = records.partition_point(|record| record.key() < claim.key);
    let versions = records[from..]
        .iter()
        .take_while(|record| record.key() == claim.key);
    for record in versions.take(VERSIONS_MAX) {
        let found = units.place(record.unit(), claim.bytes);
        if found.offset == named.offset {
            *votes.entry((named.leb, found.leb)).or_insert(0) += 1;
        }
    }
}

fn mark_in<R: Record>(records: &mut [R], claim: &Claim, state: State) -> Option<u64> {
    let found =
        records.binary_search_by_key(&(claim.key, claim.unit), |record| (record.key(), record.unit()));
    let record = &mut records[found.ok()?];
    // An old index node may lead to a place that holds another node since.
    if !claim.is_proven && record.sequence() > claim.sequence {
        return None;
    }
    record.set_state(state);
    Some(record.sequence())
}

/// The walk through all index nodes.
struct Search<'a> {
    volume: &'a dyn Volume,
    units: Units,
    index: &'a [IndexRecord],
    visited: Vec<bool>,
    /// Keys without a verdict: first and last key of each piece.
    uncovered: BTreeMap<u64, u64>,
    claims: Vec<Claim>,
    intervals: Vec<Interval>,
    gaps: Vec<Gap>,
    /// Memory limit.
    claims_max: usize,
    /// Visits that ended at the keys; forged parents may cause many.
    rejected: usize,
}

/// An index node to visit.
struct Pending {
    at: usize,
    low: u64,
    /// `None`: its own last key.
    high: Option<u64>,
}

impl Search<'_> {
    /// Walks the index of the last commit.
    fn walk_proven(&mut self, master: Option<&Master>) {
        let Some(master) = master else { return };
        let place = Place {
            leb: master.root_leb,
            offset: master.root_offset,
            bytes: master.root_bytes,
        };
        match self.find(place, None) {
            Some(at) => self.walk(at, 0, Some(u64::MAX), true),
            None => self.gaps.push(Gap {
                low: 0,
                high: u64::MAX,
                place,
            }),
        }
    }

    /// Walks all other index nodes, newest first, as long as there are keys without a verdict.
    fn walk_others(&mut self) {
        let mut others: Vec<usize> = (0..self.index.len()).collect();
        others
            .sort_unstable_by_key(|at| std::cmp::Reverse((self.index[*at].sequence, self.index[*at].level)));
        for at in others {
            if self.uncovered.is_empty() {
                return;
            }
            if self.visited[at] {
                continue;
            }
            let first = self
                .node(at)
                .and_then(|node| node.branches.first().map(|branch| branch.key));
            if let Some(first) = first {
                self.walk(at, first.order(), None, false);
            }
        }
    }

    fn find(&self, place: Place, level: Option<u16>) -> Option<usize> {
        let unit = self.units.unit(place.leb, place.offset)?;
        let at = self.index.binary_search_by_key(&unit, |node| node.unit).ok()?;
        let node = &self.index[at];
        (node.bytes == place.bytes && level.is_none_or(|level| level == node.level)).then_some(at)
    }

    fn node(&self, at: usize) -> Option<IndexNode> {
        let record = self.index[at];
        let place = self.units.place(record.unit, record.bytes);
        let raw = fetch::node(self.volume, place, NodeKind::Index).ok()?;
        IndexNode::decode(&raw).ok()
    }

    fn walk(&mut self, root: usize, low: u64, high: Option<u64>, is_proven: bool) {
        let mut pending = vec![Pending { at: root, low, high }];
        while let Some(Pending { at, low, high }) = pending.pop() {
            if std::mem::replace(&mut self.visited[at], true) {
                continue;
            }
            let record = self.index[at];
            let Some(node) = self.node(at) else {
                self.add_gap(low, high, self.units.place(record.unit, record.bytes), is_proven);
                continue;
            };
            if !fits(&node, low, high) {
                // Another node than the parent means.
                self.rejected += 1;
                self.visited[at] = self.rejected > self.index.len();
                self.add_gap(low, high, self.units.place(record.unit, record.bytes), is_proven);
                continue;
            }
            if node.level == 0 {
                self.take_leaves(&node, low, high, record.sequence, is_proven);
                continue;
            }
            for (number, branch) in node.branches.iter().enumerate() {
                let from = if number == 0 {
                    low
                } else {
                    branch.key.order().max(low)
                };
                let next = node.branches.get(number + 1).map(|next| next.key.order());
                let to = match (next, high) {
                    (Some(next), high) => Some(next.saturating_sub(1).min(high.unwrap_or(u64::MAX))),
                    (None, high) => high,
                };
                let place = Place {
                    leb: branch.leb,
                    offset: branch.offset,
                    bytes: branch.bytes,
                };
                // A commit writes children before their parents: a newer node is another one at the same place.
                let child = self.find(place, Some(node.level - 1));
                match child.filter(|at| is_proven || self.index[*at].sequence < record.sequence) {
                    Some(at) => pending.push(Pending {
                        at,
                        low: from,
                        high: to,
                    }),
                    None => self.add_gap(from, to, place, is_proven),
                }
            }
        }
    }

    fn add_gap(&mut self, low: u64, high: Option<u64>, place: Place, is_proven: bool) {
        if !is_proven {
            return;
        }
        match self.gaps.len() < GAPS_MAX {
            true => self.gaps.push(Gap {
                low,
                high: high.unwrap_or(u64::MAX),
                place,
            }),
            false => (self.gaps[0].low, self.gaps[0].high) = (0, u64::MAX),
        }
    }

    /// Takes the branches of a node of the lowest level.
    fn take_leaves(&mut self, node: &IndexNode, low: u64, high: Option<u64>, sequence: u64, is_proven: bool) {
        let last = node.branches.last().map_or(0, |branch| branch.key.order());
        let high = high.unwrap_or(last);
        if self.claims.len() + node.branches.len() > self.claims_max {
            let place = self.units.place(0, 0);
            return self.add_gap(low, Some(high), place, is_proven);
        }
        let mut free = self.cover(low, high, sequence, is_proven);
        // Names with one hash may continue in the node before the one that begins with their key.
        let behind = high.checked_add(1).filter(|_| last > high);
        free.extend(behind.filter(|key| self.is_uncovered(*key)).map(|key| (key, key)));
        free.sort_unstable();
        for branch in &node.branches {
            let key = branch.key.order();
            let below = free.partition_point(|(low, _)| *low <= key);
            let is_free = below.checked_sub(1).is_some_and(|last| key <= free[last].1);
            let Some(unit) = self
                .units
                .unit(branch.leb, branch.offset)
                .filter(|_| is_free || is_proven)
            else {
                continue;
            };
            self.claims.push(Claim {
                key: branch.key,
                unit,
                bytes: branch.bytes,
                sequence,
                is_proven,
            });
        }
    }

    fn is_uncovered(&self, key: u64) -> bool {
        let piece = self.uncovered.range(..=key).next_back();
        piece.is_some_and(|(_, high)| key <= *high)
    }

    /// Covers the keys from `low` to `high`, as far as nothing newer does. Returns these pieces.
    fn cover(&mut self, low: u64, high: u64, sequence: u64, is_proven: bool) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        loop {
            let before = self.uncovered.range(..=high).next_back();
            let Some((from, to)) = before
                .map(|(from, to)| (*from, *to))
                .filter(|(_, to)| *to >= low && low <= high)
            else {
                break;
            };
            self.uncovered.remove(&from);
            if from < low {
                self.uncovered.insert(from, low - 1);
            }
            if to > high {
                self.uncovered.insert(high + 1, to);
            }
            let piece = (from.max(low), to.min(high));
            taken.push(piece);
            self.intervals.push(Interval {
                low: piece.0,
                high: piece.1,
                bound: 0,
                sequence,
                is_proven,
            });
        }
        taken
    }
}
