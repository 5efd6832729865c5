//! Several passes, syncs after every N writes, and concurrent workloads.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bench::{
    Cache, Engine, FileOutcome, FileSpec, FinalSync, Mode, NoProgress, Pattern, TimeLimit, WriteTarget, run,
    run_together,
};

const RECORD: u64 = 4096;
const RECORDS: u64 = 16;

fn spec(directory: &Path, pattern: Pattern, mode: Mode) -> FileSpec {
    FileSpec {
        mode,
        ..FileSpec::plain(directory.to_owned(), pattern, RECORD, RECORD * RECORDS)
    }
}

fn done(spec: &FileSpec) -> FileOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

fn entries(directory: &Path) -> usize {
    std::fs::read_dir(directory)
        .expect("the directory exists")
        .count()
}

#[test]
fn passes_move_every_record_again_and_what_lies_between_them_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    for engine in [Engine::Psync, Engine::IoUring { depth: 4 }] {
        let outcome = done(&FileSpec {
            engine,
            passes: 3,
            final_sync: FinalSync::Timed,
            write_target: WriteTarget::ExistingFile,
            verify: true,
            ..spec(folder.path(), Pattern::RandomWrite, Mode::BUFFERED)
        });
        assert_eq!(outcome.write.count, 3 * RECORDS, "{engine:?}");
        assert_eq!(outcome.final_sync.count, 3, "{engine:?}");
        assert!(
            outcome.verified.is_some(),
            "{engine:?}: the third pass's content was not found"
        );
    }
    let cold = done(&FileSpec {
        passes: 2,
        cache: Cache::Cold,
        ..spec(folder.path(), Pattern::SequentialRead, Mode::BUFFERED)
    });
    assert_eq!(cold.read.count, 2 * RECORDS);
}

#[test]
fn a_sync_follows_each_so_many_writes_over_all_passes() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, engine) in [
        (Mode::FSYNC, Engine::Psync),
        (Mode::FDATASYNC, Engine::Psync),
        (Mode::MMAP_SYNC, Engine::Psync),
        (Mode::MMAP_ASYNC, Engine::Psync),
        (Mode::FSYNC, Engine::IoUring { depth: 2 }),
    ] {
        let outcome = done(&FileSpec {
            engine,
            passes: 2,
            sync_every: 3,
            ..spec(folder.path(), Pattern::SequentialWrite, mode)
        });
        // 32 writes in total, not 16 twice, which would give 5 + 5.
        assert_eq!(
            (outcome.write.count, outcome.sync.count),
            (32, 10),
            "{mode:?} {engine:?}"
        );
    }
}

#[test]
fn passes_and_distances_that_mean_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = |pattern, mode| spec(folder.path(), pattern, mode);
    let limit = TimeLimit {
        ramp_ns: 0,
        run_ns: 1,
    };
    for (wrong, word) in [
        (
            FileSpec {
                passes: 0,
                ..plain(Pattern::RandomRead, Mode::BUFFERED)
            },
            "passes",
        ),
        (
            FileSpec {
                passes: 2,
                ..plain(Pattern::Append, Mode::BUFFERED)
            },
            "passes",
        ),
        (
            FileSpec {
                passes: 2,
                time: Some(limit),
                ..plain(Pattern::RandomRead, Mode::BUFFERED)
            },
            "passes",
        ),
        (
            FileSpec {
                sync_every: 0,
                ..plain(Pattern::RandomWrite, Mode::FSYNC)
            },
            "sync every",
        ),
        (
            FileSpec {
                sync_every: 2,
                ..plain(Pattern::RandomWrite, Mode::DIRECT)
            },
            "sync every",
        ),
    ] {
        let message = wrong.validate().expect_err(word).to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn workloads_at_the_same_time_have_windows_that_overlap_and_outcomes_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let time = Some(TimeLimit {
        ramp_ns: 0,
        run_ns: 400_000_000,
    });
    let specs =
        [Pattern::RandomRead, Pattern::RandomWrite, Pattern::SequentialRead].map(|pattern| FileSpec {
            time,
            ..spec(folder.path(), pattern, Mode::BUFFERED)
        });
    let outcomes = run_together(&specs, &NoProgress, &AtomicBool::new(false)).expect("they must run");
    let patterns: Vec<Pattern> = outcomes.iter().map(|outcome| outcome.spec.pattern).collect();
    assert_eq!(
        patterns,
        [Pattern::RandomRead, Pattern::RandomWrite, Pattern::SequentialRead]
    );
    let last_begin = outcomes.iter().map(|outcome| outcome.started_unix_ns).max();
    let ends = outcomes
        .iter()
        .map(|outcome| outcome.started_unix_ns + outcome.operation_ns);
    assert!(last_begin < ends.min(), "one began when another was over");
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.complete && outcome.operation_ns >= 390_000_000)
    );
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn a_workload_that_fails_or_a_stop_ends_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let time = Some(TimeLimit {
        ramp_ns: 0,
        run_ns: 600_000_000_000,
    });
    let long = FileSpec {
        time,
        ..spec(folder.path(), Pattern::RandomRead, Mode::BUFFERED)
    };
    let missing = spec(&folder.path().join("gone"), Pattern::RandomRead, Mode::BUFFERED);
    let began = Instant::now();
    let error = run_together(&[long.clone(), missing], &NoProgress, &AtomicBool::new(false));
    assert!(
        error
            .expect_err("one has no directory")
            .to_string()
            .contains("gone")
    );
    let stopped = run_together(&[long.clone(), long], &NoProgress, &AtomicBool::new(true)).expect("partial");
    assert!(stopped.iter().all(|outcome| !outcome.complete));
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "a workload went on by itself"
    );
    assert_eq!(entries(folder.path()), 0);
}

#[test]
fn several_files_of_a_thread_are_filled_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    for pattern in [
        Pattern::SequentialWrite,
        Pattern::RandomWrite,
        Pattern::SequentialRead,
    ] {
        let outcome = done(&FileSpec {
            threads: 2,
            files_of_each: 4,
            final_sync: FinalSync::Timed,
            keep_files: true,
            ..spec(folder.path(), pattern, Mode::BUFFERED)
        });
        assert_eq!(outcome.write.count + outcome.read.count, 2 * RECORDS);
        let kept = outcome.kept_directory.expect("files are kept");
        let lengths: Vec<u64> = std::fs::read_dir(&kept)
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(lengths, vec![RECORD * RECORDS / 4; 8], "{pattern:?}");
        std::fs::remove_dir_all(kept).unwrap();
    }
    for (wrong, word) in [
        (
            FileSpec {
                files_of_each: 3,
                ..spec(folder.path(), Pattern::RandomRead, Mode::BUFFERED)
            },
            "whole records",
        ),
        (
            FileSpec {
                files_of_each: 2,
                ..spec(folder.path(), Pattern::RandomRead, Mode::MMAP)
            },
            "no mapping",
        ),
        (
            FileSpec {
                files_of_each: 0,
                ..spec(folder.path(), Pattern::RandomRead, Mode::BUFFERED)
            },
            "expected 1",
        ),
    ] {
        let message = wrong.validate().expect_err(word).to_string();
        assert!(message.contains(word), "{message}");
    }
}
