//! The request queue: plugs, merges, the request limit, the scheduler, and requeued requests.
//!
//! A bio first tries to extend a request in its task's plug, then one waiting in the scheduler, which may be another
//! task's (under cfq only an async one, as sync requests wait in queues of their tasks). A plug is flushed to
//! the scheduler when it holds 16 requests or its task waits. Flushes, discards and FUA writes bypass the scheduler.
//! Requests requeued by the driver are dispatched first.
//!
//! Invariants: a request never grows beyond [`QueueRules::max_sectors`]; at most [`QueueRules::limit`] sync requests
//! exist, and the same number of async ones; only bios of one kind and context are merged. Not modelled: the merge of
//! requests when a plug is flushed, and front merges in the scheduler.

use std::collections::{BTreeMap, VecDeque};

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::cfq::CfqRules;
use super::fifo::{Fifo, Unordered};
use super::pool::{Pool, Request, RequestId};
use super::scheduler::{Scheduler, SchedulerKind};

/// Number of requests at which a plug is flushed.
const PLUG_REQUESTS: usize = 16;

/// A request of a task to the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// First sector.
    pub sector: u64,
    /// Sectors; 0 for a flush.
    pub sectors: u64,
    /// Kind of operation.
    pub operation: Operation,
    /// Flags, as in the kernel.
    pub flags: RequestFlags,
    /// Context of the data, 0 for none.
    pub context: u8,
}

impl Bio {
    /// A bio without flags.
    #[must_use]
    pub const fn plain(operation: Operation, sector: u64, sectors: u64) -> Self {
        Self {
            sector,
            sectors,
            operation,
            flags: RequestFlags(0),
            context: 0,
        }
    }
}

/// Configuration of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRules {
    /// Scheduler.
    pub scheduler: SchedulerKind,
    /// Settings of CFQ, if that is the scheduler.
    pub cfq: CfqRules,
    /// Maximum size of a request in sectors.
    pub max_sectors: u64,
    /// `nr_requests`.
    pub limit: u32,
    /// Maximum number of requests in the driver.
    pub tags: Option<u32>,
    /// Time within which noop and none treat requests as simultaneous.
    pub unordered: Unordered,
}

impl QueueRules {
    /// 512 KiB, 128 requests, no limit in the driver.
    #[must_use]
    pub const fn usual(scheduler: SchedulerKind) -> Self {
        Self {
            scheduler,
            cfq: CfqRules::USUAL,
            max_sectors: 1024,
            limit: 128,
            tags: None,
            unordered: Unordered::NONE,
        }
    }

    fn make_scheduler(&self) -> Box<dyn Scheduler> {
        match self.scheduler {
            SchedulerKind::Noop | SchedulerKind::None => Box::new(Fifo::new(self.unordered)),
            kind => kind.make(self.cfq),
        }
    }
}

/// Result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The bio is part of a request.
    Taken,
    /// The request limit is reached; the task has to wait.
    Full,
}

/// Part of a request that another task than its first one submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The task.
    pub actor: u16,
    /// Number of its bios.
    pub bios: u32,
    /// Number of their sectors.
    pub sectors: u64,
}

/// The request queue; see the module.
pub struct RequestQueue {
    rules: QueueRules,
    pool: Pool,
    scheduler: Box<dyn Scheduler>,
    plugs: Vec<Vec<RequestId>>,
    /// Requests waiting in the scheduler, by their end sector.
    by_end: BTreeMap<u64, RequestId>,
    /// Parts of requests that other tasks submitted.
    shares: BTreeMap<RequestId, Vec<Share>>,
    direct: VecDeque<RequestId>,
    put_back: Vec<RequestId>,
    allocated: [u32; 2],
    in_driver: u32,
    merges: u64,
}

impl std::fmt::Debug for RequestQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RequestQueue")
            .field("rules", &self.rules)
            .field("in_driver", &self.in_driver)
            .finish_non_exhaustive()
    }
}

impl RequestQueue {
    /// An empty queue for `actors` tasks.
    #[must_use]
    pub fn new(rules: QueueRules, actors: usize) -> Self {
        Self {
            rules,
            pool: Pool::default(),
            scheduler: rules.make_scheduler(),
            plugs: vec![Vec::with_capacity(PLUG_REQUESTS); actors],
            by_end: BTreeMap::new(),
            shares: BTreeMap::new(),
            direct: VecDeque::new(),
            put_back: Vec::new(),
            allocated: [0; 2],
            in_driver: 0,
            merges: 0,
        }
    }

    /// Submits a bio of task `actor`.
    ///
    /// # Panics
    /// If the task does not exist.
    pub fn submit(&mut self, actor: u16, bio: &Bio, now: Nanos) -> Submitted {
        if self.merge(actor, bio) {
            self.merges += 1;
            return Submitted::Taken;
        }
        match self.add(actor, bio, now) {
            Some(_) => Submitted::Taken,
            None => Submitted::Full,
        }
    }

    /// Makes a separate request of a bio of task `actor`. `None` if the request limit is reached.
    ///
    /// # Panics
    /// If the task does not exist.
    pub fn add(&mut self, actor: u16, bio: &Bio, now: Nanos) -> Option<RequestId> {
        let is_sync = bio.operation == Operation::Read || bio.flags.contains(RequestFlags::SYNC);
        let allocated = &mut self.allocated[usize::from(is_sync)];
        if *allocated >= self.rules.limit {
            return None;
        }
        *allocated += 1;
        let id = self.pool.add(Request {
            sector: bio.sector,
            sectors: bio.sectors,
            operation: bio.operation,
            flags: bio.flags,
            actor,
            context: bio.context,
            bios: 1,
            queued: now,
            inserted: now,
            ticket: 0,
            waiting: false,
        });
        let plug = &mut self.plugs[usize::from(actor)];
        plug.push(id);
        if plug.len() >= PLUG_REQUESTS {
            self.unplug(actor, now);
        }
        Some(id)
    }

    fn merge(&mut self, actor: u16, bio: &Bio) -> bool {
        let moves_data = matches!(bio.operation, Operation::Read | Operation::Write);
        if !moves_data || bio.flags.contains(RequestFlags::NOMERGE) {
            return false;
        }
        let max = self.rules.max_sectors;
        let fits = |request: &Request| {
            request.operation == bio.operation
                && request.flags == bio.flags
                && request.context == bio.context
                && request.sectors + bio.sectors <= max
        };
        for id in self.plugs[usize::from(actor)].iter().rev() {
            let request = self.pool.get_mut(*id);
            if fits(request) && request.end() == bio.sector {
                request.sectors += bio.sectors;
                request.bios += 1;
                return true;
            }
            if fits(request) && bio.sector + bio.sectors == request.sector {
                request.sector = bio.sector;
                request.sectors += bio.sectors;
                request.bios += 1;
                return true;
            }
        }
        let Some(id) = self.by_end.get(&bio.sector).copied() else {
            return false;
        };
        let by_task = self.rules.scheduler == SchedulerKind::Cfq;
        let request = self.pool.get_mut(id);
        let is_own = request.actor == actor;
        if !fits(request) || !is_own && by_task && request.is_sync() {
            return false;
        }
        request.sectors += bio.sectors;
        request.bios += 1;
        let end = request.end();
        if !is_own {
            let shares = self.shares.entry(id).or_default();
            match shares.iter_mut().find(|share| share.actor == actor) {
                Some(share) => {
                    share.bios += 1;
                    share.sectors += bio.sectors;
                }
                None => shares.push(Share {
                    actor,
                    bios: 1,
                    sectors: bio.sectors,
                }),
            }
        }
        self.by_end.remove(&bio.sector);
        self.by_end.insert(end, id);
        true
    }

    /// Flushes the plug of a task to the scheduler. Returns whether it held any request.
    pub fn unplug(&mut self, actor: u16, now: Nanos) -> bool {
        let mut plug = std::mem::take(&mut self.plugs[usize::from(actor)]);
        let any = !plug.is_empty();
        for id in plug.drain(..) {
            let request = self.pool.get_mut(id);
            request.inserted = now;
            if is_scheduled(request) {
                request.waiting = true;
                let end = request.end();
                self.by_end.insert(end, id);
                self.scheduler.insert(&self.pool, id, now);
            } else {
                self.direct.push_back(id);
            }
        }
        self.plugs[usize::from(actor)] = plug;
        any
    }

    /// The next request for the driver.
    pub fn dispatch(&mut self, now: Nanos) -> Option<RequestId> {
        if let Some(id) = self.put_back.pop() {
            return Some(id);
        }
        if self.rules.tags.is_some_and(|tags| self.in_driver >= tags) {
            return None;
        }
        let id = match self.direct.pop_front() {
            Some(id) => id,
            None => {
                let id = self.scheduler.dispatch(&self.pool, now)?;
                let request = self.pool.get_mut(id);
                request.waiting = false;
                let end = request.end();
                if self.by_end.get(&end) == Some(&id) {
                    self.by_end.remove(&end);
                }
                id
            }
        };
        self.in_driver += 1;
        Some(id)
    }

    /// Requeues a request of the driver; it is dispatched first.
    pub fn requeue(&mut self, id: RequestId) {
        self.put_back.push(id);
    }

    /// Takes the parts of a request that other tasks submitted; to be called before [`Self::complete`].
    pub fn take_shares(&mut self, id: RequestId) -> Vec<Share> {
        if self.shares.is_empty() {
            return Vec::new();
        }
        self.shares.remove(&id).unwrap_or_default()
    }

    /// Completes and removes a request.
    pub fn complete(&mut self, id: RequestId, now: Nanos) -> Request {
        self.shares.remove(&id);
        let request = self.pool.get(id).clone();
        self.in_driver -= 1;
        self.allocated[usize::from(request.is_sync())] -= 1;
        if is_scheduled(&request) {
            self.scheduler.completed(&self.pool, id, now);
        }
        self.pool.remove(id);
        request
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        self.pool.clear();
        self.scheduler = self.rules.make_scheduler();
        self.plugs.iter_mut().for_each(Vec::clear);
        self.by_end.clear();
        self.shares.clear();
        self.direct.clear();
        self.put_back.clear();
        self.allocated = [0; 2];
        self.in_driver = 0;
    }

    /// Returns a request.
    #[must_use]
    pub fn get(&self, id: RequestId) -> &Request {
        self.pool.get(id)
    }

    /// Whether any request waits for the driver.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.put_back.is_empty() || !self.direct.is_empty() || self.scheduler.waiting() > 0
    }

    /// Whether a task that got [`Submitted::Full`] may retry: an eighth of the requests is free.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let low = self.rules.limit - self.rules.limit / 8;
        self.allocated.iter().all(|allocated| *allocated < low)
    }

    /// Time at which the scheduler has to be asked again.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.scheduler.wake_at()
    }

    /// Number of requests in the driver.
    #[must_use]
    pub const fn in_driver(&self) -> u32 {
        self.in_driver
    }

    /// Number of bios merged into existing requests.
    #[must_use]
    pub const fn merges(&self) -> u64 {
        self.merges
    }
}

/// Whether a request goes through the scheduler; flushes, discards and FUA writes bypass it.
fn is_scheduled(request: &Request) -> bool {
    let moves_data = matches!(request.operation, Operation::Read | Operation::Write);
    moves_data && !request.flags.contains(RequestFlags::FUA)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(scheduler: SchedulerKind) -> RequestQueue {
        RequestQueue::new(QueueRules::usual(scheduler), 2)
    }

    const fn write(sector: u64, sectors: u64) -> Bio {
        Bio {
            sector,
            sectors,
            operation: Operation::Write,
            flags: RequestFlags(0),
            context: 0,
        }
    }

    fn sizes(queue: &mut RequestQueue) -> Vec<u64> {
        let ids: Vec<_> = std::iter::from_fn(|| queue.dispatch(Nanos::ZERO)).collect();
        ids.into_iter().map(|id| queue.get(id).sectors).collect()
    }

    #[test]
    fn pieces_in_order_become_requests_of_512_kib() {
        let mut queue = queue(SchedulerKind::Noop);
        for n in 0..300 {
            assert_eq!(queue.submit(0, &write(n * 8, 8), Nanos::ZERO), Submitted::Taken);
        }
        queue.unplug(0, Nanos::ZERO);
        assert_eq!(sizes(&mut queue), [1024, 1024, 352]);
    }

    #[test]
    fn a_piece_continues_a_request_that_waits_in_the_scheduler() {
        let mut queue = queue(SchedulerKind::Deadline);
        queue.submit(0, &write(0, 8), Nanos::ZERO);
        queue.unplug(0, Nanos::ZERO);
        queue.submit(0, &write(8, 8), Nanos::ZERO);
        assert_eq!(sizes(&mut queue), [16]);
        assert_eq!(queue.merges(), 1);
    }

    #[test]
    fn a_piece_that_is_not_to_be_merged_is_a_request() {
        let mut queue = queue(SchedulerKind::Noop);
        for sector in [0, 8] {
            let bio = Bio {
                flags: RequestFlags::NOMERGE,
                ..write(sector, 8)
            };
            queue.submit(0, &bio, Nanos::ZERO);
        }
        queue.unplug(0, Nanos::ZERO);
        assert_eq!(sizes(&mut queue), [8, 8]);
    }

    #[test]
    fn pieces_of_two_tasks_stay_two_requests() {
        let mut queue = queue(SchedulerKind::Noop);
        queue.submit(0, &write(0, 8), Nanos::ZERO);
        queue.submit(1, &write(8, 8), Nanos::ZERO);
        queue.unplug(0, Nanos::ZERO);
        queue.unplug(1, Nanos::ZERO);
        assert_eq!(sizes(&mut queue), [8, 8]);
    }

    /// Linux merges by place, not by task; cfq merges sync bios only within the queue of their task.
    #[test]
    fn a_piece_continues_the_waiting_request_of_another_task() {
        let read = Bio::plain(Operation::Read, 0, 8);
        let sync_write = Bio {
            flags: RequestFlags::SYNC,
            ..write(0, 8)
        };
        for scheduler in [
            SchedulerKind::Noop,
            SchedulerKind::Deadline,
            SchedulerKind::MqDeadline,
            SchedulerKind::None,
            SchedulerKind::Cfq,
        ] {
            for first in [read, sync_write, write(0, 8)] {
                let mut queue = queue(scheduler);
                queue.submit(0, &first, Nanos::ZERO);
                queue.unplug(0, Nanos::ZERO);
                for sector in [8, 16] {
                    queue.submit(1, &Bio { sector, ..first }, Nanos::ZERO);
                    queue.unplug(1, Nanos::ZERO);
                }
                let is_one = scheduler != SchedulerKind::Cfq || first == write(0, 8);
                let expected: &[u64] = if is_one { &[24] } else { &[8, 16] };
                let id = queue.dispatch(Nanos::ZERO).unwrap();
                assert_eq!(queue.get(id).sectors, expected[0], "{scheduler:?} {first:?}");
                let shares: Vec<Share> = queue.take_shares(id);
                let share = Share {
                    actor: 1,
                    bios: 2,
                    sectors: 16,
                };
                assert_eq!(shares, if is_one { vec![share] } else { Vec::new() });
            }
        }
    }

    #[test]
    fn the_129th_request_has_to_wait() {
        let mut queue = queue(SchedulerKind::Noop);
        for n in 0..128 {
            assert_eq!(queue.submit(0, &write(n * 100, 8), Nanos::ZERO), Submitted::Taken);
        }
        assert_eq!(queue.submit(0, &write(99_999, 8), Nanos::ZERO), Submitted::Full);
        let done = queue.dispatch(Nanos::ZERO).unwrap();
        queue.complete(done, Nanos::ZERO);
        assert_eq!(queue.submit(0, &write(99_999, 8), Nanos::ZERO), Submitted::Taken);
    }

    /// A commit block with FUA bypasses the scheduler: it is dispatched next, though it came last and has the highest
    /// sector.
    #[test]
    fn a_fua_write_passes_the_scheduler() {
        for scheduler in [SchedulerKind::Cfq, SchedulerKind::Deadline, SchedulerKind::Noop] {
            let mut queue = queue(scheduler);
            queue.submit(0, &write(0, 8), Nanos::ZERO);
            queue.unplug(0, Nanos::ZERO);
            let fua = Bio {
                flags: RequestFlags::SYNC.with(RequestFlags::FUA),
                ..write(500, 8)
            };
            queue.submit(1, &fua, Nanos::ZERO);
            queue.unplug(1, Nanos::ZERO);
            let first = queue.dispatch(Nanos::ZERO).unwrap();
            assert_eq!(queue.get(first).sector, 500);
            queue.complete(first, Nanos::ZERO);
            let second = queue.dispatch(Nanos::ZERO).unwrap();
            assert_eq!(queue.get(second).sector, 0);
        }
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut queue = queue(SchedulerKind::Deadline);
        for sector in [500, 100, 900] {
            queue.submit(0, &write(sector, 8), Nanos::ZERO);
        }
        queue.unplug(0, Nanos::ZERO);
        let first = queue.dispatch(Nanos::ZERO).unwrap();
        queue.requeue(first);
        assert_eq!(queue.dispatch(Nanos::ZERO), Some(first));
    }

    #[test]
    fn tags_bound_what_the_driver_has() {
        let rules = QueueRules {
            tags: Some(2),
            ..QueueRules::usual(SchedulerKind::None)
        };
        let mut queue = RequestQueue::new(rules, 1);
        for sector in [0, 100, 200] {
            queue.submit(0, &write(sector, 8), Nanos::ZERO);
        }
        queue.unplug(0, Nanos::ZERO);
        assert_eq!(sizes(&mut queue).len(), 2);
    }
}
