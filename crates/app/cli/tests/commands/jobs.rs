//! Jobs, presets and fio jobs as a user runs them: commands, output, exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn tidegate(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .current_dir(folder)
        .env("TIDEGATE_HISTORY", "off")
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Standard output of a run that must succeed.
fn done(arguments: &[&str], folder: &Path) -> String {
    let output = tidegate(arguments, folder);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The message of a run that must fail.
fn refused(arguments: &[&str], folder: &Path) -> String {
    let output = tidegate(arguments, folder);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    text(&output.stderr)
}

const JOB: &str = r#"
name = "small"

[defaults.file]
record = "4k"
size = "256k"

[[step]]
name = "by-clock"
kind = "file"
pattern = "random-write"
runtime = "250ms"

[[step]]
name = "once"
kind = "file"
pattern = "sequential-read"

[[step]]
name = "rows"
kind = "sqlite"
journal = "off"
synchronous = "off"
transactions = 50000
time-limit = "200ms"

[[step]]
name = "names"
kind = "metadata"
files = 50
"#;

#[test]
fn a_job_gives_one_record_for_each_step_and_round_in_order() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.toml"), JOB).unwrap();
    let printed = done(
        &["bench", "run", "j.toml", ".", "--rounds", "2", "--json"],
        folder.path(),
    );
    let records: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = records
        .iter()
        .map(|record| record["workload"]["name"].as_str().unwrap())
        .collect();
    let once = ["by-clock", "once", "rows", "names"];
    assert_eq!(names, [once, once].concat());
    let rounds: Vec<u64> = records
        .iter()
        .map(|record| record["round"].as_u64().unwrap())
        .collect();
    assert_eq!(rounds, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert!(
        records
            .iter()
            .all(|record| record["complete"] == true && record["workload"]["job"] == "small")
    );
    let transactions = records[2]["samples"][0]["operations_count"].as_u64().unwrap();
    assert!(
        (1..50_000).contains(&transactions),
        "{transactions} transactions in 200 ms"
    );
    let left: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["j.toml"]);
}

#[test]
fn a_selection_of_steps_is_shown_as_a_table_with_the_columns_of_the_app() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.toml"), JOB).unwrap();
    let printed = done(
        &[
            "bench",
            "run",
            "j.toml",
            ".",
            "--only",
            "file,sqlite",
            "--steps",
            "once,rows",
        ],
        folder.path(),
    );
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("small on "), "{printed}");
    for column in [
        "MB/s",
        "operations/s",
        "transact./s",
        "cpu act/iow/idl %",
        "switches (voluntary)",
    ] {
        assert!(lines[1].contains(column), "{column}");
    }
    assert!(
        lines[2].starts_with("once") && lines[3].starts_with("rows"),
        "{printed}"
    );
    assert_eq!(lines.len(), 4, "{printed}");
}

#[test]
fn progress_of_a_job_is_one_share_of_its_steps_that_never_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.toml"), JOB).unwrap();
    let output = tidegate(
        &["bench", "run", "j.toml", ".", "--progress", "json"],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<Value> = text(&output.stderr)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["progress"].take())
        .collect();
    let shares: Vec<f64> = lines
        .iter()
        .map(|line| line["overall"]["fraction"].as_f64().unwrap())
        .collect();
    assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]), "{shares:?}");
    assert_eq!(shares.last(), Some(&1.0));
    let steps: BTreeSet<u64> = lines
        .iter()
        .map(|line| line["overall"]["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, BTreeSet::from([1, 2, 3, 4]));
    assert_eq!(lines[0]["overall"]["steps"], 4);
    let titles: BTreeSet<&str> = lines.iter().map(|line| line["title"].as_str().unwrap()).collect();
    assert_eq!(titles, BTreeSet::from(["by-clock", "names", "once", "rows"]));
    assert!(
        lines.iter().all(|line| line["phase"] != "rehearse"),
        "nothing but the steps touches the target"
    );
}

#[test]
fn a_job_that_no_terminal_watches_tells_of_each_finished_step_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.toml"), JOB).unwrap();
    let output = tidegate(
        &["bench", "run", "j.toml", ".", "--steps", "once,names"],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stderr);
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].starts_with("step 1/2 once: done in "), "{told}");
    assert!(lines[1].starts_with("step 2/2 names: done in "), "{told}");
    assert_eq!(lines.len(), 2, "{told}");
}

#[test]
fn a_mistake_in_a_job_is_named_before_anything_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    for (mistake, expected) in [
        (
            "recrod = \"4k\"",
            "j.toml:5: `recrod` is no key of kind file; did you mean `record`?",
        ),
        ("record = \"4q\"", "j.toml:5: step `w`: `record`: `4q` is no size"),
        ("rounds = 3", "j.toml:5: `rounds` is no key of kind file"),
    ] {
        let job = format!("name = \"x\"\n[[step]]\nname = \"w\"\nkind = \"file\"\n{mistake}\n");
        fs::write(folder.path().join("j.toml"), job).unwrap();
        for arguments in [
            ["bench", "job", "--check", "j.toml"],
            ["bench", "run", "j.toml", "."],
        ] {
            let message = refused(&arguments, folder.path());
            assert!(message.contains(expected), "{message}");
        }
    }
    assert!(
        refused(&["bench", "run", "absent.toml", "."], folder.path())
            .contains("absent.toml is no file and none of the presets mobibench, ")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_preset_that_is_shown_is_a_job_that_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let listed = done(&["bench", "job", "--list-presets"], folder.path());
    for preset in ["mobibench", "mobibench-head", "mobibench-2013", "androbench"] {
        assert!(
            listed.lines().any(|line| line.split(' ').next() == Some(preset)),
            "{listed}"
        );
        let shown = done(&["bench", "job", "--show-preset", preset], folder.path());
        fs::write(folder.path().join("j.toml"), shown).unwrap();
        let checked = done(&["bench", "job", "--check", "j.toml"], folder.path());
        assert!(checked.contains("7 steps, nothing wrong"), "{checked}");
    }
    let message = refused(&["bench", "all", ".", "--preset", "mobi"], folder.path());
    assert!(
        message.contains("no preset `mobi`; the presets are mobibench, "),
        "{message}"
    );
    let message = refused(&["bench", "all", ".", "--steps", "seq-wrte"], folder.path());
    assert!(
        message.contains("no step `seq-wrte`; its steps are seq-write, seq-read"),
        "{message}"
    );
}

#[test]
fn the_presets_differ_as_the_versions_of_the_original_do() {
    let folder = tempfile::tempdir().unwrap();
    let step = |preset: &str, name: &str| {
        let shown = done(&["bench", "job", "--show-preset", preset], folder.path());
        fs::write(folder.path().join("j.toml"), shown).unwrap();
        let checked = done(&["bench", "job", "--check", "j.toml"], folder.path());
        let found = checked.lines().find(|line| line.trim_start().starts_with(name));
        found.expect("the step is there").to_owned()
    };
    assert!(step("mobibench-head", "seq-write").contains("--overwrite"));
    assert!(
        !step("mobibench-2013", "seq-write").contains("--overwrite"),
        "it allocates"
    );
    assert!(step("mobibench-head", "insert").contains("--tables=3"));
    assert!(step("mobibench-head", "insert").contains("--transaction=explicit"));
    assert!(step("mobibench-2013", "insert").contains("--tables=1"));
    assert!(step("mobibench-2013", "insert").contains("--transaction=autocommit"));
}

const FIO: &str = "[global]\nsize=256k\nbs=4k\nthread\n[w]\nrw=write\nend_fsync=1\nfsync=1\n[m]\nstonewall\nrw=randrw\n\
                   rwmixread=60\nnumjobs=2\n[s]\nstonewall\nrw=rw\n";

#[test]
fn a_fio_job_runs_and_its_json_has_the_keys_of_fio() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.fio"), FIO).unwrap();
    let ours = done(
        &["bench", "--from-fio", "j.fio", ".", "--fio-json", "-"],
        folder.path(),
    );
    let ours: Value = serde_json::from_str(&ours).expect("nothing but JSON on standard output");
    let jobs = ours["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["w", "m", "s"]);
    assert_eq!(jobs[0]["write"]["io_bytes"], 256 << 10);
    assert_eq!(jobs[0]["write"]["total_ios"], 64);
    assert_eq!(jobs[0]["sync"]["total_ios"], 64, "one for each record");
    let mixed = |job: &Value| {
        job["read"]["total_ios"].as_u64().unwrap() + job["write"]["total_ios"].as_u64().unwrap()
    };
    assert_eq!((mixed(&jobs[1]), mixed(&jobs[2])), (128, 64));
    if !testkit::needs(&[testkit::Need::Program("fio")]) {
        return;
    }
    let output = Command::new("fio")
        .args(["--output-format=json", "j.fio"])
        .current_dir(folder.path())
        .output()
        .expect("fio runs");
    let printed = text(&output.stdout);
    // fio may print warnings before its JSON.
    let theirs: Value = serde_json::from_str(&printed[printed.find('{').expect("JSON")..]).unwrap();
    let (ours, theirs) = (keys(&ours), keys(&theirs));
    assert_eq!(
        ours.difference(&theirs).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "only ours"
    );
    // A file system without a block device has no disk statistics.
    let missing: Vec<&String> = theirs
        .difference(&ours)
        .filter(|key| !key.contains("disk_util/"))
        .collect();
    assert_eq!(missing, Vec::<&String>::new(), "only fio's");
}

/// Covers simultaneous sections, passes, and syncs after several writes.
#[test]
fn a_fio_job_with_a_queue_keeps_its_latencies_within_the_window() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Covers depths above the number of operations, and depths that do not divide it.
    let mut job = "[global]\nsize=68k\nbs=4k\nend_fsync=1\n".to_owned();
    for (engine, depth) in [("io_uring", 2), ("io_uring", 3), ("libaio", 4), ("io_uring", 32)] {
        for (mode, options) in [
            ("b", ""),
            ("f", "fsync=1\n"),
            ("d", "direct=1\nfdatasync=1\n"),
            ("s", "sync=1\n"),
        ] {
            job.push_str(&format!(
                "[{mode}{depth}]\nstonewall\nrw=randwrite\nioengine={engine}\niodepth={depth}\n{options}"
            ));
        }
    }
    fs::write(folder.path().join("j.fio"), job).unwrap();
    let printed = done(&["bench", "--from-fio", "j.fio", ".", "--json"], folder.path());
    let mut samples = 0;
    for line in printed.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        for sample in record["samples"].as_array().unwrap() {
            let elapsed_ns = sample["elapsed_ns"].as_u64().unwrap();
            let summary = &sample["latency"]["summary"];
            assert!(
                ["max_ns", "p99_99_ns"]
                    .iter()
                    .all(|key| summary[key].as_u64().unwrap() <= elapsed_ns),
                "{} {}: {summary} in {elapsed_ns} ns",
                record["label"],
                sample["operation"]
            );
            samples += 1;
        }
    }
    assert_eq!(samples, 16 + 16 + 8, "writes, final syncs, and syncs by call");
}

#[test]
fn a_fio_job_is_recognised_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("job"), FIO).unwrap();
    let by_content = done(&["bench", "run", "job", ".", "--json"], folder.path());
    let by_flag = done(&["bench", "--from-fio", "job", ".", "--json"], folder.path());
    let names = |text: &str| -> Vec<Value> {
        let records = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        records
            .map(|mut record| record["workload"]["name"].take())
            .collect()
    };
    assert_eq!(names(&by_content), names(&by_flag));
    assert_eq!(names(&by_content).len(), 3);
    let check = done(&["bench", "job", "--check", "job"], folder.path());
    assert_eq!(
        check,
        done(&["bench", "--from-fio", "job", "--check"], folder.path())
    );
}

const TOGETHER: &str = "[global]\nsize=64k\nbs=4k\nthread\nfallocate=none\n\
                        [f]\nrw=write\nfsync=3\nloops=2\n[d]\nrw=randwrite\nfdatasync=5\n\
                        [m]\nrw=randwrite\nioengine=mmap\nfsync=3\n\
                        [r]\nstonewall\nrw=randread\nloops=3\n";

#[test]
fn passes_and_syncs_after_several_writes_are_as_many_as_in_fio() {
    if !testkit::needs(&[testkit::Need::Program("fio")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.fio"), TOGETHER).unwrap();
    let ours = done(
        &["bench", "--from-fio", "j.fio", ".", "--fio-json", "-"],
        folder.path(),
    );
    let output = Command::new("fio")
        .args(["--output-format=json", "j.fio"])
        .current_dir(folder.path())
        .output()
        .expect("fio runs");
    let theirs = text(&output.stdout);
    let counts = |printed: &str| -> Vec<(String, [u64; 3])> {
        let document: Value = serde_json::from_str(&printed[printed.find('{').expect("JSON")..]).unwrap();
        let jobs = document["jobs"].as_array().unwrap().clone();
        let of = |job: &Value, kind: &str| job[kind]["total_ios"].as_u64().unwrap();
        jobs.iter()
            .map(|job| {
                let name = job["jobname"].as_str().unwrap().to_owned();
                (name, [of(job, "read"), of(job, "write"), of(job, "sync")])
            })
            .collect()
    };
    let (mut ours, theirs) = (counts(&ours), counts(&theirs));
    assert_eq!(ours[0], ("f".to_owned(), [0, 32, 10]), "3 of 32 in two passes");
    assert_eq!(ours[1], ("d".to_owned(), [0, 16, 3]));
    // fio makes these calls without counting them.
    ours[1].1[2] = theirs[1].1[2];
    assert_eq!(ours, theirs);
}

#[test]
fn sections_without_a_wall_run_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let job = "[global]\nsize=64k\nbs=4k\ntime_based\nruntime=300ms\n[a]\nrw=randread\n[b]\nrw=randwrite\n\
               [c]\nstonewall\nrw=read\n";
    fs::write(folder.path().join("j.fio"), job).unwrap();
    let printed = done(&["bench", "--from-fio", "j.fio", ".", "--json"], folder.path());
    let records: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let began = |number: usize| records[number]["started_unix_ns"].as_u64().unwrap();
    assert!(
        began(0).abs_diff(began(1)) < 300_000_000,
        "{} and {}",
        began(0),
        began(1)
    );
    assert!(
        began(2) >= began(0).min(began(1)) + 300_000_000,
        "the wall was passed"
    );
    assert_eq!(
        records[0]["workload"]["at_the_same_time"],
        serde_json::json!(["a", "b"])
    );
    assert_eq!(records[2]["workload"]["at_the_same_time"], Value::Null);
    let one_by_one = done(
        &[
            "bench",
            "--from-fio",
            "j.fio",
            ".",
            "--json",
            "--one-by-one",
            "--steps",
            "a,b",
        ],
        folder.path(),
    );
    let second: Value = serde_json::from_str(one_by_one.lines().nth(1).unwrap()).unwrap();
    assert_eq!(second["workload"]["at_the_same_time"], Value::Null);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "files were left behind"
    );
}

#[test]
fn a_failure_of_one_ends_what_runs_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let job = "name = \"x\"\n[[step]]\nname = \"a\"\nkind = \"file\"\nsize = \"1m\"\nruntime = \"60s\"\n\
               [[step]]\nname = \"b\"\nkind = \"file\"\nwith-previous = true\nsize = \"100t\"\n";
    fs::write(folder.path().join("j.toml"), job).unwrap();
    let message = refused(&["bench", "run", "j.toml", "."], folder.path());
    assert!(message.contains("step `a`, `b`"), "{message}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "files were left behind"
    );
    let alone = "name = \"x\"\n[[step]]\nkind = \"file\"\nwith-previous = true\n";
    fs::write(folder.path().join("j.toml"), alone).unwrap();
    let message = refused(&["bench", "run", "j.toml", "."], folder.path());
    assert!(message.contains("j.toml:4: `with-previous` is"), "{message}");
    let mixed =
        "name = \"x\"\n[[step]]\nkind = \"file\"\n[[step]]\nkind = \"sqlite\"\nwith-previous = true\n";
    fs::write(folder.path().join("j.toml"), mixed).unwrap();
    let message = refused(&["bench", "run", "j.toml", "."], folder.path());
    assert!(
        message.contains("step `sqlite`: only steps of kind file"),
        "{message}"
    );
}

/// All key paths; options are excluded, because they are the user's.
fn keys(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let path = format!("{path}/{key}");
                    if !key.ends_with("options") {
                        walk(value, &path, found);
                    }
                    found.insert(path);
                }
            }
            Value::Array(entries) => entries.iter().for_each(|entry| walk(entry, path, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(value, "", &mut found);
    found
}

#[test]
fn a_check_of_a_fio_job_says_what_becomes_of_each_option() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("j.fio"), FIO).unwrap();
    let printed = done(&["bench", "--from-fio", "j.fio", "--check"], folder.path());
    for line in [
        "j.fio:2: [w] size=256k taken",
        "j.fio:4: [w] thread ignored: workers are always threads",
        "j.fio:7: [w] end_fsync=1 taken",
        "w: tidegate bench file --pattern=sequential-write --record=4096",
    ] {
        assert!(
            printed.lines().any(|found| found.starts_with(line)),
            "{line} in {printed}"
        );
    }
    fs::write(folder.path().join("bad.fio"), "[j]\nsize=1m\nbssplit=4k/50\n").unwrap();
    let message = refused(&["bench", "--from-fio", "bad.fio", "."], folder.path());
    assert!(
        message.contains("bad.fio:3: [j] bssplit=4k/50 is not supported: it needs"),
        "{message}"
    );
    fs::write(folder.path().join("two.fio"), "[global]\nsize=1m\n[a]\n[b]\n").unwrap();
    let printed = done(&["bench", "--from-fio", "two.fio", "--check"], folder.path());
    assert!(
        printed.contains("\nat the same time b: tidegate bench file"),
        "{printed}"
    );
}

#[test]
fn exported_fio_jobs_are_ones_that_fio_takes() {
    let folder = tempfile::tempdir().unwrap();
    if !testkit::needs(&[testkit::Need::Program("fio")]) {
        return;
    }
    for preset in ["mobibench-head", "mobibench-2013", "androbench"] {
        let exported = done(&["bench", "--to-fio", preset], folder.path());
        assert!(
            exported.contains("\nfadvise_hint=0\n") && exported.contains("\nfallocate=none\n"),
            "{exported}"
        );
        let path = folder.path().join("j.fio");
        fs::write(&path, exported).unwrap();
        let parsed = Command::new("fio")
            .arg("--parse-only")
            .arg(&path)
            .output()
            .expect("fio runs");
        assert!(parsed.status.success(), "{preset}: {}", text(&parsed.stderr));
    }
}

const IOLOG: &str = "fio version 2 iolog\na add\na open\na write 0 4096\na write 4096 4096\na sync 0 0\na read 0 4096\na close\n";

#[test]
fn a_replay_and_a_uflip_run_are_steps_like_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.log"), IOLOG).unwrap();
    let job = "name = \"two\"\n[[step]]\nkind = \"replay\"\nfile = \"t.log\"\n\
               [[step]]\nkind = \"uflip\"\nsize = \"1m\"\nruns = 1\npause = \"0ms\"\nios = 8\nthrough = \"page\"\nas-is = true\n";
    fs::write(folder.path().join("j.toml"), job).unwrap();
    let json = done(&["bench", "run", "j.toml", ".", "--json"], folder.path());
    let records: Vec<Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = records
        .iter()
        .map(|record| record["workload"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["replay", "uflip"]);
    let counts = |kind: &str| {
        let samples = records[0]["samples"].as_array().unwrap();
        let sample = samples.iter().find(|sample| sample["operation"] == kind);
        sample.map_or(0, |sample| sample["operations_count"].as_u64().unwrap())
    };
    assert_eq!(
        (counts("pwrite"), counts("pread")),
        (2, 1),
        "{}",
        records[0]["samples"]
    );
    let points = records[1]["samples"].as_array().unwrap();
    assert!(points.iter().all(|point| {
        point["operation"]
            .as_str()
            .unwrap()
            .starts_with("granularity/RW/")
    }));

    let table = done(&["bench", "run", "j.toml", "."], folder.path());
    assert!(table.contains("\nreplay "), "{table}");
    assert!(table.contains("\nuflip: "), "{table}");
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "files were left behind"
    );
}

#[test]
fn a_replay_without_a_trace_is_named_with_its_step_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("no.log"), "this is no trace\n").unwrap();
    for (file, reason) in [("gone.log", "cannot read"), ("no.log", "no known format")] {
        let job = format!("name = \"x\"\n[[step]]\nname = \"again\"\nkind = \"replay\"\nfile = \"{file}\"\n");
        fs::write(folder.path().join("j.toml"), job).unwrap();
        let message = refused(&["bench", "run", "j.toml", "."], folder.path());
        assert!(
            message.contains("j.toml:2: step `again`:") && message.contains(reason),
            "{message}"
        );
    }
    let job = "name = \"x\"\n[[step]]\nkind = \"uflip\"\nsize = \"3k\"\n";
    fs::write(folder.path().join("j.toml"), job).unwrap();
    let message = refused(&["bench", "run", "j.toml", "."], folder.path());
    assert!(
        message.contains("j.toml:2: step `uflip`: size: 3072 bytes"),
        "{message}"
    );
}

#[test]
fn a_job_comes_by_standard_input_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", "run", "-", ".", "--steps", "names", "--json"])
        .current_dir(folder.path())
        .env("TIDEGATE_HISTORY", "off")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), JOB.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["workload"]["name"], "names");
}
