//! `tidegate bench compare A B` on files of records. Only one test measures: a run that is repeated.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

/// Creates a file with one record per length of the timed window.
fn records(folder: &Path, name: &str, record_bytes: u64, lengths_ms: &[u64]) -> PathBuf {
    let path = folder.join(name);
    let lines: Vec<String> = lengths_ms
        .iter()
        .enumerate()
        .map(|(round, ms)| {
            let window_ns = ms * 1_000_000;
            serde_json::json!({
                "schema": "tidegate.run/1",
                "command": ["tidegate"],
                "tool_version": "0.1.0",
                "started_unix_ns": round,
                "host": {"kernel": "Linux 6", "machine": "x86_64", "processor": null, "cpus": 2, "memory_bytes": 1},
                "target": {"path": "/data", "file_system_type": "ext4", "mount_source": null, "mount_options": null,
                           "block_device": "sda1", "scheduler": null, "free_bytes": null},
                "label": name,
                "round": round,
                "workload": {"kind": "file", "pattern": "sequential_write", "record_bytes": record_bytes},
                "samples": [{"operation": "write", "operations_count": 100, "bytes": 100 * record_bytes,
                             "elapsed_ns": window_ns, "sync_ns": 0, "close_ns": 0,
                             "latency": {"sum_ns": 0, "min_ns": 0, "max_ns": 0, "buckets": []}}],
                "counters": {},
                "complete": true,
            })
            .to_string()
        })
        .collect();
    std::fs::write(&path, lines.join("\n")).expect("the file is written");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn twice_as_fast_is_found_with_an_interval() {
    let folder = TempDir::new().expect("a temporary folder");
    let a = records(folder.path(), "a.jsonl", 524_288, &[100, 101, 102, 99, 100, 98]);
    let b = records(folder.path(), "b.jsonl", 524_288, &[50, 51, 49, 50, 50, 50]);
    let (markdown, page) = (folder.path().join("c.md"), folder.path().join("c.html"));
    let output = run(&[
        "bench",
        "compare",
        text(&a),
        text(&b),
        "--json",
        "--markdown",
        text(&markdown),
        "--report",
        text(&page),
    ]);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{messages}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let operation = &document["operations"][0];
    assert_eq!(operation["verdict"], "higher");
    assert!(operation["ratio"]["low"].as_f64().expect("a number") > 1.9);
    assert!(operation["ratio"]["coverage"].as_f64().expect("a number") >= 0.95);
    for path in [markdown, page] {
        assert!(
            std::fs::read_to_string(path)
                .expect("a file")
                .contains("B is faster")
        );
    }
    let table = run(&["bench", "compare", text(&b), text(&a)]);
    assert!(
        String::from_utf8_lossy(&table.stdout).contains("B is slower"),
        "{table:?}"
    );
}

#[test]
fn equal_runs_show_no_difference_and_a_single_run_tells_nothing() {
    let folder = TempDir::new().expect("a temporary folder");
    let a = records(folder.path(), "a.jsonl", 524_288, &[100, 101, 102, 99, 100, 98]);
    let one = records(folder.path(), "one.jsonl", 524_288, &[10]);
    let same = run(&["bench", "compare", text(&a), text(&a)]);
    assert!(
        String::from_utf8_lossy(&same.stdout).contains("no difference shown"),
        "{same:?}"
    );
    let single = run(&["bench", "compare", text(&a), text(&one)]);
    assert!(
        String::from_utf8_lossy(&single.stdout).contains("too few runs to tell"),
        "{single:?}"
    );
}

#[test]
fn other_workloads_are_refused_and_the_difference_is_named() {
    let folder = TempDir::new().expect("a temporary folder");
    let a = records(folder.path(), "a.jsonl", 524_288, &[100]);
    let b = records(folder.path(), "b.jsonl", 4096, &[100]);
    let output = run(&["bench", "compare", text(&a), text(&b)]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("record_bytes (524288, 4096)"), "{message}");
}

#[test]
fn records_and_targets_exclude_each_other_and_one_of_them_is_needed() {
    for (arguments, words) in [
        (&["bench", "compare"][..], "--target"),
        (&["bench", "compare", "a.jsonl"], "2 values required"),
        (
            &["bench", "compare", "a", "b", "--target", "native=/"],
            "cannot be used with",
        ),
        (
            &["bench", "compare", "a", "b", "--rounds", "3"],
            "cannot be used with",
        ),
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_repeated_run_shows_its_interval_and_coverage() {
    let folder = TempDir::new().expect("a temporary folder");
    let output = run(&[
        "bench",
        "file",
        text(folder.path()),
        "--size",
        "1m",
        "--record",
        "64k",
        "--rounds",
        "6",
    ]);
    let summary = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(summary.contains("interval of 97 % coverage"), "{summary}");
    let few = run(&[
        "bench",
        "file",
        text(folder.path()),
        "--size",
        "1m",
        "--rounds",
        "3",
    ]);
    let summary = String::from_utf8_lossy(&few.stdout);
    assert!(summary.contains("smallest and largest of 3 rounds"), "{summary}");
    assert!(!summary.contains("coverage"), "{summary}");
}

#[test]
fn folders_are_measured_with_the_first_as_the_baseline() {
    let folder = TempDir::new().expect("a temporary folder");
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    for folder in [&a, &b] {
        std::fs::create_dir(folder).expect("made");
    }
    let few = [
        "--workload",
        "write-512k",
        "--rounds",
        "2",
        "--size",
        "1m",
        "--no-history",
    ];
    let output = run(&[&["bench", "compare", text(&a), text(&b)][..], &few].concat());
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(table.contains(text(&a)) && table.contains(text(&b)), "{table}");
    assert!(table.contains("1.00"), "the baseline is 1: {table}");
    let file = records(folder.path(), "a.jsonl", 4096, &[100]);
    let mixed = run(&["bench", "compare", text(&a), text(&file)]);
    let message = String::from_utf8_lossy(&mixed.stderr);
    assert_eq!(mixed.status.code(), Some(2), "{message}");
    assert!(message.contains("are folders and some are not"), "{message}");
}
