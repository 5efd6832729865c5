//! The file workload on a real directory: its operations, counters and cleanup.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bench::{
    BenchError, Cache, CacheMethod, Engine, FileOutcome, FileSpec, FinalSync, LogLimits, Measurement, Mode,
    NoProgress, Order, Pattern, Phase, Progress, Rate, Sharing, TimeLimit, WriteTarget, run,
};
use results::RunIdentity;
use runner::environment;

const RECORD: u64 = 4096;
const RECORDS: u64 = 16;

const PATTERNS: [Pattern; 6] = [
    Pattern::Append,
    Pattern::SequentialWrite,
    Pattern::RandomWrite,
    Pattern::SequentialRead,
    Pattern::RandomRead,
    Pattern::Mixed { read_percent: 50 },
];

fn spec(directory: &Path, pattern: Pattern, mode: Mode) -> FileSpec {
    FileSpec {
        threads: 2,
        mode,
        final_sync: FinalSync::Timed,
        seed: 42,
        keep_files: true,
        ..FileSpec::plain(directory.to_owned(), pattern, RECORD, RECORD * RECORDS)
    }
}

fn done(spec: &FileSpec) -> FileOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

/// A directory on a file system that supports O_DIRECT, beside the build's own output.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory exists").count()
}

/// A log keeps a workload off the fast path without changing its operations. The records written by a run of each
/// length show their order; new files show which ones they are.
#[test]
fn the_fast_path_does_the_operations_of_the_general_loop_in_their_order() {
    let folder = directory();
    for (pattern, order, passes) in [
        (Pattern::RandomWrite, Order::EachOnce, 1),
        (Pattern::RandomWrite, Order::WithReplacement, 1),
        (Pattern::RandomWrite, Order::Mobibench, 1),
        (Pattern::SequentialWrite, Order::EachOnce, 1),
        (Pattern::RandomWrite, Order::EachOnce, 3),
        (Pattern::RandomRead, Order::EachOnce, 3),
    ] {
        for records in 1..=RECORDS {
            let [fast, general] = [0, RECORDS * 8].map(|latencies_max| {
                let outcome = done(&FileSpec {
                    threads: 1,
                    order,
                    passes,
                    records_max: Some(records),
                    log: LogLimits {
                        latencies_max,
                        ..LogLimits::NOTHING
                    },
                    ..spec(folder.path(), pattern, Mode::BUFFERED)
                });
                let kept = outcome.kept_directory.clone().expect("it is kept");
                let files = fs::read_dir(&kept).expect("it exists");
                let bytes: Vec<Vec<u8>> = files
                    .map(|file| fs::read(file.expect("an entry").path()).expect("it is readable"))
                    .collect();
                fs::remove_dir_all(kept).expect("it is ours");
                let counts = [outcome.read.count, outcome.write.count, outcome.final_sync.count];
                let logged = outcome
                    .logs
                    .iter()
                    .map(|log| log.latencies_ns.len())
                    .sum::<usize>();
                (counts, bytes, logged)
            });
            assert_eq!((fast.2, general.2 > 0), (0, true), "only one of them has a log");
            assert_eq!(fast.0, general.0, "{pattern:?} {order:?} {records}");
            assert!(
                fast.1 == general.1,
                "{pattern:?} {order:?}: record {records} is another one"
            );
        }
    }
}

#[test]
fn the_longest_worker_took_part_of_the_window_that_holds_its_work() {
    let folder = directory();
    let outcome = done(&spec(folder.path(), Pattern::SequentialWrite, Mode::BUFFERED));
    let slowest_ns = outcome.write.latency.summary().unwrap().max_ns;
    assert!(outcome.longest_worker_ns >= slowest_ns);
    assert!(outcome.longest_worker_ns <= outcome.operation_ns + outcome.sync_ns);
}

#[test]
fn every_pattern_in_every_mode_moves_each_record_once() {
    for &mode in Mode::ALL {
        for pattern in PATTERNS {
            let directory = directory();
            let spec = spec(directory.path(), pattern, mode);
            if spec.validate().is_err() {
                assert!(!pattern.writes(), "{mode} {pattern:?} must be possible");
                continue;
            }
            let outcome = done(&spec);
            assert!(outcome.complete, "{mode} {pattern:?}");
            assert_eq!(
                outcome.read.count + outcome.write.count,
                2 * RECORDS,
                "{mode} {pattern:?}"
            );
            assert_eq!(
                outcome.read.bytes + outcome.write.bytes,
                spec.total_bytes(),
                "{mode} {pattern:?}"
            );
            assert_eq!(outcome.read.count > 0, pattern.reads(), "{mode} {pattern:?}");
            assert_eq!(outcome.write.count > 0, pattern.writes(), "{mode} {pattern:?}");
            let kept = outcome.kept_directory.unwrap();
            assert_eq!(entries(&kept), 2);
            for entry in fs::read_dir(kept).unwrap() {
                assert_eq!(
                    entry.unwrap().metadata().unwrap().len(),
                    RECORD * RECORDS,
                    "{mode} {pattern:?}"
                );
            }
        }
    }
}

#[test]
fn all_modes_and_orders_of_writing_leave_the_same_bytes() {
    let content = |pattern, mode, write_target, sharing| {
        let directory = directory();
        let spec = FileSpec {
            write_target,
            sharing,
            ..spec(directory.path(), pattern, mode)
        };
        let kept = done(&spec).kept_directory.unwrap();
        let mut files: Vec<_> = fs::read_dir(kept)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
            .iter()
            .map(|path| fs::read(path).unwrap())
            .collect::<Vec<_>>()
    };
    for sharing in [Sharing::OneEach, Sharing::Shared] {
        let expected = content(
            Pattern::SequentialWrite,
            Mode::BUFFERED,
            WriteTarget::NewFile,
            sharing,
        );
        for &mode in Mode::ALL {
            for target in [WriteTarget::NewFile, WriteTarget::ExistingFile] {
                let found = content(Pattern::RandomWrite, mode, target, sharing);
                assert!(
                    found == expected,
                    "{mode} {target:?} {sharing:?} wrote other bytes"
                );
            }
        }
        let blocks: Vec<&[u8]> = expected.iter().flat_map(|file| file.chunks(4096)).collect();
        let distinct: std::collections::BTreeSet<_> = blocks.iter().collect();
        assert_eq!(distinct.len(), blocks.len(), "blocks repeat");
    }
}

#[test]
fn threads_share_one_file_of_the_full_length() {
    let directory = directory();
    let spec = FileSpec {
        sharing: Sharing::Shared,
        ..spec(directory.path(), Pattern::SequentialWrite, Mode::MMAP)
    };
    let kept = done(&spec).kept_directory.unwrap();
    assert_eq!(entries(&kept), 1);
    assert_eq!(
        fs::metadata(kept.join("data-0")).unwrap().len(),
        2 * RECORD * RECORDS
    );
}

#[test]
fn syncs_are_counted_apart_for_each_record_and_at_the_end() {
    let counts = |mode| {
        let directory = directory();
        let outcome = done(&spec(directory.path(), Pattern::SequentialWrite, mode));
        (outcome.write.count, outcome.sync.count, outcome.final_sync.count)
    };
    let each = 2 * RECORDS;
    assert_eq!(counts(Mode::BUFFERED), (each, 0, 2));
    assert_eq!(counts(Mode::FSYNC), (each, each, 2));
    assert_eq!(counts(Mode::DIRECT_FDATASYNC), (each, each, 2));
    assert_eq!(counts(Mode::DIRECT_DATA_SYNC), (each, 0, 2));
    assert_eq!(counts(Mode::MMAP), (each, 0, 2));
    assert_eq!(counts(Mode::MMAP_ASYNC), (each, each, 2));
}

#[test]
fn the_window_is_the_sum_of_its_parts_and_the_record_says_everything() {
    let directory = directory();
    let outcome = done(&spec(directory.path(), Pattern::SequentialWrite, Mode::BUFFERED));
    assert_eq!(
        outcome.elapsed_ns(),
        outcome.operation_ns + outcome.sync_ns + outcome.close_ns
    );
    assert!(outcome.operation_ns > 0 && outcome.sync_ns > 0);
    let elapsed_ns = outcome.elapsed_ns();
    let record = outcome
        .into_record(RunIdentity {
            command: vec!["tidegate".to_owned()],
            tool_version: "0".to_owned(),
            label: "native".to_owned(),
            round: 3,
            host: environment::host(),
            target: environment::target(directory.path()).unwrap(),
        })
        .unwrap();
    let write = record.sample("write").unwrap();
    assert_eq!(
        (write.operations_count, write.bytes),
        (2 * RECORDS, 2 * RECORD * RECORDS)
    );
    assert_eq!(
        (write.elapsed_ns, write.latency.count()),
        (elapsed_ns, 2 * RECORDS)
    );
    assert_eq!(record.sample("final-sync").unwrap().operations_count, 2);
    assert!(record.sample("read").is_none());
    assert_eq!(record.workload["kind"], "file");
    assert_eq!(record.workload["record_bytes"], RECORD);
    assert!(
        record.counters.contains_key("context_switches_voluntary_count"),
        "{:?}",
        record.counters
    );
    assert!(record.complete && record.mb_per_s().is_some());
}

#[test]
fn a_cold_run_says_how_it_was_made_cold() {
    let directory = directory();
    let spec = FileSpec {
        cache: Cache::Cold,
        ..spec(directory.path(), Pattern::RandomRead, Mode::BUFFERED)
    };
    let outcome = done(&spec);
    assert!(matches!(
        outcome.cache.method,
        CacheMethod::DropCaches | CacheMethod::Advice
    ));
    assert_eq!(outcome.cache.total_bytes, spec.total_bytes());
    let tmpfs = environment::target(directory.path())
        .unwrap()
        .file_system_type
        .as_deref()
        == Some("tmpfs");
    assert!(
        tmpfs || !outcome.cache.is_warmer_than_asked(),
        "{}",
        outcome.cache.describe()
    );
}

#[test]
fn a_bounded_run_visits_so_many_records_of_the_whole_file() {
    let directory = directory();
    let spec = FileSpec {
        records_max: Some(3),
        write_target: WriteTarget::ExistingFile,
        ..spec(directory.path(), Pattern::RandomWrite, Mode::FSYNC)
    };
    let outcome = done(&spec);
    assert!(outcome.complete);
    assert_eq!(
        (outcome.write.count, outcome.write.bytes),
        (3 * 2, 3 * 2 * RECORD)
    );
    let kept = outcome.kept_directory.expect("the spec keeps its files");
    let length = fs::metadata(kept.join("data-0")).expect("it is there").len();
    assert_eq!(length, RECORD * RECORDS);
}

#[test]
fn nothing_is_left_behind_unless_asked() {
    let directory = directory();
    let spec = FileSpec {
        keep_files: false,
        ..spec(directory.path(), Pattern::SequentialWrite, Mode::BUFFERED)
    };
    let outcome = done(&spec);
    assert_eq!((outcome.kept_directory, outcome.leftover), (None, None));
    assert_eq!(entries(directory.path()), 0);
}

/// Raises the stop flag at the first report of the preparation.
struct StopWhilePreparing<'run>(&'run AtomicBool);

impl Progress for StopWhilePreparing<'_> {
    fn advance(&self, phase: Phase, _done: u64, _total: u64) {
        if phase == Phase::Prepare {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_stopped_run_is_marked_and_leaves_nothing() {
    for &mode in Mode::ALL {
        let directory = directory();
        let stop = AtomicBool::new(false);
        let spec = FileSpec {
            keep_files: false,
            file_bytes: 4 << 20,
            ..spec(directory.path(), Pattern::Mixed { read_percent: 50 }, mode)
        };
        let outcome = run(&spec, &StopWhilePreparing(&stop), &stop).unwrap();
        assert!(!outcome.complete, "{mode}");
        assert_eq!(outcome.read.count + outcome.write.count, 0, "{mode}");
        assert_eq!(entries(directory.path()), 0, "{mode}");
    }
}

#[derive(Default)]
struct Largest(AtomicU64);

impl Progress for Largest {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        assert!(done <= total, "{}: {done} of {total}", phase.name());
        if phase == Phase::Measure {
            self.0.fetch_max(done, Ordering::Relaxed);
        }
    }
}

#[test]
fn progress_ends_at_the_total() {
    let directory = directory();
    let spec = spec(directory.path(), Pattern::RandomRead, Mode::BUFFERED);
    let progress = Largest::default();
    run(&spec, &progress, &AtomicBool::new(false)).unwrap();
    assert_eq!(progress.0.into_inner(), spec.total_bytes());
}

fn refused(spec: &FileSpec) -> String {
    run(spec, &NoProgress, &AtomicBool::new(false))
        .expect_err("the workload must be refused")
        .to_string()
}

#[test]
fn contradictions_are_refused_before_anything_is_made() {
    let directory = directory();
    let good = spec(directory.path(), Pattern::SequentialWrite, Mode::BUFFERED);
    let cases = [
        (
            FileSpec {
                record_bytes: 0,
                ..good.clone()
            },
            "record size: 0 bytes, expected 1 to",
        ),
        (
            FileSpec {
                file_bytes: 5000,
                ..good.clone()
            },
            "such as 8192 bytes",
        ),
        (
            FileSpec {
                threads: 0,
                ..good.clone()
            },
            "threads: 0, expected 1 to 1024",
        ),
        (
            FileSpec {
                pattern: Pattern::Mixed { read_percent: 101 },
                ..good.clone()
            },
            "101 % reads",
        ),
        (
            FileSpec {
                record_bytes: 100,
                file_bytes: 1000,
                mode: Mode::DIRECT,
                ..good.clone()
            },
            "expected a multiple of 512 for O_DIRECT",
        ),
        (
            FileSpec {
                pattern: Pattern::SequentialRead,
                mode: Mode::FSYNC,
                ..good.clone()
            },
            "`fsync` syncs after each write, but the pattern writes nothing",
        ),
        (
            FileSpec {
                file_bytes: 1 << 60,
                record_bytes: 1 << 20,
                threads: 1,
                ..good
            },
            "are free; choose",
        ),
    ];
    for (spec, expected) in cases {
        let message = refused(&spec);
        assert!(
            message.contains(expected),
            "`{message}` does not say `{expected}`"
        );
        assert_eq!(entries(directory.path()), 0);
    }
}

#[test]
fn a_missing_directory_is_named() {
    let spec = spec(
        Path::new("/nowhere/at-all"),
        Pattern::SequentialWrite,
        Mode::BUFFERED,
    );
    let message = refused(&spec);
    assert!(
        message.starts_with("stat of /nowhere/at-all failed: No such file"),
        "{message}"
    );
}

#[test]
fn an_error_in_the_run_names_operation_file_and_errno_and_leaves_nothing() {
    // procfs passes every check and refuses the directory.
    let spec = spec(Path::new("/proc/self"), Pattern::SequentialWrite, Mode::BUFFERED);
    let error = run(&spec, &NoProgress, &AtomicBool::new(false)).unwrap_err();
    let BenchError::Io {
        operation: "mkdir",
        path,
        source,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(path.starts_with("/proc/self"), "{error}");
    assert!(source.raw_os_error().is_some(), "{error}");
}

#[test]
fn a_ring_moves_the_same_bytes_in_every_mode_and_depth() {
    let content = |pattern, mode, engine| {
        let directory = directory();
        let spec = FileSpec {
            engine,
            records_max: None,
            ..spec(directory.path(), pattern, mode)
        };
        let outcome = done(&spec);
        assert!(outcome.complete, "{mode} {pattern:?} {engine:?}");
        let counts = (
            outcome.read.count,
            outcome.write.count,
            outcome.sync.count,
            outcome.final_sync.count,
        );
        let kept = outcome.kept_directory.expect("the spec keeps its files");
        (counts, fs::read(kept.join("data-0")).expect("it is there"))
    };
    for &mode in Mode::ALL.iter().filter(|mode| !mode.is_mapped()) {
        for pattern in PATTERNS {
            if !pattern.writes() && spec(Path::new("."), pattern, mode).validate().is_err() {
                continue;
            }
            let expected = content(pattern, mode, Engine::Psync);
            for depth in [1, 7, 64] {
                let found = content(pattern, mode, Engine::IoUring { depth });
                assert_eq!(found.0, expected.0, "{mode} {pattern:?} depth {depth}");
                assert!(
                    found.1 == expected.1,
                    "{mode} {pattern:?} depth {depth} left other bytes"
                );
            }
        }
    }
}

#[test]
fn what_was_written_is_read_back_and_compared_whatever_the_order() {
    for engine in [Engine::Psync, Engine::IoUring { depth: 8 }] {
        for (order, overlap_percent) in [
            (Order::EachOnce, 0),
            (Order::EachOnce, 60),
            (Order::WithReplacement, 0),
            (Order::Mobibench, 50),
        ] {
            for pattern in [Pattern::RandomWrite, Pattern::Mixed { read_percent: 40 }] {
                for record_bytes in [512, 4096, 1000] {
                    let directory = directory();
                    let spec = FileSpec {
                        engine,
                        order,
                        overlap_percent,
                        record_bytes,
                        file_bytes: record_bytes * 64,
                        verify: true,
                        keep_files: false,
                        ..spec(directory.path(), pattern, Mode::BUFFERED)
                    };
                    let outcome = done(&spec);
                    let verified = outcome.verified.expect("the spec verifies");
                    assert!(verified.records > 0, "{engine:?} {order:?} {pattern:?}");
                    assert_eq!(entries(directory.path()), 0);
                }
            }
        }
    }
}

/// Changes one byte of a file of the run when a phase begins, as a failing device would.
struct Corrupt<'run> {
    directory: &'run Path,
    phase: Phase,
    at: u64,
    done: AtomicBool,
}

impl Progress for Corrupt<'_> {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        if phase != self.phase || done < total || self.done.swap(true, Ordering::Relaxed) {
            return;
        }
        let changed = flip_byte(self.directory, self.at);
        changed.expect("the file of the run can be changed");
    }
}

fn flip_byte(directory: &Path, at: u64) -> std::io::Result<()> {
    let mut runs = fs::read_dir(directory)?;
    let run = runs.next().ok_or(std::io::ErrorKind::NotFound)??;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(run.path().join("data-0"))?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[!byte[0]], at)
}

#[test]
fn one_wrong_byte_fails_the_verification_and_is_named() {
    let cases = [
        (Pattern::SequentialWrite, Phase::Measure, Cache::AsIs),
        (Pattern::Mixed { read_percent: 50 }, Phase::Measure, Cache::AsIs),
        (Pattern::RandomRead, Phase::Cache, Cache::Warm),
    ];
    for engine in [Engine::Psync, Engine::IoUring { depth: 4 }] {
        for (pattern, phase, cache) in cases {
            let directory = directory();
            let spec = FileSpec {
                engine,
                cache,
                verify: true,
                keep_files: false,
                threads: 1,
                ..spec(directory.path(), pattern, Mode::BUFFERED)
            };
            let corrupt = Corrupt {
                directory: directory.path(),
                phase,
                at: 5 * RECORD + 1234,
                done: AtomicBool::new(false),
            };
            let error = run(&spec, &corrupt, &AtomicBool::new(false))
                .expect_err("a byte is wrong")
                .to_string();
            assert!(corrupt.done.into_inner(), "{pattern:?}: nothing was changed");
            let expected = format!("data-0 at byte {} failed: expected ", 5 * RECORD + 1234);
            assert!(error.contains(&expected), "{pattern:?}: {error}");
            assert_eq!(entries(directory.path()), 0, "{pattern:?}");
        }
    }
}

#[test]
fn an_append_grows_what_it_finds_and_nothing_else() {
    for (write_target, before) in [
        (WriteTarget::NewFile, 0),
        (WriteTarget::ExistingFile, RECORD * RECORDS),
    ] {
        for mode in [Mode::BUFFERED, Mode::DIRECT, Mode::MMAP] {
            let directory = directory();
            let spec = FileSpec {
                write_target,
                verify: true,
                ..spec(directory.path(), Pattern::Append, mode)
            };
            let outcome = done(&spec);
            assert_eq!(outcome.write.bytes, 2 * RECORD * RECORDS);
            assert_eq!(outcome.verified.expect("the spec verifies").records, 2 * RECORDS);
            let file = outcome
                .kept_directory
                .expect("the spec keeps its files")
                .join("data-0");
            assert_eq!(
                fs::metadata(file).expect("it is there").len(),
                before + RECORD * RECORDS
            );
        }
    }
}

#[test]
fn a_run_by_the_clock_goes_round_and_leaves_the_ramp_out() {
    for (engine, pattern) in [
        (Engine::Psync, Pattern::RandomWrite),
        (Engine::IoUring { depth: 4 }, Pattern::RandomRead),
        (Engine::Psync, Pattern::Append),
    ] {
        let directory = directory();
        let (ramp_ns, run_ns) = (20_000_000, 60_000_000);
        let spec = FileSpec {
            engine,
            time: Some(TimeLimit { ramp_ns, run_ns }),
            verify: true,
            keep_files: false,
            ..spec(directory.path(), pattern, Mode::BUFFERED)
        };
        let began = std::time::Instant::now();
        let outcome = done(&spec);
        assert!(outcome.complete && began.elapsed().as_nanos() >= 80_000_000);
        let count = outcome.read.count + outcome.write.count;
        assert!(count > 2 * RECORDS, "{count} operations do not go round");
        assert!(
            outcome.operation_ns >= run_ns - 5_000_000,
            "{} ns",
            outcome.operation_ns
        );
        let latencies = outcome.read.latency.count() + outcome.write.latency.count();
        assert_eq!(latencies, count, "the ramp was counted");
    }
}

#[test]
fn a_rate_is_kept_by_all_threads_together() {
    for engine in [Engine::Psync, Engine::IoUring { depth: 4 }] {
        for (rate, think_ns) in [
            (Some(Rate::OperationsPerSecond(320)), 0),
            (Some(Rate::BytesPerSecond(320 * RECORD)), 0),
        ] {
            let directory = directory();
            let spec = FileSpec {
                engine,
                rate,
                think_ns,
                ..spec(directory.path(), Pattern::SequentialRead, Mode::BUFFERED)
            };
            let outcome = done(&spec);
            // 32 operations, the last of them 31/320 s after the first.
            assert!(
                outcome.operation_ns >= 96_000_000,
                "{engine:?} {rate:?}: {} ns",
                outcome.operation_ns
            );
        }
    }
}

#[test]
fn thinking_takes_its_time_after_each_operation() {
    for engine in [Engine::Psync, Engine::IoUring { depth: 1 }] {
        let directory = directory();
        let spec = FileSpec {
            engine,
            think_ns: 2_000_000,
            ..spec(directory.path(), Pattern::SequentialRead, Mode::BUFFERED)
        };
        let outcome = done(&spec);
        assert!(
            outcome.operation_ns >= 30_000_000,
            "{engine:?}: {} ns",
            outcome.operation_ns
        );
        let slowest = outcome.read.latency.summary().expect("there were reads").p50_ns;
        assert!(
            slowest < 2_000_000,
            "{engine:?}: the pause is in the latency ({slowest} ns)"
        );
    }
}

#[test]
fn an_untimed_final_sync_is_measured_and_not_in_the_window() {
    let directory = directory();
    let spec = FileSpec {
        final_sync: FinalSync::Untimed,
        ..spec(directory.path(), Pattern::SequentialWrite, Mode::BUFFERED)
    };
    let outcome = done(&spec);
    assert!(outcome.sync_ns > 0 && outcome.final_sync.count == 2);
    assert_eq!(outcome.elapsed_ns(), outcome.operation_ns + outcome.close_ns);
    let none = done(&FileSpec {
        final_sync: FinalSync::None,
        ..spec
    });
    assert_eq!(none.final_sync.count, 0);
}

#[test]
fn the_record_has_what_the_system_counted_or_says_why_not() {
    let directory = directory();
    let spec = FileSpec {
        count_calls: true,
        ..spec(directory.path(), Pattern::SequentialWrite, Mode::FDATASYNC)
    };
    let outcome = done(&spec);
    let counters = &outcome.window.counters;
    let is_absent = |what: &str| outcome.window.absent.iter().any(|absent| absent.what == what);
    let syncs = counters.iter().find(|(name, _)| name.contains("fdatasync"));
    assert!(
        is_absent("system calls")
            || syncs.is_some_and(|(_, count)| *count == results::nearest_f64(2 * RECORDS)),
        "{counters:?}"
    );
    assert!(
        is_absent("block device") || counters.contains_key(results::counter::WRITE_AMPLIFICATION),
        "{counters:?}"
    );
}
