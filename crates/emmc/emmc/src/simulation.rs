//! A simulation run: tasks, the request queue, the driver and the card, advanced by events in virtual time.
//!
//! The driver is that of Linux 3.0 to 4.9 (two slots: one request or pack in progress, the next one prepared):
//! - it sleeps when both slots are empty; only then do requests wake it;
//! - it fetches requests, gathers a pack and prepares it while the previous one is in progress, so later requests
//!   cannot join;
//! - when it sees that the previous one is finished, it starts the next one, and completes the former's requests
//!   after that;
//! - flushes and discards wait until nothing is in progress.
//!
//! With a command queue (eMMC 5.1) the card has up to 32 tasks, works on all of them, and executes them in the order in
//! which they become ready (module `task_queue`).
//!
//! Invariant: events with the same time happen in the order in which they were scheduled, so a run is deterministic.

mod driver;
mod online;
mod task_queue;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use media::Nanos;
use results::block_trace::Operation;

use crate::block::{Bio, QueueRules, RequestId, RequestQueue, Submitted};
use crate::card::CardFile;
use crate::command_log::{CommandLog, Features};
use crate::device::{Card, CardCounters, Durability, Extent};
use crate::error::CardError;
use crate::host::HostFile;
use crate::invariants::{self, AtEnd};
use crate::outcome::{DriverCounters, KindOutcome, Outcome, between};
use crate::packing::{Gathered, PackRules};
use crate::translation::{Placement, Urgency};
use crate::workload::{Actor, Random, Step, TaskKind, View};

use self::task_queue::TaskQueue;

pub use online::{Happening, Next, Online, Ticket};

/// How commands go to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverMode {
    /// One at a time, packed according to the rules.
    Packed(PackRules),
    /// At most this number of tasks in the card's command queue (eMMC 5.1: 32).
    CommandQueue(u32),
}

/// Card command for discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardMode {
    /// TRIM: the range reads as zero from the response on.
    Trim,
    /// DISCARD: the card may drop the data at any time.
    Discard,
}

/// Configuration of a run, except for its workload.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The card.
    pub card: CardFile,
    /// The host.
    pub host: HostFile,
    /// The request queue.
    pub queue: QueueRules,
    /// The driver.
    pub driver: DriverMode,
    /// The command for discards.
    pub discard: DiscardMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The driver's thread fetches requests.
    Fetch,
    /// The gathered command can start.
    Start,
    /// The command in progress ends, and no other is prepared.
    Finish,
    /// A flush or discard can start.
    Synchronous,
    /// The flush or discard ends.
    SynchronousEnd,
    /// The scheduler's timer has passed.
    Timer,
    /// The driver has prepared a task for the card's command queue.
    Prepared(RequestId),
    /// The card is ready for the data of a task.
    TaskReady(RequestId),
    /// The data lines are free for the next task.
    BusFree,
    /// The driver sees the end of a task.
    TaskDone(RequestId),
    /// The driver sees the end of a flush sent as a direct command.
    BarrierDone(RequestId),
    /// A task continues.
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
    kind: TaskKind,
    wait: Wait,
    pending: Option<Bio>,
    outstanding: u32,
    done_bytes: u64,
}

/// The command in progress.
#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    done: Nanos,
}

/// A run that ends when its foreground tasks are done.
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
    tasks_in_card: TaskQueue,
    /// The card's features that show in the arguments of commands.
    features: Features,
    /// End of the time that the driver's counters contain as busy.
    busy_until: Nanos,
    driver: DriverCounters,
    reads: KindOutcome,
    writes: KindOutcome,
    log: Option<CommandLog>,
    extents: Vec<Extent>,
    foreground: usize,
    requests_done: u64,
    /// Counters of the card at the start of the run.
    before: CardCounters,
    /// Events of requests, recorded for a caller that feeds the run from outside.
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
    /// If the card cannot be built.
    pub fn new(setup: &Setup, actors: Vec<Box<dyn Actor>>) -> Result<Self, CardError> {
        let mut card = Card::new(&setup.card, setup.host.sector_ps())?;
        if matches!(setup.driver, DriverMode::CommandQueue(_)) {
            card.enable_queue();
        }
        let queue = RequestQueue::new(setup.queue, actors.len());
        let tasks: Vec<Task> = actors
            .into_iter()
            .map(|actor| Task {
                kind: actor.kind(),
                actor,
                wait: Wait::Ready,
                pending: None,
                outstanding: 0,
                done_bytes: 0,
            })
            .collect();
        let foreground = tasks
            .iter()
            .filter(|task| task.kind == TaskKind::Foreground)
            .count();
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
            tasks_in_card: TaskQueue::default(),
            features: Features {
                data_tag: setup.card.controller.data_tag,
                contexts: setup.card.controller.contexts,
            },
            busy_until: Nanos::ZERO,
            driver: DriverCounters::default(),
            reads: KindOutcome::default(),
            writes: KindOutcome::default(),
            log: None,
            extents: Vec::new(),
            foreground,
            requests_done: 0,
            before: CardCounters::default(),
            happenings: None,
        };
        for actor in 0..simulation.tasks.len() {
            let actor = u16::try_from(actor).expect("at most 65,536 tasks");
            simulation.plan(Nanos::ZERO, Event::Actor(actor));
        }
        Ok(simulation)
    }

    /// Logs all commands sent to the card.
    #[must_use]
    pub fn with_log(mut self, log: CommandLog) -> Self {
        self.log = Some(log);
        self
    }

    /// Writes `sectors` sectors from `sector` on before the run, without using any of its time or counting in its
    /// results, to simulate a used card.
    #[must_use]
    pub fn with_written(mut self, sector: u64, sectors: u64) -> Self {
        let mut at = sector;
        while at < sector + sectors {
            let piece = (sector + sectors - at).min(8192);
            let extent = Extent {
                sector: at,
                sectors: u32::try_from(piece).unwrap_or(u32::MAX),
                placement: Placement::Default,
            };
            let start = self.card.idle_at();
            self.card.write(start, 0, &[extent], Durability::Cached);
            at += piece;
        }
        self.begin_here()
    }

    /// Overwrites `count` units of 8 sectors at random before the run, like [`Self::with_written`]: the card has garbage
    /// in all its blocks then.
    #[must_use]
    pub fn with_overwritten(mut self, count: u64, seed: u64) -> Self {
        let mut random = Random::named(seed, "overwritten");
        let places = self.card.sectors() / 8;
        for _ in 0..count {
            let extent = Extent {
                sector: random.below(places) * 8,
                sectors: 8,
                placement: Placement::Default,
            };
            let start = self.card.idle_at();
            self.card.write(start, 0, &[extent], Durability::Cached);
        }
        self.begin_here()
    }

    /// The card, to be used before the run of another simulation with the same setup ([`Self::with_card`]).
    #[must_use]
    pub fn into_card(self) -> Card {
        self.card
    }

    /// Replaces the card by one of the same setup, in the state in which it is.
    #[must_use]
    pub fn with_card(mut self, card: Card) -> Self {
        self.card = card;
        self.begin_here()
    }

    /// Begins the run with the card idle, nothing in its RAM, and its clock at zero.
    fn begin_here(mut self) -> Self {
        self.card.flush(self.card.idle_at());
        self.card.restart_clock();
        self.before = self.card.counters();
        self
    }

    /// Runs until every foreground task is done. Calls `step` periodically with the number of completed requests; it
    /// decides whether to continue.
    ///
    /// # Panics
    /// If the counters of the run contradict each other, which is a defect of the model.
    pub fn run(mut self, mut step: impl FnMut(u64) -> ControlFlow<()>) -> (Outcome, Option<CommandLog>) {
        let mut events = 0_u64;
        while self.foreground > 0 {
            let Some(Reverse((time, _, event))) = self.events.pop() else {
                break;
            };
            self.now = self.now.max(time);
            self.handle(event);
            events += 1;
            if events.is_multiple_of(65_536) && step(self.requests_done).is_break() {
                break;
            }
        }
        let outcome = self.outcome();
        if let Err(broken) = self.check(&outcome) {
            panic!("an invariant of the model is broken: {broken}");
        }
        (outcome, self.log)
    }

    /// Checks the invariants of the counters.
    fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let (timing, power) = self.card.rates();
        let at_end = AtEnd {
            pending_units: (self.before.pending_units, self.card.counters().pending_units),
            page_units: self.card.page_units(),
            depth: u64::from(self.queue.in_driver()),
            timing,
            power,
            sector_ps: self.setup.host.sector_ps(),
        };
        invariants::check(outcome, &at_end)
    }

    fn outcome(&self) -> Outcome {
        let erases = self.card.erase_counts();
        let (card, before) = (self.card.counters(), &self.before);
        let earlier = before.bank_busy_ns.iter().chain(std::iter::repeat(&0));
        let mut driver = self.driver.clone();
        // A command of a background task may be in progress at the end.
        driver.busy_ns = driver.busy_ns.saturating_sub(between(self.now, self.busy_until));
        let nand = card.nand.since(&before.nand);
        let card_ns = self.now.max(self.card.idle_at()).0;
        let banks = u64::try_from(card.bank_busy_ns.len()).unwrap_or(u64::MAX);
        let idle_ns = (u128::from(card_ns) * u128::from(banks)).saturating_sub(u128::from(nand.busy_ns()));
        let standby_pj = idle_ns * u128::from(self.card.rates().1.standby_uw) / 1000;
        Outcome {
            elapsed_ns: self.now.0,
            card_ns,
            energy_pj: self.setup.card.power.map(|_| nand.energy_pj + standby_pj),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            driver,
            translation: card.translation.since(&before.translation),
            nand,
            bank_busy_ns: card
                .bank_busy_ns
                .iter()
                .zip(earlier)
                .map(|(busy, earlier)| busy - earlier)
                .collect(),
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
            Event::Timer => self.timer_passed(),
            Event::Prepared(id) => {
                if let DriverMode::CommandQueue(depth) = self.setup.driver {
                    self.task_prepared(id, depth);
                }
            }
            Event::TaskReady(id) => self.task_ready(id),
            Event::BusFree => self.bus_is_free(),
            Event::TaskDone(id) => self.task_done(id),
            Event::BarrierDone(id) => self.barrier_done(id),
            Event::Actor(actor) => {
                if matches!(self.tasks[usize::from(actor)].wait, Wait::Asleep | Wait::Ready) {
                    self.pump(actor);
                }
            }
        }
    }

    /// Runs a task until it waits.
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
                            self.card.prefetch(bio.sector, Urgency::Later);
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
                    self.foreground -= usize::from(task.kind == TaskKind::Foreground);
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

#[cfg(test)]
mod tests;
