//! noop and none: first come, first served.
//!
//! What comes nearly at once may be taken for unordered, and is then given upwards by sector: the threads that bring a live
//! device its requests overtake each other, and would tear a stream into pieces that do not follow each other.

use std::collections::VecDeque;

use media::Nanos;

use super::pool::{Pool, RequestId};
use super::scheduler::Scheduler;

/// The queue.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    queue: VecDeque<RequestId>,
    /// Requests that come so soon after others may go before these.
    unordered_within: Nanos,
}

impl Fifo {
    /// A queue that takes for unordered what comes within so long.
    #[must_use]
    pub fn unordered_within(unordered_within: Nanos) -> Self {
        Self {
            queue: VecDeque::new(),
            unordered_within,
        }
    }
}

impl Scheduler for Fifo {
    fn insert(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        let sector = pool.get(id).sector;
        let passes = |other: &&RequestId| {
            let other = pool.get(**other);
            let soon = now.saturating_sub(other.inserted) <= self.unordered_within;
            self.unordered_within > Nanos::ZERO && soon && other.sector > sector
        };
        let passed = self.queue.iter().rev().take_while(passes).count();
        self.queue.insert(self.queue.len() - passed, id);
    }

    fn dispatch(&mut self, _: &Pool, _: Nanos) -> Option<RequestId> {
        self.queue.pop_front()
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use results::block_trace::{Operation, RequestFlags};

    use super::super::scheduler::tests::{insert, next};
    use super::*;

    fn given(fifo: &mut Fifo, arrivals: &[(u64, u64)]) -> Vec<u64> {
        let mut pool = Pool::default();
        for (micros, sector) in arrivals {
            let now = Nanos::from_micros(*micros);
            insert(
                fifo,
                &mut pool,
                *sector,
                Operation::Write,
                RequestFlags::default(),
                0,
                now,
            );
        }
        std::iter::from_fn(|| next(fifo, &mut pool, Nanos::ZERO)).collect()
    }

    #[test]
    fn requests_that_overtook_each_other_are_put_in_order_and_others_stay() {
        let arrivals = [(0, 900), (500, 24), (600, 8), (700, 16), (1500, 0)];
        let mut fifo = Fifo::unordered_within(Nanos::from_micros(200));
        assert_eq!(given(&mut fifo, &arrivals), [900, 8, 16, 24, 0]);
        assert_eq!(given(&mut Fifo::default(), &arrivals), [900, 24, 8, 16, 0]);
    }

    /// A stream of requests below keeps nobody waiting for longer than the time within which there is no order.
    #[test]
    fn nobody_is_passed_by_what_comes_later_than_that() {
        let arrivals = [(0, 900), (150, 80), (300, 70), (450, 60)];
        let mut fifo = Fifo::unordered_within(Nanos::from_micros(200));
        assert_eq!(given(&mut fifo, &arrivals), [80, 900, 60, 70]);
    }
}
