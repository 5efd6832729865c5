//! The same driver and card, fed with requests from outside as they come: what a live device asks when to answer.
//!
//! Between the device and its kernel there is a block layer already, so that requests are taken as they are: none is merged,
//! and they go to the driver in the order in which they came, those that came nearly at once upwards by sector. It does not wait and reads no clock: [`Online::advance`] is told
//! the time, and tells what happened until then.
//!
//! Invariant: nothing happens before the time that was told, so that a request that comes then still finds everything open.

use std::cmp::Reverse;

use media::Nanos;
use results::block_trace::RequestFlags;

use super::{Event, Setup, Simulation};
use crate::block::{Bio, QueueRules, Request, RequestId, SchedulerKind};
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::Gathered;
use crate::workload::{Actor, Ground, Step, View};

/// A request that was submitted; no other one ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// One command brought these to the card.
    Sent {
        /// The requests.
        tickets: Vec<Ticket>,
        /// Units whose newest data (of all that was sent so far) went into a program, and when that ends. What is not here
        /// is in the card's RAM.
        programmed: Vec<(u32, Nanos)>,
    },
    /// The driver completed a request.
    Done {
        /// The request.
        ticket: Ticket,
        /// When.
        at: Nanos,
    },
}

/// When something happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// When.
    pub at: Nanos,
    /// The request that it ends, if it is one's end.
    pub owner: Option<Ticket>,
}

/// A card and its driver that are fed from outside. Times count from its start.
#[derive(Debug)]
pub struct Online {
    simulation: Simulation,
    /// What the card's time was at the start: filling it took some.
    origin: Nanos,
}

/// Who submits; it never does so by itself.
struct Outside;

impl Actor for Outside {
    fn step(&mut self, _: &View) -> Step {
        Step::SleepUntil(Nanos(u64::MAX))
    }

    fn ground(&self) -> Ground {
        Ground::Fore
    }
}

/// Threads that copy requests of 512 KiB overtake each other by so much.
const OVERTAKING: Nanos = Nanos::from_micros(200);

fn rules() -> QueueRules {
    QueueRules {
        limit: u32::MAX,
        unordered_within: OVERTAKING,
        ..QueueRules::usual(SchedulerKind::None)
    }
}

impl Online {
    /// An erased card with its driver; of `setup` the queue does not count.
    ///
    /// # Errors
    /// When the card cannot be built.
    pub fn new(setup: &Setup) -> Result<Self, CardError> {
        let setup = Setup {
            queue: rules(),
            ..setup.clone()
        };
        let mut simulation = Simulation::new(&setup, vec![Box::new(Outside)])?;
        simulation.events.clear();
        Ok(Self {
            simulation,
            origin: Nanos::ZERO,
        })
    }

    /// Fills a range before the start, at no cost of time. To be called before the first request.
    #[must_use]
    pub fn with_written(self, sector: u64, sectors: u64) -> Self {
        let simulation = self.simulation.with_written(sector, sectors);
        Self {
            origin: simulation.now,
            simulation,
        }
    }

    /// Starts to tell what happens; before that everything is forgotten.
    #[must_use]
    pub fn with_happenings(mut self) -> Self {
        self.simulation.card.keep_record();
        self.simulation.happenings = Some(Vec::new());
        self
    }

    /// Gives a request to the driver at `at`, or later when more is known to have happened already.
    pub fn submit(&mut self, at: Nanos, bio: &Bio) -> Ticket {
        let simulation = &mut self.simulation;
        simulation.now = simulation.now.max(self.origin + at);
        let bio = Bio {
            flags: bio.flags.with(RequestFlags::NOMERGE),
            ..*bio
        };
        let id = simulation
            .queue
            .add(0, &bio, simulation.now)
            .expect("the queue has no limit");
        simulation.tasks[0].outstanding += 1;
        let ticket = Ticket(simulation.queue.get(id).ticket);
        simulation.unplug(0);
        ticket
    }

    /// Lets everything happen up to `now`, and appends what did to `happenings`.
    pub fn advance(&mut self, now: Nanos, happenings: &mut Vec<Happening>) {
        let simulation = &mut self.simulation;
        while let Some(Reverse((time, _, _))) = simulation.events.peek()
            && *time <= self.origin + now
            && let Some(Reverse((time, _, event))) = simulation.events.pop()
        {
            simulation.now = simulation.now.max(time);
            simulation.handle(event);
        }
        let origin = self.origin;
        let noted = simulation.happenings.iter_mut().flat_map(std::mem::take);
        happenings.extend(noted.map(|happening| happening.since(origin)));
    }

    /// When something happens next, unless a request comes before; `None` when nothing is under way.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        let simulation = &self.simulation;
        let Reverse((time, _, event)) = simulation.events.peek()?;
        let owner = match event {
            Event::Start | Event::Finish | Event::Synchronous => simulation.running.first().copied(),
            Event::SynchronousEnd => simulation.synchronous,
            Event::Queued(id) => Some(*id),
            Event::Fetch | Event::Actor(_) => None,
        };
        Some(Next {
            at: time.saturating_sub(self.origin),
            owner: owner.map(|id| simulation.ticket(id)),
        })
    }

    /// Forgets every request: the power is gone. What the card's maps say stays.
    pub fn forget_requests(&mut self) {
        let simulation = &mut self.simulation;
        simulation.queue.clear();
        simulation.tasks[0].outstanding = 0;
        simulation.events.clear();
        simulation.gathered = Gathered::default();
        simulation.running.clear();
        simulation.under_way = None;
        simulation.synchronous = None;
        simulation.idle = true;
        simulation.bus_free = Nanos::ZERO;
    }

    /// What was done since the start.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.simulation.outcome(self.origin)
    }
}

impl Happening {
    /// The same, with times that count from `origin`.
    fn since(self, origin: Nanos) -> Self {
        match self {
            Self::Sent { tickets, programmed } => Self::Sent {
                tickets,
                programmed: programmed
                    .into_iter()
                    .map(|(unit, end)| (unit, end.saturating_sub(origin)))
                    .collect(),
            },
            Self::Done { ticket, at } => Self::Done {
                ticket,
                at: at.saturating_sub(origin),
            },
        }
    }
}

impl Simulation {
    fn ticket(&self, id: RequestId) -> Ticket {
        Ticket(self.queue.get(id).ticket)
    }

    pub(super) fn note_sent(&mut self, requests: &[RequestId]) {
        if self.happenings.is_none() {
            return;
        }
        let sent = Happening::Sent {
            tickets: requests.iter().map(|id| self.ticket(*id)).collect(),
            programmed: self.card.take_programmed(),
        };
        self.happenings
            .iter_mut()
            .for_each(|noted| noted.push(sent.clone()));
    }

    pub(super) fn note_done(&mut self, request: &Request, at: Nanos) {
        if let Some(noted) = &mut self.happenings {
            noted.push(Happening::Done {
                ticket: Ticket(request.ticket),
                at,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use results::block_trace::Operation;

    use super::*;
    use crate::packing::PackRules;
    use crate::simulation::Continue;
    use crate::simulation::tests::setup;
    use crate::workload::{Pace, TracedBio, replay};

    fn online(rules: PackRules) -> Online {
        Online::new(&setup(SchedulerKind::None, rules))
            .unwrap()
            .with_happenings()
    }

    fn done(happenings: &[Happening]) -> Vec<(u64, u64)> {
        let done = happenings.iter().filter_map(|happening| match happening {
            Happening::Done { ticket, at } => Some((ticket.0, at.0)),
            Happening::Sent { .. } => None,
        });
        done.collect()
    }

    /// As `one_write_takes_the_sum_of_its_steps`, begun at 5 ms: 5,694,200. Its page is programmed at 5 ms + 690.2 us.
    #[test]
    fn a_write_from_outside_ends_when_the_model_says() {
        let mut online = online(PackRules::OFF);
        let ticket = online.submit(Nanos::from_millis(5), &Bio::plain(Operation::Write, 0, 8));
        let mut seen = Vec::new();
        online.advance(Nanos(5_694_199), &mut seen);
        let ended = Happening::Sent {
            tickets: vec![ticket],
            programmed: vec![(0, Nanos(5_690_200))],
        };
        assert_eq!(seen.first(), Some(&ended));
        online.advance(Nanos::from_millis(6), &mut seen);
        assert_eq!(done(&seen), [(ticket.0, 5_694_200)]);
        assert_eq!(online.next(), None);
    }

    /// The driver is asked again at each moment that it names; the answers are those of a run of the same requests.
    #[test]
    fn requests_from_outside_take_as_long_as_in_a_run() {
        let bios: Vec<Bio> = (0..200)
            .map(|n| {
                Bio::plain(
                    if n % 5 == 4 {
                        Operation::Read
                    } else {
                        Operation::Write
                    },
                    n * 7919 % 4096 * 8,
                    8 + n % 3 * 64,
                )
            })
            .collect();
        let traced = bios.iter().zip(0..).map(|(bio, n)| TracedBio {
            at: Nanos(300_137 * n),
            bio: Bio {
                flags: RequestFlags::NOMERGE,
                ..*bio
            },
        });
        let setup = Setup {
            queue: rules(),
            ..setup(SchedulerKind::None, PackRules::PHONE)
        };
        let run = Simulation::new(&setup, vec![replay(traced.collect(), Pace::Traced)]).unwrap();
        let expected = run.run(|_| Continue::Yes).0;
        let (mut online, mut seen) = (online(PackRules::PHONE), Vec::new());
        for (bio, n) in bios.iter().zip(0..) {
            let at = Nanos(300_137 * n);
            while let Some(next) = online.next().filter(|next| next.at <= at) {
                online.advance(next.at, &mut seen);
            }
            online.submit(at, bio);
        }
        while let Some(next) = online.next() {
            online.advance(next.at, &mut seen);
        }
        let last = done(&seen).into_iter().map(|(_, at)| at).max();
        assert_eq!(done(&seen).len(), 200);
        assert_eq!(last, Some(expected.elapsed_ns));
        assert_eq!(online.outcome().driver, expected.driver);
    }

    #[test]
    fn after_a_power_cut_nothing_of_before_ends_and_tickets_differ() {
        let (mut online, mut seen) = (online(PackRules::OFF), Vec::new());
        let before = online.submit(Nanos::ZERO, &Bio::plain(Operation::Write, 0, 8));
        online.advance(Nanos::from_micros(100), &mut seen);
        online.forget_requests();
        seen.clear();
        let after = online.submit(Nanos::from_millis(1), &Bio::plain(Operation::Write, 0, 8));
        assert_ne!(before, after);
        online.advance(Nanos::from_millis(100), &mut seen);
        assert_eq!(
            done(&seen).iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(),
            [after.0]
        );
    }
}
