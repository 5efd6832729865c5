//! A run: tasks, the request queue, the driver and the card, moved on by events in virtual time.
//!
//! The driver is that of Linux 3.0 to 4.9 (two slots: one request or pack under way, the next one prepared):
//! - it sleeps when both slots are empty; requests wake it only then;
//! - it fetches, gathers a pack and prepares it while the one before is under way, so that later requests cannot join;
//! - when the one before is seen to be ready, it starts the next one, and completes the former's requests after that;
//! - flushes and discards wait until nothing is under way.
//!
//! With a command queue (eMMC 5.1) up to 32 requests are given to the card; their data goes over the bus one after the
//! other while earlier ones are programmed, and each completes on its own.
//!
//! Invariant: events of one moment happen in the order in which they were planned, so that a run has one outcome.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use crate::block::{Bio, QueueRules, Request, RequestId, RequestQueue, Submitted};
use crate::card::CardFile;
use crate::command_log::{CommandLog, Sent};
use crate::device::{Card, Durability, Extent};
use crate::error::CardError;
use crate::host::HostFile;
use crate::outcome::{DriverCounters, KindOutcome, Outcome, between};
use crate::packing::{Gathered, PackRules, gather, is_reliable};
use crate::translation::{Forget, Placement};
use crate::workload::{Actor, Ground, Step, View};

/// How commands go to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverMode {
    /// One at a time, packed as the rules say.
    Packed(PackRules),
    /// Up to so many in the card's queue (eMMC 5.1: 32).
    CommandQueue(u32),
}

/// What the host makes of discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardMode {
    /// TRIM: reads zero from the answer on.
    Trim,
    /// DISCARD: when the card likes.
    Discard,
}

/// Everything around a load.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The card.
    pub card: CardFile,
    /// The host.
    pub host: HostFile,
    /// The queue.
    pub queue: QueueRules,
    /// The driver.
    pub driver: DriverMode,
    /// Discards.
    pub discard: DiscardMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The driver's thread looks for work.
    Fetch,
    /// What was gathered can start.
    Start,
    /// The command under way is done, and nothing is to follow it.
    Finish,
    /// A flush or discard can start.
    Synchronous,
    /// It is done.
    SynchronousEnd,
    /// A request in the card's queue is done.
    Queued(RequestId),
    /// A task goes on.
    Actor(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Ready,
    Asleep,
    Below(u32),
    Room,
    Done,
}

struct Task {
    actor: Box<dyn Actor>,
    ground: Ground,
    wait: Wait,
    pending: Option<Bio>,
    outstanding: u32,
    done_bytes: u64,
}

/// A command under way.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    done: Nanos,
}

/// A run that goes on until its tasks are done.
pub struct Simulation {
    now: Nanos,
    setup: Setup,
    card: Card,
    queue: RequestQueue,
    tasks: Vec<Task>,
    blocked: VecDeque<u16>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    planned: u64,
    /// The driver's thread sleeps.
    idle: bool,
    timer: Option<Nanos>,
    gathered: Gathered,
    running: Vec<RequestId>,
    under_way: Option<UnderWay>,
    synchronous: Option<RequestId>,
    bus_free: Nanos,
    driver: DriverCounters,
    reads: KindOutcome,
    writes: KindOutcome,
    log: Option<CommandLog>,
    extents: Vec<Extent>,
    foreground: usize,
    requests_done: u64,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Simulation")
            .field("now", &self.now)
            .field("requests_done", &self.requests_done)
            .finish_non_exhaustive()
    }
}

impl Simulation {
    /// A run of `actors` (at most 65,536).
    ///
    /// # Errors
    /// When the card cannot be built.
    pub fn new(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> Result<Self, CardError> {
        let card = Card::new(&setup.card, setup.host.sector_ps())?;
        let queue = RequestQueue::new(setup.queue, actors.len());
        let tasks: Vec<Task> = actors
            .into_iter()
            .map(|actor| Task {
                ground: actor.ground(),
                actor,
                wait: Wait::Ready,
                pending: None,
                outstanding: 0,
                done_bytes: 0,
            })
            .collect();
        let foreground = tasks.iter().filter(|task| task.ground == Ground::Fore).count();
        let mut simulation = Self {
            now: Nanos::ZERO,
            setup: setup.clone(),
            card,
            queue,
            tasks,
            blocked: VecDeque::new(),
            events: BinaryHeap::new(),
            planned: 0,
            idle: true,
            timer: None,
            gathered: Gathered::default(),
            running: Vec::new(),
            under_way: None,
            synchronous: None,
            bus_free: Nanos::ZERO,
            driver: DriverCounters::default(),
            reads: KindOutcome::default(),
            writes: KindOutcome::default(),
            log: None,
            extents: Vec::new(),
            foreground,
            requests_done: 0,
        };
        for actor in 0..simulation.tasks.len() {
            let actor = u16::try_from(actor).expect("at most 65,536 tasks");
            simulation.plan(Nanos::ZERO, Event::Actor(actor));
        }
        Ok(simulation)
    }

    /// Keeps a log of what is sent to the card.
    #[must_use]
    pub fn with_log(mut self, log: CommandLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Writes `sectors` sectors from `sector` on before the run, at no cost of the run's time: a card that is not new.
    #[must_use]
    pub fn with_written(mut self, sector: u64, sectors: u64) -> Self {
        let mut at = sector;
        while at < sector + sectors {
            let piece = (sector + sectors - at).min(8192);
            let extent = Extent {
                sector: at,
                sectors: u32::try_from(piece).unwrap_or(u32::MAX),
                placement: Placement::Common,
            };
            let start = self.card.idle_at();
            self.card.write(start, 0, &[extent], Durability::Usual);
            at += piece;
        }
        // Time goes on where the card is idle.
        let start = self.card.idle_at();
        self.shift(start);
        self
    }

    fn shift(&mut self, start: Nanos) {
        self.now = start;
        self.events = std::mem::take(&mut self.events)
            .into_iter()
            .map(|Reverse((time, order, event))| Reverse((time.max(start), order, event)))
            .collect();
    }

    /// Runs until every foreground task is done. `step` is told the number of requests done now and then, and answers
    /// whether to go on.
    pub fn run(mut self, mut step: impl FnMut(u64) -> Continue) -> (Outcome, Option<CommandLog>) {
        let start = self.now;
        let mut events = 0_u64;
        while self.foreground > 0 {
            let Some(Reverse((time, _, event))) = self.events.pop() else {
                break;
            };
            self.now = self.now.max(time);
            self.handle(event);
            events += 1;
            if events.is_multiple_of(65_536) && step(self.requests_done) == Continue::No {
                break;
            }
        }
        let erases = self.card.erase_counts();
        let outcome = Outcome {
            elapsed_ns: between(start, self.now),
            reads: self.reads,
            writes: self.writes,
            driver: self.driver,
            translation: self.card.translation(),
            nand: self.card.nand(),
            bank_busy_ns: self.card.busy_ns().to_vec(),
            erases: (
                erases.iter().min().copied().unwrap_or_default(),
                erases.iter().max().copied().unwrap_or_default(),
            ),
        };
        (outcome, self.log)
    }

    fn plan(&mut self, time: Nanos, event: Event) {
        self.planned += 1;
        self.events.push(Reverse((time, self.planned, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Fetch => self.fetch(),
            Event::Start => self.start(),
            Event::Finish => {
                self.complete_running();
                self.fetch();
            }
            Event::Synchronous => self.start_synchronous(),
            Event::SynchronousEnd => self.end_synchronous(),
            Event::Queued(id) => {
                self.complete(id, self.now);
                self.wake_blocked();
                if self.idle {
                    self.idle = false;
                    self.fetch();
                }
            }
            Event::Actor(actor) => {
                if matches!(self.tasks[usize::from(actor)].wait, Wait::Asleep | Wait::Ready) {
                    self.pump(actor);
                }
            }
        }
    }

    /// Lets a task go on until it waits.
    fn pump(&mut self, actor: u16) {
        let place = usize::from(actor);
        loop {
            let task = &mut self.tasks[place];
            task.wait = Wait::Ready;
            if let Some(bio) = task.pending.take() {
                match self.queue.submit(actor, &bio, self.now) {
                    Submitted::Taken => self.tasks[place].outstanding += 1,
                    Submitted::Full => {
                        self.tasks[place].pending = Some(bio);
                        self.tasks[place].wait = Wait::Room;
                        self.blocked.push_back(actor);
                        break;
                    }
                }
                continue;
            }
            let view = View {
                now: self.now,
                outstanding: task.outstanding,
                done_bytes: task.done_bytes,
            };
            match task.actor.step(&view) {
                Step::Submit(bio) => task.pending = Some(bio),
                Step::SleepUntil(time) if time <= self.now => {}
                Step::SleepUntil(time) => {
                    task.wait = Wait::Asleep;
                    self.plan(time, Event::Actor(actor));
                    break;
                }
                Step::WaitBelow(count) if task.outstanding <= count => {
                    self.unplug(actor);
                }
                Step::WaitBelow(count) => {
                    task.wait = Wait::Below(count);
                    break;
                }
                Step::Done => {
                    task.wait = Wait::Done;
                    self.foreground -= usize::from(task.ground == Ground::Fore);
                    break;
                }
            }
        }
        self.unplug(actor);
    }

    fn unplug(&mut self, actor: u16) {
        self.queue.unplug(actor, self.now);
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        if self.idle && self.queue.has_work() {
            self.idle = false;
            let at = self.now + Nanos(u64::from(self.setup.host.wake_ns));
            self.plan(at, Event::Fetch);
        }
    }

    fn fetch(&mut self) {
        self.idle = false;
        let Some(id) = self.queue.dispatch(self.now) else {
            return self.nothing_to_fetch();
        };
        if !matches!(self.queue.get(id).operation, Operation::Read | Operation::Write) {
            self.synchronous = Some(id);
            let at = self.drained_at();
            return self.plan(at, Event::Synchronous);
        }
        match self.setup.driver {
            DriverMode::CommandQueue(depth) => self.queue_task(id, depth),
            DriverMode::Packed(rules) => {
                let mut gathered = std::mem::take(&mut self.gathered);
                gather(
                    &mut self.queue,
                    &rules,
                    &self.setup.host,
                    id,
                    self.now,
                    &mut gathered,
                );
                if let Some(stop) = gathered.stop {
                    self.driver.attempt(stop, gathered.requests.len());
                }
                let count = u64::try_from(gathered.requests.len()).unwrap_or(u64::MAX);
                let host = &self.setup.host;
                let work = u64::from(host.fetch_ns) * (1 + u64::from(gathered.fetched))
                    + u64::from(host.prepare_ns) * count;
                self.gathered = gathered;
                let ready = self.now + Nanos(work);
                let at = self.under_way.map_or(ready, |before| before.done.max(ready));
                self.plan(at, Event::Start);
            }
        }
    }

    fn nothing_to_fetch(&mut self) {
        if let Some(under_way) = self.under_way {
            let at = under_way.done.max(self.now);
            return self.plan(at, Event::Finish);
        }
        self.idle = true;
        if let Some(at) = self.queue.wake_at()
            && self.timer != Some(at)
            && self.queue.has_work()
        {
            self.timer = Some(at);
            self.idle = false;
            self.plan(at.max(self.now), Event::Fetch);
        }
    }

    fn drained_at(&self) -> Nanos {
        let queued = match self.setup.driver {
            // Everything in the card's queue has to end; its own events come first.
            DriverMode::CommandQueue(_) => self.bus_free.max(self.card.idle_at()) + Nanos::from_micros(100),
            DriverMode::Packed(_) => Nanos::ZERO,
        };
        let under_way = self.under_way.map_or(self.now, |before| before.done);
        self.now.max(under_way).max(queued)
    }

    /// Starts what was gathered, and completes what was under way.
    fn start(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        let sent = self.send(&gathered.requests, self.now);
        if let Some(stop) = gathered.stop
            && stop.is_full()
            && gathered.requests.len() > 1
        {
            let bytes = gathered
                .requests
                .iter()
                .map(|id| self.queue.get(*id).sectors * 512);
            self.driver.full_pack_bytes += bytes.sum::<u64>();
            self.driver.full_pack_ns += between(self.now, sent.done);
        }
        self.driver.busy_ns += between(self.now, sent.done);
        let completed = std::mem::replace(&mut self.running, gathered.requests);
        self.under_way = Some(UnderWay { done: sent.done });
        let after = self.complete_all(&completed, sent.data_start);
        self.gathered.requests = completed;
        self.plan(after, Event::Fetch);
    }

    /// Sends one request or a pack at `at`.
    fn send(&mut self, requests: &[RequestId], at: Nanos) -> Sent {
        let host = &self.setup.host;
        let first = self.queue.get(requests[0]);
        let (operation, first_sectors) = (first.operation, first.sectors);
        let is_pack = requests.len() > 1;
        let mut durability = Durability::Usual;
        self.extents.clear();
        for id in requests {
            let request = self.queue.get(*id);
            self.extents.push(extent(request));
            if is_reliable(request) {
                durability = Durability::Programmed;
            }
        }
        let with_cmd23 = is_pack || first_sectors > 1 || durability == Durability::Programmed;
        let mut data_start = at + Nanos(u64::from(host.command_ns));
        if with_cmd23 {
            data_start += host.cmd23();
        }
        let header = u32::from(is_pack);
        let done = if operation == Operation::Read {
            let end = self.card.read(data_start, header, &self.extents);
            end + Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns))
        } else {
            let times = self.card.write(data_start, header, &self.extents, durability);
            host.seen_ready(times.data_end, times.ready)
        };
        let sent = Sent {
            at,
            data_start,
            done,
            interrupts: host.interrupts(with_cmd23),
            with_cmd23,
            requests: u16::try_from(requests.len()).unwrap_or(u16::MAX),
        };
        self.count_command(requests, &sent);
        sent
    }

    fn count_command(&mut self, requests: &[RequestId], sent: &Sent) {
        self.driver.commands += 1;
        self.driver.interrupts += u64::from(sent.interrupts);
        for (place, id) in (0_u16..).zip(requests) {
            let request = self.queue.get(*id);
            let bytes = request.sectors * 512;
            if request.operation == Operation::Write {
                self.driver.write_requests += 1;
                self.driver.write_bytes += bytes;
                if requests.len() > 1 {
                    self.driver.packed_write_requests += 1;
                    self.driver.packed_write_bytes += bytes;
                }
            }
            if let Some(log) = &mut self.log {
                log.add(request, sent, place, self.queue.in_driver());
            }
        }
    }

    fn complete_running(&mut self) {
        let completed = std::mem::take(&mut self.running);
        self.under_way = None;
        let now = self.now;
        self.now = self.complete_all(&completed, now);
        self.gathered.requests = completed;
    }

    /// Completes requests one after the other from `from` on. Returns when the last one is.
    fn complete_all(&mut self, requests: &[RequestId], from: Nanos) -> Nanos {
        let mut at = from;
        for id in requests {
            at += Nanos(u64::from(self.setup.host.complete_ns));
            self.complete(*id, at);
        }
        self.wake_blocked();
        at
    }

    fn complete(&mut self, id: RequestId, at: Nanos) {
        let request = self.queue.complete(id, at);
        self.requests_done += 1;
        let bytes = request.sectors * 512;
        let kind = match request.operation {
            Operation::Read => Some(&mut self.reads),
            Operation::Write => Some(&mut self.writes),
            _ => None,
        };
        if let Some(kind) = kind {
            kind.requests += 1;
            kind.bytes += bytes;
            kind.latency.record(between(request.queued, at));
        }
        let task = &mut self.tasks[usize::from(request.actor)];
        task.outstanding -= request.bios;
        task.done_bytes += bytes;
        if let Wait::Below(count) = task.wait
            && task.outstanding <= count
        {
            task.wait = Wait::Asleep;
            self.plan(at, Event::Actor(request.actor));
        }
    }

    fn wake_blocked(&mut self) {
        if !self.blocked.is_empty() && self.queue.has_room() {
            while let Some(actor) = self.blocked.pop_front() {
                self.tasks[usize::from(actor)].wait = Wait::Asleep;
                self.plan(self.now, Event::Actor(actor));
            }
        }
    }

    fn start_synchronous(&mut self) {
        if self.under_way.is_some() {
            self.complete_running();
        }
        let Some(id) = self.synchronous else {
            return;
        };
        let request = self.queue.get(id);
        let host = &self.setup.host;
        let step = Nanos(u64::from(host.command_ns) + u64::from(host.interrupt_ns) + u64::from(host.wake_ns));
        let (commands, ready) = if request.operation == Operation::Flush {
            self.driver.flushes += 1;
            (1, self.card.flush(self.now + step))
        } else {
            self.driver.discards += 1;
            let how = match self.setup.discard {
                DiscardMode::Trim => Forget::Durably,
                DiscardMode::Discard => Forget::Lazily,
            };
            let start = self.now + step.times(3);
            (3, self.card.forget(start, request.sector, request.sectors, how))
        };
        let done = host.seen_ready(self.now + step.times(u64::from(commands)), ready);
        let sent = Sent {
            at: self.now,
            data_start: self.now,
            done,
            interrupts: commands + 1,
            with_cmd23: false,
            requests: 1,
        };
        self.driver.interrupts += u64::from(sent.interrupts);
        self.driver.busy_ns += between(self.now, done);
        if let Some(log) = &mut self.log {
            log.add(self.queue.get(id), &sent, 0, self.queue.in_driver());
        }
        self.plan(done, Event::SynchronousEnd);
    }

    fn end_synchronous(&mut self) {
        if let Some(id) = self.synchronous.take() {
            self.complete(id, self.now);
            self.wake_blocked();
        }
        self.fetch();
    }

    /// Gives one request to the card's queue.
    fn queue_task(&mut self, id: RequestId, depth: u32) {
        let host = &self.setup.host;
        // CMD44 and CMD45 queue the task; CMD46 or CMD47 moves its data when the bus is free.
        let queued = self.now + Nanos(u64::from(host.fetch_ns) + 2 * u64::from(host.command_ns));
        let start = queued.max(self.bus_free) + Nanos(u64::from(host.command_ns));
        let request = self.queue.get(id);
        let extent = extent(request);
        let durability = if is_reliable(request) {
            Durability::Programmed
        } else {
            Durability::Usual
        };
        let (data_end, ready) = if request.operation == Operation::Read {
            let end = self.card.read(start, 0, &[extent]);
            (end, end)
        } else {
            let times = self.card.write(start, 0, &[extent], durability);
            (times.data_end, times.ready.max(times.data_end))
        };
        self.bus_free = data_end;
        let host = &self.setup.host;
        let done = ready
            + Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns) + u64::from(host.complete_ns));
        let sent = Sent {
            at: start,
            data_start: start,
            done,
            interrupts: 1,
            with_cmd23: false,
            requests: 1,
        };
        self.driver.busy_ns += between(start, data_end);
        self.count_command(&[id], &sent);
        self.plan(done, Event::Queued(id));
        if self.queue.in_driver() < depth {
            self.plan(queued, Event::Fetch);
        } else {
            self.idle = true;
        }
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// On.
    Yes,
    /// No further.
    No,
}

fn extent(request: &Request) -> Extent {
    let placement = if request.flags.contains(RequestFlags::META) {
        Placement::Tagged
    } else if request.context > 0 {
        Placement::Context(request.context)
    } else {
        Placement::Common
    };
    Extent {
        sector: request.sector,
        sectors: u32::try_from(request.sectors).unwrap_or(u32::MAX),
        placement,
    }
}

#[cfg(test)]
mod tests;
