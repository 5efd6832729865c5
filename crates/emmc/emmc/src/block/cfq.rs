//! CFQ as in Linux 3.0: one queue for the sync requests of each task, one for all async writes.
//!
//! The rules that determine the depth of the driver's queue, and so the size of packs:
//! - a queue may have `quantum / 2` requests in the driver while other queues wait, `quantum` if it is the active
//!   one, and any number if it is the only one;
//! - async writes ramp up: one request per sync slice (100 ms) since a sync request was last late (beyond its expiry
//!   of 125 ms);
//! - async writes wait while a sync request is in the driver, and a sync queue preempts them: if it is the only one
//!   of its kind, nothing is dispatched until the driver has done all async writes;
//! - after the last request of a sync queue the driver idles for `slice_idle`, as another may follow.
//!
//! Order inside a queue: upwards from the last position, then from the lowest; an expired request first in each
//! slice. Not modelled: priorities and classes, groups, cooperating queues, detection of seeks and think times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::pool::{Pool, Request, RequestId};
use super::scheduler::Scheduler;

/// Settings of CFQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfqRules {
    /// Maximum number of requests of one queue in the driver.
    pub quantum: u32,
    /// Idle time of the driver for a queue that may continue.
    pub slice_idle: Nanos,
    /// Time slice of a sync queue.
    pub slice_sync: Nanos,
    /// Time slice of the async queue.
    pub slice_async: Nanos,
    /// Requests of a slice of the async queue while other queues wait.
    pub slice_async_requests: u32,
    /// Expiry of a sync request.
    pub expire_sync: Nanos,
    /// Expiry of an async request.
    pub expire_async: Nanos,
    /// Whether async writes ramp up (`low_latency`).
    pub ramp_up: RampUp,
}

/// Whether async writes ramp up after sync requests were late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampUp {
    /// They do.
    On,
    /// They do not.
    Off,
}

impl CfqRules {
    /// The kernel's defaults.
    pub const USUAL: Self = Self {
        quantum: 8,
        slice_idle: Nanos::from_millis(8),
        slice_sync: Nanos::from_millis(100),
        slice_async: Nanos::from_millis(40),
        slice_async_requests: 16,
        expire_sync: Nanos::from_millis(125),
        expire_async: Nanos::from_millis(250),
        ramp_up: RampUp::On,
    };
}

/// The start counts as if a sync request had been late this long before.
const BEFORE_START: Nanos = Nanos::from_millis(1000);

/// Key of a queue: the task, or `None` for all async writes.
type Key = Option<u16>;

#[derive(Clone, Debug, Default)]
struct Queue {
    sorted: BTreeSet<(u64, RequestId)>,
    fifo: VecDeque<(u64, RequestId)>,
    dispatched: u32,
    slice_dispatched: u32,
    /// The last request said that nothing follows it.
    no_idle: bool,
    fifo_checked: bool,
}

/// The CFQ scheduler.
#[derive(Clone, Debug)]
pub struct Cfq {
    rules: CfqRules,
    queues: BTreeMap<Key, Queue>,
    /// Queues with requests, in the order of their turns, without the active one.
    turns: VecDeque<Key>,
    active: Option<(Key, Option<Nanos>)>,
    idle_until: Option<Nanos>,
    position: u64,
    sync_in_driver: u32,
    async_in_driver: u32,
    /// Time at which a sync request was last late; `None` if not since the start.
    last_delayed_sync: Option<Nanos>,
    waiting: usize,
}

fn key_of(request: &Request) -> Key {
    request.is_sync().then_some(request.actor)
}

impl Cfq {
    /// An empty scheduler.
    #[must_use]
    pub fn new(rules: CfqRules) -> Self {
        Self {
            rules,
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
            active: None,
            idle_until: None,
            position: 0,
            sync_in_driver: 0,
            async_in_driver: 0,
            last_delayed_sync: None,
            waiting: 0,
        }
    }

    fn has_requests(&self, key: Key) -> bool {
        self.queues
            .get(&key)
            .is_some_and(|queue| !queue.sorted.is_empty())
    }

    /// Number of queues with requests, including the active one.
    fn busy(&self) -> usize {
        let active = self.active.is_some_and(|(key, _)| self.has_requests(key));
        self.turns.len() + usize::from(active)
    }

    /// The queue to serve; `None` if nothing waits, or the driver idles for a queue.
    fn select(&mut self, now: Nanos) -> Option<Key> {
        if let Some((key, slice_end)) = self.active {
            let has_requests = self.has_requests(key);
            let used_up = slice_end.is_some_and(|end| now >= end);
            if has_requests && (!used_up || self.turns.is_empty()) {
                self.idle_until = None;
                if used_up {
                    // The only queue gets the next slice, which checks for expired requests again.
                    self.activate(key);
                }
                return Some(key);
            }
            if !has_requests && !used_up && self.idle_until.is_some_and(|until| now < until) {
                return None;
            }
            self.expire();
        }
        let key = self.turns.pop_front()?;
        self.activate(key);
        Some(key)
    }

    fn activate(&mut self, key: Key) {
        self.idle_until = None;
        self.active = Some((key, None));
        if let Some(queue) = self.queues.get_mut(&key) {
            queue.slice_dispatched = 0;
            queue.fifo_checked = false;
        }
    }

    fn expire(&mut self) {
        self.idle_until = None;
        if let Some((key, _)) = self.active.take()
            && self.has_requests(key)
        {
            self.turns.push_back(key);
        }
    }

    fn may_dispatch(&self, key: Key, now: Nanos) -> bool {
        let Some(queue) = self.queues.get(&key) else {
            return false;
        };
        if key.is_none() && self.sync_in_driver > 0 {
            return false;
        }
        if key.is_some() && self.async_in_driver > 0 && self.is_alone_of_its_kind(key, queue) {
            return false;
        }
        let mut limit = (self.rules.quantum / 2).max(1);
        if queue.dispatched >= limit {
            let others = self.busy() > 1;
            let sync_queues = self
                .queues
                .iter()
                .filter(|(key, queue)| key.is_some() && !queue.sorted.is_empty());
            let promoted = key.is_some() && sync_queues.count() == 1;
            if others && !promoted {
                return false;
            }
            limit = u32::MAX;
        }
        if key.is_none() && self.rules.ramp_up == RampUp::On {
            // A scheduler starts as if it had been a second ago.
            let since = match self.last_delayed_sync {
                Some(late) => now.saturating_sub(late),
                None => now + BEFORE_START,
            };
            let mut depth = u32::try_from(since.0 / self.rules.slice_sync.0.max(1)).unwrap_or(u32::MAX);
            if depth == 0 && queue.dispatched == 0 {
                depth = 1;
            }
            limit = limit.min(depth);
        }
        queue.dispatched < limit
    }

    /// Whether no other sync queue has requests of the same kind (with or without idling after them).
    fn is_alone_of_its_kind(&self, key: Key, queue: &Queue) -> bool {
        !self.queues.iter().any(|(other, others)| {
            other.is_some() && *other != key && !others.sorted.is_empty() && others.no_idle == queue.no_idle
        })
    }

    fn choose(&mut self, pool: &Pool, key: Key, now: Nanos) -> Option<RequestId> {
        let expiry = match key {
            Some(_) => self.rules.expire_sync,
            None => self.rules.expire_async,
        };
        let position = self.position;
        let queue = self.queues.get_mut(&key)?;
        if !queue.fifo_checked {
            queue.fifo_checked = true;
            while let Some(noted) = queue.fifo.front().copied() {
                let here =
                    pool.still_waits(noted) && queue.sorted.contains(&(pool.get(noted.1).sector, noted.1));
                if !here {
                    queue.fifo.pop_front();
                } else if pool.get(noted.1).inserted + expiry <= now {
                    return Some(noted.1);
                } else {
                    break;
                }
            }
        }
        let above = queue.sorted.range((position, 0)..).next();
        above.or_else(|| queue.sorted.first()).map(|(_, id)| *id)
    }
}

impl Scheduler for Cfq {
    fn insert(&mut self, pool: &Pool, id: RequestId, _: Nanos) {
        let request = pool.get(id);
        let key = key_of(request);
        let was_empty = !self.has_requests(key);
        let queue = self.queues.entry(key).or_default();
        queue.sorted.insert((request.sector, id));
        queue.fifo.push_back((request.ticket, id));
        queue.no_idle = request.operation != Operation::Read && !request.flags.contains(RequestFlags::IDLE);
        self.waiting += 1;
        let is_active = self.active.is_some_and(|(active, _)| active == key);
        if was_empty && !is_active {
            // A sync queue preempts the async queue.
            let interrupts = key.is_some() && self.active.is_some_and(|(active, _)| active.is_none());
            if interrupts {
                self.expire();
                self.turns.push_front(key);
            } else {
                self.turns.push_back(key);
            }
        }
    }

    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId> {
        let key = self.select(now)?;
        if !self.may_dispatch(key, now) {
            return None;
        }
        let id = self.choose(pool, key, now)?;
        let request = pool.get(id);
        let others = !self.turns.is_empty();
        let rules = self.rules;
        let queue = self.queues.get_mut(&key)?;
        queue.sorted.remove(&(request.sector, id));
        queue.dispatched += 1;
        queue.slice_dispatched += 1;
        self.position = request.end();
        self.waiting -= 1;
        let slice = match key {
            Some(_) => rules.slice_sync,
            None => rules.slice_async,
        };
        if let Some((_, end)) = &mut self.active {
            // A slice begins with its first request.
            end.get_or_insert(now + slice);
        }
        let used_up = key.is_none() && others && queue.slice_dispatched >= rules.slice_async_requests;
        match key {
            Some(_) => self.sync_in_driver += 1,
            None => self.async_in_driver += 1,
        }
        if used_up {
            self.expire();
        }
        Some(id)
    }

    fn completed(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        let request = pool.get(id);
        let key = key_of(request);
        match key {
            Some(_) => self.sync_in_driver -= 1,
            None => self.async_in_driver -= 1,
        }
        if key.is_some() && request.inserted + self.rules.expire_sync <= now {
            self.last_delayed_sync = Some(now);
        }
        let Some(queue) = self.queues.get_mut(&key) else {
            return;
        };
        queue.dispatched -= 1;
        let finished = queue.dispatched == 0 && queue.sorted.is_empty();
        let is_active = self.active.is_some_and(|(active, _)| active == key);
        if is_active && finished {
            if key.is_some() && !queue.no_idle && self.rules.slice_idle > Nanos::ZERO {
                self.idle_until = Some(now + self.rules.slice_idle);
            } else {
                self.expire();
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

#[cfg(test)]
mod tests {
    use super::super::scheduler::tests::{insert, next};
    use super::*;

    const LATE: Nanos = Nanos::from_millis(10_000);

    fn write(scheduler: &mut Cfq, pool: &mut Pool, sector: u64, now: Nanos) -> RequestId {
        insert(
            scheduler,
            pool,
            sector,
            Operation::Write,
            RequestFlags::default(),
            0,
            now,
        )
    }

    fn read(scheduler: &mut Cfq, pool: &mut Pool, sector: u64, actor: u16, now: Nanos) -> RequestId {
        insert(
            scheduler,
            pool,
            sector,
            Operation::Read,
            RequestFlags::default(),
            actor,
            now,
        )
    }

    fn drain(scheduler: &mut Cfq, pool: &mut Pool, now: Nanos) -> Vec<u64> {
        std::iter::from_fn(|| next(scheduler, pool, now)).collect()
    }

    #[test]
    fn a_queue_that_is_alone_may_have_any_number_in_the_driver() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        for n in 0..40 {
            write(&mut scheduler, &mut pool, n * 8, LATE);
        }
        assert_eq!(drain(&mut scheduler, &mut pool, LATE).len(), 40);
    }

    /// A read was late at 10 s. 250 ms later writes may have 250 / 100 = 2 requests in the driver.
    #[test]
    fn writes_ramp_up_after_somebody_waited_too_long() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        let id = read(
            &mut scheduler,
            &mut pool,
            0,
            1,
            LATE.saturating_sub(Nanos::from_millis(200)),
        );
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
        scheduler.completed(&pool, id, LATE);
        for n in 0..40 {
            write(&mut scheduler, &mut pool, 100 + n * 8, LATE);
        }
        let soon = LATE + Nanos::from_millis(250);
        assert_eq!(drain(&mut scheduler, &mut pool, soon).len(), 2);
        let rules = CfqRules {
            ramp_up: RampUp::Off,
            ..CfqRules::USUAL
        };
        scheduler.rules = rules;
        assert_eq!(drain(&mut scheduler, &mut pool, soon).len(), 38);
    }

    /// Nothing was late yet: at 0 it counts as late 1 s ago, so 1000 / 100 = 10 writes may be in the driver; 50 ms
    /// later still 10, at 250 ms 12.
    #[test]
    fn at_the_start_writes_are_as_deep_as_a_second_after_a_delay() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        for n in 0..40 {
            write(&mut scheduler, &mut pool, n * 8, Nanos::ZERO);
        }
        assert_eq!(drain(&mut scheduler, &mut pool, Nanos::ZERO).len(), 10);
        assert_eq!(drain(&mut scheduler, &mut pool, Nanos::from_millis(50)).len(), 0);
        assert_eq!(drain(&mut scheduler, &mut pool, Nanos::from_millis(250)).len(), 2);
    }

    /// With another queue waiting, half a quantum: 4.
    #[test]
    fn half_a_quantum_is_in_the_driver_while_others_wait() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        for n in 0..10 {
            read(&mut scheduler, &mut pool, n * 8, 1, LATE);
        }
        for n in 0..10 {
            read(&mut scheduler, &mut pool, 1000 + n * 8, 2, LATE);
        }
        assert_eq!(drain(&mut scheduler, &mut pool, LATE), [0, 8, 16, 24]);
    }

    #[test]
    fn the_driver_idles_for_a_reader_that_may_come_back() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        let id = read(&mut scheduler, &mut pool, 0, 1, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
        write(&mut scheduler, &mut pool, 500, LATE);
        scheduler.completed(&pool, id, LATE);
        assert_eq!(
            next(&mut scheduler, &mut pool, LATE + Nanos::from_millis(7)),
            None
        );
        assert_eq!(scheduler.wake_at(), Some(LATE + Nanos::from_millis(8)));
        assert_eq!(
            next(&mut scheduler, &mut pool, LATE + Nanos::from_millis(8)),
            Some(500)
        );
    }

    /// A sync write that is the only one of its kind waits until the driver has done all async writes; if another
    /// task has one, it does not.
    #[test]
    fn the_driver_is_drained_for_the_only_queue_that_somebody_waits_for() {
        for (others, expected) in [(0, None), (1, Some(900))] {
            let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
            write(&mut scheduler, &mut pool, 0, LATE);
            assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
            for actor in 1..=1 + others {
                let sector = 1000 - 100 * u64::from(actor);
                let sync = RequestFlags::SYNC;
                insert(
                    &mut scheduler,
                    &mut pool,
                    sector,
                    Operation::Write,
                    sync,
                    actor,
                    LATE,
                );
            }
            assert_eq!(next(&mut scheduler, &mut pool, LATE), expected);
        }
    }

    #[test]
    fn writes_wait_while_somebody_waits_for_a_request_in_the_driver() {
        let (mut scheduler, mut pool) = (Cfq::new(CfqRules::USUAL), Pool::default());
        let id = insert(
            &mut scheduler,
            &mut pool,
            0,
            Operation::Write,
            RequestFlags::SYNC,
            1,
            LATE,
        );
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(0));
        write(&mut scheduler, &mut pool, 500, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), None);
        scheduler.completed(&pool, id, LATE);
        assert_eq!(next(&mut scheduler, &mut pool, LATE), Some(500));
    }
}
