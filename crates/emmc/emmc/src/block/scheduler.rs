//! The scheduler trait, and the list of schedulers.

use media::Nanos;

use super::cfq::{Cfq, CfqRules};
use super::deadline::{Deadline, DeadlineRules};
use super::fifo::Fifo;
use super::pool::{Pool, RequestId};

/// Decides which request the driver gets next.
///
/// The queue does the merging: a waiting request may grow at its end, never at its start.
pub trait Scheduler: Send {
    /// Adds a request.
    fn insert(&mut self, pool: &Pool, id: RequestId, now: Nanos);

    /// The next request; `None` if no request waits, or the scheduler holds them back.
    fn dispatch(&mut self, pool: &Pool, now: Nanos) -> Option<RequestId>;

    /// Notification that a dispatched request is done.
    fn completed(&mut self, _pool: &Pool, _id: RequestId, _now: Nanos) {}

    /// Time at which it has to be asked again even if nothing happens.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Number of waiting requests.
    fn waiting(&self) -> usize;
}

/// The schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerKind {
    /// FIFO (Linux 3.0).
    Noop,
    /// By sector, with deadlines (Linux 3.0).
    Deadline,
    /// Fair queues in time slices (Linux 3.0).
    Cfq,
    /// FIFO, under its present name.
    None,
    /// By sector, with deadlines (multi-queue; Linux 4.11 to 6.4, the version that a kernel judges).
    MqDeadline,
}

impl SchedulerKind {
    /// All schedulers with their names.
    pub const WORDS: [(Self, &'static str); 5] = [
        (Self::Noop, "noop"),
        (Self::Deadline, "deadline"),
        (Self::Cfq, "cfq"),
        (Self::None, "none"),
        (Self::MqDeadline, "mq-deadline"),
    ];

    /// Name of the scheduler.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Deadline => "deadline",
            Self::Cfq => "cfq",
            Self::None => "none",
            Self::MqDeadline => "mq-deadline",
        }
    }

    /// An empty scheduler of this kind with default settings, except those of CFQ.
    #[must_use]
    pub fn make(self, cfq: CfqRules) -> Box<dyn Scheduler> {
        match self {
            Self::Noop | Self::None => Box::new(Fifo::default()),
            Self::Deadline => Box::new(Deadline::new(DeadlineRules::LINUX_3_0)),
            Self::MqDeadline => Box::new(Deadline::new(DeadlineRules::BEFORE_LINUX_6_5)),
            Self::Cfq => Box::new(Cfq::new(cfq)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use results::block_trace::{Operation, RequestFlags};

    use super::super::pool::Request;
    use super::*;

    /// Adds a request of 8 sectors and passes it to the scheduler.
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

    /// Dispatches the next request and returns its sector.
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
