//! The same driver and card, fed with requests from outside as they come: what a live device asks when to answer.
//!
//! Between the device and its kernel there is a block layer already, so that requests are taken as they are: none is merged,
//! and they go to the driver in the order in which they came, those that came nearly at once upwards by sector. It does not wait
//! and reads no clock: [`Online::advance`] is told the time, and tells what happened until then.
//!
//! A request may be told of after it came: its way through the kernel takes time. It is given to the driver as of the time at which
//! it came, when nothing has happened since. So that little has, the driver looks for work as late as makes no difference: while
//! a command is under way, when that is done. What it finds then is what had come by the virtual time of its look, not what came
//! after it.
//!
//! Invariant: nothing happens before the time that was told, so that a request that comes then still finds everything open.

use std::cmp::Reverse;

use media::Nanos;
use results::block_trace::RequestFlags;

use super::{Event, Setup, Simulation};
use crate::block::{Bio, QueueRules, Request, RequestId, SchedulerKind, Unordered};
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::Gathered;
use crate::translation::Kept;
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

/// Threads overtake each other by so much on a machine that has other things to do too: by 1 ms with small requests, by 5 ms with those
/// of 512 KiB, of which dozens are copied at once.
const OVERTAKING: Unordered = Unordered {
    within: Nanos::from_micros(1000),
    a_sector: Nanos::from_micros(4),
};

fn rules() -> QueueRules {
    QueueRules {
        limit: u32::MAX,
        unordered: OVERTAKING,
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

    /// Takes up what a card of the same shape kept ([`Online::keep`]). To be called before anything else.
    ///
    /// # Errors
    /// When it can't be of such a card.
    pub fn with_kept(mut self, epoch: u32, kept: &Kept) -> Result<Self, CardError> {
        self.simulation.card.take_up(epoch, kept)?;
        Ok(self)
    }

    /// What outlives the power when the card is let finish, and the number of its next epoch.
    pub fn keep(&mut self) -> (u32, Kept) {
        self.simulation.card.keep()
    }

    /// Starts to tell what happens; before that everything is forgotten.
    #[must_use]
    pub fn with_happenings(mut self) -> Self {
        self.simulation.card.keep_record();
        self.simulation.happenings = Some(Vec::new());
        self
    }

    /// Gives a request to the driver at `at`, or later when more is known to have happened already. Among those that wait it has the
    /// place of one that came at `at`: who tells of requests may tell of the later one first.
    pub fn submit(&mut self, at: Nanos, bio: &Bio) -> Ticket {
        let simulation = &mut self.simulation;
        let at = self.origin + at;
        // What was put off happens first: it does not see this request.
        while simulation.next_event().is_some_and(|(time, _)| time < at) {
            simulation.handle_next();
        }
        simulation.now = simulation.now.max(at);
        let bio = Bio {
            flags: bio.flags.with(RequestFlags::NOMERGE),
            ..*bio
        };
        let id = simulation.queue.add(0, &bio, at).expect("the queue has no limit");
        simulation.tasks[0].outstanding += 1;
        let ticket = Ticket(simulation.queue.get(id).ticket);
        simulation.queue.unplug(0, at);
        simulation.wake_driver();
        ticket
    }

    /// Lets everything happen up to `now`, and appends what did to `happenings`.
    pub fn advance(&mut self, now: Nanos, happenings: &mut Vec<Happening>) {
        let simulation = &mut self.simulation;
        while simulation.due().is_some_and(|due| due <= self.origin + now) {
            simulation.handle_next();
        }
        let origin = self.origin;
        let noted = simulation.happenings.iter_mut().flat_map(std::mem::take);
        happenings.extend(noted.map(|happening| happening.since(origin)));
    }

    /// When something happens next, unless a request comes before; `None` when nothing is under way.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        let simulation = &self.simulation;
        let (due, (_, event)) = (simulation.due()?, simulation.next_event()?);
        let owner = match event {
            Event::Fetch | Event::Start | Event::Finish | Event::Synchronous => {
                simulation.running.first().copied()
            }
            Event::SynchronousEnd => simulation.synchronous,
            Event::Queued(id) => Some(id),
            Event::Actor(_) => None,
        };
        Some(Next {
            at: due.saturating_sub(self.origin),
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
    fn next_event(&self) -> Option<(Nanos, Event)> {
        let Reverse((time, _, event)) = self.events.peek()?;
        Some((*time, *event))
    }

    fn handle_next(&mut self) {
        if let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = self.now.max(time);
            self.handle(event);
        }
    }

    /// When the next event has to be seen to. A look for work can wait until the command under way is done: whatever it finds,
    /// nothing follows from it before that.
    fn due(&self) -> Option<Nanos> {
        let (time, event) = self.next_event()?;
        let needed = match (event, self.under_way) {
            (Event::Fetch, Some(under_way)) => under_way.done,
            _ => Nanos::ZERO,
        };
        Some(time.max(needed))
    }

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

    /// Two at a time, 8 KiB reads: when the first is done (the second has just been sent), another one comes, and is told of just
    /// before the card is done with the second. It is sent as if it had been told at once: right after the second, its fetching and
    /// preparing hidden.
    #[test]
    fn a_request_told_of_late_is_found_by_a_look_that_came_after_it() {
        let ends = |told_late: Nanos| {
            let (mut online, mut seen) = (online(PackRules::OFF), Vec::new());
            let read = |place: u64| Bio::plain(Operation::Read, place * 8, 16);
            online.submit(Nanos::ZERO, &read(0));
            online.submit(Nanos::ZERO, &read(100));
            while done(&seen).is_empty() {
                let next = online.next().unwrap();
                online.advance(next.at, &mut seen);
            }
            let came = Nanos(done(&seen)[0].1);
            online.advance(came + told_late, &mut seen);
            online.submit(came, &read(200));
            while let Some(next) = online.next() {
                online.advance(next.at, &mut seen);
            }
            done(&seen)
        };
        let at_once = ends(Nanos::ZERO);
        let [_, (_, second), (_, third)] = at_once[..] else {
            panic!("{at_once:?}");
        };
        // A command takes as long as the next one with all of its preparation hidden; completing it takes 3 us of that.
        assert_eq!(ends(Nanos(third - second - 5000)), at_once);
    }

    /// A look is put off, and so is everything that came after it in virtual time: the late request does not jump the queue.
    #[test]
    fn a_look_that_was_put_off_does_not_see_what_came_after_it() {
        let ends = |step: Nanos| {
            let (mut online, mut seen) = (online(PackRules::PHONE), Vec::new());
            let write = |place: u64| Bio::plain(Operation::Write, place * 8, 8);
            online.submit(Nanos::ZERO, &write(0));
            // The first is under way from about 65 us on; the look for the next comes right after.
            let mut told = Nanos::ZERO;
            while told < Nanos::from_micros(300) {
                online.advance(told, &mut seen);
                told += step;
            }
            online.submit(Nanos::from_micros(300), &write(1));
            while let Some(next) = online.next() {
                online.advance(next.at, &mut seen);
            }
            done(&seen)
        };
        assert_eq!(ends(Nanos::from_micros(10)), ends(Nanos::from_micros(400)));
    }

    /// 32 writes of a stream, 200 us between two, and a long one before, while which they come; some are told of when nine others, that
    /// came later, have been.
    #[test]
    fn a_stream_whose_requests_are_told_of_in_another_order_is_packed_as_it_came() {
        let packs = |told: &mut dyn Iterator<Item = u64>| {
            let mut online = online(PackRules::PHONE);
            for place in told {
                let (sector, sectors) = if place == 0 {
                    (0, 1024)
                } else {
                    (960 + place * 64, 64)
                };
                let write = Bio::plain(Operation::Write, sector, sectors);
                online.submit(Nanos::from_micros(200 * place), &write);
            }
            online.advance(Nanos::from_millis(1000), &mut Vec::new());
            online.outcome().driver.pack_sizes
        };
        let mut late: Vec<u64> = (0..32).collect();
        for place in [7, 14, 21] {
            let told_later = late.remove(place);
            late.insert(place + 9, told_later);
        }
        assert_eq!(packs(&mut late.into_iter()), packs(&mut (0..32)));
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
