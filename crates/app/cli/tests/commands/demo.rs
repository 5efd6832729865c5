//! `tidegate demo` with small files: its output files and its results.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it is there");
    let names = entries.map(|entry| {
        entry
            .expect("it is there")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Uses a temporary home directory to check that the demo adds nothing to a user's history.
#[test]
fn a_demo_leaves_its_report_and_its_records_and_nothing_else() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("out");
    let (report, picture) = (directory.join("demo.html"), directory.join("demo.svg"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--rounds", "3", "--size", "32m", "--report"])
        .args([&report, &directory])
        .arg("--svg")
        .arg(&picture)
        .env_remove("TIDEGATE_HISTORY")
        .env_remove("XDG_DATA_HOME")
        .env("HOME", folder.path().join("home"))
        .output()
        .expect("the binary runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("native"), "{table}");
    assert!(
        table.contains("64 (computed)"),
        "native has as many writes as records: {table}"
    );
    if !messages.contains("left out") {
        // The write counts of the paper's table 3 for 32 MiB: one write per 4 KiB, per record, per buffer entry.
        for line in ["fuse-4k", "fuse-512k", "bfuse-8m"] {
            assert!(table.contains(line), "{table}");
        }
        assert!(table.contains("8,192"), "{table}");
    }
    assert!(
        table.contains("of native [min, max]"),
        "three rounds have no interval of 95 %: {table}"
    );
    assert_eq!(names_in(&directory), ["demo.html", "demo.jsonl", "demo.svg"]);
    assert_eq!(
        names_in(folder.path()),
        ["out"],
        "nothing is stored in the user's history"
    );
    let picture = std::fs::read_to_string(picture).expect("a picture");
    assert!(
        picture.starts_with("<svg xmlns=") && !picture.contains("var("),
        "{picture}"
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    assert!(!mounts.contains(directory.to_str().expect("UTF-8")), "{mounts}");
}

#[test]
fn a_demo_that_is_interrupted_reports_the_rounds_it_has() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("out");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--rounds", "1000", "--size", "512k", "--report"])
        .args([&directory.join("demo.html"), &directory])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut messages = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.starts_with("tidegate: round 2 of ") && !line.starts_with("round 2 of ") {
        line.clear();
        let read = messages.read_line(&mut line).expect("it is UTF-8");
        assert!(read > 0, "it ended before its second round");
    }
    let sent = Command::new("kill")
        .arg("-INT")
        .arg(child.id().to_string())
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    let mut rest = String::new();
    messages.read_to_string(&mut rest).expect("it is UTF-8");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{rest}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("native") && table.contains("interleaved rounds"),
        "{table}{rest}"
    );
    assert!(
        rest.contains("stopped before its end; the numbers are partial"),
        "{rest}"
    );
    assert_eq!(names_in(&directory), ["demo.html", "demo.jsonl.partial"]);
    let page = std::fs::read_to_string(directory.join("demo.html")).expect("a page");
    assert!(page.contains("stopped before its end"), "the page says so");
    let records = std::fs::read_to_string(directory.join("demo.jsonl.partial")).expect("records");
    assert!(records.lines().count() >= 2, "{records}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    assert!(!mounts.contains(directory.to_str().expect("UTF-8")), "{mounts}");
}

/// A stop while it mounts reaches the mounting child processes too, as Ctrl-C on a terminal does.
#[test]
fn a_demo_that_is_stopped_before_its_rounds_leaves_nothing() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("out");
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--rounds", "3", "--size", "512k", "--report"])
        .args([&folder.path().join("demo.html"), &directory])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the binary runs");
    // It catches signals before it makes the folder.
    while !directory.exists() {
        std::thread::yield_now();
    }
    let sent = Command::new("kill")
        .args(["-INT", "--", &format!("-{}", child.id())])
        .status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("stopped; its files are removed"), "{messages}");
    assert!(!messages.contains("left out"), "{messages}");
    assert_eq!(names_in(folder.path()), ["out"], "{messages}");
    assert!(names_in(&directory).is_empty(), "{messages}");
}
