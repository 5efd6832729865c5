//! Bios of one device that wait for their requests, by their place on the medium and by their address in the kernel.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use results::block_trace::{IoMode, IoPriority, Operation, Process, Request, RequestFlags, Run};

use crate::block::owners::{cut, end};
use crate::block::ranges::Ranges;
use crate::block::record::device_number;

/// Operation, first sector, arrival number.
pub(super) type Place = (u32, u64, u64);

/// A bio without its request, or with requests for a part of it.
#[derive(Debug)]
pub(super) struct PendingBio {
    pub address: u64,
    pub queued: u64,
    pub end: u64,
    pub flags: RequestFlags,
    pub operation: Operation,
    pub priority: Option<IoPriority>,
    pub submitter: Arc<Process>,
    pub mode: IoMode,
    pub runs: Vec<Run>,
    /// Ranges of sectors already assigned to requests, if it was split.
    pub taken: Ranges,
}

impl PendingBio {
    /// Whether all sectors from `start`, its first one, are assigned.
    pub(super) fn is_done(&self, start: u64) -> bool {
        self.taken.sectors >= self.end - start
    }

    /// Assigns the parts of `uncovered` that are not assigned yet; returns them.
    pub(super) fn take(&mut self, start: u64, uncovered: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mine: Vec<(u64, u64)> = uncovered
            .iter()
            .flat_map(|(from, to)| self.taken.missing((*from).max(start), (*to).min(self.end)))
            .collect();
        for range in &mine {
            self.taken.insert(*range);
        }
        mine
    }

    /// The runs inside a range.
    pub(super) fn runs_in(&self, (from, to): (u64, u64)) -> impl Iterator<Item = Run> {
        // Runs are in order and without gaps.
        let first = self.runs.partition_point(|run| end(run) <= from);
        let runs = self.runs.iter().skip(first);
        runs.take_while(move |run| run.sector < to)
            .map(move |run| cut(run, from, to))
    }

    /// Requests, without times after queueing, for the parts that no request took.
    pub(super) fn into_requests(self, device: u32, start: u64) -> Vec<Request> {
        if self.end == start {
            return vec![self.part(device, 0, 0, Vec::new())];
        }
        let parts = self.taken.missing(start, self.end);
        let part = |range: (u64, u64)| {
            let runs = self.runs_in(range).collect();
            self.part(device, range.0, (range.1 - range.0) * 512, runs)
        };
        parts.into_iter().map(part).collect()
    }

    fn part(&self, device: u32, sector: u64, bytes: u64, runs: Vec<Run>) -> Request {
        Request {
            flags: self.flags,
            priority: self.priority,
            queued_ns: Some(self.queued),
            submitter: Some(Arc::clone(&self.submitter)),
            mode: self.mode,
            runs,
            ..Request::at(device_number(device), self.operation, sector, bytes)
        }
    }
}

/// All pending bios of a device.
#[derive(Debug, Default)]
pub(super) struct PendingBios {
    by_place: BTreeMap<Place, PendingBio>,
    by_address: HashMap<u64, Place>,
    /// Sectors of the longest bio so far: limits how far back a bio that reaches into a request may start.
    longest: u64,
}

impl PendingBios {
    /// Adds a bio. Returns the place of an earlier one at its address, which therefore has ended.
    pub(super) fn insert(&mut self, place: Place, bio: PendingBio) -> Option<Place> {
        self.longest = self.longest.max(bio.end - place.1);
        let before = self.by_address.insert(bio.address, place);
        self.by_place.insert(place, bio);
        before
    }

    pub(super) fn remove(&mut self, place: Place) -> Option<PendingBio> {
        let bio = self.by_place.remove(&place)?;
        if self.by_address.get(&bio.address) == Some(&place) {
            self.by_address.remove(&bio.address);
        }
        Some(bio)
    }

    pub(super) fn get(&self, place: Place) -> Option<&PendingBio> {
        self.by_place.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut PendingBio> {
        self.by_place.get_mut(&place)
    }

    /// The place of the bio at an address.
    pub(super) fn at(&self, address: u64) -> Option<Place> {
        self.by_address.get(&address).copied()
    }

    /// Places of the bios of an operation with sectors in `start..end`, the earliest first.
    pub(super) fn overlapping(&self, word: u32, start: u64, end: u64) -> Vec<Place> {
        let first = (word, start.saturating_sub(self.longest), 0);
        let mut places: Vec<Place> = self
            .by_place
            .range(first..(word, end, 0))
            .filter(|(_, bio)| bio.end > start)
            .map(|(place, _)| *place)
            .collect();
        places.sort_unstable_by_key(|(_, _, arrival)| *arrival);
        places
    }

    /// Places of the bios at these addresses with sectors in a range, queued before a time.
    pub(super) fn named(&self, addresses: &[u64], word: u32, range: (u64, u64), before: u64) -> Vec<Place> {
        let places = addresses.iter().filter_map(|address| self.at(*address));
        let fits = |place: &Place| {
            let reaches = |bio: &PendingBio| bio.end > range.0 && bio.queued <= before;
            place.0 == word && place.1 < range.1 && self.get(*place).is_some_and(reaches)
        };
        places.filter(fits).collect()
    }
}
