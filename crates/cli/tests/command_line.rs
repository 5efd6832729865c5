//! Errors, exit codes and generated texts of the command; nothing here mounts anything.

use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .expect("the binary runs")
}

fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    String::from_utf8(output.stderr).expect("a message in UTF-8")
}

#[test]
fn an_unknown_option_is_refused_with_the_nearest_known_one() {
    let message = refusal(&["mount", "/", "/mnt", "-o", "bufer=8m"]);
    assert!(
        message.contains("bufer") && message.contains("buffer"),
        "{message}"
    );
}

#[test]
fn a_source_that_is_missing_is_named() {
    let message = refusal(&["mount", "/no/such/folder", "/mnt"]);
    assert!(message.contains("/no/such/folder"), "{message}");
}

#[test]
fn a_size_out_of_range_is_refused_before_anything_is_mounted() {
    let message = refusal(&["mount", "/", "/mnt", "--io-unit", "3k"]);
    assert!(message.contains("4k to 1m"), "{message}");
    let message = refusal(&["mount", "/", "/mnt", "--buffer", "1m", "--entry", "2m"]);
    assert!(message.contains("buffer"), "{message}");
}

#[test]
fn unmount_and_stats_refuse_what_is_no_tidegate_mount() {
    let message = refusal(&["unmount", "/proc"]);
    assert!(message.contains("proc"), "{message}");
    let message = refusal(&["stats", env!("CARGO_MANIFEST_DIR")]);
    assert!(message.contains("nothing is mounted"), "{message}");
}

#[test]
fn a_fake_mount_checks_and_does_nothing() {
    let output = run(&["mount", "--fake", "/", "/no/such/mountpoint"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "the parent of the mountpoint is checked"
    );
    assert!(
        run(&["mount", "--fake", "/", "/mnt", "-o", "buffer=8m"])
            .status
            .success()
    );
}

#[test]
fn completions_and_man_pages_come_from_the_one_definition() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(run(&["completions", shell]).stdout).expect("UTF-8");
        assert!(script.contains("flush-interval"), "{shell}");
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().join("man");
    assert!(run(&["man", path.to_str().expect("UTF-8")]).status.success());
    let page = std::fs::read_to_string(path.join("tidegate-mount.1")).expect("a page for mount");
    assert!(page.contains("flush\\-interval"), "{page}");
}

#[test]
fn a_closed_pipe_is_success() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_benchmark_prints_one_run_record_for_each_round() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().to_str().expect("UTF-8");
    let output = run(&[
        "bench", "file", path, "--size", "1m", "--record", "64k", "--rounds", "2", "--json",
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let records: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .expect("UTF-8")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record in JSON"))
        .collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1]["round"], 1);
    assert_eq!(records[0]["samples"][0]["bytes"], 1 << 20);
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("it is there").count(),
        0,
        "files were left behind"
    );
}
