//! deadline: batches in sector order, reads before writes, with deadlines.
//!
//! A batch continues where the previous one ended; a new one begins with the oldest request if its deadline has
//! passed. Reads may be preferred to writes a limited number of times.

use std::collections::{BTreeSet, VecDeque};

use media::Nanos;
use results::block_trace::Operation;

use super::pool::{Pool, RequestId};
use super::scheduler::Scheduler;

/// Settings of deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineRules {
    /// Deadline of a read and of a write.
    pub expire: [Nanos; 2],
    /// Requests per batch.
    pub batch: u32,
    /// Number of times that reads may go before waiting writes.
    pub writes_starved: u32,
}

impl DeadlineRules {
    /// The kernel's defaults: 500 ms, 5 s, 16, 2.
    pub const USUAL: Self = Self {
        expire: [Nanos::from_millis(500), Nanos::from_millis(5000)],
        batch: 16,
        writes_starved: 2,
    };
}

const READ: usize = 0;
const WRITE: usize = 1;

/// The deadline scheduler.
#[derive(Clone, Debug)]
pub struct Deadline {
    rules: DeadlineRules,
    sorted: [BTreeSet<(u64, RequestId)>; 2],
    fifo: [VecDeque<(u64, RequestId)>; 2],
    /// Direction of the batch, and the sector at which it continues.
    batch: Option<(usize, u64)>,
    batched: u32,
    starved: u32,
}

impl Deadline {
    /// An empty scheduler.
    #[must_use]
    pub fn new(rules: DeadlineRules) -> Self {
        Self {
            rules,
            sorted: [BTreeSet::new(), BTreeSet::new()],
            fifo: [VecDeque::new(), VecDeque::new()],
            batch: None,
            batched: 0,
            starved: 0,
        }
    }

    fn direction(&mut self) -> Option<usize> {
        let (reads, writes) = (!self.sorted[READ].is_empty(), !self.sorted[WRITE].is_empty());
        match (reads, writes) {
            (true, true) if self.starved < self.rules.writes_starved => {
                self.starved += 1;
                Some(READ)
            }
            (_, true) => {
                self.starved = 0;
                Some(WRITE)
            }
            (true, false) => Some(READ),
            (false, false) => None,
        }
    }

    fn oldest(&mut self, pool: &Pool, direction: usize) -> Option<RequestId> {
        while let Some(noted) = self.fifo[direction].front() {
            if pool.still_waits(*noted) && self.is_here(pool, direction, noted.1) {
                return Some(noted.1);
            }
            self.fifo[direction].pop_front();
        }
        None
    }

    fn is_here(&self, pool: &Pool, direction: usize, id: RequestId) -> bool {
        self.sorted[direction].contains(&(pool.get(id).sector, id))
    }

    fn at_or_above(&self, direction: usize, sector: u64) -> Option<RequestId> {
        self.sorted[direction]
            .range((sector, 0)..)
            .next()
            .map(|(_, id)| *id)
    }

    fn take(&mut self, pool: &Pool, direction: usize, id: RequestId) -> RequestId {
        let request = pool.get(id);
        self.sorted[direction].remove(&(request.sector, id));
        self.batch = Some((direction, request.end()));
        id
    }
}

impl Scheduler for Deadline {
    fn insert(&mut self, pool: &Pool, id: RequestId, _: Nanos) {
        let request = pool.get(id);
        let direction = usize::from(request.operation != Operation::Read);
        self.sorted[direction].insert((request.sector, id));
        self.fifo[direction].push_back((request.ticket, id));
    }

    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId> {
        if let Some((direction, sector)) = self.batch
            && self.batched < self.rules.batch
            && let Some(id) = self.at_or_above(direction, sector)
        {
            self.batched += 1;
            return Some(self.take(pool, direction, id));
        }
        let direction = self.direction()?;
        self.batched = 1;
        let oldest = self.oldest(pool, direction)?;
        let expired = pool.get(oldest).inserted + self.rules.expire[direction] <= now;
        let goes_on = match self.batch {
            Some((of, sector)) if of == direction && !expired => self.at_or_above(direction, sector),
            _ => None,
        };
        Some(self.take(pool, direction, goes_on.unwrap_or(oldest)))
    }

    fn waiting(&self) -> usize {
        self.sorted.iter().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use results::block_trace::RequestFlags;

    use super::super::scheduler::tests::{insert, next};
    use super::*;

    fn write(scheduler: &mut Deadline, pool: &mut Pool, sector: u64, now: Nanos) {
        let flags = RequestFlags::default();
        insert(scheduler, pool, sector, Operation::Write, flags, 0, now);
    }

    #[test]
    fn a_batch_goes_up_from_the_oldest_request() {
        let (mut scheduler, mut pool) = (Deadline::new(DeadlineRules::USUAL), Pool::default());
        for sector in [400, 100, 800, 300] {
            write(&mut scheduler, &mut pool, sector, Nanos::ZERO);
        }
        let order: Vec<_> = std::iter::from_fn(|| next(&mut scheduler, &mut pool, Nanos(1))).collect();
        assert_eq!(order, [400, 800, 100, 300]);
    }

    #[test]
    fn a_passed_deadline_is_served_when_the_batch_ends() {
        let rules = DeadlineRules {
            batch: 1,
            ..DeadlineRules::USUAL
        };
        let (mut scheduler, mut pool) = (Deadline::new(rules), Pool::default());
        write(&mut scheduler, &mut pool, 500, Nanos::ZERO);
        write(&mut scheduler, &mut pool, 100, Nanos::ZERO);
        write(&mut scheduler, &mut pool, 900, Nanos::from_millis(1000));
        assert_eq!(next(&mut scheduler, &mut pool, Nanos::from_millis(1)), Some(500));
        assert_eq!(
            next(&mut scheduler, &mut pool, Nanos::from_millis(5001)),
            Some(100)
        );
    }

    #[test]
    fn reads_pass_writes_twice() {
        let rules = DeadlineRules {
            batch: 1,
            ..DeadlineRules::USUAL
        };
        let (mut scheduler, mut pool) = (Deadline::new(rules), Pool::default());
        let flags = RequestFlags::default();
        for sector in [1000, 2000, 3000] {
            insert(
                &mut scheduler,
                &mut pool,
                sector,
                Operation::Read,
                flags,
                0,
                Nanos::ZERO,
            );
        }
        write(&mut scheduler, &mut pool, 10, Nanos::ZERO);
        let order: Vec<_> = std::iter::from_fn(|| next(&mut scheduler, &mut pool, Nanos(1))).collect();
        assert_eq!(order, [1000, 2000, 10, 3000]);
    }
}
