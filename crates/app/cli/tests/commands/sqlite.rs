//! `tidegate bench sqlite` as a program: output, exit codes and leftover files.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn tidegate(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["bench", "sqlite"])
        .arg(directory)
        .arg("--no-history")
        .args(arguments);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = tidegate(directory, arguments);
    command.output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_empty(directory: &Path) -> bool {
    let mut entries = std::fs::read_dir(directory).expect("the directory exists");
    entries.next().is_none()
}

#[test]
fn a_summary_says_rate_percentiles_syncs_and_the_library() {
    let directory = tempfile::tempdir().unwrap();
    let output = run(directory.path(), &["--transactions", "50"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for words in [
        "SQLite 3.",
        "(bundled), journal wal, synchronous full",
        "transactions/s: 50 in",
        "p50",
        "p99.9",
        "each transaction: 1.",
    ] {
        assert!(shown.contains(words), "{words} is missing in:\n{shown}");
    }
    assert!(is_empty(directory.path()));
}

#[test]
fn json_is_one_record_a_line_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "--json",
        "--rounds",
        "2",
        "--transactions",
        "20",
        "--operation",
        "mix:40/40",
    ];
    let output = run(directory.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let records: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["complete"], true);
        assert_eq!(record["workload"]["kind"], "sqlite");
        assert_eq!(record["workload"]["operation"]["mix"]["insert_percent"], 40);
        assert!(record["workload"]["sqlite"]["version"].is_string());
    }
    assert_ne!(records[0]["workload"]["seed"], records[1]["workload"]["seed"]);
}

#[test]
fn contradictory_options_are_refused_with_exit_code_2_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (
            &["--threads", "10000000"][..],
            "threads: 10000000, expected 1 to 1024",
        ),
        (
            &["--transaction", "autocommit", "--tables", "3"],
            "one statement on one table",
        ),
        (
            &["--journal", "wall"],
            "none of delete, truncate, persist, wal, memory, off",
        ),
        (&["--operation", "mix:60/60"], "expected at most 100 %"),
        (&["--library", "/proc/version"], "/proc/version"),
    ] {
        let output = run(directory.path(), words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{words:?}: {}",
            text(&output.stderr)
        );
        assert!(
            output.stdout.is_empty() && is_empty(directory.path()),
            "{words:?}"
        );
    }
    let output = run(Path::new("/proc/self"), &[]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_interrupt_leaves_a_partial_record_and_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let words = [
        "--json",
        "--transactions",
        "100000",
        "--interval",
        "1ms",
        "--progress",
        "json",
    ];
    let mut child = tidegate(directory.path(), &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap()).lines();
    // Progress of the timed window: it has started.
    let begun = messages.any(|line| line.unwrap().contains(r#""phase":"measure""#));
    assert!(begun, "no progress was shown");
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    // Read standard error to the end, so that the program never blocks on the pipe.
    let rest: Vec<String> = messages.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{rest:?}");
    let record: Value = serde_json::from_str(text(&output.stdout).trim()).unwrap();
    assert_eq!(record["complete"], false);
    assert!(is_empty(directory.path()));
}
