//! `tidegate trace syscalls` and `tidegate replay` as programs: a recorded trace is replayed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use results::call_trace::{Trace, read_call_trace};
use results::{RunRecord, Sample};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

fn tidegate(words: &[&str]) -> Output {
    Command::new(TIDEGATE)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program that was just built can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// Files below `root` with their sizes.
fn sizes(root: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = path.metadata().expect("the file is there").len();
                let name = path.strip_prefix(root).expect("it is below").to_owned();
                found.insert(name, bytes);
            }
        }
    }
    found
}

fn counts(trace: &Trace) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for call in &trace.calls {
        *counts.entry(call.action.kind()).or_default() += 1;
    }
    counts
}

#[test]
fn a_recorded_program_is_replayed_with_the_same_calls_and_file_sizes() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().canonicalize().expect("it exists");
    let (work, target) = (path.join("work"), path.join("target"));
    fs::create_dir(&work).expect("a new folder");
    fs::create_dir(&target).expect("a new folder");
    fs::write(work.join("input"), vec![7; 10_000]).expect("a new file");
    let trace_file = path.join("calls.jsonl");
    let script = format!(
        "cd {} && dd if=input of=copy bs=3000 conv=fsync 2>/dev/null; cat input input > twice; \
         mkdir sub; mv copy sub/moved; rm input; exit 3",
        work.display()
    );
    let recorded = tidegate(&[
        "trace",
        "syscalls",
        "-o",
        text(&trace_file),
        "--",
        "/bin/sh",
        "-c",
        &script,
    ]);
    assert_eq!(recorded.status.code(), Some(3), "{}", said(&recorded));

    let replayed = tidegate(&[
        "replay",
        text(&trace_file),
        text(&target),
        "--keep-files",
        "--json",
        "--progress",
        "off",
    ]);
    let messages = said(&replayed);
    let record: RunRecord = serde_json::from_slice(&replayed.stdout).expect("one run record");

    let kept = fs::read_dir(&target)
        .expect("it is there")
        .next()
        .expect("files are kept")
        .expect("readable");
    let again = kept
        .path()
        .join(work.strip_prefix("/").expect("an absolute path"));
    assert_eq!(sizes(&again), sizes(&work), "{messages}");
    let bytes = fs::read(&trace_file).expect("the trace is there");
    let trace = read_call_trace(bytes.as_slice(), &trace_file, usize::MAX).expect("a whole trace");
    let made: BTreeMap<&str, u64> = record
        .samples
        .iter()
        .map(|sample| (sample.operation.as_str(), sample.operations_count))
        .collect();
    assert_eq!(made, counts(&trace), "{messages}");
    assert_eq!(record.workload["layer"], "system_calls");
    assert!(record.counters["short_transfers_count"] < 0.5, "{messages}");
}

#[test]
fn output_of_strace_is_replayed() {
    if Command::new("strace").arg("-V").output().is_err() {
        testkit::report_left_out("strace is not installed");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().canonicalize().expect("it exists");
    let (output, trace_file) = (path.join("file"), path.join("strace.txt"));
    let script = format!(
        "dd if=/dev/zero of={} bs=512 count=4 conv=fdatasync",
        output.display()
    );
    let traced = Command::new("strace")
        .args([
            "-f",
            "-ttt",
            "-T",
            "-y",
            "-o",
            text(&trace_file),
            "/bin/sh",
            "-c",
            &script,
        ])
        .output()
        .expect("strace runs");
    if !traced.status.success() {
        testkit::report_left_out(format!("strace may not trace here: {}", said(&traced)));
        return;
    }
    let replayed = tidegate(&[
        "replay",
        text(&trace_file),
        text(&path),
        "--json",
        "--progress",
        "off",
    ]);
    let record: RunRecord = serde_json::from_slice(&replayed.stdout).expect("one run record");
    let write = record.sample("write").expect("dd writes");
    let sample: &Sample = record.sample("fdatasync").expect("dd syncs");
    assert_eq!(sample.operations_count, 1, "{}", said(&replayed));
    assert!(write.bytes >= 2048, "{}", said(&replayed));
    assert_eq!(record.workload["origin"], "strace");
}

#[test]
fn an_unreplayable_trace_is_one_line_and_exit_code_two() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path();
    let (odd, broken) = (path.join("odd"), path.join("broken"));
    fs::write(&odd, "hello\n").expect("a new file");
    fs::write(&broken, "fio version 3 iolog\n5 /f open\n7 /f leap 0 1\n").expect("a new file");
    let missing = path.join("missing");
    for (file, expected) in [
        (&odd, "no known format of traces, it begins with `hello`"),
        (
            &broken,
            "line 3: expected read, write, sync, datasync, trim or wait, found `7 /f leap 0 1`",
        ),
        (&missing, "cannot read: No such file or directory"),
    ] {
        let output = tidegate(&["replay", text(file), text(path)]);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
    let output = tidegate(&[
        "trace",
        "syscalls",
        "-o",
        text(&path.join("t")),
        "--",
        "/nowhere/program",
    ]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("/nowhere/program: cannot be started"),
        "{}",
        said(&output)
    );
    assert_eq!(sizes(path).len(), 2);
}

#[test]
fn a_block_trace_is_labelled_and_its_numbers_are_of_block_requests() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let trace_file = directory.path().join("blk.txt");
    let line = "  8,0 1 1 0.000000000 697 D W 2048 + 8 [app]\n  8,0 1 2 0.001000000 697 D R 4096 + 8 [app]\n";
    fs::write(&trace_file, line).expect("a new file");
    let path = text(directory.path());
    let output = tidegate(&[
        "replay",
        text(&trace_file),
        path,
        "--speed",
        "x10",
        "--json",
        "--progress",
        "off",
    ]);
    let record: RunRecord = serde_json::from_slice(&output.stdout).expect("one run record");
    assert_eq!(record.workload["layer"], "block");
    assert!(
        said(&output).contains("block requests, below the page cache"),
        "{}",
        said(&output)
    );
    let kinds: Vec<&str> = record
        .samples
        .iter()
        .map(|sample| sample.operation.as_str())
        .collect();
    assert_eq!(kinds, ["block-read", "block-write"]);
    assert!(record.counters.contains_key("lateness_p99_ns"));
}
