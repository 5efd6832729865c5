//! What a scheduler is, and which there are.

use media::Nanos;

use super::bfq::Bfq;
use super::cfq::{Cfq, CfqRules};
use super::deadline::{Deadline, DeadlineRules};
use super::fifo::Fifo;
use super::kyber::Kyber;
use super::pool::{Pool, RequestId};

/// Decides which request the driver gets next.
///
/// Merging is the queue's: a request that waits may grow at its end, never at its start.
pub trait Scheduler: Send {
    /// Takes a request.
    fn insert(&mut self, pool: &Pool, id: RequestId, now: Nanos);

    /// Gives the next request, or none: because there is none, or because it holds requests back.
    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId>;

    /// Learns that a request which it gave is done.
    fn completed(&mut self, _pool: &Pool, _id: RequestId, _now: Nanos) {}

    /// When it wants to be asked again though nothing happens.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Requests that wait.
    fn waiting(&self) -> usize;
}

/// The schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// First come, first served (Linux 3.0).
    Noop,
    /// By sector, with deadlines (Linux 3.0).
    Deadline,
    /// Fair queues in time slices (Linux 3.0).
    Cfq,
    /// First come, first served, today's name.
    None,
    /// By sector, with deadlines, today.
    MqDeadline,
    /// Fair queues in budgets of sectors; like BFQ without its heuristics for interactive tasks.
    Bfq,
    /// Domains with a number of requests each.
    Kyber,
}

impl SchedulerKind {
    /// All of them with their words.
    pub const WORDS: [(Self, &'static str); 7] = [
        (Self::Noop, "noop"),
        (Self::Deadline, "deadline"),
        (Self::Cfq, "cfq"),
        (Self::None, "none"),
        (Self::MqDeadline, "mq-deadline"),
        (Self::Bfq, "bfq"),
        (Self::Kyber, "kyber"),
    ];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Deadline => "deadline",
            Self::Cfq => "cfq",
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
            Self::Bfq => "bfq",
            Self::Kyber => "kyber",
        }
    }

    /// An empty scheduler of this kind, with its usual settings; those of CFQ are given.
    #[must_use]
    pub fn make(self, cfq: CfqRules) -> Box<dyn Scheduler> {
        match self {
            Self::Noop | Self::None => Box::new(Fifo::default()),
            Self::Deadline | Self::MqDeadline => Box::new(Deadline::new(DeadlineRules::USUAL)),
            Self::Cfq => Box::new(Cfq::new(cfq)),
            Self::Bfq => Box::new(Bfq::default()),
            Self::Kyber => Box::new(Kyber::default()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use results::block_trace::{Operation, RequestFlags};

    use super::super::pool::Request;
    use super::*;

    /// Adds a request of 8 sectors and gives it to the scheduler.
    pub(in super::super) fn insert(
        scheduler: &mut dyn Scheduler,
        pool: &mut Pool,
        sector: u64,
        operation: Operation,
        flags: RequestFlags,
        actor: u16,
        now: Nanos,
    ) -> RequestId {
        let id = pool.add(Request {
            sector,
            sectors: 8,
            operation,
            flags,
            actor,
            context: 0,
            bios: 1,
            queued: now,
            inserted: now,
            ticket: 0,
            waiting: true,
        });
        scheduler.insert(pool, id, now);
        id
    }

    /// Takes the next request; gives its sector.
    pub(in super::super) fn next(scheduler: &mut dyn Scheduler, pool: &mut Pool, now: Nanos) -> Option<u64> {
        scheduler.dispatch(pool, now).map(|id| {
            pool.get_mut(id).waiting = false;
            pool.get(id).sector
        })
    }

    #[test]
    fn every_scheduler_gives_every_request_once() {
        for (kind, word) in SchedulerKind::WORDS {
            let (mut scheduler, mut pool) = (kind.make(CfqRules::USUAL), Pool::default());
            for n in 0..300_u64 {
                let (operation, flags) = match n % 3 {
                    0 => (Operation::Read, RequestFlags::default()),
                    1 => (Operation::Write, RequestFlags::SYNC),
                    _ => (Operation::Write, RequestFlags::default()),
                };
                let actor = u16::try_from(n % 4).unwrap();
                let sector = n * 7919 % 300 * 8;
                insert(
                    &mut *scheduler,
                    &mut pool,
                    sector,
                    operation,
                    flags,
                    actor,
                    Nanos(n),
                );
            }
            let (mut seen, mut now) = (std::collections::BTreeSet::new(), Nanos::from_millis(1));
            while seen.len() < 300 {
                now += Nanos::from_millis(1);
                assert!(
                    now < Nanos::from_millis(100_000),
                    "{word} gives no more than {}",
                    seen.len()
                );
                if let Some(id) = scheduler.dispatch(&pool, now) {
                    pool.get_mut(id).waiting = false;
                    assert!(seen.insert(id), "{word} gave {id} twice");
                    scheduler.completed(&pool, id, now);
                }
            }
            assert_eq!(scheduler.waiting(), 0, "{word}");
        }
    }
}
