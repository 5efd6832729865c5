//! Fair queues with budgets of sectors, like BFQ: tasks take turns, each until its budget is used up.
//!
//! After the last request of a sync task, the driver idles briefly for its next one. Not modelled: weights, the
//! detection of interactive and soft real-time tasks, merging of queues, and adaptive budgets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use media::Nanos;

use super::pool::{Pool, RequestId};
use super::scheduler::Scheduler;

/// Budget of a turn in sectors: 8 MiB.
const BUDGET: u64 = 16 * 1024;

/// Idle time of the driver for a task with sync requests.
const IDLE: Nanos = Nanos::from_millis(8);

#[derive(Clone, Debug, Default)]
struct Queue {
    sorted: BTreeSet<(u64, RequestId)>,
    in_driver: u32,
}

/// The BFQ scheduler.
#[derive(Clone, Debug, Default)]
pub struct Bfq {
    queues: BTreeMap<Option<u16>, Queue>,
    turns: VecDeque<Option<u16>>,
    active: Option<(Option<u16>, u64)>,
    idle_until: Option<Nanos>,
    position: u64,
    waiting: usize,
}

impl Bfq {
    fn has_requests(&self, key: Option<u16>) -> bool {
        self.queues
            .get(&key)
            .is_some_and(|queue| !queue.sorted.is_empty())
    }

    fn select(&mut self, now: Nanos) -> Option<Option<u16>> {
        if let Some((key, left)) = self.active {
            if self.has_requests(key) && (left > 0 || self.turns.is_empty()) {
                self.idle_until = None;
                return Some(key);
            }
            if !self.has_requests(key) && self.idle_until.is_some_and(|until| now < until) {
                return None;
            }
            if self.has_requests(key) {
                self.turns.push_back(key);
            }
        }
        self.idle_until = None;
        self.active = self.turns.pop_front().map(|key| (key, BUDGET));
        self.active.map(|(key, _)| key)
    }
}

impl Scheduler for Bfq {
    fn insert(&mut self, pool: &Pool, id: RequestId, _: Nanos) {
        let request = pool.get(id);
        let key = request.is_sync().then_some(request.actor);
        let was_empty = !self.has_requests(key);
        let queue = self.queues.entry(key).or_default();
        queue.sorted.insert((request.sector, id));
        self.waiting += 1;
        if was_empty && self.active.is_none_or(|(active, _)| active != key) {
            self.turns.push_back(key);
        }
    }

    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId> {
        let key = self.select(now)?;
        let position = self.position;
        let queue = self.queues.get_mut(&key)?;
        let above = queue.sorted.range((position, 0)..).next();
        let next = *above.or_else(|| queue.sorted.first())?;
        queue.sorted.remove(&next);
        queue.in_driver += 1;
        let request = pool.get(next.1);
        self.position = request.end();
        self.waiting -= 1;
        if let Some((_, left)) = &mut self.active {
            *left = left.saturating_sub(request.sectors);
        }
        Some(next.1)
    }

    fn completed(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        let request = pool.get(id);
        let key = request.is_sync().then_some(request.actor);
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.in_driver -= 1;
            let finished = queue.in_driver == 0 && queue.sorted.is_empty();
            if finished
                && self
                    .active
                    .is_some_and(|(active, left)| active == key && left > 0)
            {
                self.idle_until = key.map(|_| now + IDLE);
            }
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.idle_until
    }

    fn waiting(&self) -> usize {
        self.waiting
    }
}
