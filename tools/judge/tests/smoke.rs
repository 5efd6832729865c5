//! Small comparisons: which sides run, how much work, and which runs are kept. Speeds are not checked.
//!
//! The program under test is the one next to the test's own; `cargo test --workspace` builds it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// The `tidegate` binary of this build, or `None` after printing the reason.
fn tidegate() -> Option<PathBuf> {
    let judge = Path::new(env!("CARGO_BIN_EXE_judge"));
    let path = judge.with_file_name("tidegate");
    if !path.exists() {
        testkit::report_left_out("tidegate is not built; `cargo test --workspace` builds it");
        return None;
    }
    Some(path)
}

/// A temporary directory, in memory if possible: other tests use the disk at the same time.
fn folder() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder")
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        testkit::report_left_out(format!("{program} is not installed"));
    }
    found
}

/// Runs `judge` in a directory; a difference in speed (exit code 1) is not a failure here.
fn judge(folder: &Path, arguments: &[&str]) -> Output {
    let build = folder.join("build");
    // A place of this name is never made cold: that would drop the caches of the whole machine.
    let place = format!("tmpfs={}", folder.display());
    let output = Command::new(env!("CARGO_BIN_EXE_judge"))
        .args(arguments)
        .args(["--directory", &place])
        .arg("--build")
        .arg(build)
        .arg("--output")
        .arg(folder.join("runs.jsonl"))
        .env_remove("TIDEGATE_HISTORY")
        .env("XDG_DATA_HOME", folder.join("data-home"))
        .output()
        .expect("judge runs");
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn runs(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("runs.jsonl")).expect("runs are kept");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}

#[test]
fn two_builds_do_the_same_work_in_each_round() {
    let Some(tidegate) = tidegate() else { return };
    let folder = folder();
    let path = tidegate.to_str().expect("UTF-8");
    let mut arguments = vec![
        "builds",
        "--tidegate",
        path,
        "--old",
        path,
        "--rounds",
        "2",
        "--quick",
    ];
    arguments.extend([
        "--modes",
        "ceiling/random-read/mmap,append/buffered/t8,insert/wal/full",
    ]);
    let table = judge(folder.path(), &arguments).stdout;
    let table = String::from_utf8_lossy(&table).into_owned();
    assert!(table.contains("| tmpfs/ceiling/random-read/mmap/t1 |"), "{table}");
    let kept = runs(folder.path());
    for cell in [
        "tmpfs/ceiling/random-read/mmap/t1",
        "tmpfs/append/buffered/t8",
        "tmpfs/sqlite-insert/wal/full",
    ] {
        let of_cell: Vec<&Value> = kept.iter().filter(|run| run["cell"] == cell).collect();
        let sides: Vec<&str> = of_cell.iter().filter_map(|run| run["side"].as_str()).collect();
        assert_eq!(
            sides,
            ["ours", "old", "ours-again", "old", "ours-again", "ours"],
            "{cell}"
        );
        let is_same = |run: &&&Value| run["operations_count"] == of_cell[0]["operations_count"];
        assert_eq!(of_cell.iter().filter(is_same).count(), 6, "{of_cell:?}");
    }
}

#[test]
fn each_side_does_the_same_work_in_each_round_and_a_second_start_adds_nothing() {
    let Some(tidegate) = tidegate() else { return };
    if !has("cc") || !has("fio") {
        return;
    }
    let folder = folder();
    let mut arguments = vec!["fio", "--tidegate", tidegate.to_str().expect("UTF-8")];
    let chosen =
        "--rounds 1 --threads 2 --window 1 --modes random-write/buffered/t,append/fsync,mmap-async,uring32";
    arguments.extend(chosen.split(' '));
    let first = judge(folder.path(), &arguments);
    let kept = runs(folder.path());
    let mut sides: BTreeMap<String, u32> = BTreeMap::new();
    for run in &kept {
        let expected = run["work_count"].as_u64().map(|bytes| bytes / 4096);
        assert_eq!(run["operations_count"].as_u64(), expected, "{run}");
        *sides
            .entry(run["side"].as_str().expect("a name").to_owned())
            .or_default() += 1;
    }
    // fio has no MS_ASYNC; the other sides run in every mode.
    let with_c_alone = kept.iter().filter(|run| {
        let cell = run["cell"].as_str().unwrap_or_default();
        run["side"] == "c" && cell.contains("mmap-async")
    });
    assert_eq!(u32::try_from(with_c_alone.count()), Ok(sides["c"] - sides["fio"]));
    assert_eq!(
        sides.keys().collect::<Vec<_>>(),
        ["c", "fio", "ours", "ours-again"]
    );
    assert!(sides["fio"] >= 8, "{sides:?}");
    assert!(
        sides["ours"] == sides["c"] && sides["ours-again"] == sides["c"],
        "{sides:?}"
    );
    let table = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(table.contains("| tmpfs/random-write/buffered/t2 |"), "{table}");

    let history = folder.path().join("data-home");
    assert!(
        !history.exists(),
        "runs of a comparison are stored in the user's history"
    );

    judge(folder.path(), &arguments);
    assert_eq!(runs(folder.path()), kept, "a finished comparison measured again");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("the folder is readable")
        .map(|entry| entry.expect("an entry").file_name())
        .filter(|name| name != "build" && name != "runs.jsonl")
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn the_ceiling_compares_with_c_with_and_without_a_clock() {
    let Some(tidegate) = tidegate() else { return };
    if !has("cc") {
        return;
    }
    let folder = folder();
    let tidegate = tidegate.to_str().expect("UTF-8").to_owned();
    let arguments = [
        "ceiling",
        "--tidegate",
        &tidegate,
        "--rounds",
        "1",
        "--quick",
        "--modes",
        "random-read/b",
    ];
    let output = judge(folder.path(), &arguments);
    let sides: Vec<Value> = runs(folder.path())
        .iter()
        .map(|run| run["side"].clone())
        .collect();
    assert_eq!(sides, ["ours", "c", "ours-again", "c-timed"]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("| tmpfs/random-read/buffered/t1 |"), "{table}");
}

#[test]
fn sqlite_does_as_many_transactions_in_c_as_in_ours() {
    let Some(tidegate) = tidegate() else { return };
    let folder = folder();
    let header = "printf '#include <sqlite3.h>' | cc -E - >/dev/null";
    let has_header = Command::new("sh").args(["-c", header]).output();
    if !has_header.is_ok_and(|output| output.status.success()) {
        testkit::report_left_out("SQLite in C: this needs a compiler and libsqlite3-dev");
        return;
    }
    let mut arguments = vec!["sqlite", "--tidegate", tidegate.to_str().expect("UTF-8")];
    arguments.extend("--rounds 1 --transactions 20 --modes insert/wal/full,delete/delete/off".split(' '));
    judge(folder.path(), &arguments);
    let kept = runs(folder.path());
    assert_eq!(kept.len(), 2 * 3, "{kept:?}");
    assert!(kept.iter().all(|run| run["operations_count"] == 20), "{kept:?}");
}

#[test]
fn the_original_is_called_with_its_own_options_and_its_time_is_read() {
    let Some(tidegate) = tidegate() else { return };
    if !has("cc") {
        return;
    }
    let folder = folder();
    let original = folder.path().join("build");
    std::fs::create_dir(&original).expect("a temporary folder takes files");
    let original = original.join("mobibench");
    let script = "#!/bin/sh\n\
        echo \"$3 $4 $5 $6 $7 $8 $9 ${10} ${11} ${12} ${13}\" >> \"$0.log\"\n\
        echo '[TIME] :       0 sec 002000us.'\necho 'Err string : No error'\n";
    std::fs::write(&original, script).expect("a temporary folder takes files");
    std::fs::set_permissions(&original, PermissionsExt::from_mode(0o755)).expect("the file is ours");
    let mut arguments = vec!["mobibench", "--tidegate", tidegate.to_str().expect("UTF-8")];
    arguments.extend(["--mobibench", original.to_str().expect("UTF-8")]);
    arguments.extend("--rounds 1 --modes append/fsync/t8".split(' '));
    judge(folder.path(), &arguments);
    let called = std::fs::read_to_string(original.with_extension("log")).expect("the original was called");
    assert_eq!(called, "-f 4096 -r 4 -a 4 -y 2 -t 8 -q\n");
    let kept = runs(folder.path());
    let original = kept
        .iter()
        .find(|run| run["side"] == "mobibench")
        .expect("a run of the original");
    assert_eq!(
        (&original["elapsed_ns"], &original["operations_count"]),
        (&2_000_000.into(), &1024.into())
    );
}

#[test]
fn a_program_that_fails_is_named_with_what_it_said() {
    if !has("cc") {
        return;
    }
    let folder = folder();
    let output = Command::new(env!("CARGO_BIN_EXE_judge"))
        .args(["ceiling", "--tidegate", "/bin/false", "--directory"])
        .arg(format!("disk={}", folder.path().display()))
        .output()
        .expect("judge runs");
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("/bin/false bench file --help: expected exit code 0"),
        "{message}"
    );
}
