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

use formats::pieces::{Pieces, Place};
use results::block_trace::{
    CauseQuality, Event, EventKind, IoMode, Operation, Process, Request, RequestFlags,
};

use self::parts::Parts;
pub(crate) use self::words::low_half;
use self::words::status;
use super::attribution::Attribution;
use super::commands::{self, Commands};
use super::order::{Item, Order};
use super::record::{
    DriverRecord, MergedRecord, NO_HARDWARE_QUEUE, Record, RequestRecord, RunPart, RunRecord, device_number,
};
use super::request_flags::{FlagBits, operation};

mod bios;
mod parts;
mod words;

/// Records come from several processors: one may arrive this late, ns.
const DISORDER_NS: u64 = 100_000_000;
/// A bio that has waited this long for its request holds back nothing more: later items pass it.
const HOLD_NS: u64 = 10_000_000_000;
/// Maximum number of bios that wait for their requests, and of items in the queue. Beyond it the oldest bio is emitted
/// without its request.
const WAITING_MAX: usize = 1 << 18;
/// Maximum number of pending flush requests of a device.
const FLUSHES_MAX: usize = 1 << 16;

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
    pieces: Pieces,
    flushes: VecDeque<FlushWaiter>,
    commands: Commands,
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
    /// Times that pieces of bios, or names of bios, were dropped at the memory limit.
    pub parts: u64,
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
        let holding = (self.newest.saturating_sub(HOLD_NS), 0, (Operation::Read, 0, 0));
        let oldest = self.waiting.range(holding..).next();
        let oldest = oldest.map_or(u64::MAX, |(queued, _, _)| *queued);
        self.order.pop_before(settled.min(oldest))
    }

    /// At the end of the trace: reports waiting items as they are.
    pub(crate) fn finish(&mut self) {
        let _in_flight = self.give_up(u64::MAX);
        self.untold.parts = self.parts.forgotten() + self.merged.forgotten();
        self.give_up_commands(u64::MAX);
    }

    /// After [`Joiner::finish`]: the rest in order.
    pub(crate) fn next_of_rest(&mut self) -> Option<Item> {
        self.order.pop_before(u64::MAX)
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
            request = self.join(request, record);
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
            let Some(bio) = device.pieces.remove(place) else {
                continue;
            };
            if self.lost_at.is_some_and(|lost_at| when <= lost_at) {
                self.untold.lost += 1;
                continue;
            }
            told += 1;
            for request in bio.rest() {
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
                // A write for no file may be that of others too.
                let may_be_own = run.file.is_some() || request.operation == Operation::Read;
                may_be_own && is_own(&run.cause) && run.cause_quality != CauseQuality::Transaction
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

#[cfg(test)]
mod tests;
