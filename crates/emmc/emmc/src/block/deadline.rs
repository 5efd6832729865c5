//! deadline and mq-deadline: batches in sector order, reads before writes, with deadlines.
//!
//! A batch continues upwards from the last request; a new one begins with the oldest request if its deadline has passed
//! or nothing is above. Reads may be preferred to writes a limited number of times. The versions of Linux differ in where
//! a direction continues ([`Continues`]). The kernel of the lab guest is the judge of its own version
//! (`crates/app/cli/tests/commands/emmc_schedulers.rs`), an executable specification that of all three.

#[cfg(test)]
mod specification;

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
    /// Continuation of a direction.
    pub continues: Continues,
}

/// Continuation of a direction after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continues {
    /// With the request that was the next one above when the last one was dispatched (deadline of Linux 3.0); a batch of
    /// the other direction forgets it.
    NextOfBatch,
    /// The same, but each direction keeps its own (mq-deadline before Linux 6.5).
    NextOfDirection,
    /// With the first request at or above the position of the last one of its direction, at first from 0 (mq-deadline
    /// since Linux 6.5).
    Position,
}

impl DeadlineRules {
    /// The defaults of Linux 3.0: 500 ms, 5 s, 16, 2.
    pub const LINUX_3_0: Self = Self {
        expire: [Nanos::from_millis(500), Nanos::from_millis(5000)],
        batch: 16,
        writes_starved: 2,
        continues: Continues::NextOfBatch,
    };

    /// The defaults of mq-deadline before Linux 6.5.
    pub const BEFORE_LINUX_6_5: Self = Self {
        continues: Continues::NextOfDirection,
        ..Self::LINUX_3_0
    };

    /// The defaults of mq-deadline since Linux 6.5.
    pub const LINUX_6_5: Self = Self {
        continues: Continues::Position,
        ..Self::LINUX_3_0
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
    /// Direction of the batch.
    direction: usize,
    /// The next request of each direction.
    next: [Option<(u64, RequestId)>; 2],
    /// Position of the last request of each direction.
    position: [u64; 2],
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
            direction: READ,
            next: [None; 2],
            position: [0; 2],
            batched: 0,
            starved: 0,
        }
    }

    fn choose_direction(&mut self) -> Option<usize> {
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

    /// The request with which a direction continues.
    fn continuation(&self, direction: usize) -> Option<RequestId> {
        let next = match self.rules.continues {
            Continues::NextOfBatch | Continues::NextOfDirection => self.next[direction],
            Continues::Position => self.sorted[direction]
                .range((self.position[direction], 0)..)
                .next()
                .copied(),
        };
        next.map(|(_, id)| id)
    }

    fn take(&mut self, pool: &Pool, direction: usize, id: RequestId) -> RequestId {
        let entry = (pool.get(id).sector, id);
        let above = self.sorted[direction].range(entry..).nth(1).copied();
        self.sorted[direction].remove(&entry);
        if self.rules.continues == Continues::NextOfBatch {
            self.next = [None; 2];
        }
        self.next[direction] = above;
        self.position[direction] = entry.0;
        self.direction = direction;
        self.batched += 1;
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
        if self.batched < self.rules.batch
            && let Some(id) = self.continuation(self.direction)
        {
            return Some(self.take(pool, self.direction, id));
        }
        let direction = self.choose_direction()?;
        let oldest = self.oldest(pool, direction)?;
        let is_late = pool.get(oldest).inserted + self.rules.expire[direction] <= now;
        let next = self.continuation(direction).filter(|_| !is_late);
        self.batched = 0;
        Some(self.take(pool, direction, next.unwrap_or(oldest)))
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
        let (mut scheduler, mut pool) = (Deadline::new(DeadlineRules::LINUX_3_0), Pool::default());
        for sector in [400, 100, 800, 300] {
            write(&mut scheduler, &mut pool, sector, Nanos::ZERO);
        }
        let order: Vec<_> = std::iter::from_fn(|| next(&mut scheduler, &mut pool, Nanos(1))).collect();
        assert_eq!(order, [400, 800, 100, 300]);
    }

    /// 500 comes between 400 and 800, of which 800 was next already; 900 comes when nothing is above. The present version
    /// looks from its position, at first 0, so it begins with the lowest.
    #[test]
    fn versions_differ_in_where_a_batch_continues() {
        for (rules, expected) in [
            (DeadlineRules::LINUX_3_0, [400, 800, 500, 900]),
            (DeadlineRules::BEFORE_LINUX_6_5, [400, 800, 500, 900]),
            (DeadlineRules::LINUX_6_5, [400, 500, 800, 900]),
        ] {
            let (mut scheduler, mut pool) = (Deadline::new(rules), Pool::default());
            write(&mut scheduler, &mut pool, 400, Nanos::ZERO);
            write(&mut scheduler, &mut pool, 800, Nanos::ZERO);
            let first = next(&mut scheduler, &mut pool, Nanos(1));
            write(&mut scheduler, &mut pool, 500, Nanos(1));
            let second = next(&mut scheduler, &mut pool, Nanos(1));
            let third = next(&mut scheduler, &mut pool, Nanos(1));
            write(&mut scheduler, &mut pool, 900, Nanos(1));
            let fourth = next(&mut scheduler, &mut pool, Nanos(1));
            assert_eq!([first, second, third, fourth], expected.map(Some), "{rules:?}");
        }
    }

    #[test]
    fn a_passed_deadline_is_served_when_the_batch_ends() {
        let rules = DeadlineRules {
            batch: 1,
            ..DeadlineRules::LINUX_3_0
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
            ..DeadlineRules::LINUX_3_0
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
