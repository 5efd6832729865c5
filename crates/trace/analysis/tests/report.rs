//! Reports over generated traces, and over a small one with known numbers.

mod generator;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use analysis::{AnalysisError, Comparison, Limits, Pictures, Report, Session, Table, Value, named};
use formats::TraceSink;
use formats::native::{Existing, NativeWriter, TraceId};
use generator::{Spec, write_trace};
use results::block_trace::{
    BlockType, CauseQuality, DeviceNumber, Event, EventKind, FileIdentity, IoMode, Operation, Process,
    Request, RequestFlags, Run,
};
use tempfile::TempDir;

const LIMITS: Limits = Limits {
    memory_bytes: 128 << 20,
    threads: 2,
};

const DEVICE: DeviceNumber = DeviceNumber { major: 8, minor: 0 };

fn generated(folder: &TempDir, name: &str, requests: u64) -> PathBuf {
    let path = folder.path().join(format!("{name}.trace"));
    let spec = Spec {
        seed: 7,
        requests,
        name,
    };
    write_trace(&path, spec).expect("the temporary folder takes a trace");
    path
}

fn report(paths: &[PathBuf]) -> Report {
    let session = Session::open(paths, LIMITS).expect("the traces were just written");
    Report::of(&session, Pictures::Drawn, |_| ()).expect("every analysis runs")
}

/// One analysis over these traces: a whole report takes seconds when the engine is compiled for tests.
fn answer(paths: &[PathBuf], name: &str) -> Table {
    let session = Session::open(paths, LIMITS).expect("the traces were just written");
    run(&session, name)
}

fn run(session: &Session, name: &str) -> Table {
    let analysis = named::find(name).expect("it is one of the named ones");
    session.run(&analysis).expect("the analysis runs")
}

/// A report of only some analyses.
fn report_of(paths: &[PathBuf], names: &[&str]) -> Report {
    let session = Session::open(paths, LIMITS).expect("the traces were just written");
    let tables = names.iter().map(|name| run(&session, name));
    Report {
        traces: session.traces().to_vec(),
        tables: tables.collect(),
        densities: Vec::new(),
    }
}

/// A write of 4 KiB at a sector and time, with one run of this type.
fn write_at(id: u64, sector: u64, time_ns: u64, block_type: BlockType) -> Request {
    Request {
        id,
        device: DEVICE,
        sector,
        bytes: 4096,
        operation: Operation::Write,
        flags: RequestFlags::default(),
        priority: None,
        queued_ns: Some(time_ns),
        inserted_ns: None,
        issued_ns: Some(time_ns + 10),
        completed_ns: Some(time_ns + 10 + 100 * (id + 1)),
        status: Some(0),
        in_flight: None,
        hardware_queue: None,
        submitter: None,
        mode: IoMode::Writeback,
        command: None,
        runs: vec![Run {
            block_type,
            ..Run::unknown(sector, 4096)
        }],
    }
}

fn flush_at(id: u64, time_ns: u64) -> Request {
    Request {
        bytes: 0,
        operation: Operation::Flush,
        runs: Vec::new(),
        ..write_at(id, 0, time_ns, BlockType::Unknown)
    }
}

fn file(inode: u64, path: &str) -> impl Fn(Request) -> Request {
    move |mut request| {
        let process = Process {
            pid: 10,
            tid: 11,
            name: "app".into(),
            package: None,
        };
        for run in &mut request.runs {
            run.file = Some(FileIdentity {
                file_system: DEVICE,
                inode,
                generation: 1,
            });
            run.path = Some(path.into());
            run.cause = Some(Arc::new(process.clone()));
            run.cause_quality = CauseQuality::Folio;
        }
        request
    }
}

fn event(kind: EventKind, time_ns: u64, inode: u64, path: &str, value: u64) -> Event {
    Event {
        time_ns,
        kind,
        process: None,
        file: Some(FileIdentity {
            file_system: DEVICE,
            inode,
            generation: 1,
        }),
        path: Some(path.into()),
        name: None,
        value,
    }
}

fn stored(folder: &Path, name: &str, requests: &[Request], events: &[Event]) -> PathBuf {
    let path = folder.join(format!("{name}.trace"));
    let mut header = generator::header(name, 1_000_000);
    header.limitations.clear();
    let writer = NativeWriter::create(&path, TraceId::from_text(name), &header, Existing::Refuse)
        .expect("the temporary folder takes a trace");
    let mut sink: Box<dyn TraceSink> = Box::new(writer);
    for request in requests {
        sink.request(request).expect("the request fits");
    }
    for event in events {
        sink.event(event).expect("the event fits");
    }
    sink.finish(&header).expect("the trace is written");
    path
}

#[test]
fn every_analysis_answers_and_the_groups_add_up() {
    let folder = TempDir::new().unwrap();
    let report = report(&[generated(&folder, "phone", 2_000)]);
    let total = |table: &str, column: &str| -> f64 {
        let table = report
            .table(table)
            .unwrap_or_else(|| panic!("{table} is missing"));
        (0..table.rows.len())
            .map(|row| table.value(row, column).and_then(Value::number).unwrap())
            .sum()
    };
    let requests = total("sizes", "requests");
    for table in [
        "locality",
        "sync",
        "modes",
        "classes",
        "block_types",
        "file_kinds",
        "paper_figure_4",
    ] {
        assert_eq!(total(table, "requests"), requests, "{table}");
    }
    let bytes = total("sizes", "bytes");
    for table in [
        "sync",
        "modes",
        "classes",
        "block_types",
        "file_kinds",
        "attribution",
    ] {
        assert_eq!(total(table, "bytes"), bytes, "{table}");
    }
    let without = ["driver_commands", "deleted_writes", "discards"];
    for analysis in named::all() {
        assert_eq!(
            report.table(analysis.name).is_none(),
            without.contains(&analysis.name),
            "{}",
            analysis.name
        );
    }
    let drawn: u64 = report.densities.iter().flat_map(|grid| grid.cells.values()).sum();
    assert_eq!(
        results::nearest_f64(drawn),
        requests * 2.0,
        "every I/O is in both pictures"
    );
}

#[test]
fn the_same_trace_gives_the_same_report_whatever_the_threads() {
    let folder = TempDir::new().unwrap();
    let path = generated(&folder, "phone", 500);
    let tables = |threads: usize| {
        let session = Session::open(std::slice::from_ref(&path), Limits { threads, ..LIMITS }).unwrap();
        ["locality", "hot_files", "latencies"].map(|name| run(&session, name))
    };
    assert_eq!(tables(1), tables(3));
}

#[test]
fn sequential_is_what_continues_the_stream_or_one_of_the_streams() {
    // Two parallel streams, and one write that continues neither.
    let places = [1000, 5000, 1008, 5008, 1016, 5016, 9000, 9008];
    let requests: Vec<Request> = (0_u64..)
        .zip(places)
        .map(|(id, sector)| write_at(id, sector, id * 1000, BlockType::Data))
        .collect();
    let folder = TempDir::new().unwrap();
    let locality = answer(&[stored(folder.path(), "streams", &requests, &[])], "locality");
    assert_eq!(locality.number(&["write"], "sequential_requests"), Some(1.0));
    assert_eq!(locality.number(&["write"], "stream_requests"), Some(5.0));
}

#[test]
fn a_stream_is_forgotten_after_32_others() {
    let folder = TempDir::new().unwrap();
    let continued_after = |others: u64| {
        let mut requests = vec![write_at(0, 1000, 0, BlockType::Data)];
        requests.extend((1..=others).map(|id| write_at(id, 100_000 + id * 100, id, BlockType::Data)));
        requests.push(write_at(others + 1, 1008, others + 1, BlockType::Data));
        let path = stored(folder.path(), &format!("others{others}"), &requests, &[]);
        answer(&[path], "locality").number(&["write"], "stream_requests")
    };
    assert_eq!(continued_after(31), Some(1.0));
    assert_eq!(continued_after(32), Some(0.0));
}

#[test]
fn percentiles_are_values_that_were_measured() {
    let requests: Vec<Request> = (0..1000)
        .map(|id| write_at(id, 8 * id, id, BlockType::Data))
        .collect();
    let folder = TempDir::new().unwrap();
    let latencies = answer(&[stored(folder.path(), "latencies", &requests, &[])], "latencies");
    let device = |column| latencies.number(&["device", "write", "data"], column).unwrap();
    let found = ["p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"].map(device);
    assert_eq!(found, [50_000.0, 90_000.0, 99_000.0, 99_900.0, 100_000.0]);
    assert_eq!(
        latencies.number(&["queue", "write", "data"], "max_ns"),
        Some(10.0)
    );
}

#[test]
fn flushes_are_no_io_and_directories_are_data() {
    let requests = [
        write_at(0, 8, 0, BlockType::Directory),
        flush_at(1, 10),
        write_at(2, 16, 20, BlockType::InodeTable),
        write_at(3, 24, 30, BlockType::JournalControl),
    ];
    let folder = TempDir::new().unwrap();
    let paths = [stored(folder.path(), "classes", &requests, &[])];
    let classes = answer(&paths, "classes");
    let counts = ["data", "metadata", "journal"].map(|class| classes.number(&["write", class], "requests"));
    assert_eq!(counts, [Some(1.0); 3]);
    assert_eq!(
        answer(&paths, "traces").number(&["classes"], "flush_requests"),
        Some(1.0)
    );
    assert_eq!(
        answer(&paths, "paper_table_3").number(&["3 metadata and journal"], "count"),
        Some(2.0)
    );
}

#[test]
fn a_file_that_was_made_and_deleted_is_listed_with_what_it_cost() {
    let journal = "/db/x.db-journal";
    let of_journal = file(7, journal);
    let of_database = file(8, "/db/x.db");
    let requests = [
        of_journal(write_at(0, 800, 100, BlockType::Data)),
        of_journal(write_at(1, 808, 200, BlockType::Data)),
        of_database(write_at(2, 900, 300, BlockType::Data)),
        of_database(write_at(3, 900, 400, BlockType::Data)),
    ];
    let events = [
        event(EventKind::Create, 50, 7, journal, 0),
        event(EventKind::Fsync, 250, 7, journal, 77),
        event(EventKind::Unlink, 500, 7, journal, 0),
        event(EventKind::Create, 600, 9, "/db/still-there", 0),
    ];
    let folder = TempDir::new().unwrap();
    let paths = [stored(folder.path(), "short", &requests, &events)];
    let short = answer(&paths, "short_lived_files");
    assert_eq!(short.rows.len(), 1);
    let cost = [
        "files",
        "mean_lifetime_ns",
        "fsyncs",
        "fsync_time_ns",
        "write_requests",
        "write_bytes",
    ];
    let found = cost.map(|column| short.number(&[journal], column).unwrap());
    assert_eq!(found, [1.0, 450.0, 1.0, 77.0, 2.0, 8192.0]);
    let kinds = answer(&paths, "file_kinds");
    assert_eq!(kinds.number(&["SQLite journal", "write"], "bytes"), Some(8192.0));
    assert_eq!(kinds.number(&["SQLite database", "write"], "bytes"), Some(8192.0));
    let hot = answer(&paths, "hot_files");
    assert_eq!(hot.number(&["/db/x.db"], "rewritten_bytes"), Some(4096.0));
    assert_eq!(hot.number(&[journal], "rewritten_bytes"), Some(0.0));
}

#[test]
fn the_same_path_on_two_file_systems_is_two_rows() {
    let journal = "/db/x.db-journal";
    let on_second = |mut request: Request| {
        for file in request.runs.iter_mut().filter_map(|run| run.file.as_mut()) {
            file.file_system.minor += 1;
        }
        request
    };
    let of_journal = file(7, journal);
    let requests = [
        of_journal(write_at(0, 800, 100, BlockType::Data)),
        on_second(of_journal(write_at(1, 900, 200, BlockType::Data))),
    ];
    let mut events = Vec::new();
    for minor in 0..2 {
        for (kind, time_ns) in [(EventKind::Create, 50), (EventKind::Unlink, 500)] {
            let mut event = event(kind, time_ns, 7, journal, 0);
            event.file = event.file.map(|mut file| {
                file.file_system.minor += minor;
                file
            });
            events.push(event);
        }
    }
    events.sort_by_key(|event| event.time_ns);
    let folder = TempDir::new().unwrap();
    let paths = [stored(folder.path(), "equal", &requests, &events)];
    for name in ["hot_files", "short_lived_files"] {
        let table = answer(&paths, name);
        assert_eq!(table.rows.len(), 2, "{name}");
        assert_ne!(table.rows[0][1], table.rows[1][1], "{name} tells them apart");
    }
    let kinds = answer(&paths, "file_kinds");
    assert_eq!(kinds.number(&["SQLite journal", "write"], "files"), Some(2.0));
}

#[test]
fn several_traces_are_one_report_and_a_trace_twice_is_refused() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (generated(&folder, "one", 200), generated(&folder, "two", 300));
    let both = [folder.path().to_owned()];
    assert_eq!(answer(&both, "traces").rows.len(), 2);
    let count = |paths: &[PathBuf]| answer(paths, "locality").number(&["write"], "requests").unwrap();
    assert_eq!(count(&both), count(std::slice::from_ref(&one)) + count(&[two]));
    let error = Session::open(&[one.clone(), one], LIMITS).err().unwrap();
    assert!(matches!(error, AnalysisError::SameTrace { .. }), "{error}");
}

/// The file of a table then has rows behind the last checkpoint, which no reader of Parquet can skip.
#[test]
fn an_unfinished_trace_is_read_in_place() {
    let folder = TempDir::new().expect("a temporary folder");
    let whole = generated(&folder, "whole", 3_000);
    let sizes = answer(std::slice::from_ref(&whole), "sizes");
    let header = whole.join("header.json");
    let text = std::fs::read_to_string(&header).expect("it was just written");
    let unfinished = text.replace("\"complete\": true", "\"complete\": false");
    assert_ne!(unfinished, text);
    std::fs::write(&header, unfinished).expect("it can be replaced");
    for table in ["requests.parquet", "runs.parquet", "events.parquet"] {
        let file = std::fs::File::options().append(true).open(whole.join(table));
        let mut file = file.expect("it is a file");
        std::io::Write::write_all(&mut file, &[0x5a; 100]).expect("the folder has room");
    }
    let session = Session::open(std::slice::from_ref(&whole), LIMITS).expect("its tables are as before");
    // Its recorder ends.
    std::fs::rename(&whole, folder.path().join("renamed.trace")).expect("it can be renamed");
    assert_eq!(run(&session, "sizes"), sizes);
}

#[test]
fn queries_read_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let session = Session::open(&[generated(&folder, "with [odd]% name", 100)], LIMITS).unwrap();
    let table = session
        .query("SELECT COUNT(*) AS requests FROM requests")
        .unwrap();
    assert!(table.value(0, "requests").and_then(Value::number).unwrap() >= 100.0);
    let target = folder.path().join("stolen.csv");
    for forbidden in [
        format!("COPY (SELECT 1) TO '{}'", target.display()),
        "CREATE TABLE t AS SELECT 1".to_owned(),
        "DROP VIEW io".to_owned(),
        "SET datafusion.execution.batch_size = 1".to_owned(),
        format!(
            "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{}'",
            target.display()
        ),
    ] {
        session.query(&forbidden).expect_err(&forbidden);
    }
    assert!(!target.exists());
    let error = session
        .query("SELECT bites FROM requests")
        .unwrap_err()
        .to_string();
    assert!(error.contains("bites") && error.contains("bytes"), "{error}");
}

#[test]
fn a_comparison_matches_rows_by_their_keys() {
    let folder = TempDir::new().unwrap();
    let first = [
        write_at(0, 8, 0, BlockType::Data),
        write_at(1, 16, 1, BlockType::Data),
    ];
    let second = [
        write_at(0, 8, 0, BlockType::Data),
        write_at(1, 800, 1, BlockType::InodeTable),
    ];
    let a = report_of(&[stored(folder.path(), "a", &first, &[])], &["classes"]);
    let b = report_of(&[stored(folder.path(), "b", &second, &[])], &["classes"]);
    let comparison = Comparison::of(&a, &b);
    let classes = comparison
        .tables
        .iter()
        .find(|table| table.name == "classes")
        .unwrap();
    let column = classes
        .columns
        .iter()
        .position(|column| column.name == "requests")
        .unwrap();
    let row = |class: &str| {
        let wanted = [Value::Text("write".to_owned()), Value::Text(class.to_owned())];
        classes.rows.iter().find(|row| row.key == wanted).unwrap().values[column]
    };
    assert_eq!(
        (row("data").first, row("data").second, row("data").change),
        (Some(2.0), Some(1.0), Some(0.5))
    );
    assert_eq!((row("metadata").first, row("metadata").change), (None, None));
    let text = comparison.to_text();
    assert!(text.contains("B/A") && text.contains("0.50"), "{text}");
}

#[test]
fn a_page_is_whole_in_itself_and_shows_what_a_trace_cannot_tell() {
    let folder = TempDir::new().unwrap();
    let of_file = file(5, "/<script>alert(1)</script>");
    let requests = [of_file(write_at(0, 8, 0, BlockType::Data))];
    let paths = [
        stored(folder.path(), "odd", &requests, &[]),
        generated(&folder, "phone", 300),
    ];
    let report = report_of(&paths, &["traces", "hot_files", "locality"]);
    let page = report.to_html();
    assert!(!page.contains("<script>alert"), "a path must not become a script");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(
            !page.contains(outside),
            "the page asks for something outside by {outside}"
        );
    }
    assert!(page.contains("no commands of the card: the trace is generated above the driver"));
    assert!(page.contains("prefers-color-scheme: dark"));
    let document: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(document["tables"][0]["name"], "traces");
    assert!(
        document["warnings"][0]
            .as_str()
            .unwrap()
            .contains("commands of the card")
    );
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing")] {
        let error = Session::open(std::slice::from_ref(&path), LIMITS)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
}
