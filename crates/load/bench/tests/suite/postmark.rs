//! PostMark on a real directory, compared with the original if it is installed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use crate::stopping::StopWhenMeasuring;
use bench::postmark::{Buffering, PostmarkOutcome, PostmarkSpec, run};
use bench::{Measurement, NoProgress};
use results::RunIdentity;

fn done(spec: &PostmarkSpec) -> PostmarkOutcome {
    run(spec, &NoProgress, &AtomicBool::new(false)).expect("the workload must run")
}

/// Settings that exercise every rule: subdirectories, unequal biases, files that reach their full size.
fn varied(directory: &Path) -> PostmarkSpec {
    PostmarkSpec {
        files: 60,
        transactions: 400,
        size_low_bytes: 100,
        size_high_bytes: 20_000,
        read_bias: Some(3),
        create_bias: Some(6),
        subdirectories: 7,
        postmark_seed: 11,
        ..PostmarkSpec::original_defaults(directory.to_owned())
    }
}

#[test]
fn the_defaults_do_what_the_original_prints() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = done(&PostmarkSpec::original_defaults(directory.path().to_owned()));
    assert!(outcome.complete);
    let counts = [
        outcome.create_alone.count,
        outcome.create_mixed.count,
        outcome.read.count,
        outcome.append.count,
        outcome.delete_alone.count,
        outcome.delete_mixed.count,
    ];
    assert_eq!(counts, [500, 264, 243, 257, 528, 236]);
    assert_eq!(outcome.read.latency.count(), 243);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn every_setting_gives_the_counts_of_the_installed_original() {
    if !testkit::needs(&[testkit::Need::Program("postmark")]) {
        return;
    }
    for (buffering, block) in [(Buffering::Stream, 512), (Buffering::None, 3000)] {
        let directory = tempfile::tempdir().unwrap();
        let spec = PostmarkSpec {
            buffering,
            read_block_bytes: block,
            write_block_bytes: block,
            ..varied(directory.path())
        };
        let original = printed_by_the_original(&spec);
        let outcome = done(&spec);
        let ours = BTreeMap::from([
            ("created", outcome.create_alone.count + outcome.create_mixed.count),
            ("read", outcome.read.count),
            ("appended", outcome.append.count),
            ("deleted", outcome.delete_alone.count + outcome.delete_mixed.count),
        ]);
        assert_eq!(ours, original);
    }
}

/// The counts printed by the original for the same settings.
fn printed_by_the_original(spec: &PostmarkSpec) -> BTreeMap<&'static str, u64> {
    let directory = tempfile::tempdir().expect("a folder");
    let mut child = Command::new("postmark")
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("postmark starts");
    let settings = format!(
        "set number {}\nset transactions {}\nset size {} {}\nset bias read {}\nset bias create {}\n\
         set subdirectories {}\nset seed {}\nset buffering {}\nset read {}\nset write {}\nrun\nquit\n",
        spec.files,
        spec.transactions,
        spec.size_low_bytes,
        spec.size_high_bytes,
        spec.read_bias.unwrap_or(5),
        spec.create_bias.unwrap_or(5),
        spec.subdirectories,
        spec.postmark_seed,
        spec.buffering == Buffering::Stream,
        spec.read_block_bytes,
        spec.write_block_bytes,
    );
    let mut input = child.stdin.take().expect("its input is a pipe");
    input
        .write_all(settings.as_bytes())
        .expect("it reads its settings");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    ["created", "read", "appended", "deleted"]
        .into_iter()
        .map(|word| {
            let ending = format!(" {word} (");
            let line = output.lines().find(|line| line.contains(&ending)).expect(&output);
            let number = line.split_whitespace().next().unwrap_or_default();
            (word, number.parse().expect(line))
        })
        .collect()
}

#[test]
fn the_record_has_a_sample_for_each_kind_and_phase() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = done(&varied(directory.path()));
    let text = outcome.describe();
    assert!(
        text.contains("creation alone") && text.contains("appended"),
        "{text}"
    );
    let skipped = outcome.appends_skipped_count + outcome.creates_skipped_count;
    assert!(skipped > 0 && text.contains("Skipped by the rules"), "{text}");
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
    let names: Vec<&str> = record
        .samples
        .iter()
        .map(|sample| sample.operation.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "create_alone",
            "create_mixed",
            "read",
            "append",
            "delete_mixed",
            "delete_alone"
        ]
    );
    assert_eq!(record.workload["layer"], "system_calls");
}

#[test]
fn a_stopped_run_returns_what_it_has_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let outcome = run(&varied(directory.path()), &StopWhenMeasuring(&stop), &stop).unwrap();
    assert!(!outcome.complete);
    assert_eq!((outcome.create_alone.count, outcome.transactions_count), (60, 0));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn contradictions_and_too_little_space_are_one_error_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let usual = varied(directory.path());
    for (wrong, named) in [
        (
            PostmarkSpec {
                files: 0,
                ..usual.clone()
            },
            "files: 0, expected 1 to",
        ),
        (
            PostmarkSpec {
                size_low_bytes: 30_000,
                ..usual.clone()
            },
            "largest size: 20000, expected 30000",
        ),
        (
            PostmarkSpec {
                read_bias: Some(11),
                ..usual.clone()
            },
            "read bias: 11",
        ),
        (
            PostmarkSpec {
                files: 10_000_000,
                size_high_bytes: 256 << 20,
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
