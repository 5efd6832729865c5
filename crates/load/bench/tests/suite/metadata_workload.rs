//! The metadata workload on a real directory.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::metadata::{MetadataOutcome, MetadataSpec, run};
use bench::{Cache, Measurement, NoProgress, Phase, Progress};
use results::RunIdentity;

fn spec(directory: &Path, content_bytes: u32) -> MetadataSpec {
    MetadataSpec {
        directory: directory.to_owned(),
        files: 600,
        content_bytes,
        sync_directory: true,
        cache: Cache::AsIs,
        seed: 1,
    }
}

fn done(spec: &MetadataSpec) -> MetadataOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

#[test]
fn every_file_is_created_listed_looked_at_and_removed() {
    for content_bytes in [0, 4096] {
        let directory = tempfile::tempdir().unwrap();
        let outcome = done(&spec(directory.path(), content_bytes));
        assert!(outcome.complete);
        for step in [&outcome.create, &outcome.list, &outcome.stat, &outcome.remove] {
            assert_eq!(step.count, 600);
            assert!(step.elapsed_ns > step.sync_ns);
        }
        assert_eq!(outcome.create.bytes, 600 * u64::from(content_bytes));
        assert_eq!(outcome.create.latency.count(), 600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn the_record_has_a_sample_for_each_step() {
    let directory = tempfile::tempdir().unwrap();
    let record = done(&spec(directory.path(), 0))
        .into_record(RunIdentity {
            command: Vec::new(),
            tool_version: "0".to_owned(),
            label: "native".to_owned(),
            round: 0,
            host: results::HostInfo::default(),
            target: results::TargetInfo::default(),
        })
        .unwrap();
    let names: Vec<&str> = record
        .samples
        .iter()
        .map(|sample| sample.operation.as_str())
        .collect();
    assert_eq!(names, ["create", "list", "stat", "remove"]);
    assert!(
        record
            .samples
            .iter()
            .all(|sample| sample.operations_per_s().is_some())
    );
    assert_eq!(record.workload["kind"], "metadata");
}

struct StopAt<'run>(Phase, &'run AtomicBool);

impl Progress for StopAt<'_> {
    fn advance(&self, phase: Phase, done: u64, _total: u64) {
        if phase == self.0 && done > 0 {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_stopped_run_is_marked_and_leaves_nothing() {
    for phase in [Phase::Create, Phase::Stat, Phase::Remove] {
        let directory = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let outcome = run(&spec(directory.path(), 0), &StopAt(phase, &stop), &stop).unwrap();
        assert!(!outcome.complete, "{phase:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "{phase:?}");
    }
}

#[test]
fn contradictions_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let good = spec(directory.path(), 0);
    let cases = [
        (
            MetadataSpec {
                files: 0,
                ..good.clone()
            },
            "files: 0, expected at least 1",
        ),
        (
            MetadataSpec {
                content_bytes: 2 << 20,
                ..good.clone()
            },
            "content size: 2097152 bytes",
        ),
        (
            MetadataSpec {
                cache: Cache::Warm,
                ..good
            },
            "cache: `warm`",
        ),
    ];
    for (spec, expected) in cases {
        let message = run(&spec, &NoProgress, &AtomicBool::new(false))
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
