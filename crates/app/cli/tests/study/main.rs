//! Studies as a user runs them: a folder, an image, kills at any moment, and plans that can't be run.

mod dirty_limit;
mod guest;
mod left;
mod resumed;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use testkit::prng::Prng;
use testkit::{Need, is_full, needs};

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

fn done(arguments: &[&str], folder: &Path) -> String {
    let output = tidegate(arguments, folder);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
    text(&output.stdout)
}

fn refused(arguments: &[&str], folder: &Path) -> String {
    let output = tidegate(arguments, folder);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    message
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable")
}

/// A plan on a folder, with the file system itself and two mounts.
fn folder_plan(folder: &Path) -> String {
    let data = folder.join("data");
    fs::create_dir_all(&data).expect("it is writable");
    format!(
        r#"
name = "folder"
[environment]
device = "directory:{}"
[workload]
size = "1m"
record = "64k"
final-sync = "timed"
[defaults]
mount.flusher = "off"
mount.passthrough = "off"
[[exhibit]]
name = "units"
x = "mount.io-unit"
y = "share-of-max"
axes.mount.io-unit = ["4k", "512k"]
[[exhibit.claim]]
sentence = "both write"
cell = {{ mount.io-unit = "4k" }}
low = 0
[[exhibit]]
name = "writes"
x = "mount.io-unit"
y = "backing_writes_count"
axes.mount.io-unit = ["4k", "512k"]
"#,
        data.display()
    )
}

/// A plan on an image: two file systems would need more than every machine has, so it is ext4 with two schedulers.
const IMAGE_PLAN: &str = r#"
name = "image"
[environment]
device = "image"
size = "64m"
[workload]
size = "1m"
record = "64k"
final-sync = "timed"
[defaults]
path = "native"
[[exhibit]]
name = "schedulers"
x = "scheduler"
y = "share-of-max"
axes.scheduler = ["none", "mq-deadline"]
"#;

/// The message about the plan on a folder with `to` in place of `from`; nothing may be made.
fn refused_plan(place: &Path, from: &str, to: &str) -> String {
    let whole = folder_plan(place);
    assert!(whole.contains(from), "{from}");
    fs::write(place.join("p.toml"), whole.replacen(from, to, 1)).expect("it is writable");
    let message = refused(&["study", "run", "p.toml", "-d", "s"], place);
    assert!(!place.join("s").exists(), "{message}");
    message
}

fn records(study: &Path) -> Vec<Value> {
    let stored = fs::read_to_string(study.join("cells.jsonl")).unwrap_or_default();
    let lines = stored
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"));
    lines.collect()
}

/// Number of measurements of each cell and round.
fn measured(study: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for record in records(study) {
        let key = format!("{} {}", record["round"], record["workload"]["study"]["cell"]);
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[test]
fn a_folder_is_studied_without_root_and_its_page_is_always_the_same() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), folder_plan(place)).unwrap();
    let shown = done(&["study", "run", "plan.toml", "-d", "s", "--rounds", "5"], place);
    assert!(shown.contains("holds: both write (predicted; here "), "{shown}");
    assert_eq!(
        measured(&place.join("s")).values().copied().collect::<Vec<_>>(),
        [1; 15]
    );
    // 1 MiB in requests of 4 KiB and of 512 KiB, as the daemon counts them.
    let writes = done(&["study", "report", "s", "--format", "json"], place);
    let document: Value = serde_json::from_str(&writes).unwrap();
    let median = |cell: usize| document["exhibits"][1]["cells"][cell]["estimate"]["median"].clone();
    assert_eq!((median(0), median(1)), (256.0.into(), 16.0.into()), "{document}");
    let page = fs::read(place.join("s/report.html")).unwrap();
    done(&["study", "report", "s", "-o", "again.html"], place);
    assert_eq!(fs::read(place.join("again.html")).unwrap(), page);
    assert_eq!(fs::read_dir(place.join("data")).unwrap().count(), 0);
    let status = done(&["study", "status", "s"], place);
    assert_eq!(
        status,
        "folder: 15 of 15 cells measured in 5 rounds, 0 of them failed\n"
    );
    let again = refused(&["study", "run", "plan.toml", "-d", "s"], place);
    assert!(again.contains("holds a study already"), "{again}");
}

#[test]
fn a_killed_study_is_cleaned_and_resumed_with_each_cell_once() {
    if !needs(&[Need::Root, Need::LOOP]) {
        return;
    }
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), IMAGE_PLAN).unwrap();
    let study = place.join("s");
    let kills = if is_full() { 20 } else { 4 };
    let mut random = Prng::new(19);
    let mut is_begun = false;
    for _ in 0..kills {
        let command = if is_begun {
            &["study", "resume", "s"][..]
        } else {
            &["study", "run", "plan.toml", "-d", "s", "--rounds", "30"]
        };
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(command)
            .current_dir(place)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50 + random.below(900)));
        child.kill().unwrap();
        child.wait().unwrap();
        is_begun |= study.join("plan.toml").exists();
        // Only the last kill is followed by a clean of its own; `resume` cleans too.
    }
    assert!(is_begun, "each kill came before the study began");
    done(&["study", "clean", "s"], place);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&study.display().to_string()), "{table}");
    assert!(!study.join("device.img").exists());
    done(&["study", "resume", "s"], place);
    let counts = measured(&study);
    assert_eq!(counts.len(), 3 * 30);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[test]
fn a_plan_that_can_not_be_run_is_refused_before_anything_is_made() {
    let place = folder();
    let place = place.path();
    let plan = |from: &str, to: &str| refused_plan(place, from, to);
    assert!(plan("record", "recrod").contains("workload: unexpected argument '--recrod'"));
    let message = plan("device = \"directory:", "device = \"card:");
    assert!(message.contains("p.toml: environment.device: "), "{message}");
    assert!(plan("\"4k\", \"512k\"", "\"5k\"").contains("mount: "));
    assert!(plan("\"4k\", \"512k\"", "").contains("no value"));
    assert!(plan("flusher = \"off\"", "flusher = \"maybe\"").contains("flusher"));
    assert!(plan("data\"", "nowhere\"").contains("it is no folder"));
    let many: Vec<String> = (1..=101).map(|number| format!("\"{number}m\"")).collect();
    let many = format!(
        "\"4k\"]\naxes.mount.buffer = [{0}]\naxes.workload.size = [{0}",
        many.join(", ")
    );
    let message = plan("\"4k\", \"512k\"", &many);
    assert!(message.contains("add --yes"), "{message}");
    let message = refused(&["study", "run", "papr", "-d", "s"], place);
    assert!(message.contains("did you mean `paper`?"), "{message}");
    fs::write(place.join("p.toml"), folder_plan(place)).unwrap();
    let message = refused(&["study", "run", "p.toml", "--only", "unit"], place);
    assert!(message.contains("did you mean `units`?"), "{message}");
    assert!(refused(&["study", "status", "nowhere"], place).contains("holds no study"));
}

#[test]
fn two_studies_do_not_share_a_folder() {
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), folder_plan(place)).unwrap();
    fs::create_dir(place.join("s")).unwrap();
    let lock = fs::File::create(place.join("s/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    if needs(&[Need::FUSE]) {
        let message = refused(&["study", "run", "plan.toml", "-d", "s"], place);
        assert!(message.contains("another study runs in this folder"), "{message}");
    }
    // It may wait for a card that does not answer any more.
    fs::write(
        place.join("s/lock"),
        "tidegate study: `tidegate study clean` removes what a killed study left in this folder\n",
    )
    .unwrap();
    fs::create_dir(place.join("s/cards")).unwrap();
    let message = refused(&["study", "clean", "s"], place);
    assert!(
        message.contains("tidegate emmc detach --all --force --run-folder"),
        "{message}"
    );
}
