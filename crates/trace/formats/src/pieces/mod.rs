//! The join of pieces to requests: bios of the running kernel, or the queued and inserted pieces of another tool's trace,
//! wait here by their place on the device until a request covers them.
//!
//! A request takes the sectors that pieces of its operation still have, the named or the earlier piece first; a piece that
//! was split waits until all of its sectors are taken. The caller decides about sectors that no piece has.

mod ranges;

use std::collections::{BTreeMap, HashMap};

use results::block_trace::{Operation, Request, Run};

pub use ranges::{Ranges, subtract};

/// Operation, first sector, arrival number.
pub type Place = (Operation, u64, u64);

/// Number of pieces before a sector that are searched for those that reach it. Only pieces that overlap others could stand
/// further before.
const NEIGHBOURS: usize = 256;

/// A part of a request, itself in the form of one: its place, its owners, and the times that are known.
#[derive(Debug)]
pub struct Piece {
    /// Its place and all that is known.
    pub request: Request,
    /// Its address in the kernel; 0 if there is none.
    pub address: u64,
    /// Sectors that requests have taken, if it was split.
    taken: Ranges,
}

impl Piece {
    /// A piece of which nothing is taken.
    #[must_use]
    pub fn new(request: Request, address: u64) -> Self {
        Self {
            request,
            address,
            taken: Ranges::default(),
        }
    }

    /// Whether all its sectors are taken.
    fn is_done(&self) -> bool {
        self.taken.sectors >= self.request.end_sector() - self.request.sector
    }

    /// Takes the parts of `uncovered` that are not taken yet; returns them.
    fn take(&mut self, uncovered: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (start, end) = (self.request.sector, self.request.end_sector());
        let mine: Vec<(u64, u64)> = uncovered
            .iter()
            .flat_map(|(from, to)| self.taken.missing((*from).max(start), (*to).min(end)))
            .collect();
        for range in &mine {
            self.taken.insert(*range);
        }
        mine
    }

    /// The runs inside a range.
    fn runs_in(&self, (from, to): (u64, u64)) -> impl Iterator<Item = Run> {
        // Runs are in order and without gaps.
        let runs = &self.request.runs;
        let first = runs.partition_point(|run| end(run) <= from);
        let runs = runs.iter().skip(first);
        runs.take_while(move |run| run.sector < to)
            .map(move |run| cut(run, from, to))
    }

    /// The parts that no request took, as requests.
    #[must_use]
    pub fn rest(self) -> Vec<Request> {
        let (start, end) = (self.request.sector, self.request.end_sector());
        if start == end || self.taken.sectors == 0 {
            return vec![self.request];
        }
        let part = |range: (u64, u64)| Request {
            sector: range.0,
            bytes: (range.1 - range.0) * 512,
            runs: self.runs_in(range).collect(),
            ..self.request.clone()
        };
        self.taken.missing(start, end).into_iter().map(part).collect()
    }
}

/// A request that is being put together.
#[derive(Debug)]
pub struct Joined {
    /// It, without runs for the sectors that are left.
    pub request: Request,
    /// Its sectors that no piece had so far.
    pub uncovered: Vec<(u64, u64)>,
    /// First time of the piece that it was described by.
    described: Option<u64>,
}

impl Joined {
    /// A request without pieces. Only pieces add runs.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self {
            uncovered: vec![(request.sector, request.end_sector())],
            described: None,
            request: Request {
                runs: Vec::new(),
                ..request
            },
        }
    }

    /// Adds what a piece tells: the flags of all, the earliest times, and the submitter of the earliest one.
    pub fn describe(&mut self, piece: &Request) {
        let earlier = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let request = &mut self.request;
        request.flags = request.flags.with(piece.flags);
        request.queued_ns = earlier(request.queued_ns, piece.queued_ns);
        request.inserted_ns = earlier(request.inserted_ns, piece.inserted_ns);
        let first = piece.first_ns().unwrap_or(u64::MAX);
        if self.described.is_none_or(|known| first < known) {
            self.described = Some(first);
            if piece.submitter.is_some() {
                request.submitter.clone_from(&piece.submitter);
            }
            request.mode = piece.mode;
            request.priority = piece.priority.or(request.priority);
        }
    }

    /// Gives the sectors that are left to runs of this owner; returns the request.
    #[must_use]
    pub fn finish(mut self, owner: &Run) -> Request {
        let runs = &mut self.request.runs;
        runs.extend(self.uncovered.into_iter().map(|(from, to)| Run {
            sector: from,
            bytes: (to - from) * 512,
            ..owner.clone()
        }));
        runs.sort_by_key(|run| run.sector);
        self.request
    }
}

/// Pieces of one device.
#[derive(Debug, Default)]
pub struct Pieces {
    by_place: BTreeMap<Place, Piece>,
    by_address: HashMap<u64, Place>,
    /// Sectors of the longest piece so far: limits how far back a piece that reaches into a request may start.
    longest: u64,
}

impl Pieces {
    /// Adds a piece. Returns the place of an earlier one at its address, which therefore has ended.
    pub fn insert(&mut self, arrival: u64, piece: Piece) -> (Place, Option<Place>) {
        let request = &piece.request;
        let place = (request.operation, request.sector, arrival);
        self.longest = self.longest.max(request.end_sector() - request.sector);
        let address = piece.address;
        self.by_place.insert(place, piece);
        let before = (address != 0).then(|| self.by_address.insert(address, place));
        (place, before.flatten())
    }

    /// Removes a piece.
    pub fn remove(&mut self, place: Place) -> Option<Piece> {
        let piece = self.by_place.remove(&place)?;
        if self.by_address.get(&piece.address) == Some(&place) {
            self.by_address.remove(&piece.address);
        }
        Some(piece)
    }

    /// The piece at a place.
    #[must_use]
    pub fn get(&self, place: Place) -> Option<&Piece> {
        self.by_place.get(&place)
    }

    /// The place of the piece at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Place> {
        self.by_address.get(&address).copied()
    }

    /// Places of the pieces of an operation with sectors in `start..end`, the earliest first.
    #[must_use]
    pub fn overlapping(&self, operation: Operation, start: u64, end: u64) -> Vec<Place> {
        let first = (operation, start.saturating_sub(self.longest), 0);
        let before = self.by_place.range(first..(operation, start, 0)).rev();
        let inside = self
            .by_place
            .range((operation, start, 0)..(operation, end.max(start), 0));
        let mut places: Vec<Place> = before
            .take(NEIGHBOURS)
            .filter(|(_, piece)| piece.request.end_sector() > start)
            .chain(inside)
            .map(|(place, _)| *place)
            .collect();
        places.sort_unstable_by_key(|(_, _, arrival)| *arrival);
        places
    }

    /// Places of the pieces at these addresses with sectors in a range, queued before a time.
    #[must_use]
    pub fn named(
        &self,
        addresses: &[u64],
        operation: Operation,
        range: (u64, u64),
        before: u64,
    ) -> Vec<Place> {
        let places = addresses.iter().filter_map(|address| self.at(*address));
        let fits = |place: &Place| {
            let reaches = |request: &Request| {
                request.end_sector() > range.0 && request.queued_ns.is_none_or(|queued| queued <= before)
            };
            place.0 == operation
                && place.1 < range.1
                && self.get(*place).is_some_and(|piece| reaches(&piece.request))
        };
        places.filter(fits).collect()
    }

    /// Gives the request what the pieces at these places have of its sectors, in this order. Returns the pieces that are
    /// done by it, which wait no longer.
    pub fn join(&mut self, joined: &mut Joined, places: &[Place]) -> Vec<(Place, Piece)> {
        let mut done = Vec::new();
        for place in places {
            if joined.uncovered.is_empty() {
                break;
            }
            let Some(piece) = self.by_place.get_mut(place) else {
                continue;
            };
            let mine = piece.take(&joined.uncovered);
            if mine.is_empty() {
                continue;
            }
            for range in &mine {
                joined.uncovered = subtract(&joined.uncovered, *range);
                joined.request.runs.extend(piece.runs_in(*range));
            }
            joined.describe(&piece.request);
            if piece.is_done() {
                done.extend(self.remove(*place).map(|piece| (*place, piece)));
            }
        }
        done
    }

    /// Takes sectors of a piece that have no request. Returns the piece if it is done by it.
    pub fn drop_part(&mut self, place: Place, range: (u64, u64)) -> Option<Piece> {
        let piece = self.by_place.get_mut(&place)?;
        piece.take(&[range]);
        if piece.is_done() { self.remove(place) } else { None }
    }
}

/// The sector behind a run.
#[must_use]
pub const fn end(run: &Run) -> u64 {
    run.sector.saturating_add(run.bytes.div_ceil(512))
}

/// The part of a run inside `start..stop`, with its offset and home adjusted.
#[must_use]
pub fn cut(run: &Run, start: u64, stop: u64) -> Run {
    let from = run.sector.max(start);
    let to = end(run).min(stop);
    let skipped = from - run.sector;
    let mut part = run.clone();
    part.sector = from;
    part.bytes = if to == end(run) {
        run.bytes - skipped * 512
    } else {
        (to - from) * 512
    };
    part.file_offset = run.file_offset.map(|offset| offset + skipped * 512);
    part.home_sector = run.home_sector.map(|sector| sector + skipped);
    part
}
