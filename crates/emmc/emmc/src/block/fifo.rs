//! noop and none: FIFO order.
//!
//! Requests that arrive almost simultaneously may be treated as unordered, and are then dispatched by ascending
//! sector: the threads that deliver requests to a live device overtake each other, and would break a stream into
//! discontiguous parts.

use std::collections::VecDeque;

use media::Nanos;

use super::pool::{Pool, RequestId};
use super::scheduler::Scheduler;

/// The FIFO scheduler.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    queue: VecDeque<RequestId>,
    unordered: Unordered,
}

/// Time within which requests count as simultaneous, so that a later one may overtake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unordered {
    /// Base time, for any size.
    pub within: Nanos,
    /// Added per sector: the data of large requests is copied before they reach the queue.
    pub per_sector: Nanos,
}

impl Unordered {
    /// Strict FIFO order.
    pub const NONE: Self = Self {
        within: Nanos::ZERO,
        per_sector: Nanos::ZERO,
    };
}

impl Fifo {
    /// A queue that treats requests within the time of `unordered` as simultaneous.
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
        let within = self.unordered.within + self.unordered.per_sector.times(sectors);
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

    fn unordered(within_us: u64, per_sector_us: u64) -> Fifo {
        Fifo::new(Unordered {
            within: Nanos::from_micros(within_us),
            per_sector: Nanos::from_micros(per_sector_us),
        })
    }

    /// Requests of 8 sectors: 100 us + 8 x 50 us. The last one arrives 501 us after the one before it.
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

    /// A stream of requests at lower sectors delays no request for longer than the time without order.
    #[test]
    fn nobody_is_passed_by_what_comes_later_than_that() {
        let arrivals = [(0, 900), (150, 80), (300, 70), (450, 60)];
        assert_eq!(given(&mut unordered(200, 0), &arrivals), [80, 900, 60, 70]);
    }
}
