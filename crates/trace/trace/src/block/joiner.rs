//! Joins records of bios and records of requests into [`Request`]s.
//!
//! A file system submits bios to the block layer; a device receives requests. Bios are merged into one request, and one
//! bio is split over several; device, operation and range of sectors connect them. The record of a bio is made when it
//! is queued and always before its request completes, so a request finds all its bios waiting.
//!
//! Devices without requests (dm, md) complete their bios: there a bio is the request.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use results::block_trace::{
    CauseQuality, EventKind, IoMode, IoPriority, Operation, Process, Request, RequestFlags, Run,
};

use super::attribution::Attribution;
use super::commands::{self, Commands};
use super::order::{Item, Order};
use super::owners::cut;
use super::ranges::{Ranges, subtract};
use super::record::{
    BioDoneRecord, BioRecord, DriverRecord, NO_HARDWARE_QUEUE, Record, RequestRecord, RunPart, device_number,
};
use super::request_flags::{FlagBits, operation};

/// Records come from several processors: one may arrive this late, ns.
const DISORDER_NS: u64 = 100_000_000;
/// The request of a bio that waits longer was lost: the bio is reported as it is.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Maximum number of bios that wait for their requests, and of items in the queue. Beyond it the oldest bio is emitted
/// without its request.
const WAITING_MAX: usize = 1 << 18;
/// Maximum number of bios with pieces whose own record has not come yet.
const BIOS_IN_PARTS_MAX: usize = 1 << 12;
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

#[derive(Debug)]
struct PendingBio {
    address: u64,
    queued: u64,
    end: u64,
    flags: RequestFlags,
    operation: Operation,
    priority: Option<IoPriority>,
    submitter: Arc<Process>,
    mode: IoMode,
    runs: Vec<Run>,
    /// Ranges of sectors already assigned to requests, if it was split.
    taken: Ranges,
}

/// Operation, first sector, arrival number.
type Place = (u32, u64, u64);

#[derive(Debug, Default)]
struct Device {
    pending: BTreeMap<Place, PendingBio>,
    by_address: HashMap<u64, Place>,
    /// Sectors of the longest bio so far: limits how far back a bio that reaches into a request may start.
    longest: u64,
    /// Empty bios that request a flush.
    flushes: VecDeque<(u64, Arc<Process>, RequestFlags)>,
    commands: Commands,
}

/// Joins records into requests.
#[derive(Debug)]
pub(crate) struct Joiner {
    pub attribution: Attribution,
    devices: HashMap<u32, Device>,
    parts: HashMap<u64, Vec<RunPart>>,
    waiting: BTreeSet<(u64, u32, Place)>,
    order: Order,
    bits: FlagBits,
    own_pid: u32,
    arrivals: u64,
    newest: u64,
    /// Number of requests of this process itself, which are left out.
    pub own_requests: u64,
}

impl Joiner {
    pub(crate) fn new(attribution: Attribution, bits: FlagBits, own_pid: u32) -> Self {
        Self {
            attribution,
            devices: HashMap::new(),
            parts: HashMap::new(),
            waiting: BTreeSet::new(),
            order: Order::default(),
            bits,
            own_pid,
            arrivals: 0,
            newest: 0,
            own_requests: 0,
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
            Record::Run(run) => {
                if self.parts.len() >= BIOS_IN_PARTS_MAX {
                    // Their bios were lost in the ring, which counts them.
                    self.parts.clear();
                }
                self.parts.entry(run.bio).or_default().push(run.run);
            }
            Record::Bio(bio) => self.bio(bio),
            Record::Request(request) => self.request(request),
            Record::BioDone(done) => self.bio_done(done),
            Record::Event(event) => {
                if let Some(event) = self.attribution.event(event) {
                    self.order.push(Item::Event(Box::new(event)));
                }
            }
            Record::Driver(command) => self.driver(command),
            // Attribution is made at the named device; the mapping of a bio to a lower device is not used yet.
            Record::Remap => {}
        }
        for event in self.attribution.events.drain(..) {
            self.order.push(Item::Event(Box::new(event)));
        }
    }

    /// The next item in order, once no earlier one can follow.
    pub(crate) fn next(&mut self) -> Option<Item> {
        let settled = self.newest.saturating_sub(DISORDER_NS);
        let oldest = self.waiting.first().map_or(u64::MAX, |(queued, _, _)| *queued);
        let is_full = self.waiting.len() > WAITING_MAX || self.order.len() > WAITING_MAX;
        if oldest < self.newest.saturating_sub(PATIENCE_NS) || (is_full && oldest != u64::MAX) {
            self.give_up(oldest);
        }
        self.give_up_commands(self.attribution.start.saturating_add(settled));
        self.order.pop_before(settled.min(oldest))
    }

    /// At the end of the trace: reports waiting items as they are.
    pub(crate) fn finish(&mut self) {
        while let Some((queued, _, _)) = self.waiting.first().copied() {
            self.give_up(queued);
        }
        self.give_up_commands(u64::MAX);
    }

    /// After [`Joiner::finish`]: the rest in order.
    pub(crate) fn next_of_rest(&mut self) -> Option<Item> {
        self.order.pop_before(u64::MAX)
    }

    fn bio(&mut self, bio: &BioRecord) {
        let mut parts = self.parts.remove(&bio.bio).unwrap_or_default();
        parts.push(bio.run);
        let flags = self.bits.flags(bio.operation);
        let submitter = self.attribution.processes.get(bio.submitter);
        let queued = self.attribution.since_start(bio.time);
        let asked = operation(bio.operation);
        if bio.bytes == 0 && bio.without_requests == 0 {
            self.ask_for_flush(bio.device, (queued, submitter, flags));
            return;
        }
        let (runs, mode) = self.attribution.bio(bio, &parts);
        if flags.contains(RequestFlags::PREFLUSH) && bio.without_requests == 0 {
            // The kernel sends the flush as a separate request before the data.
            self.ask_for_flush(bio.device, (queued, submitter.clone(), flags));
        }
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
        device.longest = device.longest.max(sectors);
        if bio.without_requests != 0 {
            device.by_address.insert(bio.bio, place);
        }
        device.pending.insert(place, pending);
        self.waiting.insert((queued, bio.device, place));
    }

    fn ask_for_flush(&mut self, device: u32, asked: (u64, Arc<Process>, RequestFlags)) {
        let flushes = &mut self.devices.entry(device).or_default().flushes;
        if flushes.len() >= FLUSHES_MAX {
            flushes.pop_front();
        }
        flushes.push_back(asked);
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
            status: Some(status(record.status)),
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
        let device = self.devices.entry(device).or_default();
        while device
            .flushes
            .front()
            .is_some_and(|(queued, _, _)| *queued <= issued)
        {
            let Some((queued, submitter, flags)) = device.flushes.pop_front() else {
                break;
            };
            if request.submitter.is_none() {
                request.queued_ns = Some(queued);
                request.submitter = Some(submitter);
                request.flags = request.flags.with(flags);
            }
        }
    }

    fn join(&mut self, request: &mut Request, record: &RequestRecord) {
        let (start, end) = (request.sector, request.end_sector());
        let device = self.devices.entry(record.device).or_default();
        let word = record.operation & 0xFF;
        let first = (word, start.saturating_sub(device.longest), 0);
        let mut places: Vec<Place> = device
            .pending
            .range(first..(word, end, 0))
            .filter(|(_, bio)| bio.end > start)
            .map(|(place, _)| *place)
            .collect();
        // If two bios overlap, the earlier one takes precedence.
        places.sort_unstable_by_key(|(_, _, arrival)| *arrival);
        let mut uncovered = vec![(start, end)];
        for place in places {
            if uncovered.is_empty() {
                break;
            }
            let Some(bio) = device.pending.get_mut(&place) else {
                continue;
            };
            let mine: Vec<(u64, u64)> = uncovered
                .iter()
                .flat_map(|(from, to)| bio.taken.missing((*from).max(place.1), (*to).min(bio.end)))
                .collect();
            if mine.is_empty() {
                continue;
            }
            for range in &mine {
                uncovered = subtract(&uncovered, *range);
                // Runs are in order and without gaps.
                let first = bio.runs.partition_point(|run| super::owners::end(run) <= range.0);
                let part = bio.runs.iter().skip(first);
                for run in part.take_while(|run| run.sector < range.1) {
                    request.runs.push(cut(run, range.0, range.1));
                }
                bio.taken.insert(*range);
            }
            describe(request, bio);
            if bio.taken.sectors >= bio.end - place.1 {
                let queued = bio.queued;
                device.pending.remove(&place);
                self.waiting.remove(&(queued, record.device, place));
            }
        }
        for (from, to) in uncovered {
            request.runs.push(Run::unknown(from, (to - from) * 512));
        }
        request.runs.sort_by_key(|run| run.sector);
    }

    fn bio_done(&mut self, done: &BioDoneRecord) {
        let Some(device) = self.devices.get_mut(&done.device) else {
            return;
        };
        let Some(place) = device.by_address.remove(&done.bio) else {
            return;
        };
        let Some(bio) = device.pending.remove(&place) else {
            return;
        };
        self.waiting.remove(&(bio.queued, done.device, place));
        let mut request = alone(done.device, place.1, bio);
        request.completed_ns = Some(self.attribution.since_start(done.time));
        request.status = Some(status(done.status));
        self.emit(request);
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

    /// Reports bios that were queued up to this time without their requests.
    fn give_up(&mut self, queued: u64) {
        while let Some((when, number, place)) = self.waiting.first().copied() {
            if when > queued {
                break;
            }
            self.waiting.pop_first();
            let device = self.devices.entry(number).or_default();
            if let Some(bio) = device.pending.remove(&place) {
                device.by_address.remove(&bio.address);
                let request = alone(number, place.1, bio);
                self.emit(request);
            }
        }
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
            self.own_requests += 1;
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

fn alone(device: u32, sector: u64, bio: PendingBio) -> Request {
    Request {
        id: 0,
        device: device_number(device),
        sector: if bio.end == sector { 0 } else { sector },
        bytes: (bio.end - sector) * 512,
        operation: bio.operation,
        flags: bio.flags,
        priority: bio.priority,
        queued_ns: Some(bio.queued),
        inserted_ns: None,
        issued_ns: None,
        completed_ns: None,
        status: None,
        in_flight: None,
        hardware_queue: None,
        submitter: Some(bio.submitter),
        mode: bio.mode,
        command: None,
        runs: bio.runs,
    }
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
