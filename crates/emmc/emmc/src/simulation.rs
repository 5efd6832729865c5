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

mod driver;
mod online;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use media::Nanos;
use results::block_trace::Operation;

use crate::block::{Bio, QueueRules, RequestId, RequestQueue, Submitted};
use crate::card::CardFile;
use crate::command_log::CommandLog;
use crate::device::{Card, Durability, Extent};
use crate::error::CardError;
use crate::host::HostFile;
use crate::outcome::{DriverCounters, KindOutcome, Outcome, between};
use crate::packing::{Gathered, PackRules};
use crate::translation::{HowSoon, Placement};
use crate::workload::{Actor, Ground, Step, View};

pub use online::{Happening, Next, Online, Ticket};

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
    /// What happens to requests, for who feeds the run from outside.
    happenings: Option<Vec<Happening>>,
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
            happenings: None,
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
        (self.outcome(start), self.log)
    }

    fn outcome(&self, start: Nanos) -> Outcome {
        let erases = self.card.erase_counts();
        Outcome {
            elapsed_ns: between(start, self.now),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            driver: self.driver.clone(),
            translation: self.card.translation(),
            nand: self.card.nand(),
            bank_busy_ns: self.card.busy_ns().to_vec(),
            erases: (
                erases.iter().min().copied().unwrap_or_default(),
                erases.iter().max().copied().unwrap_or_default(),
            ),
        }
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
                    Submitted::Taken => {
                        self.tasks[place].outstanding += 1;
                        if bio.operation == Operation::Write {
                            self.card.expect(bio.sector, HowSoon::Later);
                        }
                    }
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
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// On.
    Yes,
    /// No further.
    No,
}

#[cfg(test)]
mod tests;
