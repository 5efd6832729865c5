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
    unordered: Unordered,
}

/// Requests that come so soon after others may go before these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unordered {
    /// However small.
    pub within: Nanos,
    /// Beyond that, for each sector of the request: longer ones are copied for longer before they are told of.
    pub a_sector: Nanos,
}

impl Unordered {
    /// First come, first served.
    pub const NONE: Self = Self {
        within: Nanos::ZERO,
        a_sector: Nanos::ZERO,
    };
}

impl Fifo {
    /// A queue that takes for unordered what comes within so long.
    #[must_use]
    pub fn new(unordered: Unordered) -> Self {
        Self {
            queue: VecDeque::new(),
            unordered,
        }
    }
}

impl Scheduler for Fifo {
    fn insert(&mut self, pool: &Pool, id: RequestId, now: Nanos) {
        let (sector, sectors) = (pool.get(id).sector, pool.get(id).sectors);
        let within = self.unordered.within + self.unordered.a_sector.times(sectors);
        let passes = |other: &&RequestId| {
            let other = pool.get(**other);
            let soon = now.saturating_sub(other.inserted) <= within;
            within > Nanos::ZERO && soon && other.sector > sector
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

    fn unordered(within_us: u64, a_sector_us: u64) -> Fifo {
        Fifo::new(Unordered {
            within: Nanos::from_micros(within_us),
            a_sector: Nanos::from_micros(a_sector_us),
        })
    }

    /// Requests of 8 sectors: 100 us + 8 x 50 us. The last one comes 501 us after the one before it.
    #[test]
    fn a_long_request_may_be_told_of_later_than_a_short_one() {
        let arrivals = [(0, 900), (400, 80), (901, 8)];
        assert_eq!(given(&mut unordered(100, 50), &arrivals), [80, 900, 8]);
        assert_eq!(given(&mut unordered(100, 0), &arrivals), [900, 80, 8]);
    }

    #[test]
    fn requests_that_overtook_each_other_are_put_in_order_and_others_stay() {
        let arrivals = [(0, 900), (500, 24), (600, 8), (700, 16), (1500, 0)];
        assert_eq!(given(&mut unordered(200, 0), &arrivals), [900, 8, 16, 24, 0]);
        assert_eq!(given(&mut Fifo::default(), &arrivals), [900, 24, 8, 16, 0]);
    }

    /// A stream of requests below keeps nobody waiting for longer than the time within which there is no order.
    #[test]
    fn nobody_is_passed_by_what_comes_later_than_that() {
        let arrivals = [(0, 900), (150, 80), (300, 70), (450, 60)];
        assert_eq!(given(&mut unordered(200, 0), &arrivals), [80, 900, 60, 70]);
    }
}
