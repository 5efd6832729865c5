//! Joins records of bios and records of requests into [`Request`]s.
//!
//! A file system submits bios to the block layer; a device receives requests. Bios are merged into one request, and one
//! bio is split over several. The record of a bio is made when it is queued and always before its request completes, so
//! a request finds all its bios waiting. It names them by their addresses; where it can't, device, operation and range
//! of sectors connect them.
//!
//! A bio may end without a request: refused (REQ_NOWAIT), it moved nothing and is only counted. Devices without requests
//! (dm, md) complete their bios: there a bio is the request.
//!
//! After a loss of records, a request takes only bios that it names; its other sectors have no owner.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use results::block_trace::{
    CauseQuality, Event, EventKind, IoMode, IoPriority, Operation, Process, Request, RequestFlags, Run,
};

use self::pending::{PendingBio, PendingBios, Place};
use super::attribution::Attribution;
use super::commands::{self, Commands};
use super::order::{Item, Order};
use super::ranges::{Ranges, subtract};
use super::record::{
    BioDoneRecord, BioRecord, DriverRecord, MergedRecord, NO_HARDWARE_QUEUE, Record, RequestRecord, RunPart,
    RunRecord, device_number,
};
use super::request_flags::{FlagBits, operation};

mod pending;

/// Records come from several processors: one may arrive this late, ns.
const DISORDER_NS: u64 = 100_000_000;
/// A bio that has waited this long for its request holds back nothing more: later items pass it.
const HOLD_NS: u64 = 10_000_000_000;
/// Maximum number of bios that wait for their requests, and of items in the queue. Beyond it the oldest bio is emitted
/// without its request.
const WAITING_MAX: usize = 1 << 18;
/// Maximum number of pieces of bios whose own record has not come yet, and of bios of requests whose record has not.
const PARTS_MAX: usize = 1 << 16;
/// Maximum number of pending flush requests of a device.
const FLUSHES_MAX: usize = 1 << 16;
/// `blk_status_t` to errno; statuses without one are EIO.
const STATUSES: [(u32, i32); 8] = [
    (1, 95),
    (2, 110),
    (3, 28),
    (4, 67),
    (5, 121),
    (6, 52),
    (7, 61),
    (9, 12),
];
const EIO: i32 = 5;

/// A caller that waits for a flush.
#[derive(Debug)]
struct FlushWaiter {
    bio: u64,
    queued: u64,
    submitter: Arc<Process>,
    flags: RequestFlags,
}

#[derive(Debug, Default)]
struct Device {
    pending: PendingBios,
    flushes: VecDeque<FlushWaiter>,
    commands: Commands,
}

/// Records that belong to one that follows, by the address and the mark that both bear.
#[derive(Debug)]
struct Parts<T> {
    by_owner: HashMap<(u64, u32), Vec<T>>,
    count: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            by_owner: HashMap::new(),
            count: 0,
        }
    }
}

impl<T> Parts<T> {
    /// Adds parts. At the limit all are dropped: their owners' records were lost.
    fn add(&mut self, owner: (u64, u32), parts: impl IntoIterator<Item = T>) {
        if self.count >= PARTS_MAX {
            self.clear();
        }
        let known = self.by_owner.entry(owner).or_default();
        let before = known.len();
        known.extend(parts);
        self.count += known.len() - before;
    }

    fn take(&mut self, owner: (u64, u32)) -> Vec<T> {
        if self.by_owner.is_empty() {
            return Vec::new();
        }
        let parts = self.by_owner.remove(&owner).unwrap_or_default();
        self.count -= parts.len();
        parts
    }

    fn clear(&mut self) {
        self.by_owner.clear();
        self.count = 0;
    }
}

/// Numbers of items that are not told as requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Untold {
    /// Bios that ended without a request (REQ_NOWAIT with a full queue).
    pub refused: u64,
    /// Requests of this process itself.
    pub own: u64,
    /// Bios whose requests may have been lost.
    pub lost: u64,
    /// Bios that were told without their requests at the memory limit.
    pub pushed_out: u64,
    /// Flushes whose callers were dropped at the memory limit.
    pub flushes: u64,
}

/// Joins records into requests.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub attribution: Attribution,
    devices: HashMap<u32, Device>,
    parts: Parts<RunPart>,
    merged: Parts<u64>,
    waiting: BTreeSet<(u64, u32, Place)>,
    order: Order,
    bits: FlagBits,
    own_pid: u32,
    in_order: bool,
    arrivals: u64,
    newest: u64,
    /// Time of the last loss of records.
    lost_at: Option<u64>,
    pub untold: Untold,
}

impl Joiner {
    /// `in_order`: whether items are held back until no earlier one can follow.
    pub(crate) fn new(attribution: Attribution, bits: FlagBits, own_pid: u32, in_order: bool) -> Self {
        Self {
            attribution,
            devices: HashMap::new(),
            parts: Parts::default(),
            merged: Parts::default(),
            waiting: BTreeSet::new(),
            order: Order::default(),
            bits,
            own_pid,
            in_order,
            arrivals: 0,
            newest: 0,
            lost_at: None,
            untold: Untold::default(),
        }
    }

    /// Processes one record.
    pub(crate) fn take(&mut self, record: &Record) {
        if let Some(time) = record.time() {
            self.newest = self.newest.max(self.attribution.since_start(time));
        }
        match record {
            Record::Name(name) => self.attribution.paths.learn(name),
            Record::Process(process) => self.attribution.processes.learn(process),
            Record::Writer(writer) => self.attribution.wrote(writer),
            Record::Run(RunRecord { bio, mark, run, .. }) => self.parts.add((*bio, *mark), [*run]),
            Record::Merged(MergedRecord { bio, mark, bios, .. }) => {
                let bios = bios.iter().copied().filter(|address| *address != 0);
                self.merged.add((*bio, *mark), bios);
            }
            Record::Bio(bio) => self.bio(bio),
            Record::Request(request) => self.request(request),
            Record::BioDone(done) if done.without_requests != 0 => self.bio_done(done),
            Record::BioDone(done) => self.refused(done),
            Record::Event(event) => {
                if let Some(event) = self.attribution.event(event) {
                    self.order.push(Item::Event(Box::new(event)));
                }
            }
            Record::Driver(command) => self.driver(command),
            Record::Aliases(aliases) => self.attribution.has_names(aliases),
            Record::Lost(lost) => self.lose(self.attribution.since_start(lost.time)),
        }
    }

    /// Adds an event that came another way than by a record.
    pub(crate) fn push_event(&mut self, event: Event) {
        self.order.push(Item::Event(Box::new(event)));
    }

    /// Records were lost at this time: knowledge from before may be outdated, so no later attribution relies on it.
    fn lose(&mut self, time: u64) {
        self.lost_at = Some(time);
        self.parts.clear();
        self.merged.clear();
        for device in self.devices.values_mut() {
            device.flushes.clear();
        }
        self.attribution.lose();
    }

    /// The next item in order, once no earlier one can follow.
    pub(crate) fn next(&mut self) -> Option<Item> {
        if self.waiting.len() > WAITING_MAX
            && let Some((queued, _, _)) = self.waiting.first().copied()
        {
            self.untold.pushed_out += self.give_up(queued);
        }
        let settled = self.newest.saturating_sub(DISORDER_NS);
        self.give_up_commands(self.attribution.start.saturating_add(settled));
        if !self.in_order || self.order.len() > WAITING_MAX {
            return self.order.pop_before(u64::MAX);
        }
        let holding = (self.newest.saturating_sub(HOLD_NS), 0, (0, 0, 0));
        let oldest = self.waiting.range(holding..).next();
        let oldest = oldest.map_or(u64::MAX, |(queued, _, _)| *queued);
        self.order.pop_before(settled.min(oldest))
    }

    /// At the end of the trace: reports waiting items as they are.
    pub(crate) fn finish(&mut self) {
        let _in_flight = self.give_up(u64::MAX);
        self.give_up_commands(u64::MAX);
    }

    /// After [`Joiner::finish`]: the rest in order.
    pub(crate) fn next_of_rest(&mut self) -> Option<Item> {
        self.order.pop_before(u64::MAX)
    }

    fn bio(&mut self, bio: &BioRecord) {
        let mut parts = self.parts.take((bio.bio, low_half(bio.time)));
        parts.push(bio.run);
        let flags = self.bits.flags(bio.operation);
        let submitter = self.attribution.processes.get(bio.submitter);
        let queued = self.attribution.since_start(bio.time);
        let asked = operation(bio.operation);
        if bio.without_requests == 0 && (bio.bytes == 0 || flags.contains(RequestFlags::PREFLUSH)) {
            // The kernel sends the flush as a separate request, before data if there is any.
            let waiter = FlushWaiter {
                bio: bio.bio,
                queued,
                submitter: Arc::clone(&submitter),
                flags,
            };
            self.ask_for_flush(bio.device, waiter);
        }
        if bio.bytes == 0 && bio.without_requests == 0 {
            return;
        }
        let (runs, mode) = self.attribution.bio(bio, &parts);
        let sectors = u64::from(bio.bytes).div_ceil(512);
        let is_flush = bio.bytes == 0;
        let pending = PendingBio {
            address: bio.bio,
            queued,
            end: bio.sector + sectors,
            flags,
            operation: if is_flush { Operation::Flush } else { asked },
            priority: priority(bio.priority),
            submitter,
            mode,
            runs: if is_flush { Vec::new() } else { runs },
            taken: Ranges::default(),
        };
        self.arrivals += 1;
        let place = (bio.operation & 0xFF, bio.sector, self.arrivals);
        let device = self.devices.entry(bio.device).or_default();
        if let Some(ended) = device.pending.insert(place, pending) {
            self.ended_unseen(bio.device, ended);
        }
        self.waiting.insert((queued, bio.device, place));
    }

    /// A bio has the address of this one, which therefore has ended. After a loss it is dropped, as its request may be
    /// lost; else its request is told later.
    fn ended_unseen(&mut self, number: u32, place: Place) {
        if self.lost_at.is_none() {
            return;
        }
        let device = self.devices.entry(number).or_default();
        if let Some(bio) = device.pending.remove(place) {
            self.waiting.remove(&(bio.queued, number, place));
            self.untold.lost += 1;
        }
    }

    fn ask_for_flush(&mut self, device: u32, waiter: FlushWaiter) {
        let flushes = &mut self.devices.entry(device).or_default().flushes;
        if flushes.len() >= FLUSHES_MAX {
            flushes.pop_front();
            self.untold.flushes += 1;
        }
        flushes.push_back(waiter);
    }

    fn request(&mut self, record: &RequestRecord) {
        let asked = operation(record.operation);
        let time = |value: u64| (value != 0).then(|| self.attribution.since_start(value));
        let mut request = Request {
            id: 0,
            device: device_number(record.device),
            sector: record.sector,
            bytes: u64::from(record.bytes),
            operation: asked,
            flags: self.bits.flags(record.operation),
            priority: None,
            queued_ns: None,
            inserted_ns: time(record.inserted),
            issued_ns: time(record.issued),
            completed_ns: time(record.completed),
            status: (record.completed != 0).then(|| status(record.status)),
            in_flight: Some(record.in_flight),
            hardware_queue: (record.hardware_queue != NO_HARDWARE_QUEUE).then_some(record.hardware_queue),
            submitter: None,
            mode: IoMode::Unknown,
            command: None,
            runs: Vec::new(),
        };
        if asked == Operation::Flush || record.bytes == 0 {
            self.flush(&mut request, record.device);
        } else if asked != Operation::Driver {
            self.join(&mut request, record);
            self.commands(&mut request, record);
        }
        self.emit(request);
    }

    /// A device's flush answers all flush requests made before it was issued.
    fn flush(&mut self, request: &mut Request, device: u32) {
        request.operation = Operation::Flush;
        request.sector = 0;
        request.bytes = 0;
        let issued = request.issued_ns.unwrap_or(u64::MAX);
        let flushes = &mut self.devices.entry(device).or_default().flushes;
        while let Some(waiter) = flushes.pop_front_if(|waiter| waiter.queued <= issued) {
            if request.submitter.is_none() {
                request.queued_ns = Some(waiter.queued);
                request.submitter = Some(waiter.submitter);
                request.flags = request.flags.with(waiter.flags);
            }
        }
    }

    /// Finds the bios of a request: those that the record names, or by their sectors.
    fn places_of(&mut self, record: &RequestRecord, start: u64, end: u64) -> Vec<Place> {
        let mut names = self.merged.take((record.bio, low_half(record.completed)));
        names.push(record.bio);
        let word = record.operation & 0xFF;
        let pending = &self.devices.entry(record.device).or_default().pending;
        let issued = self.attribution.since_start(record.issued);
        let mut places = pending.named(&names, word, (start, end), issued);
        let since = match self.lost_at {
            None => 0,
            // Other bios of these sectors may be those of requests that were lost.
            Some(_) if record.bio != 0 => return places,
            Some(lost_at) => lost_at,
        };
        let of_both = |place: &Place| {
            let its_end = pending.get(*place).map_or(place.1, |bio| bio.end);
            its_end.min(end).saturating_sub(place.1.max(start))
        };
        if places.iter().map(of_both).sum::<u64>() < end - start {
            let later = |place: &Place| {
                pending
                    .get(*place)
                    .is_some_and(|bio| (since..=issued).contains(&bio.queued))
            };
            let others = pending.overlapping(word, start, end).into_iter().filter(later);
            let others: Vec<Place> = others.filter(|place| !places.contains(place)).collect();
            places.extend(others);
        }
        places
    }

    fn join(&mut self, request: &mut Request, record: &RequestRecord) {
        let (start, end) = (request.sector, request.end_sector());
        let places = self.places_of(record, start, end);
        let device = self.devices.entry(record.device).or_default();
        let mut uncovered = vec![(start, end)];
        // If two bios overlap, the one that is named takes precedence, or else the earlier one.
        for place in places {
            if uncovered.is_empty() {
                break;
            }
            let Some(bio) = device.pending.get_mut(place) else {
                continue;
            };
            let mine = bio.take(place.1, &uncovered);
            if mine.is_empty() {
                continue;
            }
            for range in &mine {
                uncovered = subtract(&uncovered, *range);
                request.runs.extend(bio.runs_in(*range));
            }
            describe(request, bio);
            if bio.is_done(place.1) {
                let queued = bio.queued;
                device.pending.remove(place);
                self.waiting.remove(&(queued, record.device, place));
            }
        }
        for (from, to) in uncovered {
            request.runs.push(Run::unknown(from, (to - from) * 512));
        }
        request.runs.sort_by_key(|run| run.sector);
    }

    /// A bio, or the rest of one that was split, ended without a request: it moved nothing.
    fn refused(&mut self, done: &BioDoneRecord) {
        let Some(device) = self.devices.get_mut(&done.device) else {
            return;
        };
        let is_it = |waiter: &FlushWaiter| done.bio != 0 && waiter.bio == done.bio;
        if let Some(at) = device.flushes.iter().rposition(is_it) {
            device.flushes.remove(at);
            if done.bytes == 0 {
                self.untold.refused += 1;
                return;
            }
        }
        let (start, end) = (done.sector, done.sector + u64::from(done.bytes) / 512);
        let place = match done.bio {
            // Its source tells no addresses: the latest of these sectors is meant.
            0 => device
                .pending
                .overlapping(done.operation & 0xFF, start, end)
                .pop(),
            address => device.pending.at(address),
        };
        let Some(place) = place else {
            return;
        };
        let Some(bio) = device.pending.get_mut(place) else {
            return;
        };
        self.untold.refused += 1;
        bio.take(place.1, &[(start, end)]);
        if bio.is_done(place.1) {
            let queued = bio.queued;
            device.pending.remove(place);
            self.waiting.remove(&(queued, done.device, place));
        }
    }

    fn bio_done(&mut self, done: &BioDoneRecord) {
        let Some(device) = self.devices.get_mut(&done.device) else {
            return;
        };
        let Some(place) = device.pending.at(done.bio) else {
            return;
        };
        let Some(bio) = device.pending.remove(place) else {
            return;
        };
        self.waiting.remove(&(bio.queued, done.device, place));
        for mut request in bio.into_requests(done.device, place.1) {
            request.completed_ns = Some(self.attribution.since_start(done.time));
            request.status = Some(status(done.status));
            self.emit(request);
        }
    }

    fn driver(&mut self, record: &DriverRecord) {
        let device = self.devices.entry(record.device).or_default();
        if let Some(alone) = device.commands.keep(record) {
            self.emit_command(&alone);
        }
    }

    /// Assigns the first command of a request to it; further ones are reported separately.
    fn commands(&mut self, request: &mut Request, record: &RequestRecord) {
        let sectors = (request.sector, request.end_sector());
        let device = self.devices.entry(record.device).or_default();
        let taken = device.commands.take(sectors, (record.issued, record.completed));
        let mut taken = taken.into_iter();
        request.command = taken
            .next()
            .map(|first| commands::command(&first, self.attribution.start));
        for more in taken {
            self.emit_command(&more);
        }
    }

    /// Reports commands that completed before this kernel time and whose requests were not seen.
    fn give_up_commands(&mut self, before: u64) {
        let mut expired = Vec::new();
        for device in self.devices.values_mut() {
            while let Some(record) = device.commands.expired(before) {
                expired.push(record);
            }
        }
        for record in expired {
            self.emit_command(&record);
        }
    }

    fn emit_command(&mut self, record: &DriverRecord) {
        self.emit(commands::alone(record, self.attribution.start));
    }

    /// Reports bios that were queued up to this time without their requests; returns their number. After a loss of
    /// records, bios from before it are left out: their requests may have been told without them.
    fn give_up(&mut self, queued: u64) -> u64 {
        let mut told = 0;
        while let Some((when, number, place)) = self.waiting.pop_first() {
            if when > queued {
                self.waiting.insert((when, number, place));
                break;
            }
            let device = self.devices.entry(number).or_default();
            let Some(bio) = device.pending.remove(place) else {
                continue;
            };
            if self.lost_at.is_some_and(|lost_at| bio.queued <= lost_at) {
                self.untold.lost += 1;
                continue;
            }
            told += 1;
            for request in bio.into_requests(number, place.1) {
                self.emit(request);
            }
        }
        told
    }

    fn emit(&mut self, request: Request) {
        let is_own = |process: &Option<Arc<Process>>| {
            process
                .as_ref()
                .is_some_and(|process| process.pid == self.own_pid)
        };
        let own_data = !request.runs.is_empty()
            && request.runs.iter().all(|run| {
                run.file.is_some() && is_own(&run.cause) && run.cause_quality != CauseQuality::Transaction
            });
        if own_data {
            self.untold.own += 1;
            return;
        }
        self.order.push(Item::Request(Box::new(request)));
    }
}

impl Joiner {
    /// Whether an event was caused by this process itself.
    pub(crate) fn is_own_event(&self, item: &Item) -> bool {
        matches!(item, Item::Event(event) if event.kind != EventKind::Commit
            && event.process.as_ref().is_some_and(|process| process.pid == self.own_pid))
    }
}

/// Copies the properties of the earliest bio to the request; flags are the union of all.
fn describe(request: &mut Request, bio: &PendingBio) {
    request.flags = request.flags.with(bio.flags);
    if request.queued_ns.is_none_or(|queued| bio.queued < queued) {
        request.queued_ns = Some(bio.queued);
        request.submitter = Some(bio.submitter.clone());
        request.mode = bio.mode;
        request.priority = bio.priority;
    }
}

/// The low half of a time, by which records that belong together are recognised.
pub(crate) fn low_half(time: u64) -> u32 {
    u32::try_from(time & u64::from(u32::MAX)).unwrap_or(0)
}

/// The class is in the upper 3 of 16 bits; 0 means not set.
fn priority(word: u16) -> Option<IoPriority> {
    let class = u8::try_from(word >> 13).unwrap_or(0);
    (class != 0).then_some(IoPriority {
        class,
        level: word & 0x1FFF,
    })
}

fn status(word: u32) -> i32 {
    if word == 0 {
        return 0;
    }
    STATUSES
        .iter()
        .find(|(known, _)| *known == word)
        .map_or(EIO, |(_, errno)| *errno)
}

#[cfg(test)]
mod tests;
