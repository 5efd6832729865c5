//! Races of settings as a user runs them: in a folder, without root.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::{Need, needs};

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

/// A folder for races, and one in memory to tune for.
fn places() -> [TempDir; 2] {
    [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"]
        .map(|parent| tempfile::tempdir_in(parent).expect("it is writable"))
}

#[test]
fn a_setting_that_is_faster_is_found_with_the_lines_to_use() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let [place, data] = places();
    let load = "[workload]\nsize = \"8m\"\n[defaults.mount]\nio-unit = \"4k\"\nflusher = \"off\"\nwriteback = \"off\"\n\
                passthrough = \"off\"\n";
    fs::write(place.path().join("load.toml"), load).unwrap();
    let data_path = data.path().display().to_string();
    let words = [
        "study",
        "tune",
        "load.toml",
        "--axes",
        "unit",
        "--folder",
        &data_path,
        "-d",
        "t",
    ];
    let output = tidegate(&words, place.path());
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(shown.starts_with("use io-unit="), "{shown}{said}");
    assert!(shown.contains("  default: io-unit=4k\n"), "{shown}");
    let line = format!("{data_path}  /MOUNTPOINT  fuse.tidegate  flusher=off,io_unit=");
    assert!(shown.contains(&line), "{shown}\nexpected: {line}");
    assert!(
        shown.contains("\ntidegate mount --flusher=off --io-unit="),
        "{shown}"
    );
    let stored = fs::read_to_string(place.path().join("t/tune.json")).unwrap();
    let document: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(document["verdict"], "use the winner");
    assert_eq!(
        document["gain"]["count"], 9,
        "the race's own rounds are not counted"
    );
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    // Each round of a race has fewer cells: nothing says how many there will be.
    let status = tidegate(&["study", "status", "t"], place.path());
    let records = fs::read_to_string(place.path().join("t/cells.jsonl")).unwrap();
    let rounds = records.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["round"].as_u64().unwrap() + 1
    });
    let expected = format!(
        "{} cells measured in {} rounds of a race, 0 of them failed\n",
        records.lines().count(),
        rounds.max().unwrap()
    );
    assert!(text(&status.stdout).ends_with(&expected), "{status:?}");
    let resumed = tidegate(&["study", "resume", "t"], place.path());
    assert_eq!(resumed.status.code(), Some(2));
    assert!(text(&resumed.stderr).contains("a race of settings can't be continued"));
}

#[test]
fn a_job_and_a_trace_are_tuned_for() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let [place, data] = places();
    let job = "name = \"job\"\n[[step]]\nname = \"one\"\nkind = \"file\"\nsize = \"1m\"\n\
               [[step]]\nname = \"two\"\nkind = \"file\"\nsize = \"2m\"\nrecord = \"64k\"\n";
    fs::write(place.path().join("job.toml"), job).unwrap();
    let trace = "openat(AT_FDCWD, \"a\", O_RDWR|O_CREAT, 0600) = 3\n\
                 pwrite64(3, \"\"..., 65536, 0) = 65536\nfsync(3) = 0\nclose(3) = 0\n";
    fs::write(place.path().join("app.strace"), trace).unwrap();
    let data = data.path().display().to_string();
    for (load, bytes) in [("job.toml", 3 << 20), ("app.strace", 65536)] {
        let race = format!("t-{load}");
        let words = [
            "study", "tune", load, "--axes", "threads", "--time", "1ms", "--folder", &data, "-d", &race,
        ];
        let output = tidegate(&words, place.path());
        assert_eq!(output.status.code(), Some(0), "{load}: {}", text(&output.stderr));
        let stored = fs::read_to_string(place.path().join(format!("t-{load}/cells.jsonl"))).unwrap();
        let record: Value = serde_json::from_str(stored.lines().next().unwrap()).unwrap();
        let samples = record["samples"].as_array().unwrap();
        let moved: u64 = samples
            .iter()
            .map(|sample| sample["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(moved, bytes, "{load}: {record}");
    }
}

#[test]
fn the_default_is_kept_where_nothing_is_shown() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let [place, data] = places();
    fs::write(place.path().join("load.toml"), "[workload]\nsize = \"1m\"\n").unwrap();
    let data = data.path().display().to_string();
    // No time for confirming rounds: whatever won, nothing is shown.
    let words = [
        "study",
        "tune",
        "load.toml",
        "--axes",
        "threads",
        "--time",
        "1ms",
        "--folder",
        &data,
        "-d",
        "t",
        "--durable",
    ];
    let output = tidegate(&words, place.path());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("keep the default: "), "{shown}");
}

#[test]
fn a_race_in_which_everything_fails_has_no_result() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let [place, data] = places();
    // More than any memory has.
    fs::write(place.path().join("load.toml"), "[workload]\nsize = \"900g\"\n").unwrap();
    let data = data.path().display().to_string();
    let words = [
        "study",
        "tune",
        "load.toml",
        "--axes",
        "threads",
        "--folder",
        &data,
        "-d",
        "t",
    ];
    let output = tidegate(&words, place.path());
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("the default setting can't be measured") && message.contains("the workload needs"),
        "{message}"
    );
    assert_eq!(text(&output.stdout), "");
    assert!(!place.path().join("t/tune.json").exists());
}

#[test]
fn a_race_that_can_not_be_run_is_refused_before_anything_is_made() {
    let [place, data] = places();
    let folder = data.path().display().to_string();
    let file = |name: &str, content: &str| fs::write(place.path().join(name), content).unwrap();
    file(
        "job.toml",
        "[[step]]\nname = \"a\"\nkind = \"file\"\nsise = \"1m\"\n",
    );
    file("mistake.toml", "[workload]\nrecrod = \"4k\"\n");
    file("place.toml", "[environment]\ndevice = \"image\"\n");
    for (words, expected) in [
        (&["--axes", "unit"][..], "no device: give --card"),
        (&["--folder", &folder, "--axes", "unti"], "did you mean `unit`?"),
        (
            &["--folder", &folder, "--axes", "fs"],
            "a folder keeps its file system",
        ),
        (
            &["--folder", &folder, "--axes", "unit", "--keep", "unit"],
            "no axis is left",
        ),
        (&["--folder", &folder, "job.toml"], "`sise`"),
        (
            &["--folder", &folder, "mistake.toml"],
            "workload: unexpected argument '--recrod'",
        ),
        (&["--folder", &folder, "place.toml"], "name no device beside it"),
        (&["--folder", "nowhere"], "nowhere can't be used"),
        (&["--device", "/dev/nothing"], "--destroy-data"),
        (
            &["nowhere.toml", "--folder", &folder],
            "nowhere.toml can't be read",
        ),
    ] {
        let output = tidegate(&[&["study", "tune", "-d", "t"], words].concat(), place.path());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {message}");
        assert!(
            message.contains(expected),
            "{words:?}: {message}\nexpected: {expected}"
        );
    }
    assert!(!place.path().join("t").exists());
}
