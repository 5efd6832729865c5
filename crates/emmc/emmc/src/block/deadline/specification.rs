//! The deadline schedulers once more, as an executable specification over one plain list: the judge of the versions that
//! the lab guest's kernel is not (`deadline` of Linux 3.0, `mq-deadline` since Linux 6.5).
//!
//! From the kernel's documentation (`Documentation/block/deadline-iosched.txt`): reads are preferred, but writes are not
//! starved more than `writes_starved` times; a batch of `fifo_batch` requests of one direction goes up the sectors; a
//! batch starts with the oldest request of its direction if its deadline has passed, or if nothing is above.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::{Continues, Deadline, DeadlineRules};
use crate::block::pool::{Pool, RequestId};
use crate::block::scheduler::Scheduler;
use crate::block::scheduler::tests::insert;
use crate::workload::Random;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: RequestId,
    is_write: bool,
    sector: u64,
    arrived: Nanos,
}

struct Specification {
    rules: DeadlineRules,
    /// In order of arrival.
    list: Vec<Waiting>,
    /// The direction served, and the number of requests of its batch.
    batch: (bool, u32),
    /// Batches of reads since writes began to wait for them.
    passed_over: u32,
    /// For reads and writes each, the last sector and the request that was next above it then.
    last: [(u64, Option<RequestId>); 2],
}

impl Specification {
    fn ascending(&self, is_write: bool) -> Vec<Waiting> {
        let mut these: Vec<Waiting> = self
            .list
            .iter()
            .copied()
            .filter(|one| one.is_write == is_write)
            .collect();
        these.sort_unstable_by_key(|one| (one.sector, one.id));
        these
    }

    /// The request with which a direction goes up.
    fn upwards(&self, is_write: bool) -> Option<RequestId> {
        let (sector, noted) = self.last[usize::from(is_write)];
        match self.rules.continues {
            Continues::NextOfBatch | Continues::NextOfDirection => noted,
            Continues::Position => {
                let found = self.ascending(is_write);
                found.iter().find(|one| one.sector >= sector).map(|one| one.id)
            }
        }
    }

    fn dispatch(&mut self, now: Nanos) -> Option<RequestId> {
        let (is_write, served) = self.batch;
        let goes_on = self.upwards(is_write).filter(|_| served < self.rules.batch);
        let id = match goes_on {
            Some(id) => id,
            None => {
                let waits = |wanted| self.list.iter().any(|one| one.is_write == wanted);
                let writes = match (waits(false), waits(true)) {
                    (false, false) => return None,
                    (reads, true) => !reads || self.passed_over >= self.rules.writes_starved,
                    (true, false) => false,
                };
                if writes {
                    self.passed_over = 0;
                } else if waits(true) {
                    self.passed_over += 1;
                }
                self.batch = (writes, 0);
                let oldest = *self.list.iter().find(|one| one.is_write == writes)?;
                let late = oldest.arrived + self.rules.expire[usize::from(writes)] <= now;
                match self.upwards(writes) {
                    Some(id) if !late => id,
                    _ => oldest.id,
                }
            }
        };
        self.batch.1 += 1;
        let at = self.list.iter().position(|one| one.id == id)?;
        let Waiting { is_write, sector, .. } = self.list[at];
        let these = self.ascending(is_write);
        let above = these
            .iter()
            .position(|one| one.id == id)
            .and_then(|at| these.get(at + 1));
        if self.rules.continues == Continues::NextOfBatch {
            self.last = [(0, None); 2];
        }
        self.last[usize::from(is_write)] = (sector, above.map(|one| one.id));
        self.list.remove(at);
        Some(id)
    }
}

/// The number of requests dispatched until both differ, or all.
fn agreed(seed: u64, rules: DeadlineRules, specified: DeadlineRules) -> Result<u32, String> {
    let mut random = Random::named(seed, "deadline");
    let (mut scheduler, mut pool) = (Deadline::new(rules), Pool::default());
    let mut specification = Specification {
        rules: specified,
        list: Vec::new(),
        batch: (false, 0),
        passed_over: 0,
        last: [(0, None); 2],
    };
    let (mut now, mut count) = (Nanos::ZERO, 0);
    for step in 0..800 {
        now += Nanos::from_millis(random.below(30));
        if random.below(5) < 2 {
            for _ in 0..=random.below(4) {
                let is_write = random.below(2) == 0;
                let operation = if is_write {
                    Operation::Write
                } else {
                    Operation::Read
                };
                let range = 1 << random.below(12);
                let sector = random.below(range) * 8;
                let flags = RequestFlags::default();
                let id = insert(&mut scheduler, &mut pool, sector, operation, flags, 0, now);
                specification.list.push(Waiting {
                    id,
                    is_write,
                    sector,
                    arrived: now,
                });
            }
            continue;
        }
        let found = scheduler.dispatch(&pool, now);
        let expected = specification.dispatch(now);
        if found != expected {
            return Err(format!(
                "seed {seed}, step {step}: {found:?}, expected {expected:?}, {rules:?}"
            ));
        }
        if let Some(id) = found {
            pool.get_mut(id).waiting = false;
            scheduler.completed(&pool, id, now);
            pool.remove(id);
            count += 1;
        }
    }
    Ok(count)
}

/// All versions, with random settings. A specification of another version differs, so the lists tell them apart.
#[test]
fn every_version_dispatches_as_its_specification_says() {
    let versions = [
        DeadlineRules::LINUX_3_0,
        DeadlineRules::BEFORE_LINUX_6_5,
        DeadlineRules::LINUX_6_5,
    ];
    for version in versions {
        let mut told_apart = 0;
        for seed in 0..80 {
            let mut random = Random::named(seed, "settings");
            let rules = DeadlineRules {
                expire: [
                    Nanos::from_millis(20 + random.below(1000)),
                    Nanos::from_millis(20 + random.below(5000)),
                ],
                batch: 1 + u32::try_from(random.below(16)).unwrap(),
                writes_starved: u32::try_from(random.below(4)).unwrap(),
                ..version
            };
            let count = agreed(seed, rules, rules).unwrap_or_else(|difference| panic!("{difference}"));
            assert!(count > 200, "{count}");
            let differs = |other: &DeadlineRules| {
                let other = DeadlineRules {
                    continues: other.continues,
                    ..rules
                };
                other != rules && agreed(seed, rules, other).is_err()
            };
            told_apart += u32::from(versions.iter().filter(|other| differs(other)).count() == 2);
        }
        assert!(told_apart > 40, "{version:?}: {told_apart} of 80 lists");
    }
}
