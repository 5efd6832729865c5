//! `tidegate bench history` as a program: storing runs, and listing, comparing, deleting and exporting them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

struct Bed {
    folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("data")).expect("a folder to measure");
        Self { folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("share/tidegate/history.db")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(arguments)
            .env("TIDEGATE_HISTORY", self.file())
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs")
    }

    fn measure(&self, arguments: &[&str]) -> Output {
        let data = self.folder.path().join("data");
        let fixed = ["bench", "file", text(&data), "--size", "256k", "--record", "64k"];
        self.run(&[&fixed, arguments].concat())
    }

    fn history(&self, arguments: &[&str]) -> Output {
        self.run(&[&["bench", "history"], arguments].concat())
    }

    fn list(&self, arguments: &[&str]) -> Vec<serde_json::Value> {
        let output = self.history(&[&["list", "--json"], arguments].concat());
        let lines = stdout(&output);
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("a run in JSON"))
            .collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn stdout(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    stderr(output)
}

#[test]
fn history_alone_lists() {
    let bed = Bed::new();
    assert_eq!(stdout(&bed.history(&[])), "", "nothing was stored yet");
    bed.measure(&["--label", "first"]);
    assert_eq!(stdout(&bed.history(&[])), stdout(&bed.history(&["list"])));
    assert!(stdout(&bed.history(&[])).contains("sequential-write"));
}

#[test]
fn every_run_is_stored_with_all_its_rounds_unless_it_is_not_wanted() {
    let bed = Bed::new();
    let printed = stdout(&bed.measure(&["--rounds", "3", "--label", "mine", "--json"]));
    stdout(&bed.measure(&["--no-history"]));
    let runs = bed.list(&[]);
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (&runs[0]["label"], &runs[0]["records_count"]),
        (&"mine".into(), &3.into())
    );
    let shown = stdout(&bed.history(&["show", "1", "--json"]));
    assert_eq!(shown, printed, "records are stored whole");
    let table = stdout(&bed.history(&["show", "1"]));
    assert!(table.contains("sequential-write 64k"), "{table}");
}

#[test]
fn filters_tags_and_deletion_work_on_stable_ids() {
    let bed = Bed::new();
    for pattern in ["sequential-write", "random-write", "random-read"] {
        stdout(&bed.measure(&["--pattern", pattern]));
    }
    stdout(&bed.history(&["tag", "2", "before"]));
    let ids = |arguments: &[&str]| -> Vec<i64> {
        let runs = bed.list(arguments);
        runs.iter()
            .map(|run| run["id"].as_i64().expect("an id"))
            .collect()
    };
    assert_eq!(ids(&[]), [3, 2, 1]);
    assert_eq!(ids(&["--workload", "random"]), [3, 2]);
    assert_eq!(ids(&["--tag", "before"]), [2]);
    assert_eq!(ids(&["--limit", "1"]), [3]);
    assert_eq!(
        ids(&["--since", "1h", "--path", text(bed.folder.path())]),
        [3, 2, 1]
    );
    assert_eq!(ids(&["--path", "/nowhere"]), [0_i64; 0]);

    let message = refused(&bed.history(&["delete", "2"]));
    assert!(message.contains("--yes"), "{message}");
    stdout(&bed.history(&["delete", "2", "--yes"]));
    assert_eq!(ids(&[]), [3, 1]);
    stdout(&bed.measure(&[]));
    assert_eq!(ids(&[]), [4, 3, 1], "an id was given again");
    let message = refused(&bed.history(&["show", "2"]));
    assert!(message.contains("no run 2"), "{message}");
}

#[test]
fn exports_are_what_compare_and_spreadsheets_read() {
    let bed = Bed::new();
    stdout(&bed.measure(&["--rounds", "2"]));
    let csv = stdout(&bed.history(&["export", "--format", "csv"]));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let last_fields: Vec<&str> = csv
        .split_terminator("\r\n")
        .filter_map(|line| line.rsplit(',').next())
        .collect();
    assert_eq!(last_fields, ["complete", "true", "true"], "{csv:?}");
    assert!(stdout(&bed.history(&["export", "1", "--format", "markdown"])).contains("| 1 | run |"));
    // The file name determines the format; without a file the format is CSV.
    assert_eq!(stdout(&bed.history(&["export"])), csv);
    let page = bed.folder.path().join("runs.md");
    stdout(&bed.history(&["export", "-o", text(&page)]));
    let page = std::fs::read_to_string(page).unwrap_or_default();
    assert!(page.contains("| 1 | run |"), "{page}");
    let lines = bed.folder.path().join("runs.jsonl");
    stdout(&bed.history(&["export", "--format", "json", "--output", text(&lines)]));
    let table = stdout(&bed.run(&["bench", "compare", text(&lines), "1"]));
    assert!(table.contains("B  run 1"), "{table}");
}

#[test]
fn runs_are_compared_by_id_and_by_tag() {
    let bed = Bed::new();
    for _ in 0..2 {
        stdout(&bed.measure(&["--rounds", "4"]));
    }
    stdout(&bed.history(&["tag", "1", "before"]));
    let output = bed.run(&["bench", "compare", "before", "2", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("one JSON object");
    let ratio = &document["operations"][0]["ratio"];
    assert!(ratio["value"].as_f64().expect("a ratio") > 0.0);
    assert!(ratio["coverage"].as_f64().expect("a coverage") > 0.9, "{ratio}");
    for name in ["after", "99"] {
        let message = refused(&bed.run(&["bench", "compare", "before", name]));
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn a_history_that_can_not_be_written_is_a_warning_and_the_run_is_done() {
    let bed = Bed::new();
    let foreign = bed.folder.path().join("notes.txt");
    std::fs::write(
        &foreign,
        "not a database, but longer than the header of one would be: ".repeat(20),
    )
    .expect("written");
    let output = bed.measure(&["--rounds", "2", "--history", text(&foreign), "--json"]);
    assert_eq!(stdout(&output).lines().count(), 2);
    let message = stderr(&output);
    assert_eq!(
        message.matches("not stored in the history").count(),
        1,
        "{message}"
    );
    let message = refused(&bed.history(&["list", "--history", text(&foreign)]));
    assert!(
        message.contains("no SQLite database") && message.contains("notes.txt"),
        "{message}"
    );
}

#[test]
fn an_empty_history_lists_nothing_and_makes_no_file() {
    let bed = Bed::new();
    assert_eq!(stdout(&bed.history(&["list"])), "");
    refused(&bed.history(&["show", "1"]));
    assert!(!bed.file().exists());
}
