//! One queue of CFQ: its requests, its slice, and the choice of its next request.

use std::collections::{BTreeSet, VecDeque};

use media::Nanos;
use results::block_trace::RequestFlags;

use super::{CfqRules, DeviceKind, Key, ends_burst};
use crate::block::pool::{Pool, Request, RequestId};

/// The service trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// The async queue.
    Async,
    /// Sync queues for which the driver does not idle.
    SyncWithoutIdling,
    /// The other sync queues.
    Sync,
}

impl Tree {
    pub(super) const ALL: [Self; 3] = [Self::Async, Self::SyncWithoutIdling, Self::Sync];

    pub(super) const fn place(self) -> usize {
        match self {
            Self::Async => 0,
            Self::SyncWithoutIdling => 1,
            Self::Sync => 2,
        }
    }

    pub(super) const fn of(key: Key, queue: &Queue) -> Self {
        match key {
            None => Self::Async,
            Some(_) if queue.idles => Self::Sync,
            Some(_) => Self::SyncWithoutIdling,
        }
    }
}

/// On flash a request of fewer sectors counts as random.
const SMALL_SECTORS: u64 = 64;

/// On a disk a request farther away than this counts as random, in sectors.
const FAR_SECTORS: u64 = 800;

/// A queue is random if more than this number of its last 32 requests are.
const RANDOM_LIMIT: u32 = 4;

/// A queue with this number of waiting requests is deep.
const DEEP: usize = 4;

/// A queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) sorted: BTreeSet<(u64, RequestId)>,
    fifo: VecDeque<(u64, RequestId)>,
    /// The request to dispatch next, unless one has expired.
    pub(super) next: Option<RequestId>,
    /// Requests in the driver.
    pub(super) dispatched: u32,
    /// Requests dispatched in this slice.
    pub(super) slice_dispatched: u32,
    /// Start of the slice.
    pub(super) slice_start: Nanos,
    /// End of the slice; `None` until a request of it is done.
    pub(super) slice_end: Option<Nanos>,
    /// Part of the last slice that was not used (or exceeded, if negative), nanoseconds.
    pub(super) unused_slice: i64,
    /// Expired requests were looked for in this slice.
    pub(super) fifo_checked: bool,
    /// The queue ran dry at the end of its slice; its next request starts another slice.
    pub(super) waits_for_more: bool,
    /// Whether the driver idles for the queue.
    pub(super) idles: bool,
    /// Whether many requests waited at the same time.
    pub(super) deep: bool,
    /// Waiting requests of metadata.
    pub(super) metadata: u32,
    /// The tree that contains it while it is busy, and its entry there.
    pub(super) tree: Option<Tree>,
    pub(super) entry: (i64, u64),
    last_end: u64,
    /// A bit for each of the last 32 requests: whether it was random.
    random: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            sorted: BTreeSet::new(),
            fifo: VecDeque::new(),
            next: None,
            dispatched: 0,
            slice_dispatched: 0,
            slice_start: Nanos::ZERO,
            slice_end: None,
            unused_slice: 0,
            fifo_checked: false,
            waits_for_more: false,
            idles: true,
            deep: false,
            metadata: 0,
            tree: None,
            entry: (0, 0),
            last_end: 0,
            random: 0,
        }
    }
}

impl Queue {
    /// A slice begins; its time begins when a request is done.
    pub(super) fn begin_slice(&mut self) {
        self.slice_end = None;
        self.slice_dispatched = 0;
        self.fifo_checked = false;
        self.waits_for_more = false;
    }

    pub(super) fn add(&mut self, pool: &Pool, id: RequestId, position: u64, rules: &CfqRules) {
        let request = pool.get(id);
        self.sorted.insert((request.sector, id));
        self.fifo.push_back((request.ticket, id));
        self.metadata += u32::from(request.flags.contains(RequestFlags::META));
        self.next = closer(pool, self.next, Some(id), position, rules);
    }

    /// Removes a request for the driver.
    pub(super) fn take(&mut self, pool: &Pool, id: RequestId, rules: &CfqRules) {
        let request = pool.get(id);
        self.sorted.remove(&(request.sector, id));
        self.metadata -= u32::from(request.flags.contains(RequestFlags::META));
        self.dispatched += 1;
        self.slice_dispatched += 1;
        let above = self.sorted.range((request.sector, id)..).next();
        let after = above.or_else(|| self.sorted.first()).map(|(_, id)| *id);
        let before = self
            .sorted
            .range(..(request.sector, id))
            .next_back()
            .map(|(_, id)| *id);
        self.next = closer(pool, after, before, request.sector, rules);
    }

    /// The request that waits longest.
    pub(super) fn oldest(&mut self, pool: &Pool) -> Option<RequestId> {
        while let Some(noted) = self.fifo.front().copied() {
            let waits = pool.still_waits(noted) && self.sorted.contains(&(pool.get(noted.1).sector, noted.1));
            if waits {
                return Some(noted.1);
            }
            self.fifo.pop_front();
        }
        None
    }

    /// Decides whether the driver idles for the queue, after `request` was added.
    pub(super) fn update_idling(&mut self, pool: &Pool, request: &Request, rules: &CfqRules) {
        let distance = match self.last_end {
            0 => 0,
            end => end.abs_diff(request.sector),
        };
        let is_random = match rules.device {
            DeviceKind::Flash => request.sectors < SMALL_SECTORS,
            DeviceKind::Disk => distance > FAR_SECTORS,
        };
        self.random = self.random << 1 | u32::from(is_random);
        self.last_end = request.end();
        self.deep |= self.sorted.len() >= DEEP;
        let next_ends = self.next.is_some_and(|id| ends_burst(pool.get(id)));
        let seeks = !self.deep && self.is_random();
        self.idles = !next_ends && rules.slice_idle > Nanos::ZERO && !seeks;
    }

    /// A deep random queue that uses less than half of its slice is not worth idling.
    pub(super) fn give_up_idling_if_slow(&mut self, now: Nanos) {
        let is_slow = self
            .slice_end
            .is_none_or(|end| end.saturating_sub(now) > now.saturating_sub(self.slice_start));
        if self.is_random() && self.idles && is_slow {
            self.deep = false;
            self.idles = false;
        }
    }

    const fn is_random(&self) -> bool {
        self.random.count_ones() > RANDOM_LIMIT
    }
}

/// The better of two requests of one queue for a device at `position`: metadata, then the shorter way.
fn closer(
    pool: &Pool,
    one: Option<RequestId>,
    other: Option<RequestId>,
    position: u64,
    rules: &CfqRules,
) -> Option<RequestId> {
    let (Some(first), Some(second)) = (one, other) else {
        return one.or(other);
    };
    if first == second {
        return one;
    }
    let (a, b) = (pool.get(first), pool.get(second));
    let is_metadata = |request: &Request| request.flags.contains(RequestFlags::META);
    if is_metadata(a) != is_metadata(b) {
        return Some(if is_metadata(a) { first } else { second });
    }
    let is_first = match (way(a.sector, position, rules), way(b.sector, position, rules)) {
        (Some(one), Some(other)) if one == other => a.sector >= b.sector,
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, Some(_)) => false,
        // Both are far behind: one seek backwards to the lowest.
        (None, None) => a.sector <= b.sector,
    };
    Some(if is_first { first } else { second })
}

/// Cost of the way to a sector; `None` if it is too far behind.
const fn way(sector: u64, position: u64, rules: &CfqRules) -> Option<u64> {
    if sector >= position {
        return Some(sector - position);
    }
    let back = position - sector;
    if back <= rules.back_seek_max {
        Some(back * rules.back_seek_penalty)
    } else {
        None
    }
}
