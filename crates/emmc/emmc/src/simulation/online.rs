//! The same driver and card, fed with requests from outside as they arrive: tells a live device when to answer.
//!
//! There is already a block layer between the device and its kernel, so requests are taken as they are: none is
//! merged, and they go to the driver in order of arrival, except that almost simultaneous ones go by ascending
//! sector. This module neither waits nor reads a clock: the caller passes the time to [`Online::advance`], which
//! returns the events up to then.
//!
//! A request may be reported after its arrival, as its way through the kernel takes time. It is passed to the driver
//! as of its arrival time, unless later events have been processed already. To make that rare, the driver's fetch is
//! processed as late as possible without a difference: while a command is in progress, at its end. The fetch finds
//! the requests that had arrived by its own virtual time, not later ones.
//!
//! Invariant: no event is processed before the time that the caller has passed, so a request that arrives at that
//! time can still affect everything later.

use std::cmp::Reverse;

use media::Nanos;
use results::block_trace::RequestFlags;

use super::task_queue::TaskQueue;
use super::{Event, Setup, Simulation};
use crate::block::{Bio, QueueRules, Request, RequestId, SchedulerKind, Unordered};
use crate::error::CardError;
use crate::outcome::Outcome;
use crate::packing::Gathered;
use crate::translation::Kept;
use crate::workload::{Actor, Step, TaskKind, View};

/// A submitted request; unique over all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Events of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// One command transferred these requests to the card.
    Sent {
        /// The requests.
        tickets: Vec<Ticket>,
        /// Units whose newest data (of all commands so far) went into a program, and the end of that program. Other
        /// data is in the card's RAM.
        programmed: Vec<(u32, Nanos)>,
    },
    /// The driver completed a request.
    Done {
        /// The request.
        ticket: Ticket,
        /// Completion time.
        at: Nanos,
    },
}

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Time of the event.
    pub at: Nanos,
    /// The request that it completes, if any.
    pub owner: Option<Ticket>,
}

/// A card and its driver that are fed from outside. Times count from its start.
#[derive(Debug)]
pub struct Online {
    simulation: Simulation,
}

/// The submitting task; it has no steps of its own.
struct Outside;

impl Actor for Outside {
    fn step(&mut self, _: &View) -> Step {
        Step::SleepUntil(Nanos(u64::MAX))
    }

    fn kind(&self) -> TaskKind {
        TaskKind::Foreground
    }
}

/// Maximum delay, in real time, by which threads overtake each other on a machine with other load: 1 ms for small requests, 5 ms for
/// those of 512 KiB, dozens of which are copied concurrently.
const OVERTAKING: Unordered = Unordered {
    within: Nanos::from_micros(1000),
    per_sector: Nanos::from_micros(4),
};

fn rules(unordered: Unordered) -> QueueRules {
    QueueRules {
        limit: u32::MAX,
        unordered,
        ..QueueRules::usual(SchedulerKind::None)
    }
}

impl Online {
    /// An erased card with its driver; the queue settings of `setup` are ignored.
    ///
    /// # Errors
    /// If the card cannot be built.
    pub fn new(setup: &Setup) -> Result<Self, CardError> {
        Self::at_scale(setup, |real| real)
    }

    /// As [`Online::new`], for a card whose time runs at another rate than the machine's: `during` returns the card's time
    /// that passes during a real one.
    ///
    /// # Errors
    /// As [`Online::new`].
    pub fn at_scale(setup: &Setup, during: impl Fn(Nanos) -> Nanos) -> Result<Self, CardError> {
        let unordered = Unordered {
            within: during(OVERTAKING.within),
            per_sector: during(OVERTAKING.per_sector),
        };
        let setup = Setup {
            queue: rules(unordered),
            ..setup.clone()
        };
        let mut simulation = Simulation::new(&setup, vec![Box::new(Outside)])?;
        simulation.events.clear();
        Ok(Self { simulation })
    }

    /// Fills a range before the start, without using time. Call it before the first request.
    #[must_use]
    pub fn with_written(self, sector: u64, sectors: u64) -> Self {
        Self {
            simulation: self.simulation.with_written(sector, sectors),
        }
    }

    /// Restores the state saved by a card of the same geometry ([`Online::keep`]). Call it before anything else.
    ///
    /// # Errors
    /// If the state does not suit this card.
    pub fn with_kept(mut self, epoch: u32, kept: &Kept) -> Result<Self, CardError> {
        self.simulation.card.take_up(epoch, kept)?;
        Ok(self)
    }

    /// The persistent state after everything is programmed, and the number of the next epoch.
    pub fn keep(&mut self) -> (u32, Kept) {
        self.simulation.card.keep()
    }

    /// Starts recording events; earlier events are dropped.
    #[must_use]
    pub fn with_happenings(mut self) -> Self {
        self.simulation.card.keep_record();
        self.simulation.happenings = Some(Vec::new());
        self
    }

    /// Submits a request to the driver as of `at`, or later if later events have been processed already. Among the
    /// waiting requests it is ordered as if it had arrived at `at`: the caller may report requests out of order.
    pub fn submit(&mut self, at: Nanos, bio: &Bio) -> Ticket {
        let simulation = &mut self.simulation;
        // Processes deferred events first: they do not see this request.
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

    /// Processes all events up to `now`, and appends those of requests to `happenings`.
    pub fn advance(&mut self, now: Nanos, happenings: &mut Vec<Happening>) {
        let simulation = &mut self.simulation;
        while simulation.due().is_some_and(|due| due <= now) {
            simulation.handle_next();
        }
        happenings.extend(simulation.happenings.iter_mut().flat_map(std::mem::take));
    }

    /// The next event, unless a request arrives before; `None` if nothing is in progress.
    #[must_use]
    pub fn next(&self) -> Option<Next> {
        let simulation = &self.simulation;
        let (due, (_, event)) = (simulation.due()?, simulation.next_event()?);
        let owner = match event {
            Event::Fetch | Event::Start | Event::Finish | Event::Synchronous => {
                simulation.running.first().copied()
            }
            Event::SynchronousEnd => simulation.synchronous,
            Event::Prepared(id) | Event::TaskReady(id) | Event::TaskDone(id) | Event::BarrierDone(id) => {
                Some(id)
            }
            Event::BusFree | Event::Timer | Event::Actor(_) => None,
        };
        Some(Next {
            at: due,
            owner: owner.map(|id| simulation.ticket(id)),
        })
    }

    /// Drops all requests after a power cut. The card's maps are kept.
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
        simulation.tasks_in_card = TaskQueue::default();
        simulation.timer = None;
    }

    /// Results since the start.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.simulation.outcome()
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

    /// Time by which the next event has to be processed. A fetch can wait until the command in progress ends:
    /// whatever it finds has no effect before that.
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
    use std::ops::ControlFlow;

    use results::block_trace::Operation;

    use super::*;
    use crate::packing::PackRules;
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

    /// As `one_write_takes_the_sum_of_its_steps`, begun at 5 ms: 5,694,200. Its page is programmed at 5 ms + 690.2
    /// us.
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

    /// The driver is polled at each time that it names; the results are those of a run with the same requests.
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
            queue: rules(OVERTAKING),
            ..setup(SchedulerKind::None, PackRules::PHONE)
        };
        let run = Simulation::new(&setup, vec![replay(traced.collect(), Pace::Traced)]).unwrap();
        let expected = run.run(|_| ControlFlow::Continue(())).0;
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

    /// Two 8 KiB reads in progress: when the first completes (the second has just been sent), a third arrives, and is
    /// reported just before the card is done with the second. It is sent as if it had been reported at once: right
    /// after the second, with its fetch and preparation hidden.
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
        // With all preparation hidden, a command takes the time between two completions; 3 us of that are the
        // completion.
        assert_eq!(ends(Nanos(third - second - 5000)), at_once);
    }

    /// A fetch is deferred, and so is everything that arrived after it in virtual time: the late request does not
    /// jump the queue.
    #[test]
    fn a_look_that_was_put_off_does_not_see_what_came_after_it() {
        let ends = |step: Nanos| {
            let (mut online, mut seen) = (online(PackRules::PHONE), Vec::new());
            let write = |place: u64| Bio::plain(Operation::Write, place * 8, 8);
            online.submit(Nanos::ZERO, &write(0));
            // The first is in progress from about 65 us on; the fetch of the next follows right after.
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

    /// A stream of 32 writes at intervals of 200 us, which arrive during a long first write; some are reported only
    /// after nine later ones.
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

    /// While a long write and another one are in the driver, two arrive 3 ms apart, in descending order. Threads do not
    /// overtake each other for that long, unless these are 0.33 ms of real time.
    #[test]
    fn overtaking_takes_real_time_at_every_scale() {
        let order = |scale: u64| {
            let setup = setup(SchedulerKind::None, PackRules::OFF);
            let online = Online::at_scale(&setup, |real| real.times(scale)).unwrap();
            let (mut online, mut seen) = (online.with_happenings(), Vec::new());
            online.submit(Nanos::ZERO, &Bio::plain(Operation::Write, 0, 1024));
            online.submit(Nanos::ZERO, &Bio::plain(Operation::Write, 2048, 8));
            for (at_ms, sector) in [(2, 50_000), (5, 40_000)] {
                online.submit(
                    Nanos::from_millis(at_ms),
                    &Bio::plain(Operation::Write, sector, 8),
                );
            }
            online.advance(Nanos::from_millis(1000), &mut seen);
            let order: Vec<u64> = done(&seen).into_iter().map(|(ticket, _)| ticket).collect();
            order.iter().map(|ticket| ticket - order[0]).collect::<Vec<_>>()
        };
        assert_eq!(order(1), [0, 1, 2, 3]);
        assert_eq!(order(9), [0, 1, 3, 2]);
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
