//! `tidegate bench file` as a program: exit codes, messages, output and leftover files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["bench", "file"]).args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    bench(arguments).output().expect("the binary runs")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary names are ASCII")
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory exists").count()
}

fn record(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    })
}

#[test]
fn bad_input_is_one_message_and_exit_code_2_and_nothing_is_left() {
    let folder = directory();
    let path = text(folder.path());
    let file = folder.path().join("file");
    fs::write(&file, "mine").expect("it is writable");
    let cases: &[(&[&str], &str)] = &[
        (&[text(&file)], "it is a file, expected a directory"),
        (&[""], "a value is required for '<DIRECTORY>'"),
        (&["/no/such/folder"], "No such file or directory"),
        (&["/dev/null"], "it is a character device"),
        (&["/proc/self"], "mkdir of /proc/self/"),
        (
            &[path, "--threads", "10000000"],
            "threads: 10000000, expected 1 to 1024",
        ),
        (
            &[path, "--size", "1k", "--record", "4k"],
            "smaller than one record of 4096 bytes",
        ),
        (&[path, "--size", "1000t"], "are free; choose a smaller file size"),
        (&[path, "--record", "0"], "record size: 0 bytes"),
        (
            &[path, "--mode", "direct", "--record", "100", "--size", "1000"],
            "multiple of 512",
        ),
        (
            &[path, "--engine", "io_uring", "--mode", "mmap"],
            "a ring has no operation for `mmap`",
        ),
        (&[path, "--iops", "0"], "rate: 0 a second would never end"),
        (&[path, "--runtime", "0"], "run time: 0 s measures nothing"),
        (
            &[path, "--overlap", "50"],
            "a pattern from the beginning to the end repeats nothing",
        ),
        (
            &[path, "--pattern", "append", "--shared"],
            "threads can't append to parts of one file",
        ),
        (&[path, "--destroy-data"], "--device"),
        (
            &[path, "--device", "--pattern", "random-read"],
            "it is a directory, expected a block device",
        ),
    ];
    for (arguments, expected) in cases {
        let output = output(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
        assert!(
            message.contains(expected),
            "{arguments:?}: `{message}` does not say `{expected}`"
        );
        assert_eq!(entries(folder.path()), 1, "{arguments:?}");
    }
    assert_eq!(fs::read_to_string(file).expect("it is still there"), "mine");
}

#[test]
fn an_interrupt_leaves_a_marked_partial_result_and_no_files() {
    for engine in ["psync", "io_uring"] {
        let folder = directory();
        let mut child = bench(&[
            text(folder.path()),
            "--pattern",
            "random-read",
            "--record",
            "4k",
            "--size",
            "1m",
            "--engine",
            engine,
            "--runtime",
            "60s",
            "--progress",
            "json",
            "--json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
        let mut messages = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        // Not the first line, so that some operations have finished.
        let is_under_way = |line: &str| {
            let told: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            told["progress"]["phase"] == "measure" && told["progress"]["fraction"].as_f64() > Some(0.003)
        };
        while !is_under_way(&line) {
            line.clear();
            assert!(
                messages.read_line(&mut line).expect("it is UTF-8") > 0,
                "it ended before measuring"
            );
        }
        let sent = Command::new("kill")
            .arg("-INT")
            .arg(child.id().to_string())
            .status();
        assert!(sent.is_ok_and(|status| status.success()));
        let mut rest = String::new();
        messages.read_to_string(&mut rest).expect("it is UTF-8");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(1), "{engine}: {rest}");
        assert!(
            rest.contains("stopped before its end; the numbers are partial"),
            "{engine}: {rest}"
        );
        let record = record(&output);
        assert_eq!(record["complete"], false, "{engine}");
        assert!(
            record["samples"][0]["operations_count"].as_u64() > Some(0),
            "{engine}"
        );
        assert_eq!(entries(folder.path()), 0, "{engine}");
    }
}

#[test]
fn every_option_reaches_the_record() {
    let folder = directory();
    let output = output(&[
        text(folder.path()),
        "--pattern",
        "mixed:30",
        "--record",
        "4k",
        "--size",
        "256k",
        "--threads",
        "2",
        "--records",
        "32",
        "--order",
        "each-once",
        "--overlap",
        "25",
        "--iops",
        "100000",
        "--think",
        "10us",
        "--data",
        "compressible:40",
        "--verify",
        "--mode",
        "fdatasync",
        "--engine",
        "io_uring",
        "--depth",
        "4",
        "--overwrite",
        "--final-sync",
        "untimed",
        "--cache",
        "warm",
        "--advice",
        "random",
        "--json",
    ]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let record = record(&output);
    let expected = serde_json::json!({
        "pattern": { "mixed": { "read_percent": 30 } }, "records_max": 32, "threads": 2, "order": "each_once",
        "overlap_percent": 25, "rate": { "operations_per_second": 100_000 }, "think_ns": 10_000,
        "data": { "compressible": 40 }, "verify": true, "mode": "fdatasync", "engine": { "io_uring": { "depth": 4 } },
        "write_target": "existing_file", "final_sync": "untimed", "cache": "warm", "advice": "random",
    });
    for (name, value) in expected.as_object().expect("it is one") {
        assert_eq!(&record["workload"][name], value, "{name}");
    }
    let names: Vec<_> = record["samples"]
        .as_array()
        .expect("there are samples")
        .iter()
        .map(|sample| sample["operation"].as_str().expect("it has a name").to_owned())
        .collect();
    assert_eq!(names, ["read", "write", "sync", "final-sync"]);
    assert!(record["counters"]["verified_bytes"].as_f64() > Some(0.0));
    assert_eq!(
        record["samples"][1]["sync_ns"], 0,
        "an untimed sync is no part of the window"
    );
    assert!(record["counters"]["untimed_sync_ns"].as_f64() > Some(0.0));
}

#[test]
fn an_ordinary_user_gets_a_cold_cache_for_the_files_of_the_run() {
    let folder = directory();
    let open = fs::Permissions::from_mode(0o777);
    let under_tmp = tempfile::tempdir_in("/var/tmp").expect("/var/tmp is writable");
    fs::set_permissions(under_tmp.path(), open).expect("it is ours");
    let program = under_tmp.path().join("tidegate");
    if fs::copy(env!("CARGO_BIN_EXE_tidegate"), &program).is_err() {
        return testkit::report_left_out("the program can't be copied to where an ordinary user reaches it");
    }
    let work = under_tmp.path().join("work");
    fs::create_dir(&work).expect("it is ours");
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let run = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args([
            "bench",
            "file",
            text(&work),
            "--pattern",
            "random-read",
            "--record",
            "4k",
            "--size",
            "1m",
        ])
        .args(["--cold-or-fail", "--json"])
        .output();
    let Ok(output) = run else {
        return testkit::report_left_out("there is no setpriv");
    };
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("setpriv") || message.contains("is not cold") {
        return testkit::report_left_out(&message);
    }
    assert_eq!(output.status.code(), Some(0), "{message}");
    let state = &record(&output)["workload"]["cache_state"];
    assert_eq!(state["method"], "advice");
    assert_eq!(state["cached_bytes"], 0);
    assert_eq!(entries(&work) + entries(folder.path()), 0);
}

#[test]
fn offsets_are_printed_for_other_programs_and_nothing_is_touched() {
    let output = output(&[
        "/no/such/folder",
        "--pattern",
        "random-read",
        "--record",
        "4k",
        "--size",
        "64k",
        "--order",
        "mobibench",
        "--print-offsets",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("numbers");
    let found: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    let records = [3, 15, 8, 1, 12, 9, 7, 2, 5, 0, 6, 10, 14, 13, 4, 11];
    assert_eq!(found, records.map(|record| record * 4096));
}

#[test]
fn the_summary_has_rates_and_percentiles_for_each_kind_of_operation() {
    let folder = directory();
    let output = output(&[
        text(folder.path()),
        "--record",
        "4k",
        "--size",
        "256k",
        "--mode",
        "fsync",
        "--final-sync",
        "timed",
    ]);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for word in [
        "MB/s",
        "IOPS",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
        "write",
        "sync",
        "final-sync",
    ] {
        assert!(text.contains(word), "no {word} in:\n{text}");
    }
}

/// fio's option names give the same run as the program's own names.
#[test]
fn the_names_of_fio_give_the_same_workload() {
    let folder = directory();
    let path = text(folder.path());
    let fio = "--rw randwrite --bs 4k --size 64k --numjobs 2 --runtime 50ms --ramp-time 10ms --thinktime 20 --fsync 3";
    let ours = "--pattern random-write --record 4k --size 64k --threads 2 --runtime 50ms --ramp 10ms --think 20us \
                --mode fsync --sync-every 3";
    let workload = |options: &str| {
        let words: Vec<&str> = [path, "--json"].into_iter().chain(options.split(' ')).collect();
        let mut record = record(&output(&words));
        assert_eq!(record["complete"], true);
        record["workload"].take()
    };
    let (fio, ours) = (workload(fio), workload(ours));
    for field in [
        "pattern",
        "record_bytes",
        "threads",
        "time",
        "think_ns",
        "mode",
        "sync_every",
    ] {
        assert_eq!(fio[field], ours[field], "{field}");
    }
    let ring = workload("--rw randread --bs 4k --size 64k --iodepth 4 --engine io_uring");
    assert_eq!(ring["engine"]["io_uring"]["depth"], 4);
}

#[test]
fn a_mistake_is_answered_with_what_was_meant_and_without_the_tip_of_two_dashes() {
    let folder = directory();
    let path = text(folder.path());
    let told = |arguments: &[&str]| {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let message = told(&[path, "--pattern", "random-wirte"]);
    assert!(message.contains("did you mean `random-write`?"), "{message}");
    let message = told(&[path, "--recrod", "4k"]);
    assert!(message.contains("'--record'"), "{message}");
    let message = told(&[path, "--no-such-option"]);
    assert!(!message.contains("-- --no-such-option"), "{message}");
}
