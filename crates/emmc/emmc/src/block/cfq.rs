//! CFQ as in Linux 3.0: one queue for the sync requests of each task, one for all async writes.
//!
//! Rules, from the kernel's documentation (`Documentation/block/cfq-iosched.txt`) and observed behaviour:
//! - Queues with requests are *busy*. They wait in three service trees: async, sync without idling, sync. A tree is
//!   served for a share of 300 ms, then the tree with the queue that waits longest. A queue that ran dry stays busy until
//!   its slice ends.
//! - A queue has a time slice, which starts when its first request completes. Async queues also lose their turn after 16
//!   requests if other queues are busy.
//! - In the driver a queue may have `quantum / 2` requests. Beyond that: none while other queues are busy and its slice
//!   is about to be used up; `quantum` while other queues are busy; any number if it is the only busy queue, or the only
//!   busy sync queue.
//! - Async writes ramp up: one request per sync slice (100 ms) since a sync request was last late (125 ms).
//! - Async writes wait while a sync request is in the driver. A sync queue for which the driver idles, or which is alone
//!   in its tree, waits until the driver has done all async writes. Sync requests preempt async queues.
//! - After the last request of a sync queue the driver idles for `slice_idle`, or for `group_idle` if only one queue is
//!   busy. It does not idle on non-rotational devices that queue requests; that is found out from the depth of the
//!   driver's queue. The only busy queue waits at the end of its slice until the driver has done its requests.
//! - Order inside a queue: the next request above the last position, or a close one below it, at twice its distance;
//!   metadata first; an expired request first in each slice.
//!
//! Not modelled: priorities and classes, groups of tasks (cgroups), cooperating queues, think times, the scaling of
//! slices with more than three sync queues.

mod queue;
#[cfg(test)]
mod specification;

use std::collections::{BTreeMap, BTreeSet};

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use self::queue::{Queue, Tree};
use super::pool::{Pool, Request, RequestId};
use super::scheduler::Scheduler;

/// Settings of CFQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfqRules {
    /// Maximum number of requests of one queue in the driver while other queues are busy.
    pub quantum: u32,
    /// Idle time of the driver for a queue that may continue.
    pub slice_idle: Nanos,
    /// Idle time of the driver for the only busy queue.
    pub group_idle: Nanos,
    /// Time slice of a sync queue.
    pub slice_sync: Nanos,
    /// Time slice of the async queue.
    pub slice_async: Nanos,
    /// Requests of a slice of the async queue while other queues are busy.
    pub slice_async_requests: u32,
    /// Expiry of a sync request.
    pub expire_sync: Nanos,
    /// Expiry of an async request.
    pub expire_async: Nanos,
    /// Longest seek backwards that is considered, sectors.
    pub back_seek_max: u64,
    /// Factor of the distance of a seek backwards.
    pub back_seek_penalty: u64,
    /// Whether async writes ramp up (`low_latency`).
    pub ramp_up: RampUp,
    /// Kind of the device.
    pub device: DeviceKind,
}

/// Whether async writes ramp up after sync requests were late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RampUp {
    /// They do.
    On,
    /// They do not.
    Off,
}

/// Kind of a device (`queue/rotational`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Without seek times, such as a card.
    Flash,
    /// With seek times.
    Disk,
}

impl CfqRules {
    /// The kernel's defaults, on flash.
    pub const USUAL: Self = Self {
        quantum: 8,
        slice_idle: Nanos::from_millis(8),
        group_idle: Nanos::from_millis(8),
        slice_sync: Nanos::from_millis(100),
        slice_async: Nanos::from_millis(40),
        slice_async_requests: 16,
        expire_sync: Nanos::from_millis(125),
        expire_async: Nanos::from_millis(250),
        back_seek_max: 16 << 11,
        back_seek_penalty: 2,
        ramp_up: RampUp::On,
        device: DeviceKind::Flash,
    };
}

/// The start counts as if a sync request had been late this long before.
const BEFORE_START: Nanos = Nanos::from_millis(1000);

/// Latency within which every busy queue should be served.
const TARGET_LATENCY: Nanos = Nanos::from_millis(300);

/// Shortest time for which a tree is served.
const TREE_TIME_MIN: Nanos = Nanos::from_millis(2);

/// Slice of a sync queue of the highest priority, as a multiple of the usual one in fifths.
const LONGEST_SLICE_FIFTHS: u64 = 9;

/// From this depth on a device counts as queueing.
const QUEUEING_DEPTH: u32 = 5;

/// Number of completions after which a device is judged.
const QUEUEING_SAMPLES: u32 = 50;

/// Key of a queue: the task, or `None` for all async writes.
pub(crate) type Key = Option<u16>;

/// The CFQ scheduler.
#[derive(Clone, Debug)]
pub struct Cfq {
    rules: CfqRules,
    queues: BTreeMap<Key, Queue>,
    /// Busy queues of each tree, by the time since when they wait.
    trees: [BTreeSet<(i64, u64, Key)>; 3],
    insertions: u64,
    active: Option<Key>,
    /// The tree being served, and the end of its time.
    serving: (Tree, Nanos),
    /// The driver idles until then.
    idle_until: Option<Nanos>,
    position: u64,
    sync_in_driver: u32,
    async_in_driver: u32,
    /// Time at which a sync request was last late; `None` if not since the start.
    last_delayed_sync: Option<Nanos>,
    waiting: usize,
    /// Largest number of requests seen in the driver, and the number of observations.
    depth_seen: (u32, u32),
    /// Whether the device queues requests; `None` until that is known, which counts as yes.
    queueing: Option<bool>,
}

pub(crate) fn key_of(request: &Request) -> Key {
    request.is_sync().then_some(request.actor)
}

/// Whether no further request is to be expected after this one (REQ_NOIDLE).
pub(crate) fn ends_burst(request: &Request) -> bool {
    request.operation != Operation::Read && !request.flags.contains(RequestFlags::IDLE)
}

impl Cfq {
    /// An empty scheduler.
    #[must_use]
    pub fn new(rules: CfqRules) -> Self {
        Self {
            rules,
            queues: BTreeMap::new(),
            trees: [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()],
            insertions: 0,
            active: None,
            serving: (Tree::SyncWithoutIdling, Nanos::ZERO),
            idle_until: None,
            position: 0,
            sync_in_driver: 0,
            async_in_driver: 0,
            last_delayed_sync: None,
            waiting: 0,
            depth_seen: (0, 0),
            queueing: None,
        }
    }

    fn queue(&self, key: Key) -> &Queue {
        &self.queues[&key]
    }

    fn queue_mut(&mut self, key: Key) -> &mut Queue {
        self.queues.get_mut(&key).expect("queues are never removed")
    }

    fn busy(&self) -> usize {
        self.trees.iter().map(BTreeSet::len).sum()
    }

    fn busy_sync(&self) -> usize {
        self.busy() - self.trees[Tree::Async.place()].len()
    }

    fn in_driver(&self) -> u32 {
        self.sync_in_driver + self.async_in_driver
    }

    fn slice_of(&self, key: Key) -> Nanos {
        match key {
            Some(_) => self.rules.slice_sync,
            None => self.rules.slice_async,
        }
    }

    fn slice_is_used(&self, key: Key, now: Nanos) -> bool {
        self.queue(key).slice_end.is_some_and(|end| now >= end)
    }

    fn never_idles(&self) -> bool {
        self.rules.device == DeviceKind::Flash && self.queueing.unwrap_or(true)
    }

    /// Whether it is worth waiting for the next request of a busy queue.
    fn should_idle(&self, key: Key) -> bool {
        let queue = self.queue(key);
        if self.rules.slice_idle == Nanos::ZERO {
            return false;
        }
        if key.is_some() && queue.idles && !self.never_idles() {
            return true;
        }
        let alone = queue.tree.is_some_and(|tree| self.trees[tree.place()].len() == 1);
        alone && key.is_some()
    }

    // Trees.

    /// Puts a busy queue into its tree, behind those that wait longer.
    fn enter_tree(&mut self, key: Key, now: Nanos) {
        self.leave_tree(key);
        let others = u64::try_from(self.busy()).unwrap_or(u64::MAX);
        let longest = Nanos(self.rules.slice_sync.0 / 5 * LONGEST_SLICE_FIFTHS);
        let offset = longest.saturating_sub(self.slice_of(key)).times(others);
        let unused = std::mem::take(&mut self.queue_mut(key).unused_slice);
        self.insert_into_tree(key, signed(now + offset) - unused);
    }

    /// Puts a busy queue at the front of its tree.
    fn enter_tree_in_front(&mut self, key: Key, now: Nanos) {
        self.leave_tree(key);
        let tree = Tree::of(key, self.queue(key));
        let first = self.trees[tree.place()].first().map(|(time, ..)| *time);
        self.insert_into_tree(key, first.unwrap_or(signed(now)) - 1_000_000_000);
    }

    fn insert_into_tree(&mut self, key: Key, time: i64) {
        let tree = Tree::of(key, self.queue(key));
        self.insertions += 1;
        let entry = (time, self.insertions, key);
        self.trees[tree.place()].insert(entry);
        let queue = self.queue_mut(key);
        queue.tree = Some(tree);
        queue.entry = (time, entry.1);
    }

    fn leave_tree(&mut self, key: Key) {
        let queue = self.queue_mut(key);
        let (time, number) = queue.entry;
        if let Some(tree) = queue.tree.take() {
            self.trees[tree.place()].remove(&(time, number, key));
        }
    }

    /// Chooses the tree to serve; keeps the present one while it has time and queues.
    fn choose_tree(&mut self, now: Nanos) {
        let (tree, end) = self.serving;
        if !self.trees[tree.place()].is_empty() && now <= end {
            return;
        }
        let first = |tree: Tree| self.trees[tree.place()].first().map(|(time, ..)| *time);
        let oldest = Tree::ALL.into_iter().filter(|tree| first(*tree).is_some());
        let Some(tree) = oldest.min_by_key(|tree| first(*tree)) else {
            return;
        };
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX).max(1);
        let (queues, busy) = (count(self.trees[tree.place()].len()), count(self.busy()));
        let mut time = Nanos(TARGET_LATENCY.0 * queues / busy);
        time = match tree {
            Tree::Async => Nanos(time.0 * self.rules.slice_async.0 / self.rules.slice_sync.0.max(1)),
            _ => time.max(self.rules.slice_idle.times(2)),
        };
        self.serving = (tree, now + time.max(TREE_TIME_MIN));
    }

    // Slices.

    /// The queue to serve; `None` if nothing waits, or requests are held back.
    fn select(&mut self, now: Nanos) -> Option<Key> {
        if self.waiting == 0 {
            return None;
        }
        if let Some(key) = self.active {
            if let Some(kept) = self.keep_active(key, now) {
                return kept;
            }
            self.expire(key, Expiry::Early, now);
        }
        self.choose_tree(now);
        let (_, _, key) = *self.trees[self.serving.0.place()].first()?;
        self.idle_until = None;
        self.active = Some(key);
        self.queue_mut(key).begin_slice();
        Some(key)
    }

    /// Decides about the active queue: serve it, hold requests back, or (`None`) choose another one.
    fn keep_active(&mut self, key: Key, now: Nanos) -> Option<Option<Key>> {
        let is_empty = self.queue(key).sorted.is_empty();
        if self.queue(key).waits_for_more && !is_empty {
            return None;
        }
        let in_driver = self.queue(key).dispatched > 0;
        let alone = self.busy() == 1;
        if self.slice_is_used(key, now) {
            if alone && is_empty && in_driver && self.should_idle(key) {
                return Some(None);
            }
        } else {
            if !is_empty {
                return Some(Some(key));
            }
            if self.idle_until.is_some() {
                return Some(None);
            }
            self.queue_mut(key).give_up_idling_if_slow(now);
            if in_driver && self.should_idle(key) {
                return Some(None);
            }
        }
        let waits_for_group = self.rules.group_idle > Nanos::ZERO && alone && self.in_driver() > 0;
        waits_for_group.then_some(None)
    }

    /// Ends the slice of the active queue.
    fn expire(&mut self, key: Key, how: Expiry, now: Nanos) {
        self.idle_until = None;
        self.active = None;
        let slice = self.slice_of(key);
        let queue = self.queue_mut(key);
        queue.waits_for_more = false;
        if how == Expiry::TimedOut {
            queue.unused_slice = match queue.slice_end {
                Some(end) => signed(end) - signed(now),
                None => signed(slice),
            };
        }
        if queue.sorted.is_empty() {
            self.leave_tree(key);
        } else {
            self.enter_tree(key, now);
        }
    }

    /// The idle timer: gives up on the active queue.
    fn run_timer(&mut self, now: Nanos) {
        if self.idle_until.is_none_or(|until| now < until) {
            return;
        }
        self.idle_until = None;
        if let Some(key) = self.active
            && (self.slice_is_used(key, now) || self.queue(key).sorted.is_empty())
        {
            self.queue_mut(key).deep = false;
            self.expire(key, Expiry::TimedOut, now);
        }
    }

    fn preempts(&self, key: Key, request: &Request, now: Nanos) -> bool {
        let Some(active) = self.active.filter(|active| *active != key) else {
            return false;
        };
        if key.is_some() && active.is_none() {
            return true;
        }
        let queue = self.queue(active);
        let quiet = Tree::SyncWithoutIdling;
        let both_quiet = self.serving.0 == quiet && Tree::of(key, self.queue(key)) == quiet;
        let takes_over = both_quiet && self.trees[quiet.place()].len() == 2 && queue.sorted.is_empty();
        let is_metadata = request.flags.contains(RequestFlags::META) && queue.metadata == 0;
        // An async request never preempts a sync queue.
        key.is_some() && (self.slice_is_used(active, now) || takes_over || is_metadata)
            || key.is_none() && self.slice_is_used(active, now)
    }

    // Dispatch.

    fn may_dispatch(&self, key: Key, now: Nanos) -> bool {
        let queue = self.queue(key);
        if self.async_in_driver > 0 && self.should_idle(key) {
            return false;
        }
        if key.is_none() && self.sync_in_driver > 0 {
            return false;
        }
        let mut limit = (self.rules.quantum / 2).max(1);
        if queue.dispatched >= limit {
            let only_sync = key.is_some() && self.busy_sync() == 1;
            let alone = self.busy() == 1 || only_sync;
            if !alone && self.slice_is_used_soon(queue, now) {
                return false;
            }
            limit = if alone { u32::MAX } else { self.rules.quantum };
        }
        if key.is_none() && self.rules.ramp_up == RampUp::On {
            let since = match self.last_delayed_sync {
                Some(late) => now.saturating_sub(late),
                None => now + BEFORE_START,
            };
            let depth = u32::try_from(since.0 / self.rules.slice_sync.0.max(1)).unwrap_or(u32::MAX);
            limit = limit.min(if queue.dispatched == 0 {
                depth.max(1)
            } else {
                depth
            });
        }
        queue.dispatched < limit
    }

    /// Whether the requests in the driver use up the slice. That is unknown before the first one is done.
    fn slice_is_used_soon(&self, queue: &Queue, now: Nanos) -> bool {
        let needed = self.rules.slice_idle.times(u64::from(queue.dispatched));
        queue.slice_end.is_none_or(|end| now + needed > end)
    }

    fn expired_request(&mut self, pool: &Pool, key: Key, now: Nanos) -> Option<RequestId> {
        let expiry = match key {
            Some(_) => self.rules.expire_sync,
            None => self.rules.expire_async,
        };
        let queue = self.queue_mut(key);
        if std::mem::replace(&mut queue.fifo_checked, true) {
            return None;
        }
        queue
            .oldest(pool)
            .filter(|id| pool.get(*id).inserted + expiry <= now)
    }

    /// Observes the depth of the driver's queue before a request is completed.
    fn observe_depth(&mut self) {
        let in_driver = self.in_driver();
        self.depth_seen.0 = self.depth_seen.0.max(in_driver);
        let queued = u32::try_from(self.waiting).unwrap_or(u32::MAX);
        if self.queueing == Some(true) || queued.max(in_driver) <= QUEUEING_DEPTH {
            return;
        }
        // An active queue for which the driver idles may keep the depth low.
        let keeps_low = self.active.is_some_and(|key| {
            let queue = self.queue(key);
            let own = u32::try_from(queue.sorted.len()).unwrap_or(u32::MAX);
            key.is_some() && queue.idles && queue.dispatched.saturating_add(own) < QUEUEING_DEPTH
        });
        if keeps_low && in_driver < QUEUEING_DEPTH {
            return;
        }
        self.depth_seen.1 += 1;
        if self.depth_seen.1 > QUEUEING_SAMPLES {
            self.queueing = Some(self.depth_seen.0 >= QUEUEING_DEPTH);
        }
    }

    /// After the completion of a request of the active queue.
    fn completed_of_active(&mut self, key: Key, now: Nanos) {
        let slice = self.slice_of(key);
        let alone = self.busy() == 1;
        let extension = match self.rules.slice_idle {
            Nanos::ZERO => self.rules.group_idle,
            idle => idle,
        };
        let queue = self.queue_mut(key);
        let is_empty = queue.sorted.is_empty();
        if queue.slice_end.is_none() {
            queue.slice_start = now;
            queue.slice_end = Some(now + slice);
        }
        if is_empty && alone && queue.slice_end.is_some_and(|end| now >= end) {
            queue.slice_end = Some(now + extension);
            queue.waits_for_more = true;
        }
        if self.slice_is_used(key, now) {
            self.expire(key, Expiry::TimedOut, now);
        } else if key.is_some() && is_empty {
            self.begin_idling(key, now);
        }
    }

    fn begin_idling(&mut self, key: Key, now: Nanos) {
        if self.never_idles() || self.queue(key).dispatched > 0 {
            return;
        }
        if self.should_idle(key) {
            self.idle_until = Some(now + self.rules.slice_idle);
        } else if self.rules.group_idle > Nanos::ZERO && self.busy() == 1 {
            self.idle_until = Some(now + self.rules.group_idle);
        }
    }
}

/// Reason why a slice ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// Its time is over, or another queue preempts it: the rest of the slice counts for the next turn.
    TimedOut,
    /// The queue has nothing to do, or did its share.
    Early,
}

/// A time as a signed number, for positions in the trees.
fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX / 4)
}

impl Scheduler for Cfq {
    fn insert(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        self.run_timer(now);
        let request = pool.get(id);
        let key = key_of(request);
        let (rules, position) = (self.rules, self.position);
        let queue = self.queues.entry(key).or_default();
        queue.add(pool, id, position, &rules);
        self.waiting += 1;
        if self.queue(key).tree.is_none() {
            self.enter_tree(key, now);
        }
        if key.is_some() {
            self.queue_mut(key).update_idling(pool, request, &rules);
        }
        if self.active == Some(key) {
            self.idle_until = None;
        } else if self.preempts(key, request, now) {
            let active = self.active.expect("only an active queue is preempted");
            let other_tree = self.queue(active).tree != Some(Tree::of(key, self.queue(key)));
            self.expire(active, Expiry::TimedOut, now);
            if other_tree {
                self.serving.1 = now.saturating_sub(Nanos(1));
            }
            self.enter_tree_in_front(key, now);
            self.queue_mut(key).begin_slice();
        }
    }

    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId> {
        self.run_timer(now);
        let key = self.select(now)?;
        if !self.may_dispatch(key, now) {
            return None;
        }
        let expired = self.expired_request(pool, key, now);
        let rules = self.rules;
        let queue = self.queue_mut(key);
        let id = expired.or(queue.next)?;
        queue.take(pool, id, &rules);
        let taken = queue.slice_dispatched;
        let request = pool.get(id);
        self.position = request.end();
        self.waiting -= 1;
        match key {
            Some(_) => self.sync_in_driver += 1,
            None => self.async_in_driver += 1,
        }
        if key.is_none() && self.busy() > 1 && taken >= rules.slice_async_requests {
            self.expire(key, Expiry::Early, now);
        }
        Some(id)
    }

    fn completed(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        self.run_timer(now);
        self.observe_depth();
        let request = pool.get(id);
        let key = key_of(request);
        match key {
            Some(_) => self.sync_in_driver -= 1,
            None => self.async_in_driver -= 1,
        }
        if key.is_some() && request.queued + self.rules.expire_sync <= now {
            self.last_delayed_sync = Some(now);
        }
        self.queue_mut(key).dispatched -= 1;
        if self.active == Some(key) {
            self.completed_of_active(key, now);
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
mod tests;
