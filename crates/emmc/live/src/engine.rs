//! The model of a live card, and the threads that wait for it.
//!
//! Of those that wait, one sleeps until the next moment at which something happens: the one whose request ends then, if it is one's
//! end. The others sleep until they are woken. It does not wait itself and knows no clock.

use std::collections::{BTreeSet, HashMap};
use std::thread::Thread;

use emmc::block::Bio;
use emmc::simulation::{Happening, Online, Ticket};
use media::Nanos;

/// The model, and who waits for it.
pub struct Engine {
    pub online: Online,
    waiters: HashMap<Ticket, Waiter>,
    /// Moments until which somebody sleeps.
    covered: BTreeSet<(Nanos, Ticket)>,
    /// What the log has not been told yet.
    pub for_log: Vec<Happening>,
}

struct Waiter {
    thread: Thread,
    end: Option<End>,
}

/// How a request ended.
#[derive(Clone, Copy)]
pub enum End {
    /// The driver completes it then.
    At(Nanos),
    /// The power went before.
    PowerLost,
}

impl Engine {
    /// Nothing is under way.
    pub fn new(online: Online) -> Self {
        Self {
            online: online.with_happenings(),
            waiters: HashMap::new(),
            covered: BTreeSet::new(),
            for_log: Vec::new(),
        }
    }

    /// Gives the model a request of this thread that came at `came`.
    pub fn submit(&mut self, came: Nanos, bio: &Bio) -> Ticket {
        let ticket = self.online.submit(came, bio);
        let waiter = Waiter {
            thread: std::thread::current(),
            end: None,
        };
        self.waiters.insert(ticket, waiter);
        ticket
    }

    /// The power goes: what is not done fails, and nobody waits any more.
    pub fn cut_power(&mut self) {
        self.online.forget_requests();
        self.covered.clear();
        for waiter in self.waiters.values_mut() {
            // The driver has seen some done; they stay done.
            waiter.end.get_or_insert(End::PowerLost);
            waiter.thread.unpark();
        }
    }

    /// The thread of `ticket` sleeps no longer until `moment`.
    pub fn uncover(&mut self, moment: Nanos, ticket: Ticket) {
        self.covered.remove(&(moment, ticket));
    }

    /// Lets everything happen up to `now`, and wakes whose requests are done.
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

    /// How a request ended, once.
    pub fn end_of(&mut self, ticket: Ticket) -> Option<End> {
        let end = self.waiters.get(&ticket)?.end?;
        self.waiters.remove(&ticket);
        Some(end)
    }

    /// Until when the thread of `ticket` has to sleep so that the next thing happens in time; `None` when somebody else does.
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

    /// Somebody leaves: has another one see to what happens next.
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
