//! uFLIP on a file in a real directory.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::stopping::StopWhenMeasuring;
use bench::uflip::{
    Baseline, Caching, Calibrate, Counts, MicroBenchmark, State, UflipOutcome, UflipSpec, run,
};
use bench::{DeviceAccess, Measurement, NoProgress};
use results::RunIdentity;

/// Buffered, because a directory for temporary files may not support direct I/O, and without pauses.
fn small(directory: &Path) -> UflipSpec {
    UflipSpec {
        caching: Caching::Page,
        benchmarks: MicroBenchmark::ALL.to_vec(),
        baselines: Baseline::ALL.to_vec(),
        io_bytes: 4096,
        counts: Counts {
            ios: [8, 8, 8, 12],
            ignored: [0, 0, 0, 2],
        },
        runs: 2,
        pause_ns: 0,
        state: State::RandomFormat,
        ..UflipSpec::granularity(directory.to_owned(), 2 << 20)
    }
}

fn done(spec: &UflipSpec) -> UflipOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

#[test]
fn every_benchmark_measures_every_point_and_ignores_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = small(directory.path());
    // The pauses of these two are 100 ms and more.
    spec.benchmarks
        .retain(|benchmark| !matches!(benchmark, MicroBenchmark::Bursts | MicroBenchmark::Pause));
    let outcome = done(&spec);
    assert!(outcome.complete);
    for benchmark in &spec.benchmarks {
        let points = outcome
            .points
            .iter()
            .filter(|point| point.benchmark == *benchmark)
            .count();
        assert!(points >= 8, "{benchmark:?} has {points} points");
    }
    for point in &outcome.points {
        assert!(
            point.ios > 0 && point.latency.count() == point.ios,
            "{}",
            point.name
        );
        assert_eq!(point.run_means_ns.len(), 2, "{}", point.name);
        assert!(point.mb_per_s().is_some_and(|rate| rate > 0.0), "{}", point.name);
    }
    let random_writes = outcome
        .points
        .iter()
        .find(|point| point.name == "granularity/RW/io_bytes=4096");
    assert_eq!(
        random_writes.map(|point| (point.ios, point.ignored)),
        Some((20, 2))
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn pauses_are_kept_between_ios() {
    let directory = tempfile::tempdir().unwrap();
    let spec = UflipSpec {
        benchmarks: vec![MicroBenchmark::Pause],
        baselines: vec![Baseline::SequentialRead],
        counts: Counts {
            ios: [2; 4],
            ignored: [0; 4],
        },
        runs: 1,
        ..small(directory.path())
    };
    let began = std::time::Instant::now();
    let outcome = done(&spec);
    let paused_us: i64 = outcome.points.iter().map(|point| 2 * point.value).sum();
    assert_eq!(outcome.points.len(), 9);
    assert!(i64::try_from(began.elapsed().as_micros()).unwrap() >= paused_us);
}

#[test]
fn calibration_looks_at_every_pattern() {
    let directory = tempfile::tempdir().unwrap();
    let spec = UflipSpec {
        calibrate: Calibrate::Yes,
        benchmarks: vec![MicroBenchmark::Parallelism],
        ..small(directory.path())
    };
    let outcome = done(&spec);
    let calibration = outcome.calibration.clone().unwrap();
    let patterns: Vec<Baseline> = calibration
        .patterns
        .iter()
        .map(|(baseline, _)| *baseline)
        .collect();
    assert_eq!(patterns, Baseline::ALL);
    assert!(
        outcome.describe().contains("reads suffer for"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn the_record_has_a_sample_for_each_point_and_the_table_the_steps() {
    let directory = tempfile::tempdir().unwrap();
    let spec = UflipSpec {
        benchmarks: vec![MicroBenchmark::Granularity],
        baselines: vec![Baseline::RandomWrite],
        ..small(directory.path())
    };
    let outcome = done(&spec);
    let text = outcome.describe();
    assert!(
        text.contains("io_bytes") && text.contains("super-page size from random writes: "),
        "{text}"
    );
    let points = outcome.points.len();
    let record = outcome
        .into_record(RunIdentity {
            command: Vec::new(),
            tool_version: "0".to_owned(),
            label: "native".to_owned(),
            round: 0,
            host: results::HostInfo::default(),
            target: results::TargetInfo::default(),
        })
        .unwrap();
    assert_eq!(record.samples.len(), points);
    assert_eq!(record.samples[0].operation, "granularity/RW/io_bytes=512");
    assert_eq!(record.workload["points"][0]["parameter"], "io_bytes");
    assert!(
        record
            .samples
            .iter()
            .all(|sample| sample.latency.summary().is_some())
    );
}

#[test]
fn a_stopped_run_has_fewer_points_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let outcome = run(&small(directory.path()), &StopWhenMeasuring(&stop), &stop).unwrap();
    assert!(!outcome.complete);
    assert_eq!(outcome.points.len(), 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn contradictions_are_one_error_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let usual = small(directory.path());
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    for (wrong, named) in [
        (
            UflipSpec {
                target_bytes: 1000,
                ..usual.clone()
            },
            "size: 1000 bytes, expected a multiple of 1048576",
        ),
        (
            UflipSpec {
                io_bytes: 3000,
                ..usual.clone()
            },
            "expected a power of two from 512 to 262144",
        ),
        (
            UflipSpec {
                runs: 0,
                ..usual.clone()
            },
            "runs: none",
        ),
        (
            UflipSpec {
                baselines: Vec::new(),
                ..usual.clone()
            },
            "patterns: none",
        ),
        (
            UflipSpec {
                target_bytes: 1 << 60,
                ..usual.clone()
            },
            "bytes are free",
        ),
        (
            UflipSpec {
                path: file.clone(),
                ..usual.clone()
            },
            "it is a file",
        ),
        (
            UflipSpec {
                path: file,
                device: DeviceAccess::Destroy,
                ..usual.clone()
            },
            "expected a block device",
        ),
        (
            UflipSpec {
                device: DeviceAccess::Read,
                ..usual
            },
            "a device that may only be read",
        ),
    ] {
        let message = run(&wrong, &NoProgress, &AtomicBool::new(false))
            .unwrap_err()
            .to_string();
        assert!(message.contains(named), "{message}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}
