//! The four phases of tiobench on a real directory.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::stopping::StopWhenMeasuring;
use bench::tio::{TioOutcome, TioPhase, TioSpec, run};
use bench::{Cache, Measurement, NoProgress};
use results::RunIdentity;

fn small(directory: &Path) -> TioSpec {
    TioSpec {
        total_bytes: 4 << 20,
        ..TioSpec::random(directory.to_owned())
    }
}

fn done(spec: &TioSpec) -> TioOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

#[test]
fn the_presets_are_those_of_the_study() {
    let (sequential, random) = (TioSpec::sequential("/".into()), TioSpec::random("/".into()));
    assert_eq!(
        (sequential.total_bytes, sequential.block_bytes, sequential.threads),
        (2 << 30, 8 << 20, 1)
    );
    assert_eq!(
        (random.total_bytes, random.block_bytes, random.threads),
        (2 << 30, 4 << 10, 4)
    );
}

#[test]
fn every_phase_moves_every_block_and_random_ones_as_many_as_asked() {
    for random_operations in [None, Some(10)] {
        let directory = tempfile::tempdir().unwrap();
        let spec = TioSpec {
            random_operations,
            ..small(directory.path())
        };
        let record = done(&spec)
            .into_record(RunIdentity {
                command: Vec::new(),
                tool_version: "0".to_owned(),
                label: "native".to_owned(),
                round: 0,
                host: results::HostInfo::default(),
                target: results::TargetInfo::default(),
            })
            .unwrap();
        let counts: Vec<(&str, u64)> = record
            .samples
            .iter()
            .map(|sample| (sample.operation.as_str(), sample.operations_count))
            .collect();
        let random = random_operations.map_or(1024, |each| 4 * each);
        let expected = [
            ("sequential_write", 1024),
            ("random_write", random),
            ("sequential_read", 1024),
            ("random_read", random),
        ];
        assert_eq!(counts, expected);
        assert!(record.complete);
        assert!(
            record
                .samples
                .iter()
                .all(|sample| sample.bytes == 4096 * sample.operations_count)
        );
        assert!(
            record
                .samples
                .iter()
                .all(|sample| sample.latency.count() == sample.operations_count)
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn the_table_has_the_columns_of_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = done(&small(directory.path()));
    let text = outcome.describe();
    for word in [
        "MB/s",
        "CPU %",
        "mean ms",
        "max ms",
        "> 2 s %",
        "> 10 s %",
        "random_read",
    ] {
        assert!(text.contains(word), "{text}");
    }
    for line in outcome.lines() {
        assert!(line.mb_per_s > 0.0 && line.max_ms >= line.mean_ms, "{line:?}");
        assert_eq!((line.slow_percent, line.very_slow_percent), (0.0, 0.0));
    }
}

#[test]
fn a_stopped_run_has_fewer_phases_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let outcome = run(&small(directory.path()), &StopWhenMeasuring(&stop), &stop).unwrap();
    assert!(!outcome.is_complete());
    assert_eq!(
        outcome.phases.iter().map(|(phase, _)| *phase).collect::<Vec<_>>(),
        [TioPhase::SequentialWrite]
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn contradictions_are_one_error_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let usual = small(directory.path());
    for (wrong, named) in [
        (
            TioSpec {
                threads: 3,
                ..usual.clone()
            },
            "expected a multiple of 4096 bytes times 3 threads",
        ),
        (
            TioSpec {
                threads: 0,
                ..usual.clone()
            },
            "times 0 threads",
        ),
        (
            TioSpec {
                cache: Cache::Warm,
                ..usual.clone()
            },
            "`warm`, expected `as-is` or `cold`",
        ),
        (
            TioSpec {
                total_bytes: 1 << 60,
                ..usual
            },
            "bytes are free",
        ),
    ] {
        let message = run(&wrong, &NoProgress, &AtomicBool::new(false))
            .unwrap_err()
            .to_string();
        assert!(message.contains(named), "{message}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
