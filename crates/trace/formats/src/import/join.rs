//! Joins steps of requests into requests.
//!
//! A queued piece (Q) waits until a request that covers it is inserted (I), issued (D) or completed (C): [`Pieces`] does
//! that, as for the bios of a live trace. A request completed in parts is complete when all its bytes are. If the trace lost
//! steps, the request is emitted with the times that are known.
//!
//! Memory is bounded by [`OPEN_MAX`] pieces and requests in progress and [`WAITING_MAX`] complete ones that wait for
//! their turn. If the same sectors are in progress twice, a step applies to the older one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use results::block_trace::{CauseQuality, DeviceNumber, Operation, Request, Run};

use super::block_event::{BlockEvent, Step};
use super::ready::Ready;
use crate::pieces::{Joined, Piece, Pieces, Place, end};

/// Maximum number of pieces and requests in progress; far more than a device and its queues hold. Beyond it the oldest
/// is emitted incomplete.
const OPEN_MAX: usize = 1 << 17;

/// Maximum number of complete requests that wait for an older incomplete one.
const WAITING_MAX: usize = 1 << 17;

/// Number of items below a sector that are searched for one that overlaps it.
const NEIGHBOURS: usize = 8;

/// Number of requests without a sector that are searched.
const PLACELESS_MAX: usize = 256;

/// Stage of an open item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Inserted,
    Issued,
}

/// Place of an open item among those of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Queued(Place),
    Inserted(Place),
    /// Its sector and age.
    Issued(u64, u64),
    /// Without a sector: its age.
    Placeless(u64),
}

#[derive(Debug, Default)]
struct Device {
    queued: Pieces,
    inserted: Pieces,
    /// By sector and age, with the bytes not yet completed.
    issued: BTreeMap<(u64, u64), (Request, u64)>,
    /// Items without a sector, by age.
    placeless: BTreeMap<u64, (Stage, Request)>,
    /// Expected completions of callers' flushes that were issued as one.
    flush_echoes: u64,
    in_flight: u32,
}

impl Device {
    /// Removes an item; what of it no request took.
    fn remove(&mut self, key: Key) -> Vec<Request> {
        let piece = match key {
            Key::Queued(place) => self.queued.remove(place),
            Key::Inserted(place) => self.inserted.remove(place),
            Key::Issued(sector, age) => {
                let issued = self.issued.remove(&(sector, age));
                return issued.into_iter().map(|(request, _)| request).collect();
            }
            Key::Placeless(age) => {
                let item = self.placeless.remove(&age);
                return item.into_iter().map(|(_, request)| request).collect();
            }
        };
        piece.map(Piece::rest).unwrap_or_default()
    }

    /// Ages of the first items without a sector that are at one of these stages.
    fn placeless(&self, stages: &[Stage], operation: Option<Operation>) -> impl Iterator<Item = u64> {
        let fits = move |(stage, request): &(Stage, Request)| {
            stages.contains(stage) && operation.is_none_or(|operation| operation == request.operation)
        };
        let items = self.placeless.iter().take(PLACELESS_MAX);
        items.filter(move |(_, item)| fits(item)).map(|(age, _)| *age)
    }
}

/// Joins steps into requests.
#[derive(Debug, Default)]
pub struct Join {
    devices: HashMap<DeviceNumber, Device>,
    /// Open items by first time, those of one time by their first step in the source.
    order: BTreeSet<(u64, u64, DeviceNumber, Key)>,
    next_age: u64,
    let_go: u64,
}

impl Join {
    /// Adds one step; requests completed by it go to `ready`.
    pub fn step(&mut self, event: &BlockEvent, ready: &mut Ready) {
        match event.step {
            Step::Queue => {
                let mut request = request_of(event, self.age());
                request.queued_ns = Some(event.time_ns);
                self.add(Stage::Queued, request);
            }
            Step::Insert => {
                let mut request = self.gathered(event, &[Stage::Queued]);
                request.inserted_ns = request.inserted_ns.or(Some(event.time_ns));
                self.add(Stage::Inserted, request);
            }
            Step::Issue => self.issue(event),
            Step::Requeue => {
                if let Some((request, _)) = self.take_issued(event) {
                    // As if it had never been inserted: the next step may be an insert or an issue.
                    self.add(Stage::Queued, request);
                }
            }
            Step::Complete => self.complete(event, ready),
        }
        while self.order.len() > OPEN_MAX || (ready.len() > WAITING_MAX && self.blocks(ready)) {
            self.let_oldest_go(ready);
        }
    }

    /// First time and first step of the oldest open item: no later request may be emitted before it.
    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.order.first().map(|(first, step, ..)| (*first, *step))
    }

    /// Emits all open items as they are.
    pub fn finish(&mut self, ready: &mut Ready) {
        let let_go = self.let_go;
        while !self.order.is_empty() {
            self.let_oldest_go(ready);
        }
        self.let_go = let_go;
    }

    /// Number of items emitted incomplete, because too many were in progress.
    pub const fn let_go(&self) -> u64 {
        self.let_go
    }

    fn blocks(&self, ready: &Ready) -> bool {
        matches!((self.oldest(), ready.first()), (Some(open), Some(whole)) if open < whole)
    }

    fn let_oldest_go(&mut self, ready: &mut Ready) {
        let Some((.., number, key)) = self.order.pop_first() else {
            return;
        };
        self.let_go += 1;
        let device = self.devices.entry(number).or_default();
        for request in device.remove(key) {
            ready.push(request);
        }
    }

    fn issue(&mut self, event: &BlockEvent) {
        let mut request = self.gathered(event, &[Stage::Inserted, Stage::Queued]);
        request.issued_ns = Some(event.time_ns);
        let device = self.devices.entry(event.device).or_default();
        device.in_flight = device.in_flight.saturating_add(1);
        request.in_flight = Some(device.in_flight);
        self.add(Stage::Issued, request);
    }

    fn complete(&mut self, event: &BlockEvent, ready: &mut Ready) {
        let device = self.devices.entry(event.device).or_default();
        if event.bytes == 0
            && device.flush_echoes > 0
            && device.placeless(&[Stage::Issued], None).next().is_none()
        {
            device.flush_echoes -= 1;
            return;
        }
        let Some((mut request, remaining)) = self.take_issued(event) else {
            let mut request = self.gathered(event, &[Stage::Inserted, Stage::Queued]);
            request.completed_ns = Some(event.time_ns);
            request.status = event.status;
            ready.push(request);
            return;
        };
        let failed = request.status.filter(|status| *status != 0);
        request.status = failed.or(event.status);
        request.completed_ns = Some(event.time_ns);
        let remaining = remaining.saturating_sub(event.bytes);
        if remaining == 0 || event.bytes == 0 {
            ready.push(request);
        } else {
            // Until the last part is done, the request counts as in flight.
            let device = self.devices.entry(event.device).or_default();
            device.in_flight = device.in_flight.saturating_add(1);
            self.add_issued(request, remaining);
        }
    }

    /// Builds the request of an event from all items known at these stages.
    fn gathered(&mut self, event: &BlockEvent, stages: &[Stage]) -> Request {
        let request = request_of(event, self.age());
        let owner = request.runs.first().cloned();
        let (sector, end) = (request.sector, request.end_sector());
        let mut joined = Joined::new(request);
        let Some(owner) = owner else {
            for part in self.take_placeless(event, stages) {
                joined.describe(&part);
                joined.request.id = joined.request.id.min(part.id);
            }
            return joined.request;
        };
        let device = self.devices.entry(event.device).or_default();
        for stage in stages {
            let (pieces, key): (_, fn(Place) -> Key) = match stage {
                Stage::Queued => (&mut device.queued, Key::Queued),
                _ => (&mut device.inserted, Key::Inserted),
            };
            let places = pieces.overlapping(event.operation, sector, end);
            let steps = places.iter().filter_map(|place| pieces.get(*place));
            let first_step = steps.map(|piece| piece.request.id).min();
            joined.request.id = joined.request.id.min(first_step.unwrap_or(u64::MAX));
            for (place, piece) in pieces.join(&mut joined, &places) {
                self.order.remove(&entry(&piece.request, key(place)));
            }
        }
        tidy(joined.finish(&owner))
    }

    fn take_placeless(&mut self, event: &BlockEvent, stages: &[Stage]) -> Vec<Request> {
        let device = self.devices.entry(event.device).or_default();
        let is_flush = event.operation == Operation::Flush;
        // One flush of the device serves all waiting flushes; other commands are issued one by one.
        let limit = if is_flush { PLACELESS_MAX } else { 1 };
        let ages: Vec<u64> = device
            .placeless(stages, Some(event.operation))
            .take(limit)
            .collect();
        if is_flush && event.step == Step::Issue {
            let callers = u64::try_from(ages.len()).unwrap_or(0);
            device.flush_echoes = device.flush_echoes.saturating_add(callers);
        }
        let keys = ages.into_iter().map(Key::Placeless);
        keys.flat_map(|key| self.remove(event.device, key)).collect()
    }

    /// Removes the issued request that a completion or requeue refers to, and its bytes not yet completed.
    fn take_issued(&mut self, event: &BlockEvent) -> Option<(Request, u64)> {
        let device = self.devices.get_mut(&event.device)?;
        let (key, remaining) = if event.bytes == 0 {
            let age = device.placeless(&[Stage::Issued], Some(event.operation)).next()?;
            (Key::Placeless(age), 0)
        } else {
            let below = device.issued.range(..=(event.sector, u64::MAX)).rev();
            let its = below.take(NEIGHBOURS).filter(|(_, (request, _))| {
                request.end_sector() > event.sector && request.operation == event.operation
            });
            let ((sector, age), (_, remaining)) = its.min_by_key(|((_, age), _)| *age)?;
            (Key::Issued(*sector, *age), *remaining)
        };
        device.in_flight = device.in_flight.saturating_sub(1);
        let request = self.remove(event.device, key).pop()?;
        Some((request, remaining))
    }

    fn remove(&mut self, number: DeviceNumber, key: Key) -> Vec<Request> {
        let device = self.devices.entry(number).or_default();
        let removed = device.remove(key);
        for request in &removed {
            self.order.remove(&entry(request, key));
        }
        removed
    }

    fn add(&mut self, stage: Stage, request: Request) {
        if stage == Stage::Issued && has_place(&request) {
            let bytes = request.bytes;
            return self.add_issued(request, bytes);
        }
        let (first, id, number, age) = (first_of(&request), request.id, request.device, self.age());
        let device = self.devices.entry(number).or_default();
        let key = if !has_place(&request) {
            device.placeless.insert(age, (stage, request));
            Key::Placeless(age)
        } else if stage == Stage::Queued {
            Key::Queued(device.queued.insert(age, Piece::new(request, 0)).0)
        } else {
            Key::Inserted(device.inserted.insert(age, Piece::new(request, 0)).0)
        };
        self.order.insert((first, id, number, key));
    }

    fn add_issued(&mut self, request: Request, remaining: u64) {
        let age = self.age();
        let key = Key::Issued(request.sector, age);
        self.order.insert(entry(&request, key));
        let device = self.devices.entry(request.device).or_default();
        device.issued.insert((request.sector, age), (request, remaining));
    }

    const fn age(&mut self) -> u64 {
        self.next_age += 1;
        self.next_age
    }
}

fn first_of(request: &Request) -> u64 {
    request.first_ns().unwrap_or(0)
}

const fn has_place(request: &Request) -> bool {
    request.bytes > 0
}

/// An open item's entry in the order.
fn entry(request: &Request, key: Key) -> (u64, u64, DeviceNumber, Key) {
    (first_of(request), request.id, request.device, key)
}

/// A request of which only this event is known. Until it is numbered, its `id` says when its first step came.
fn request_of(event: &BlockEvent, id: u64) -> Request {
    let has_place = event.bytes > 0;
    let sector = if has_place { event.sector } else { 0 };
    let mut run = Run::unknown(sector, event.bytes);
    if event.step == Step::Queue && event.process.is_some() {
        run.cause.clone_from(&event.process);
        run.cause_quality = CauseQuality::Submitter;
    }
    if let Some(owner) = &event.owner {
        run.block_type = owner.block_type;
        run.detail.clone_from(&owner.detail);
        run.path.clone_from(&owner.path);
        run.deleted = owner.deleted;
    }
    let submitter = event.process.clone().filter(|_| event.step != Step::Complete);
    Request {
        id,
        flags: event.flags,
        priority: event.priority,
        submitter,
        runs: if has_place { vec![run] } else { Vec::new() },
        ..Request::at(event.device, event.operation, sector, event.bytes)
    }
}

/// Merges adjacent runs of the same owner.
fn tidy(mut request: Request) -> Request {
    let mut runs: Vec<Run> = Vec::with_capacity(request.runs.len());
    for run in std::mem::take(&mut request.runs) {
        push_run(&mut runs, run);
    }
    // The last sector may be used only in part.
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    if let Some(last) = runs.last_mut() {
        last.bytes = last.bytes.saturating_sub(total.saturating_sub(request.bytes));
    }
    request.runs = runs;
    request
}

/// Adds a run, or extends the last one if both have the same owner.
fn push_run(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut() {
        let same = Run {
            sector: last.sector,
            bytes: last.bytes,
            ..run.clone()
        } == *last;
        if same && end(last) == run.sector {
            last.bytes += run.bytes;
            return;
        }
    }
    runs.push(run);
}
