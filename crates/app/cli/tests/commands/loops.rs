//! `tidegate bench varmail` and its like as programs: their calls as strace sees them, their records, their use in jobs and
//! plans. A new one is a line at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::Need;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
const SMALL: [&str; 7] = ["--files", "20", "--threads", "2", "--loops", "7", "--json"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn record(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_str(&text(&output.stdout)).expect("one record")
}

fn sample<'record>(record: &'record Value, kind: &str) -> &'record Value {
    let samples = record["samples"].as_array().expect("samples");
    let found = samples.iter().find(|sample| sample["operation"] == kind);
    found.unwrap_or_else(|| panic!("{kind} is missing: {record}"))
}

/// A call on a file of the set, or on a log.
struct Call {
    thread: String,
    name: &'static str,
    file: String,
    result: i64,
}

/// The calls of `strace -f -y`, with those that strace printed in two parts joined.
fn calls(log: &str) -> Vec<Call> {
    let mut unfinished = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        let (thread, call) = line.split_once(' ').expect("a thread and a call");
        let mut call = call.trim().to_owned();
        if let Some(start) = call.strip_suffix("<unfinished ...>") {
            unfinished.insert(thread.to_owned(), start.to_owned());
            continue;
        }
        if call.starts_with("<... ") {
            let (_, rest) = call.split_once("resumed>").expect("the end of a call");
            call = unfinished.remove(thread).expect("its start") + rest;
        }
        let Some(at) = call.find("/file-").or_else(|| call.find("/log-")) else {
            continue;
        };
        let file = call[at + 1..].split(['"', '>']).next().unwrap_or_default();
        let name = match &call[..call.find('(').expect("a call")] {
            "openat" if call.contains("O_CREAT|O_EXCL") => "create",
            "openat" => "open",
            "read" => "read",
            "write" => "append",
            "fsync" => "sync",
            "close" => "close",
            "unlink" => "delete",
            "statx" => "stat",
            other => panic!("another call on a file of the set: {other}"),
        };
        let result = call.rsplit_once("= ").expect("a result").1;
        let result = result.split(['<', ' ']).next().unwrap_or_default();
        calls.push(Call {
            thread: thread.to_owned(),
            name,
            file: file.to_owned(),
            result: result.parse().expect(&call),
        });
    }
    calls
}

/// Compares a run of `workload` with what strace sees of it; `visits` are the calls of a loop, file by file, and each
/// thread keeps `kept` logs open, which it closes at its end, uncounted.
fn strace_sees_exactly_the_calls(workload: &str, visits: &[&[&str]], kept: usize) {
    if !testkit::needs(&[Need::Program("strace")]) {
        return;
    }
    let (directory, logs) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let log = logs.path().join("log");
    let traced = "trace=openat,open,creat,read,write,pread64,pwrite64,fsync,fdatasync,close,unlink,rename,ftruncate,statx";
    let output = Command::new("strace")
        .args(["-f", "-y", "-qq", "-e", traced, "-e", "signal=none", "-o"])
        .arg(&log)
        .args([TIDEGATE, "bench", workload])
        .arg(directory.path())
        .arg("--no-history")
        .args(SMALL)
        .output()
        .expect("strace runs");
    let record = record(&output);
    let all = calls(&fs::read_to_string(&log).expect("a log"));

    // The files before the window: 80 % of the set, made by the first thread.
    let first = all[0].thread.clone();
    let (prepared, measured): (Vec<_>, Vec<_>) = all.iter().partition(|call| call.thread == first);
    let is_log = |file: &str| file.starts_with("log-");
    let made = prepared.iter().filter(|call| call.name == "create").count();
    assert_eq!(made, 16 + 2 * kept);

    let threads: BTreeSet<_> = measured.iter().map(|call| &call.thread).collect();
    assert_eq!(threads.len(), 2);
    let specified = visits.concat();
    let mut seen = BTreeMap::<_, Vec<i64>>::new();
    for thread in threads {
        let own: Vec<_> = measured.iter().filter(|call| call.thread == *thread).collect();
        assert_eq!(own.len(), 7 * specified.len() + kept);
        let own_logs = own.iter().map(|call| &call.file).filter(|file| is_log(file));
        assert_eq!(own_logs.collect::<BTreeSet<_>>().len(), kept);
        let mut own = own.iter();
        for (number, visit) in (0..7).flat_map(|_| visits).enumerate() {
            let calls: Vec<_> = own.by_ref().take(visit.len()).collect();
            let names: Vec<_> = calls.iter().map(|call| call.name).collect();
            let same = |kind| if kind == "write" { "append" } else { kind };
            let expected: Vec<_> = visit.iter().map(|kind| same(kind)).collect();
            assert_eq!(names, expected, "visit {number}");
            for (kind, call) in visit.iter().zip(&calls) {
                seen.entry(*kind).or_default().push(call.result);
            }
            let files: BTreeSet<_> = calls.iter().map(|call| &call.file).collect();
            assert_eq!(files.len(), 1, "the calls of visit {number} are on one file");
        }
        for call in own {
            assert!(call.name == "close" && is_log(&call.file), "{}", call.file);
        }
    }

    // Never more files than the set; sizes are those of the appends, and every read is whole.
    let mut sizes = BTreeMap::new();
    for call in &all {
        assert!(call.result >= 0, "{} of {} failed", call.name, call.file);
        match call.name {
            "create" => assert_eq!(sizes.insert(&call.file, 0), None, "{}", call.file),
            "delete" => assert!(sizes.remove(&call.file).is_some(), "{}", call.file),
            "append" => *sizes.get_mut(&call.file).expect("it exists") += call.result,
            "read" => assert_eq!(sizes[&call.file], call.result, "{}", call.file),
            _ => {}
        }
        assert!(sizes.keys().filter(|file| !is_log(file)).count() <= 20);
    }

    for (kind, results) in seen {
        assert_eq!(sample(&record, kind)["operations_count"], results.len(), "{kind}");
        if ["append", "read", "write"].contains(&kind) {
            let bytes: i64 = results.iter().sum();
            assert_eq!(sample(&record, kind)["bytes"], bytes, "{kind}");
        }
    }
    let operations = u64::try_from(2 * 7 * specified.len()).expect("a small number");
    assert_eq!(
        record["counters"]["operations_count"],
        results::nearest_f64(operations)
    );
}

#[test]
fn it_is_a_step_of_a_job_and_the_workload_of_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(TIDEGATE);
        command
            .args(words)
            .current_dir(folder.path())
            .env("TIDEGATE_HISTORY", "off");
        command.output().expect("the program can be started")
    };
    let job = "name = \"mail\"\n[[step]]\nkind = \"varmail\"\nfiles = 20\nthreads = 2\nloops = 3\nmean-size = \"4k\"\nappend = \"1k\"\n";
    fs::write(folder.path().join("job.toml"), job).unwrap();
    let ran = record(&run(&["bench", "run", "job.toml", ".", "--json"]));
    assert_eq!(ran["workload"]["kind"], "varmail");
    assert_eq!(ran["workload"]["mean_bytes"], 4096);
    assert_eq!(sample(&ran, "delete")["operations_count"], 6);

    let plan = format!(
        "name = \"mail\"\n[environment]\ndevice = \"directory:{}\"\n[workload]\nkind = \"varmail\"\nfiles = \"20\"\n\
         [axes]\nworkload.threads = [\"1\", \"2\"]\n",
        folder.path().display()
    );
    fs::write(folder.path().join("plan.toml"), &plan).unwrap();
    let checked = run(&["study", "check", "plan.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(
        text(&checked.stdout).contains("2 cells"),
        "{}",
        text(&checked.stdout)
    );
    fs::write(
        folder.path().join("plan.toml"),
        plan.replace("threads", "transactions"),
    )
    .unwrap();
    let refused = text(&run(&["study", "check", "plan.toml"]).stderr);
    assert!(
        refused.contains("workload: unexpected argument '--transactions'"),
        "{refused}"
    );

    let summary = run(&[&["bench", "varmail", "."][..], &SMALL[..6]].concat());
    let shown = text(&summary.stdout);
    assert!(
        shown.contains("182 operations, ") && shown.contains("p99.9"),
        "{shown}"
    );
}

#[test]
fn each_workload_has_its_own_defaults() {
    for (workload, defaults) in [
        ("varmail", ["1000", "16k", "16"]),
        ("fileserver", ["10000", "128k", "50"]),
        ("webproxy", ["10000", "16k", "100"]),
    ] {
        let help = Command::new(TIDEGATE)
            .args(["bench", workload, "--help"])
            .output()
            .unwrap();
        let shown = text(&help.stdout);
        for default in defaults {
            assert!(
                shown.contains(&format!("[default: {default}]")),
                "{workload}: {shown}"
            );
        }
    }
}

#[test]
fn the_limit_of_open_files_is_raised_to_the_need_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |limit: &str| {
        let program = format!(
            "{limit}; exec {TIDEGATE} bench webproxy . --no-history --threads 90 --files 90 --loops 1"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &program]).current_dir(folder.path());
        command.output().expect("sh runs")
    };
    let raised = run("ulimit -Sn 60");
    assert_eq!(raised.status.code(), Some(0), "{}", text(&raised.stderr));
    let refused = run("ulimit -n 60");
    assert_eq!(refused.status.code(), Some(2));
    let message = text(&refused.stderr);
    assert!(
        message.contains("this user may open 60; raise it with `ulimit -n`"),
        "{message}"
    );
}

#[test]
fn varmail() {
    strace_sees_exactly_the_calls(
        "varmail",
        &[
            &["delete"],
            &["create", "append", "sync", "close"],
            &["open", "read", "append", "sync", "close"],
            &["open", "read", "close"],
        ],
        0,
    );
}

#[test]
fn fileserver() {
    strace_sees_exactly_the_calls(
        "fileserver",
        &[
            &["create", "write", "close"],
            &["open", "append", "close"],
            &["open", "read", "close"],
            &["delete"],
            &["stat"],
        ],
        0,
    );
}

#[test]
fn webproxy() {
    let read: &[_] = &["open", "read", "close"];
    let once: [&[_]; 3] = [&["delete"], &["create", "append", "close"], &["append"]];
    let visits = [&once[..2], &[read; 5], &once[2..]].concat();
    strace_sees_exactly_the_calls("webproxy", &visits, 1);
}
