//! Latencies of an io_uring queue: each one lies within the window, for every cause of empty slots.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bench::{
    Engine, FileOutcome, FileSpec, FinalSync, LogLimits, Mode, NoProgress, Order, Pattern, Rate, TimeLimit,
    run,
};

const RECORD: u64 = 4096;

/// Above 1, and not all of them a divisor of the number of records.
const DEPTHS: [u32; 4] = [2, 3, 4, 32];

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

fn ring(directory: &Path, pattern: Pattern, mode: Mode, depth: u32, records: u64) -> FileSpec {
    FileSpec {
        mode,
        engine: Engine::IoUring { depth },
        final_sync: FinalSync::Timed,
        log: LogLimits {
            latencies_max: records,
            seconds_max: 1,
        },
        seed: 7,
        ..FileSpec::plain(directory.to_owned(), pattern, RECORD, RECORD * records)
    }
}

/// Runs the workload, checks that each latency lies within the window, and returns the outcome.
fn held_to_the_window(spec: &FileSpec) -> FileOutcome {
    let about = format!(
        "{} {:?} {:?} {} records, verify {}",
        spec.mode,
        spec.pattern,
        spec.engine,
        spec.file_bytes / RECORD,
        spec.verify
    );
    let outcome =
        run(spec, &NoProgress, &AtomicBool::new(false)).unwrap_or_else(|error| panic!("{about}: {error}"));
    let window_ns = outcome.elapsed_ns();
    for (name, done) in [
        ("read", &outcome.read),
        ("write", &outcome.write),
        ("sync", &outcome.sync),
    ] {
        if let Some(summary) = done.latency.summary() {
            assert!(
                summary.max_ns <= window_ns && summary.p99_99_ns <= summary.max_ns && summary.min_ns > 0,
                "{about}: {name} {summary:?} in a window of {window_ns} ns"
            );
        }
    }
    for latency_ns in outcome.logs.iter().flat_map(|log| &log.latencies_ns) {
        assert!(
            *latency_ns <= window_ns,
            "{about}: {latency_ns} ns in the log, in a window of {window_ns} ns"
        );
    }
    outcome
}

#[test]
fn every_mode_at_every_depth_keeps_its_latencies_within_the_window() {
    for &mode in Mode::ALL {
        for depth in DEPTHS {
            // The last operations of a run and a queue that is never full leave slots without an operation.
            for records in [1, 3, 17] {
                for pattern in [Pattern::RandomWrite, Pattern::Mixed { read_percent: 50 }] {
                    let directory = directory();
                    let spec = ring(directory.path(), pattern, mode, depth, records);
                    if mode.is_mapped() {
                        assert!(spec.validate().is_err(), "a ring has no operation for {mode}");
                        continue;
                    }
                    let outcome = held_to_the_window(&spec);
                    assert_eq!(outcome.read.count + outcome.write.count, records);
                }
            }
        }
    }
}

#[test]
fn an_operation_that_waits_for_another_on_its_record_leaves_no_latency_outside_the_window() {
    for mode in [
        Mode::BUFFERED,
        Mode::FSYNC,
        Mode::FDATASYNC,
        Mode::DIRECT,
        Mode::DIRECT_FSYNC,
    ] {
        for depth in DEPTHS {
            let directory = directory();
            // Few records drawn with replacement: most fills of the queue meet a record that is in flight.
            let spec = FileSpec {
                verify: true,
                order: Order::WithReplacement,
                records_max: None,
                ..ring(
                    directory.path(),
                    Pattern::Mixed { read_percent: 30 },
                    mode,
                    depth,
                    3,
                )
            };
            for seed in 0..8 {
                held_to_the_window(&FileSpec { seed, ..spec.clone() });
            }
        }
    }
}

/// With one record, verification limits the operations in flight to one: no two latencies overlap, and each includes
/// its call.
#[test]
fn latencies_of_operations_that_follow_each_other_add_up_to_no_more_than_the_window() {
    let directory = directory();
    let spec = FileSpec {
        verify: true,
        order: Order::WithReplacement,
        final_sync: FinalSync::None,
        passes: 200,
        ..ring(directory.path(), Pattern::RandomWrite, Mode::DIRECT_FSYNC, 4, 1)
    };
    let outcome = held_to_the_window(&spec);
    let total_ns = |done: &bench::OperationOutcome| {
        let summary = done.latency.summary().expect("it was done 200 times");
        summary.mean_ns * 200.0
    };
    let (busy_ns, window_ns) = (
        total_ns(&outcome.write) + total_ns(&outcome.sync),
        results::nearest_f64(outcome.operation_ns),
    );
    assert!(
        busy_ns <= window_ns && busy_ns > window_ns / 10.0,
        "latencies of {busy_ns} ns in a window of {window_ns} ns"
    );
}

#[test]
fn pauses_and_a_ramp_leave_no_latency_longer_than_the_run() {
    let directory = directory();
    let timed = FileSpec {
        time: Some(TimeLimit {
            ramp_ns: 20_000_000,
            run_ns: 20_000_000,
        }),
        ..ring(directory.path(), Pattern::RandomWrite, Mode::DIRECT_FSYNC, 32, 64)
    };
    let outcome = run(&timed, &NoProgress, &AtomicBool::new(false)).expect("it runs");
    let summary = outcome
        .write
        .latency
        .summary()
        .expect("some writes end in the window");
    // An operation that ends in the window may have started in the ramp.
    assert!(
        summary.max_ns <= outcome.elapsed_ns() + outcome.ramp_ns,
        "{summary:?}"
    );
    for (rate, think_ns) in [(Some(Rate::OperationsPerSecond(2_000)), 0), (None, 50_000)] {
        held_to_the_window(&FileSpec {
            rate,
            think_ns,
            ..ring(directory.path(), Pattern::RandomWrite, Mode::FDATASYNC, 4, 17)
        });
    }
}
