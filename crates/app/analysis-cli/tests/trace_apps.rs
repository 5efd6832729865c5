//! `tidegate trace apps` on one file system and one application, as root; skipped with a reason elsewhere.
//!
//! Its tables are compared with this test's own counts of the kept trace.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod support {
    pub mod core;
}

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use formats::{BadLines, ReadOptions, TraceItem};
use results::block_trace::{BlockClass, Event, EventKind, Operation, Request, RequestFlags};
use results::nearest_f64;

/// The system calls that the paper's table 3 counts.
const WRITE_CALLS: [&str; 3] = ["pwrite64", "pwritev", "pwritev2"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The content of the kept trace.
fn read(trace: &Path) -> (Vec<Request>, Vec<Event>) {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Refuse,
    };
    let mut source = formats::open(trace, options).unwrap();
    let (mut requests, mut events) = (Vec::new(), Vec::new());
    while let Some(item) = source.next_item().unwrap() {
        match item {
            TraceItem::Request(request) => requests.push(request),
            TraceItem::Event(event) => events.push(event),
        }
    }
    (requests, events)
}

/// Numbers of the I/Os of one operation: all, over 256 KiB, of 4 KiB, sequential, buffered, and by class of their first
/// run data, metadata, journal.
fn count(requests: &[Request], operation: Operation) -> [u64; 8] {
    let mut counts = [0; 8];
    let mut previous_end = HashMap::new();
    for request in requests.iter().filter(|request| request.moves_data()) {
        let before = previous_end.insert(request.device, request.end_sector());
        if request.operation != operation {
            continue;
        }
        let class = request.runs.first().map(|run| run.block_type.class());
        let facts = [
            true,
            request.bytes > 256 << 10,
            request.bytes == 4096,
            before == Some(request.sector),
            !request.flags.contains(RequestFlags::SYNC),
            class == Some(BlockClass::Data),
            class == Some(BlockClass::Metadata),
            class == Some(BlockClass::Journal),
        ];
        for (count, fact) in counts.iter_mut().zip(facts) {
            *count += u64::from(fact);
        }
    }
    counts
}

/// The value in a table of the document, in the row that begins with `key`.
fn value(table: &serde_json::Value, key: &str, column: &str) -> f64 {
    let columns = table["columns"].as_array().unwrap();
    let place = columns.iter().position(|one| one["name"] == column).unwrap();
    let mut rows = table["rows"].as_array().unwrap().iter();
    let row = rows.find(|row| row[0] == key);
    row.unwrap_or_else(|| panic!("no row {key} in {table}"))[place]
        .as_f64()
        .unwrap()
}

#[test]
fn an_interrupted_run_leaves_no_mount_behind() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = folder.path().to_str().unwrap();
    let is_mounted = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {place}/"))
    };
    let mut running = Command::new(support::core::tidegate())
        .args(["trace", "apps", "--file-systems", "ext4", "--apps", "gallery"])
        .args(["--size", "512m", "--speed", "1", place])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_mounted() && std::time::Instant::now() < limit {
        if running.try_wait().unwrap().is_some() {
            testkit::report_left_out("it ends by itself: no tracing, losetup or mkfs.ext4 here");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    std::thread::sleep(std::time::Duration::from_secs(1));
    let pid = rustix::process::Pid::from_child(&running);
    // As Ctrl-C does.
    rustix::process::kill_process_group(pid, rustix::process::Signal::INT).unwrap();
    running.wait().unwrap();
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(!is_mounted() && left.is_empty(), "{left:?}");
}

#[test]
fn the_tables_of_an_application_say_what_its_trace_holds() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (kept, page) = (folder.path().join("kept"), folder.path().join("page.html"));
    let output = Command::new(support::core::tidegate())
        .args(["trace", "apps", "--file-systems", "ext4", "--apps", "camera"])
        .args(["--speed", "asap", "--size", "512m", "--json"])
        .arg("--keep")
        .arg(&kept)
        .arg("--output")
        .arg(&page)
        .arg(folder.path())
        .output()
        .unwrap();
    let complaint = text(&output.stderr);
    if output.status.code() == Some(2)
        && ["can't be traced", "losetup", "mkfs.ext4"]
            .iter()
            .any(|word| complaint.contains(word))
    {
        testkit::report_left_out(complaint);
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["cells"].as_array().map(Vec::len), Some(1));
    let cell = &document["cells"][0];
    assert_eq!(
        (&cell["file_system"], &cell["app"]),
        (&"ext4".into(), &"camera".into())
    );

    let (requests, events) = read(&kept.join("ext4-camera.trace"));
    let columns = [
        "over_256k_share",
        "exactly_4k_share",
        "sequential_share",
        "buffered_share",
        "data_share",
        "metadata_share",
        "journal_share",
    ];
    for operation in [Operation::Read, Operation::Write] {
        let [all, parts @ ..] = count(&requests, operation);
        if all == 0 {
            continue;
        }
        let row = operation.word();
        assert_eq!(value(&cell["shares"], row, "requests"), nearest_f64(all));
        for (column, part) in columns.into_iter().zip(parts) {
            let share = value(&cell["shares"], row, column);
            assert!(
                (share * nearest_f64(all) - nearest_f64(part)).abs() < 1e-6,
                "{row} {column}: {share} of {all} is not {part}"
            );
        }
    }
    let [writes, large, ..] = count(&requests, Operation::Write);
    assert!(
        large > 0 && writes > large,
        "{large} of {writes} writes are large: there is too little to judge"
    );

    let calls = events.iter().filter(|event| {
        event.kind == EventKind::CallCount
            && event
                .name
                .as_deref()
                .is_some_and(|name| WRITE_CALLS.contains(&name))
    });
    let calls: u64 = calls.map(|event| event.value).sum();
    let both = [
        count(&requests, Operation::Read),
        count(&requests, Operation::Write),
    ];
    let sum = |place: usize| both.iter().map(|counts| counts[place]).sum::<u64>();
    for (item, expected) in [
        ("1 pwrite calls", calls),
        ("2 I/O requests", sum(0)),
        ("3 metadata and journal", sum(6) + sum(7)),
    ] {
        assert!(expected > 0, "{item}");
        assert_eq!(
            value(&cell["counts"], item, "count"),
            nearest_f64(expected),
            "{item}"
        );
    }

    let html = fs::read_to_string(&page).unwrap();
    for words in [
        "Figure 4",
        "Table 3",
        "(a) larger than 256 KiB",
        "over 70 %",
        "paper: 512 MB, no buffer",
    ] {
        assert!(html.contains(words), "the page lacks {words}");
    }
    // The row of table 3 with the counts above.
    let row = format!(
        "<td class=\"number\">{}</td>",
        report::number::count(nearest_f64(sum(0)))
    );
    assert!(html.contains(&row), "the page lacks {row}");
    let mut left: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["kept", "page.html"],
        "what was made to work with is removed"
    );
}
