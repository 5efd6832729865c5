//! A small run of a step, to know how long the whole will take.
//!
//! A guess from amounts is off by ten times either way: nobody can know what a sync costs before one was made. So a
//! hundredth of the step (more where it has few operations, a sixteenth at most) is run on files of its own, which are
//! removed, and what it took is scaled up: operations by their number, preparation by its bytes, and what each run has once
//! (opening, emptying caches, a final sync, removing) not at all.
//!
//! It is for the estimate alone: nothing of it is a result. Steps that run by the clock need none. Steps that are held back
//! by a rate or by think time take as long as these say, devices and named files are not to be touched twice, and other
//! kinds of steps can't be made small: none of these is rehearsed. A rehearsal that fails says nothing either; the step
//! itself will say it.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::estimate::{GUESSED_CACHE_S, compared_s};
use crate::file::{FileOutcome, run};
use crate::placement::FilePlacement;
use crate::progress::NoProgress;
use crate::spec::{Cache, DeviceAccess, FileSpec, Mode};
use crate::sqlite::{self, SqliteSpec};

/// Part of the operations that is enough.
const PART: u64 = 100;

/// Part of the operations that is too much.
const PART_AT_MOST: u64 = 16;

/// Operations on files that tell something: the first ones are slower than those that follow.
const RECORDS: u64 = 256;

/// The same for transactions.
const TRANSACTIONS: u64 = 32;

/// Bytes of a file, if the step has as many: preparing less says nothing of preparing much.
const FILE_BYTES: u64 = 1 << 20;

/// What a step will take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rehearsed {
    /// Before its timed window, and removing its files.
    pub prepare_s: f64,
    /// Its timed window.
    pub timed_s: f64,
    /// What else comes after it.
    pub after_s: f64,
}

/// Rehearses the steps of one run.
#[derive(Debug, Default)]
pub struct Rehearsal {
    /// What emptying the caches of the machine took: once is enough.
    cache_s: Option<f64>,
}

impl Rehearsal {
    /// Nothing is rehearsed yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a small part of a file workload. `None` where that is not done, or failed.
    pub fn of_file(&mut self, spec: &FileSpec, stop: &AtomicBool) -> Option<Rehearsed> {
        let mut small = small_file(spec)?;
        // What is read directly does not care about the cache, and a rehearsal should take no longer than it must.
        let is_left_out = small.cache == Cache::Cold && small.mode.is_direct();
        if is_left_out {
            small.cache = Cache::AsIs;
        }
        let began = Instant::now();
        let outcome = run(&small, &NoProgress, stop)
            .ok()
            .filter(|outcome| outcome.complete)?;
        let taken_s = began.elapsed().as_secs_f64();
        if small.cache == Cache::Cold {
            self.cache_s = Some(seconds(outcome.cache_ns));
        }
        let mut whole = scaled_file(spec, &small, &outcome, taken_s);
        if is_left_out {
            whole.prepare_s += self.cache_s.unwrap_or(GUESSED_CACHE_S);
        }
        Some(whole)
    }

    /// Runs a few transactions of an SQLite workload. `None` where that is not done, or failed.
    pub fn of_sqlite(&mut self, spec: &SqliteSpec, stop: &AtomicBool) -> Option<Rehearsed> {
        let small = small_sqlite(spec)?;
        let began = Instant::now();
        let outcome = sqlite::run(&small, &NoProgress, stop)
            .ok()
            .filter(|outcome| outcome.complete)?;
        let window_s = seconds(outcome.operation_ns) + seconds(outcome.checkpoint_ns);
        let times = ratio(spec.transactions, small.transactions);
        Some(Rehearsed {
            prepare_s: (began.elapsed().as_secs_f64() - window_s).max(0.0),
            timed_s: seconds(outcome.operation_ns) * times + seconds(outcome.checkpoint_ns),
            after_s: 0.0,
        })
    }
}

/// How many of `all` are rehearsed, where `least` tell something.
fn part_of(all: u64, least: u64) -> Option<u64> {
    let count = (all / PART).max(least.min(all / PART_AT_MOST));
    (count > 0).then_some(count)
}

fn small_file(spec: &FileSpec) -> Option<FileSpec> {
    let is_held_back = spec.time.is_some() || spec.rate.is_some() || spec.think_ns > 0;
    let is_its_own = spec.device == DeviceAccess::Refused && spec.files == FilePlacement::OwnDirectory;
    if is_held_back || !is_its_own {
        return None;
    }
    let visited = part_of(spec.visited_records(), RECORDS)?;
    let in_file = visited
        .max(FILE_BYTES / spec.record_bytes.max(1))
        .min(spec.records());
    Some(FileSpec {
        file_bytes: in_file * spec.record_bytes,
        records_max: Some(visited),
        files_of_each: 1,
        passes: 1,
        verify: false,
        keep_files: false,
        ..spec.clone()
    })
}

fn scaled_file(spec: &FileSpec, small: &FileSpec, outcome: &FileOutcome, taken_s: f64) -> Rehearsed {
    let (prepared_s, sync_s) = (seconds(outcome.prepare_ns), seconds(outcome.timed_sync_ns()));
    let operations_s = seconds(outcome.operation_ns) * ratio(spec.visited_bytes(), small.visited_bytes());
    // What is in the cache when all is written is the more the more was written.
    let is_left_to_the_end = matches!(spec.mode, Mode::Buffered | Mode::Mmap | Mode::MmapAsync);
    let synced_s = if is_left_to_the_end {
        sync_s * ratio(spec.visited_bytes(), small.visited_bytes())
    } else {
        sync_s
    };
    let once_s = (taken_s - prepared_s - seconds(outcome.elapsed_ns())).max(0.0);
    let prepared = |of: &FileSpec| {
        of.prepared_bytes_in_a_file()
            .saturating_mul(u64::from(of.files()))
    };
    Rehearsed {
        prepare_s: once_s + prepared_s * ratio(prepared(spec), prepared(small)),
        timed_s: operations_s + synced_s + seconds(outcome.close_ns),
        after_s: compared_s(spec),
    }
}

fn small_sqlite(spec: &SqliteSpec) -> Option<SqliteSpec> {
    let is_its_own = spec.files == FilePlacement::OwnDirectory;
    if !is_its_own || spec.interval_us > 0 {
        return None;
    }
    Some(SqliteSpec {
        transactions: part_of(spec.transactions, TRANSACTIONS)?,
        keep_files: false,
        ..spec.clone()
    })
}

/// How many times as much; once where there is nothing to compare.
fn ratio(whole: u64, part: u64) -> f64 {
    if part == 0 {
        return 1.0;
    }
    results::nearest_f64(whole) / results::nearest_f64(part)
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::spec::{FinalSync, Pattern, Rate, TimeLimit, WriteTarget};

    fn of(record_bytes: u64, file_bytes: u64) -> FileSpec {
        FileSpec {
            write_target: WriteTarget::ExistingFile,
            final_sync: FinalSync::Timed,
            ..FileSpec::plain("/nowhere".into(), Pattern::RandomWrite, record_bytes, file_bytes)
        }
    }

    #[test]
    fn a_hundredth_is_run_and_of_few_operations_a_sixteenth() {
        let records = |file_bytes| small_file(&of(4096, file_bytes)).and_then(|small| small.records_max);
        assert_eq!(records(4096 * 1_000_000), Some(10_000));
        assert_eq!(records(4096 * 8192), Some(256));
        assert_eq!(records(4096 * 2560), Some(160));
        assert_eq!(records(4096 * 15), None);
        assert_eq!(small_file(&of(4096, 4096 * 2560)).unwrap().file_bytes, FILE_BYTES);
        assert_eq!(small_file(&of(32 << 20, 512 << 20)).unwrap().file_bytes, 32 << 20);
    }

    #[test]
    fn what_takes_as_long_as_was_asked_for_or_belongs_to_others_is_left_alone() {
        let spec = || of(4096, 1 << 30);
        let limit = TimeLimit {
            ramp_ns: 0,
            run_ns: 1,
        };
        let left_alone = [
            FileSpec {
                time: Some(limit),
                ..spec()
            },
            FileSpec {
                rate: Some(Rate::BytesPerSecond(1)),
                ..spec()
            },
            FileSpec {
                think_ns: 1,
                ..spec()
            },
            FileSpec {
                device: DeviceAccess::Destroy,
                ..spec()
            },
            FileSpec {
                files: FilePlacement::Named {
                    prefix: "x".to_owned(),
                },
                ..spec()
            },
        ];
        assert!(small_file(&spec()).is_some());
        for spec in left_alone {
            assert_eq!(small_file(&spec), None, "{spec:?}");
        }
    }

    #[test]
    fn a_rehearsal_leaves_nothing_behind_and_one_that_fails_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let spec = FileSpec {
            directory: directory.path().to_owned(),
            keep_files: true,
            ..of(4096, 4 << 20)
        };
        let stop = AtomicBool::new(false);
        let found = Rehearsal::new().of_file(&spec, &stop).unwrap();
        assert!(found.timed_s > 0.0 && found.prepare_s > 0.0, "{found:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(Rehearsal::new().of_file(&of(4096, 4 << 20), &stop), None);
    }
}
