//! What each step of a job is expected to take, before anything of it is measured.

use std::time::Duration;

use crate::job::rehearsal::Rehearsed;
use crate::spec::{Cache, FileSpec, Rate};
use crate::sqlite::{SqliteSpec, Synchronous};

/// What a step is expected to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Steps of one kind resemble each other: what one took tells about the next.
    pub kind: String,
    /// Time to make files and empty caches.
    pub prepare_s: f64,
    /// Time of the timed part.
    pub timed: Timed,
    /// Phases that the timed part reports one after the other, at least 1.
    pub timed_phases: u32,
    /// Time after it: final syncs, comparing, removing files.
    pub after_s: f64,
    /// The times were found by a small run of this very step, and are not guessed.
    pub is_rehearsed: bool,
}

/// Time of the timed part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timed {
    /// Runs by the clock for so long.
    ByClock(f64),
    /// By the amount of work, and at most `limit_s` where there is a limit.
    ByAmount {
        /// What it will take.
        seconds: f64,
        /// Operations of the step, where they are known: steps of its kind before tell how fast they go.
        operations: Option<u64>,
        /// Where the step ends in any case.
        limit_s: Option<f64>,
    },
}

/// What files are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Nothing that a sync would wait for.
    Memory,
    /// Anything else.
    Storage,
}

impl Medium {
    /// By the type of the file system.
    #[must_use]
    pub fn of_type(file_system_type: Option<&str>) -> Self {
        match file_system_type {
            Some("tmpfs" | "ramfs") => Self::Memory,
            _ => Self::Storage,
        }
    }
}

/// What a step consists of, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Prepare,
    Timed,
    After,
}

impl Part {
    pub(super) const ALL: [Self; 3] = [Self::Prepare, Self::Timed, Self::After];
}

/// Of a limit, when nothing else is known: off by as much for the device that needs all of it as for one that needs half.
const GUESSED_SHARE_OF_LIMIT: f64 = 0.75;

/// Guesses for a device that nobody has measured yet, between a hard disk and a fast one.
const GUESSED_BYTES_PER_S: f64 = 200e6;
const GUESSED_OPERATIONS_PER_S: f64 = 10_000.0;
/// Emptying the caches of the machine, with the sync before it.
pub(in crate::job) const GUESSED_CACHE_S: f64 = 0.3;

impl Expectation {
    /// For a workload on SQLite. On a medium that syncs, most of a limit is taken for what it will take.
    #[must_use]
    pub fn of_sqlite(spec: &SqliteSpec, medium: Medium) -> Self {
        let operations = spec.transactions.saturating_mul(u64::from(spec.threads));
        let limit_s = spec
            .time_limit_us
            .map(|limit| seconds(limit.saturating_mul(1000)));
        let of_each_s = match (medium, spec.synchronous) {
            (Medium::Memory, _) | (_, Synchronous::Off) => 40e-6,
            (Medium::Storage, _) => 2e-3,
        };
        let guess = results::nearest_f64(operations) * of_each_s;
        Self {
            kind: format!("sqlite {} {}", spec.journal, spec.synchronous),
            prepare_s: 0.2,
            timed: Timed::ByAmount {
                seconds: limit_s.map_or(guess, |limit_s| guess.min(limit_s * GUESSED_SHARE_OF_LIMIT)),
                operations: Some(operations),
                limit_s,
            },
            timed_phases: 1,
            after_s: 0.1,
            is_rehearsed: false,
        }
    }

    /// For a file workload.
    #[must_use]
    pub fn of_file(spec: &FileSpec) -> Self {
        let prepared = if spec.starts_with_content() {
            spec.total_bytes()
        } else {
            0
        };
        let cache_s = if spec.cache == Cache::Cold {
            GUESSED_CACHE_S
        } else {
            0.0
        };
        Self {
            kind: format!(
                "file {} {:?} {} x {}",
                spec.mode, spec.pattern, spec.record_bytes, spec.threads
            ),
            prepare_s: results::nearest_f64(prepared) / GUESSED_BYTES_PER_S + cache_s,
            timed: match spec.time {
                Some(limit) => Timed::ByClock(seconds(limit.ramp_ns.saturating_add(limit.run_ns))),
                None => Timed::ByAmount {
                    seconds: file_s(spec),
                    operations: Some(spec.visited_bytes() / spec.record_bytes.max(1)),
                    limit_s: None,
                },
            },
            timed_phases: 1,
            after_s: compared_s(spec) + 0.05,
            is_rehearsed: false,
        }
    }

    /// For this workload and another one at the same time.
    #[must_use]
    pub fn together(self, other: Self) -> Self {
        let longer = if self.guess(Part::Timed) >= other.guess(Part::Timed) {
            self.timed
        } else {
            other.timed
        };
        Self {
            kind: format!("{} + {}", self.kind, other.kind),
            prepare_s: self.prepare_s + other.prepare_s,
            timed: longer,
            timed_phases: self.timed_phases.max(other.timed_phases),
            after_s: self.after_s.max(other.after_s),
            is_rehearsed: self.is_rehearsed && other.is_rehearsed,
        }
    }

    /// A small run of the step tells what guesses could not.
    pub(super) fn rehearsed(&mut self, found: Rehearsed) {
        self.prepare_s = found.prepare_s;
        self.after_s = found.after_s;
        self.is_rehearsed = true;
        if let Timed::ByAmount { seconds, limit_s, .. } = &mut self.timed {
            *seconds = limit_s.map_or(found.timed_s, |limit_s| found.timed_s.min(limit_s));
        }
    }

    pub(super) fn guess(&self, part: Part) -> f64 {
        match (part, self.timed) {
            (Part::Prepare, _) => self.prepare_s,
            (Part::Timed, Timed::ByClock(seconds) | Timed::ByAmount { seconds, .. }) => seconds,
            (Part::After, _) => self.after_s,
        }
    }
}

/// The timed part of a file workload that ends with its last record.
fn file_s(spec: &FileSpec) -> f64 {
    let bytes = results::nearest_f64(spec.visited_bytes());
    let operations = bytes / results::nearest_f64(spec.record_bytes.max(1));
    let allowed_s = match spec.rate {
        None => 0.0,
        Some(Rate::BytesPerSecond(rate)) => bytes / results::nearest_f64(rate.max(1)),
        Some(Rate::OperationsPerSecond(rate)) => operations / results::nearest_f64(rate.max(1)),
    };
    let thought_s = operations / f64::from(spec.threads.max(1)) * seconds(spec.think_ns);
    let guess_s = (bytes / GUESSED_BYTES_PER_S).max(operations / GUESSED_OPERATIONS_PER_S);
    guess_s.max(allowed_s) + thought_s
}

/// Comparing everything with what was written, where that is asked for.
pub(in crate::job) fn compared_s(spec: &FileSpec) -> f64 {
    if spec.verify {
        results::nearest_f64(spec.total_bytes()) / GUESSED_BYTES_PER_S
    } else {
        0.0
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}
