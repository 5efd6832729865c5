//! Joins steps of requests into requests.
//!
//! A queued piece (Q) waits until a request that covers it is inserted (I), issued (D) or completed (C); pieces of
//! several callers then become one request with one run each. A request completed in parts is complete when all its
//! bytes are. If the trace lost steps, the request is emitted with the times that are known.
//!
//! Memory is bounded by [`OPEN_MAX`] pieces and requests in progress and [`WAITING_MAX`] complete ones that wait for
//! their turn. If the same sectors are in progress twice, a step applies to the older one.

use std::collections::{BTreeSet, HashMap};

use results::block_trace::{CauseQuality, DeviceNumber, Operation, Request, Run};

use super::block_event::{BlockEvent, Step};
use super::ready::Ready;

/// Maximum number of pieces and requests in progress; far more than a device and its queues hold. Beyond it the oldest
/// is emitted incomplete.
const OPEN_MAX: usize = 1 << 17;

/// Maximum number of complete requests that wait for an older incomplete one.
const WAITING_MAX: usize = 1 << 17;

/// Number of items below a sector that are searched for one that overlaps it.
const NEIGHBOURS: usize = 8;

/// Number of requests without a sector that are searched.
const PLACELESS_MAX: usize = 256;

const SECTOR_BYTES: u64 = 512;

/// Stage of an open item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Inserted,
    Issued,
}

#[derive(Debug)]
struct Open {
    stage: Stage,
    request: Request,
    /// Bytes not yet completed.
    remaining: u64,
}

#[derive(Debug, Default)]
struct Device {
    /// Items with a sector, by sector and age.
    queued: BTreeSet<(u64, u64)>,
    inserted: BTreeSet<(u64, u64)>,
    issued: BTreeSet<(u64, u64)>,
    /// Items without a sector, by age.
    placeless: BTreeSet<u64>,
    /// Expected completions of callers' flushes that were issued as one.
    flush_echoes: u64,
    in_flight: u32,
}

impl Device {
    const fn places(&mut self, stage: Stage) -> &mut BTreeSet<(u64, u64)> {
        match stage {
            Stage::Queued => &mut self.queued,
            Stage::Inserted => &mut self.inserted,
            Stage::Issued => &mut self.issued,
        }
    }
}

/// Joins steps into requests.
#[derive(Debug, Default)]
pub struct Join {
    devices: HashMap<DeviceNumber, Device>,
    open: HashMap<u64, Open>,
    /// Open items by first time and age.
    order: BTreeSet<(u64, u64)>,
    next_age: u64,
    let_go: u64,
}

impl Join {
    /// Adds one step; requests completed by it go to `ready`.
    pub fn step(&mut self, event: &BlockEvent, ready: &mut Ready) {
        match event.step {
            Step::Queue => self.queue(event),
            Step::Split(at) => self.split(event, at),
            Step::Insert => self.insert(event),
            Step::Issue => self.issue(event),
            Step::Requeue => self.requeue(event),
            Step::Complete => self.complete(event, ready),
        }
        while self.open.len() > OPEN_MAX || (ready.len() > WAITING_MAX && self.blocks(ready)) {
            self.let_oldest_go(ready);
        }
    }

    /// First time of the oldest open item: no later request may be emitted before it.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.order.first().map(|(first, _)| *first)
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
        matches!((self.oldest_ns(), ready.first_ns()), (Some(open), Some(whole)) if open < whole)
    }

    fn let_oldest_go(&mut self, ready: &mut Ready) {
        let Some((_, age)) = self.order.first().copied() else {
            return;
        };
        if let Some(open) = self.remove(age) {
            self.let_go += 1;
            ready.push(open.request);
        }
    }

    fn queue(&mut self, event: &BlockEvent) {
        let mut request = request_of(event);
        request.queued_ns = Some(event.time_ns);
        self.add(Stage::Queued, request);
    }

    fn split(&mut self, event: &BlockEvent, at: u64) {
        let parts = self.take(
            Stage::Queued,
            event.device,
            event.sector,
            event.sector.saturating_add(1),
            event.operation,
        );
        for part in parts {
            self.put_back_around(part, at, at);
        }
    }

    fn insert(&mut self, event: &BlockEvent) {
        let mut request = self.gathered(event, &[Stage::Queued]);
        request.inserted_ns = request.inserted_ns.or(Some(event.time_ns));
        self.add(Stage::Inserted, request);
    }

    fn issue(&mut self, event: &BlockEvent) {
        let mut request = self.gathered(event, &[Stage::Inserted, Stage::Queued]);
        request.issued_ns = Some(event.time_ns);
        let device = self.devices.entry(event.device).or_default();
        device.in_flight = device.in_flight.saturating_add(1);
        request.in_flight = Some(device.in_flight);
        self.add(Stage::Issued, request);
    }

    fn requeue(&mut self, event: &BlockEvent) {
        let Some(mut open) = self.take_issued(event) else {
            return;
        };
        // As if it had never been inserted: the next step may be an insert or an issue.
        open.stage = Stage::Queued;
        open.remaining = open.request.bytes;
        self.put(open);
    }

    fn complete(&mut self, event: &BlockEvent, ready: &mut Ready) {
        let device = self.devices.entry(event.device).or_default();
        if event.bytes == 0 && device.flush_echoes > 0 && !self.has_placeless_issued(event.device) {
            if let Some(device) = self.devices.get_mut(&event.device) {
                device.flush_echoes -= 1;
            }
            return;
        }
        let Some(mut open) = self.take_issued(event) else {
            let mut request = self.gathered(event, &[Stage::Inserted, Stage::Queued]);
            request.completed_ns = Some(event.time_ns);
            request.status = event.status;
            ready.push(request);
            return;
        };
        let failed = open.request.status.filter(|status| *status != 0);
        open.request.status = failed.or(event.status);
        open.request.completed_ns = Some(event.time_ns);
        open.remaining = open.remaining.saturating_sub(event.bytes);
        if open.remaining == 0 || event.bytes == 0 {
            ready.push(open.request);
        } else {
            // Until the last part is done, the request counts as in flight.
            if let Some(device) = self.devices.get_mut(&event.device) {
                device.in_flight = device.in_flight.saturating_add(1);
            }
            self.put(open);
        }
    }

    /// Builds the request of an event from all items known at these stages.
    fn gathered(&mut self, event: &BlockEvent, stages: &[Stage]) -> Request {
        let mut request = request_of(event);
        let mut parts = Vec::new();
        if has_place(&request) {
            let (sector, end) = (request.sector, request.end_sector());
            for stage in stages {
                for part in self.take(*stage, event.device, sector, end, request.operation) {
                    parts.push(self.cut(part, sector, end));
                }
            }
        } else {
            parts = self.take_placeless(event, stages);
        }
        parts.sort_by_key(|part| part.request.sector);
        absorb(&mut request, parts);
        request
    }

    fn take_placeless(&mut self, event: &BlockEvent, stages: &[Stage]) -> Vec<Open> {
        let Some(device) = self.devices.get(&event.device) else {
            return Vec::new();
        };
        let fits = |age: &u64| {
            self.open
                .get(age)
                .is_some_and(|open| stages.contains(&open.stage) && open.request.operation == event.operation)
        };
        let is_flush = event.operation == Operation::Flush;
        // One flush of the device serves all waiting flushes; other commands are issued one by one.
        let limit = if is_flush { PLACELESS_MAX } else { 1 };
        let waiting = device.placeless.iter().copied().take(PLACELESS_MAX);
        let ages: Vec<u64> = waiting.filter(fits).take(limit).collect();
        if is_flush
            && event.step == Step::Issue
            && let Some(device) = self.devices.get_mut(&event.device)
        {
            let callers = u64::try_from(ages.len()).unwrap_or(0);
            device.flush_echoes = device.flush_echoes.saturating_add(callers);
        }
        ages.into_iter().filter_map(|age| self.remove(age)).collect()
    }

    fn has_placeless_issued(&self, device: DeviceNumber) -> bool {
        self.devices.get(&device).is_some_and(|device| {
            device
                .placeless
                .iter()
                .take(PLACELESS_MAX)
                .any(|age| self.open.get(age).is_some_and(|open| open.stage == Stage::Issued))
        })
    }

    /// Removes the issued request that a completion or requeue refers to.
    fn take_issued(&mut self, event: &BlockEvent) -> Option<Open> {
        let mut found = if event.bytes == 0 {
            None
        } else {
            let places = &self.devices.get(&event.device)?.issued;
            let below = places.range(..=(event.sector, u64::MAX)).rev().take(NEIGHBOURS);
            below
                .map(|(_, age)| *age)
                .filter(|age| {
                    self.open.get(age).is_some_and(|open| {
                        open.request.end_sector() > event.sector && open.request.operation == event.operation
                    })
                })
                .min()
        };
        if event.bytes == 0 {
            let device = self.devices.get(&event.device)?;
            found = device.placeless.iter().copied().take(PLACELESS_MAX).find(|age| {
                self.open.get(age).is_some_and(|open| {
                    open.stage == Stage::Issued && open.request.operation == event.operation
                })
            });
        }
        let open = self.remove(found?)?;
        if let Some(device) = self.devices.get_mut(&event.device) {
            device.in_flight = device.in_flight.saturating_sub(1);
        }
        Some(open)
    }

    /// Removes the items that wait at these sectors. If there are several at the same sectors, only the oldest is removed.
    fn take(
        &mut self,
        stage: Stage,
        device: DeviceNumber,
        sector: u64,
        end: u64,
        operation: Operation,
    ) -> Vec<Open> {
        let Some(places) = self.devices.get_mut(&device).map(|device| &*device.places(stage)) else {
            return Vec::new();
        };
        let below = places.range(..(sector, 0)).rev().take(NEIGHBOURS);
        let mut ages: Vec<u64> = below
            .chain(places.range((sector, 0)..(end, 0)))
            .map(|(_, age)| *age)
            .filter(|age| {
                self.open.get(age).is_some_and(|open| {
                    open.request.operation == operation && open.request.end_sector() > sector
                })
            })
            .collect();
        ages.sort_unstable();
        let mut taken: Vec<Open> = Vec::with_capacity(ages.len());
        let mut covered: BTreeSet<(u64, u64)> = BTreeSet::new();
        for age in ages {
            let Some(open) = self.open.get(&age) else {
                continue;
            };
            let (start, stop) = (open.request.sector, open.request.end_sector());
            let before = covered.range(..(stop, 0)).next_back();
            if before.is_some_and(|(_, other_stop)| *other_stop > start) {
                continue;
            }
            covered.insert((start, stop));
            taken.extend(self.remove(age));
        }
        taken
    }

    /// Cuts an item to the part between two sectors; the rest stays where it was.
    fn cut(&mut self, mut open: Open, sector: u64, end: u64) -> Open {
        if open.request.sector >= sector && open.request.end_sector() <= end {
            return open;
        }
        for (start, stop) in [
            (open.request.sector, sector.min(open.request.end_sector())),
            (end.max(open.request.sector), open.request.end_sector()),
        ] {
            if start < stop {
                let mut rest = open.request.clone();
                clip(&mut rest, start, stop);
                self.add(open.stage, rest);
            }
        }
        clip(&mut open.request, sector, end);
        open
    }

    fn put_back_around(&mut self, open: Open, sector: u64, end: u64) {
        let stage = open.stage;
        let rest = self.cut(open, sector, end);
        if rest.request.bytes > 0 {
            self.add(stage, rest.request);
        }
    }

    fn add(&mut self, stage: Stage, request: Request) {
        let remaining = request.bytes;
        self.put(Open {
            stage,
            request,
            remaining,
        });
    }

    fn put(&mut self, open: Open) {
        let age = self.next_age;
        self.next_age += 1;
        let device = self.devices.entry(open.request.device).or_default();
        if has_place(&open.request) {
            device.places(open.stage).insert((open.request.sector, age));
        } else {
            device.placeless.insert(age);
        }
        self.order.insert((open.request.first_ns().unwrap_or(0), age));
        self.open.insert(age, open);
    }

    fn remove(&mut self, age: u64) -> Option<Open> {
        let open = self.open.remove(&age)?;
        self.order.remove(&(open.request.first_ns().unwrap_or(0), age));
        if let Some(device) = self.devices.get_mut(&open.request.device) {
            if has_place(&open.request) {
                device.places(open.stage).remove(&(open.request.sector, age));
            } else {
                device.placeless.remove(&age);
            }
        }
        Some(open)
    }
}

const fn has_place(request: &Request) -> bool {
    request.bytes > 0
}

/// A request of which only this event is known.
fn request_of(event: &BlockEvent) -> Request {
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
        flags: event.flags,
        priority: event.priority,
        submitter,
        runs: if has_place { vec![run] } else { Vec::new() },
        ..Request::at(event.device, event.operation, sector, event.bytes)
    }
}

/// Merges the information of the parts into the whole. Parts are in the order of their sectors.
fn absorb(request: &mut Request, parts: Vec<Open>) {
    if parts.is_empty() {
        return;
    }
    let earlier = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    let whole = request.runs.pop();
    let mut runs: Vec<Run> = Vec::with_capacity(parts.len());
    let mut submitter: Option<(u64, _)> = None;
    for part in parts {
        let part = part.request;
        request.queued_ns = earlier(request.queued_ns, part.queued_ns);
        request.inserted_ns = earlier(request.inserted_ns, part.inserted_ns);
        request.flags = request.flags.with(part.flags);
        request.priority = request.priority.or(part.priority);
        if let Some(process) = part.submitter {
            let first = part.queued_ns.or(part.inserted_ns).unwrap_or(u64::MAX);
            if submitter.as_ref().is_none_or(|(earliest, _)| first < *earliest) {
                submitter = Some((first, process));
            }
        }
        runs.extend(part.runs);
    }
    if let Some((_, process)) = submitter {
        request.submitter = Some(process);
    }
    if let Some(whole) = whole {
        request.runs = covering(&whole, runs);
    }
}

/// Combines runs so that they cover `whole` exactly once: gaps get unknown owners, overlaps are cut.
fn covering(whole: &Run, mut parts: Vec<Run>) -> Vec<Run> {
    parts.sort_by_key(|run| run.sector);
    let whole_end = end_of(whole);
    let mut place = whole.sector;
    let mut runs: Vec<Run> = Vec::with_capacity(parts.len());
    for mut part in parts {
        let end = end_of(&part).min(whole_end);
        if end <= place {
            continue;
        }
        if part.sector > place {
            push_run(&mut runs, piece(whole, place, part.sector));
        }
        let start = part.sector.max(place);
        part.bytes = (end - start) * SECTOR_BYTES;
        part.sector = start;
        push_run(&mut runs, part);
        place = end;
    }
    if place < whole_end {
        push_run(&mut runs, piece(whole, place, whole_end));
    }
    // The last sector may be used only in part.
    let total: u64 = runs.iter().map(|run| run.bytes).sum();
    if let Some(last) = runs.last_mut() {
        last.bytes = last.bytes.saturating_sub(total.saturating_sub(whole.bytes));
    }
    runs
}

/// Adds a run, or extends the last one if both have the same owner.
fn push_run(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut() {
        let same = Run {
            sector: last.sector,
            bytes: last.bytes,
            ..run.clone()
        } == *last;
        if same && end_of(last) == run.sector {
            last.bytes += run.bytes;
            return;
        }
    }
    runs.push(run);
}

fn piece(whole: &Run, sector: u64, end: u64) -> Run {
    Run {
        sector,
        bytes: (end - sector) * SECTOR_BYTES,
        ..whole.clone()
    }
}

const fn end_of(run: &Run) -> u64 {
    run.sector.saturating_add(run.bytes.div_ceil(SECTOR_BYTES))
}

/// Cuts a request to the part between two sectors.
fn clip(request: &mut Request, sector: u64, end: u64) {
    let start = request.sector.max(sector);
    let stop = request.end_sector().min(end);
    let bytes = stop.saturating_sub(start) * SECTOR_BYTES;
    request.runs.retain_mut(|run| {
        let (run_start, run_stop) = (run.sector.max(start), end_of(run).min(stop));
        run.bytes = run_stop.saturating_sub(run_start) * SECTOR_BYTES;
        run.sector = run_start;
        run.bytes > 0
    });
    request.sector = start;
    request.bytes = bytes;
}
