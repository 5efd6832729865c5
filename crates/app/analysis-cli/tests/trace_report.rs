//! `tidegate trace report`, `query` and `compare`, as programs run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use formats::TraceSink;
use formats::native::{Existing, NativeWriter, TraceId};
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockType, CaptureMethod, DeviceNumber, IoMode, Operation, Request, RequestFlags,
    Run, TraceHeader,
};

mod support {
    pub mod core;
}

fn tidegate(folder: &Path, words: &[&str]) -> Output {
    Command::new(support::core::tidegate())
        .current_dir(folder)
        .args(words)
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A trace of `writes` consecutive writes of 4 KiB.
fn stored(folder: &Path, name: &str, writes: u64, lost_records: u64) -> PathBuf {
    let path = folder.join(format!("{name}.trace"));
    let header = TraceHeader {
        schema: BLOCK_TRACE_SCHEMA,
        source: "a test".to_owned(),
        method: CaptureMethod::Simulation,
        host: None,
        start_realtime_ns: None,
        duration_ns: 1_000_000,
        devices: Vec::new(),
        limitations: Vec::new(),
        lost_records,
        refused: 0,
        ring_was_tight: false,
        complete: true,
    };
    let writer = NativeWriter::create(&path, TraceId::from_text(name), &header, Existing::Refuse)
        .expect("the temporary folder takes a trace");
    let mut sink: Box<dyn TraceSink> = Box::new(writer);
    for id in 0..writes {
        let run = Run {
            block_type: BlockType::Data,
            path: Some("/pictures/IMG_1.jpg".into()),
            ..Run::unknown(id * 8, 4096)
        };
        let request = Request {
            id,
            device: DeviceNumber { major: 8, minor: 0 },
            sector: id * 8,
            bytes: 4096,
            operation: Operation::Write,
            flags: RequestFlags::SYNC,
            priority: None,
            queued_ns: Some(id * 1000),
            inserted_ns: None,
            issued_ns: Some(id * 1000 + 10),
            completed_ns: Some(id * 1000 + 500),
            status: Some(0),
            in_flight: Some(1),
            hardware_queue: None,
            submitter: None,
            mode: IoMode::Direct,
            command: None,
            runs: vec![run],
        };
        sink.request(&request).expect("the request fits");
    }
    sink.finish(&header).expect("the trace is written");
    path
}

#[test]
fn a_report_is_a_page_a_text_or_a_document() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "phone", 9, 0);
    let page = tidegate(folder.path(), &["trace", "report", "phone.trace"]);
    assert_eq!(page.status.code(), Some(0), "{}", text(&page.stderr));
    assert!(text(&page.stderr).contains("phone.html"));
    let html = std::fs::read_to_string(folder.path().join("phone.html")).unwrap();
    assert!(html.contains("multimedia") && html.ends_with("</html>\n"));
    assert!(!folder.path().join("phone.html.partial").exists());

    let tables = tidegate(folder.path(), &["trace", "report", "phone.trace", "--text"]);
    assert!(
        text(&tables.stdout).contains("Sequential against random"),
        "{}",
        text(&tables.stdout)
    );
    let document = tidegate(folder.path(), &["trace", "report", "phone.trace", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["traces"][0]["trace_id"], "phone");
}

#[test]
fn a_trace_with_losses_is_reported_with_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "lossy", 3, 17);
    let report = tidegate(folder.path(), &["trace", "report", "lossy.trace", "--text"]);
    assert_eq!(report.status.code(), Some(1));
    assert!(
        text(&report.stdout).contains("17 records were lost"),
        "{}",
        text(&report.stdout)
    );
}

#[test]
fn a_trace_is_asked_in_sql_and_by_name() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "phone", 9, 0);
    let query = "SELECT COUNT(*) AS requests, SUM(bytes) AS bytes FROM requests";
    let asked = tidegate(folder.path(), &["trace", "query", "phone.trace", query]);
    assert_eq!(
        text(&asked.stdout),
        "requests   bytes\n--------  ------\n       9  36 KiB\n"
    );
    let named = tidegate(
        folder.path(),
        &["trace", "query", "phone.trace", "--named", "locality", "--json"],
    );
    let table: serde_json::Value = serde_json::from_slice(&named.stdout).unwrap();
    assert_eq!(table["rows"][0][2], 8, "{table}");
    let list = tidegate(folder.path(), &["trace", "query", "--list"]);
    assert!(text(&list.stdout).contains("short_lived_files"));
    let unknown = tidegate(
        folder.path(),
        &["trace", "query", "phone.trace", "--named", "sises"],
    );
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("--list"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn a_query_that_is_too_much_ends_with_its_limit_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "phone", 400, 0);
    let query = |sql: &str, options: &[&str]| {
        let words = [&["trace", "query", "phone.trace", sql, "--memory", "8m"], options].concat();
        tidegate(folder.path(), &words)
    };
    let pairs = "SELECT a.id AS first, b.id AS second FROM requests AS a CROSS JOIN requests AS b";
    let table = query(pairs, &[]);
    let said = text(&table.stderr);
    assert_eq!(table.status.code(), Some(2), "{said}");
    assert!(
        said.contains("exceeds the memory of 8388608 bytes") && said.contains("--json"),
        "{said}"
    );
    assert_eq!(text(&table.stdout), "");
    let document = query(pairs, &["--json"]);
    assert_eq!(document.status.code(), Some(0), "{}", text(&document.stderr));
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 160_000);

    let deep = query(&format!("SELECT {}", vec!["1"; 20_000].join(" + ")), &[]);
    let said = text(&deep.stderr);
    assert_eq!(deep.status.code(), Some(2), "{said}");
    assert!(
        said.contains("expected at most 1000 words and operators, found 20000"),
        "{said}"
    );
}

#[test]
fn values_that_functions_make_have_a_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "phone", 400, 0);
    let doubled: String = (1..40)
        .map(|step| format!(", t{step} AS (SELECT s || s AS s FROM t{})", step - 1))
        .collect();
    for sql in [
        "SELECT repeat(path, 100000000) FROM runs".to_owned(),
        "SELECT lpad('x', 2000000000)".to_owned(),
        format!("WITH t0 AS (SELECT path AS s FROM runs){doubled} SELECT length(s) FROM t39"),
    ] {
        let asked = tidegate(
            folder.path(),
            &["trace", "query", "phone.trace", &sql, "--memory", "8m"],
        );
        let said = text(&asked.stderr);
        assert_eq!(asked.status.code(), Some(2), "{sql}: {said}");
        assert!(said.contains("--memory"), "{sql}: {said}");
        assert_eq!(text(&asked.stdout), "", "{sql}");
    }
}

#[test]
fn two_traces_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    stored(folder.path(), "a", 10, 0);
    stored(folder.path(), "b", 5, 0);
    let compared = tidegate(
        folder.path(),
        &["trace", "compare", "a.trace", "b.trace", "--json"],
    );
    let document: serde_json::Value = serde_json::from_slice(&compared.stdout).unwrap();
    let tables = document["tables"].as_array().unwrap();
    let locality = tables.iter().find(|table| table["name"] == "locality").unwrap();
    assert_eq!(locality["rows"][0]["values"][0]["change"], 0.5, "{locality}");
}

#[test]
fn a_trace_of_another_tool_is_reported_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "  8,0    0        1     0.000000000   123  D  WS 2048 + 8 [dd]\n  \
                   8,0    0        2     0.000500000     0  C  WS 2048 + 8 [0]\n";
    std::fs::write(folder.path().join("disk.blkparse"), lines).unwrap();
    let report = tidegate(folder.path(), &["trace", "report", "disk.blkparse", "--text"]);
    assert_eq!(report.status.code(), Some(0), "{}", text(&report.stderr));
    assert!(
        text(&report.stdout).contains("500 µs"),
        "{}",
        text(&report.stdout)
    );
}

#[test]
fn an_interrupted_query_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let trace = stored(folder.path(), "a", 5_000, 0);
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let entries = || std::fs::read_dir(&temporary).unwrap().count();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::XCPU] {
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut query = Command::new(env!("CARGO_BIN_EXE_tidegate-analysis"))
            .arg("query")
            .arg(&trace)
            .arg("SELECT COUNT(*) FROM requests a, requests b, requests c WHERE a.id + b.id > c.id * 3")
            .env("TMPDIR", &temporary)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while entries() == 0 && std::time::Instant::now() < limit {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(entries(), 1, "no folder for temporary files");
        std::thread::sleep(std::time::Duration::from_millis(300));
        let pid = rustix::process::Pid::from_child(&query);
        rustix::process::kill_process(pid, signal).unwrap();
        let status = query.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(signal.as_raw()),
            "{status}"
        );
        assert_eq!(entries(), 0);
    }
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let trace = stored(folder.path(), "a", 5_000, 0);
    let output = Command::new("prlimit")
        .arg("--fsize=4096")
        .arg(env!("CARGO_BIN_EXE_tidegate-analysis"))
        .arg("query")
        .arg(&trace)
        .arg("SELECT * FROM requests")
        .stdout(std::fs::File::create(folder.path().join("out")).unwrap())
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}: {told}", output.status);
    assert!(told.contains("File too large"), "{told}");
}

#[test]
fn a_pipe_in_the_place_of_a_table_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let trace = stored(folder.path(), "a", 10, 0);
    let table = trace.join("runs.parquet");
    std::fs::remove_file(&table).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &table,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let output = tidegate(folder.path(), &["trace", "query", "a.trace", "SELECT 1"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("runs.parquet: cannot read: expected a regular file"),
        "{told}"
    );
}
