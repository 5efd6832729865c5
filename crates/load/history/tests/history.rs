//! Guarantees of the history: stable ids, runs that survive a power cut, foreign files left unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use history::{Filter, History, HistoryError, RunId};
use results::{HostInfo, LatencyHistogram, RunRecord, SCHEMA, Sample, TargetInfo, TimedWindow};
use tempfile::TempDir;

fn record(path: &str, pattern: &str, started_unix_ns: u64, elapsed_ns: u64) -> RunRecord {
    let mut latency = LatencyHistogram::new();
    latency.record(elapsed_ns);
    RunRecord {
        schema: SCHEMA.to_owned(),
        command: vec!["tidegate".to_owned(), "bench".to_owned()],
        tool_version: "0.1.0".to_owned(),
        started_unix_ns,
        host: HostInfo {
            kernel: "Linux 6".to_owned(),
            ..HostInfo::default()
        },
        target: TargetInfo {
            path: path.to_owned(),
            file_system_type: Some("ext4".to_owned()),
            ..TargetInfo::default()
        },
        label: "a,\"b\"".to_owned(),
        round: 0,
        workload: serde_json::json!({"kind": "file", "pattern": pattern}),
        samples: vec![
            Sample::new("write", (1, 1_000_000), TimedWindow::of(elapsed_ns), latency)
                .expect("the latency is that of the window"),
        ],
        counters: BTreeMap::new(),
        complete: true,
    }
}

fn open(folder: &TempDir) -> History {
    History::open(&folder.path().join("deep/er/history.db")).expect("a history")
}

fn folder() -> TempDir {
    TempDir::new().expect("a temporary folder")
}

#[test]
fn a_run_comes_back_as_it_was_measured() {
    let folder = folder();
    let (first, second) = (
        record("/data", "random_write", 5, 1_000_000),
        record("/data", "random_write", 6, 3_000_000),
    );
    let id = {
        let mut history = open(&folder);
        let id = history.append(None, &first).expect("stored");
        assert_eq!(history.append(Some(id), &second).expect("stored"), id);
        id
    };
    let run = open(&folder).get(id).expect("the run");
    assert_eq!(run.records, [first, second]);
    assert_eq!((run.summary.records_count, run.summary.workloads_count), (2, 1));
    assert_eq!(run.summary.unit.as_deref(), Some("MB/s"), "{:?}", run.summary);
    // The median of 1000 and 333.3.
    let rate = run.summary.rate.expect("a speed");
    assert!((rate - 666.67).abs() < 0.1, "{rate}");
}

#[test]
fn filters_find_by_workload_path_time_and_tag() {
    let folder = folder();
    let mut history = open(&folder);
    let one = history
        .append(None, &record("/data/a", "random_write", 10, 1))
        .expect("stored");
    let two = history
        .append(None, &record("/data2", "sequential_read", 20, 1))
        .expect("stored");
    history.tag(two, "before").expect("tagged");
    let find = |filter: Filter| -> Vec<RunId> {
        let found = history.list(&filter).expect("a list");
        found.iter().map(|run| run.id).collect()
    };
    let all = Filter::default;
    assert_eq!(find(all()), [two, one]);
    let workload = |text: &str| Filter {
        workload: Some(text.to_owned()),
        ..all()
    };
    assert_eq!(find(workload("RANDOM-write")), [one]);
    assert_eq!(find(workload("file")), [two, one]);
    assert_eq!(find(workload("%")), []);
    let path = |text: &str| Filter {
        path: Some(text.to_owned()),
        ..all()
    };
    assert_eq!(find(path("/data")), [one]);
    assert_eq!(find(path("/data2/")), [two]);
    assert_eq!(find(path("/")), [two, one]);
    let since = Filter {
        since_unix_ns: Some(11),
        ..all()
    };
    assert_eq!(find(since), [two]);
    let tag = Filter {
        tag: Some("before".to_owned()),
        ..all()
    };
    assert_eq!(find(tag), [two]);
    let latest = Filter {
        limit: Some(1),
        ..all()
    };
    assert_eq!(find(latest), [two]);
}

#[test]
fn an_id_is_not_given_again_after_its_run_was_deleted() {
    let folder = folder();
    let mut history = open(&folder);
    let one = history.append(None, &record("/", "x", 1, 1)).expect("stored");
    history.tag(one, "gone").expect("tagged");
    history.delete(one).expect("deleted");
    let two = history.append(None, &record("/", "x", 1, 1)).expect("stored");
    assert!(two > one);
    assert!(
        history.list(&Filter::default()).expect("a list")[0]
            .tags
            .is_empty()
    );
    for error in [
        history.get(one).unwrap_err(),
        history.delete(one).unwrap_err(),
        history.tag(one, "late").unwrap_err(),
        history.append(Some(one), &record("/", "x", 1, 1)).unwrap_err(),
    ] {
        assert!(
            matches!(&error, HistoryError::NoSuchRun { run, .. } if *run == one),
            "{error}"
        );
    }
}

#[test]
fn a_tag_can_not_be_taken_for_an_id() {
    let folder = folder();
    let mut history = open(&folder);
    let one = history.append(None, &record("/", "x", 1, 1)).expect("stored");
    for tag in ["", "12", "two words", "a\nb", &"x".repeat(65)] {
        let error = history.tag(one, tag).unwrap_err();
        assert!(matches!(error, HistoryError::BadTag { .. }), "{error}");
    }
    history.tag(one, "v2").expect("tagged");
    history.tag(one, "v2").expect("the same again");
    assert!(history.untag(one, "v2").expect("untagged"));
    assert!(!history.untag(one, "v2").expect("nothing left"));
}

#[test]
fn what_was_stored_survives_a_power_cut_at_any_later_moment() {
    let folder = folder();
    let mut history = open(&folder);
    let path = history.path().to_owned();
    for count in 1..=5 {
        history.append(None, &record("/", "x", count, 1)).expect("stored");
        // Copy the medium while the writer still has it open: nothing was closed or checkpointed.
        let cut = TempDir::new().expect("a temporary folder");
        for suffix in ["", "-wal"] {
            let name = format!("history.db{suffix}");
            let from = path.with_file_name(&name);
            if from.exists() {
                std::fs::copy(from, cut.path().join(name)).expect("a copy");
            }
        }
        let after = History::open(&cut.path().join("history.db")).expect("a history");
        let kept = after.list(&Filter::default()).expect("a list").len();
        assert_eq!(u64::try_from(kept).expect("few"), count);
    }
}

#[test]
fn many_writers_lose_nothing() {
    let folder = folder();
    let path = folder.path().join("history.db");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                // Each opens the file separately, as programs do; the first ones create it concurrently.
                let mut history = History::open(path).expect("a history");
                for step in 0..5 {
                    history
                        .append(None, &record("/", "x", writer * 10 + step, 1))
                        .expect("stored");
                }
            });
        }
    });
    let history = History::open(&path).expect("a history");
    assert_eq!(history.list(&Filter::default()).expect("a list").len(), 40);
}

#[test]
fn files_of_others_are_refused_and_left_as_they_are() {
    let folder = folder();
    let text = folder.path().join("notes.txt");
    std::fs::write(
        &text,
        "shopping list: nothing that SQLite could read, and longer than a header ".repeat(9),
    )
    .expect("written");
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other)
        .and_then(|connection| connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)"))
        .expect("a database");
    for path in [&text, &other] {
        let before = std::fs::read(path).expect("readable");
        let error = History::open(path).unwrap_err();
        assert!(
            matches!(&error, HistoryError::Foreign { .. }) && error.to_string().contains("--history"),
            "{error}"
        );
        assert_eq!(std::fs::read(path).expect("readable"), before);
    }
}

#[test]
fn damage_is_named() {
    let folder = folder();
    let path = folder.path().join("history.db");
    {
        let mut history = History::open(&path).expect("a history");
        for step in 0..200 {
            history.append(None, &record("/", "x", step, 1)).expect("stored");
        }
    }
    let mut bytes = std::fs::read(&path).expect("readable");
    // Everything after the first page, which holds header and schema.
    bytes[4096..].fill(0xA5);
    std::fs::write(&path, bytes).expect("written");
    let error = History::open(&path)
        .and_then(|history| history.list(&Filter::default()))
        .unwrap_err();
    assert!(
        matches!(&error, HistoryError::Damaged { .. }) && error.to_string().contains("damaged"),
        "{error}"
    );
}

#[test]
fn a_folder_that_can_not_be_made_is_named() {
    let error = History::open(Path::new("/proc/nowhere/history.db")).unwrap_err();
    assert!(error.to_string().contains("/proc/nowhere"), "{error}");
    assert!(
        History::open_existing(Path::new("/nowhere/history.db"))
            .expect("nothing is there")
            .is_none()
    );
}

#[test]
fn exports_quote_what_could_break_them_and_read_back() {
    let folder = folder();
    let mut history = open(&folder);
    let one = history
        .append(None, &record("/a|b,c", "random_write", 5, 1_000_000))
        .expect("stored");
    let runs = [history.get(one).expect("the run")];
    let csv = history::csv(&runs);
    let mut lines = csv.split("\r\n");
    let names = lines.next().expect("names").split(',').count();
    let line = lines.next().expect("a line");
    assert!(
        line.contains("\"a,\"\"b\"\"\"") && line.contains("\"/a|b,c\""),
        "{line}"
    );
    // Two quoted fields with commas: one in the label, one in the path.
    assert_eq!(line.split(',').count(), names + 2);
    assert!(history::markdown(&runs).contains("| /a\\|b,c |"));
    let lines = folder.path().join("runs.jsonl");
    std::fs::write(&lines, history::json_lines(&runs)).expect("written");
    assert_eq!(results::read_records(&lines).expect("records"), runs[0].records);
}
