//! The model of a live card, and the threads that wait for it.
//!
//! One of the waiting threads sleeps until the next event: the one whose request the event completes, if there is
//! one. The others are parked until they are woken. This module itself neither waits nor reads a clock.

use std::collections::{BTreeSet, HashMap};
use std::thread::Thread;

use emmc::block::Bio;
use emmc::simulation::{Happening, Online, Ticket};
use media::Nanos;

/// The model and its waiting threads.
pub struct Engine {
    pub online: Online,
    waiters: HashMap<Ticket, Waiter>,
    /// Deadlines of sleeping threads.
    covered: BTreeSet<(Nanos, Ticket)>,
    /// Events not yet passed to the log.
    pub for_log: Vec<Happening>,
}

struct Waiter {
    thread: Thread,
    end: Option<End>,
}

/// End of a request.
#[derive(Clone, Copy)]
pub enum End {
    /// The driver completes it at this time.
    At(Nanos),
    /// The power was cut before.
    PowerLost,
}

impl Engine {
    /// An engine without requests.
    pub fn new(online: Online) -> Self {
        Self {
            online: online.with_happenings(),
            waiters: HashMap::new(),
            covered: BTreeSet::new(),
            for_log: Vec::new(),
        }
    }

    /// Submits a request of this thread that arrived at `came` to the model.
    pub fn submit(&mut self, came: Nanos, bio: &Bio) -> Ticket {
        let ticket = self.online.submit(came, bio);
        let waiter = Waiter {
            thread: std::thread::current(),
            end: None,
        };
        self.waiters.insert(ticket, waiter);
        ticket
    }

    /// Cuts the power: requests in progress fail, and all waiting threads are woken.
    pub fn cut_power(&mut self) {
        self.online.forget_requests();
        self.covered.clear();
        for waiter in self.waiters.values_mut() {
            // Requests that the driver has seen complete stay completed.
            waiter.end.get_or_insert(End::PowerLost);
            waiter.thread.unpark();
        }
    }

    /// The thread of `ticket` no longer sleeps until `moment`.
    pub fn uncover(&mut self, moment: Nanos, ticket: Ticket) {
        self.covered.remove(&(moment, ticket));
    }

    /// Processes all events up to `now`, and wakes the threads whose requests are done.
    pub fn advance(&mut self, now: Nanos) {
        let from = self.for_log.len();
        self.online.advance(now, &mut self.for_log);
        for happening in &self.for_log[from..] {
            if let Happening::Done { ticket, at } = happening
                && let Some(waiter) = self.waiters.get_mut(ticket)
            {
                waiter.end = Some(End::At(*at));
                waiter.thread.unpark();
            }
        }
    }

    /// Returns the end of a request, once.
    pub fn end_of(&mut self, ticket: Ticket) -> Option<End> {
        let end = self.waiters.get(&ticket)?.end?;
        self.waiters.remove(&ticket);
        Some(end)
    }

    /// Time until which the thread of `ticket` has to sleep to process the next event; `None` if another thread does
    /// it.
    pub fn cover(&mut self, ticket: Ticket) -> Option<Nanos> {
        let next = self.online.next()?;
        match next.owner.filter(|owner| *owner != ticket) {
            Some(owner) if self.waiters.contains_key(&owner) => {
                if !self.covered.contains(&(next.at, owner)) {
                    self.waiters[&owner].thread.unpark();
                }
                None
            }
            _ if self.is_covered(next.at) => None,
            _ => {
                self.covered.insert((next.at, ticket));
                Some(next.at)
            }
        }
    }

    fn is_covered(&self, moment: Nanos) -> bool {
        self.covered
            .first()
            .is_some_and(|(earliest, _)| *earliest <= moment)
    }

    /// Called by a thread that leaves: wakes another one if the next event is not covered.
    pub fn wake_next(&self) {
        let Some(next) = self.online.next() else {
            return;
        };
        if self.is_covered(next.at) {
            return;
        }
        let owner = next.owner.and_then(|owner| self.waiters.get(&owner));
        if let Some(waiter) = owner.or_else(|| self.waiters.values().find(|waiter| waiter.end.is_none())) {
            waiter.thread.unpark();
        }
    }
}
