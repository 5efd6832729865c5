//! The native form from outside: what is written is read again, interrupted writers leave what they had, and damage is named.
#![cfg(feature = "native")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use formats::native::{Existing, NativeReader, NativeWriteError, NativeWriter, TraceId, schema};
use formats::{MemorySource, TraceItem, TraceSource, read_all};
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, BlockType, CaptureMethod, CauseQuality, DeviceNumber, DriverCommand,
    Event, EventKind, FileIdentity, IoMode, IoPriority, Limitation, Operation, Process, Request,
    RequestFlags, Run, TraceHeader, TracedDevice,
};

const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

fn header() -> TraceHeader {
    TraceHeader {
        schema: BLOCK_TRACE_SCHEMA,
        source: "a test".to_owned(),
        method: CaptureMethod::Bpf,
        host: None,
        start_realtime_ns: Some(1_700_000_000_123_456_789),
        duration_ns: 5_000_000,
        devices: vec![TracedDevice {
            device: DEVICE,
            name: "mmcblk0".to_owned(),
            sectors: Some(61_071_360),
            file_system: Some(("ext4".to_owned(), "/data".to_owned())),
            scheduler: None,
        }],
        limitations: vec![Limitation {
            what: "insert times".to_owned(),
            why: "the device has no scheduler".to_owned(),
        }],
        lost_records: 3,
        ring_was_tight: true,
        complete: true,
    }
}

fn process(pid: u32, name: &str) -> Arc<Process> {
    Arc::new(Process {
        pid,
        tid: pid + 1,
        name: name.into(),
        package: (pid.is_multiple_of(2)).then(|| format!("org.example.{name}").into()),
    })
}

/// A request whose every field differs from every other one.
fn full_request(id: u64) -> Request {
    Request {
        id,
        device: DEVICE,
        sector: 1000 + id * 64,
        bytes: 8192,
        operation: Operation::Write,
        flags: RequestFlags::SYNC
            .with(RequestFlags::FUA)
            .with(RequestFlags::POLLED),
        priority: Some(IoPriority { class: 2, level: 4 }),
        queued_ns: Some(id * 1000 + 1),
        inserted_ns: Some(id * 1000 + 2),
        issued_ns: Some(id * 1000 + 3),
        completed_ns: Some(id * 1000 + 4),
        status: Some(5),
        in_flight: Some(u32::MAX),
        hardware_queue: Some(7),
        submitter: Some(process(10, "kworker")),
        mode: IoMode::Writeback,
        command: Some(DriverCommand {
            code: 25,
            argument: 0xFFFF_FFFF,
            packed_requests: 11,
            retries: 12,
            interrupts: 13,
        }),
        runs: vec![
            Run {
                sector: 1000 + id * 64,
                bytes: 4096,
                block_type: BlockType::Journal,
                detail: Some("handle: unlink".into()),
                file: Some(FileIdentity {
                    file_system: DeviceNumber { major: 0, minor: 44 },
                    inode: 1 << 40,
                    generation: u32::MAX,
                }),
                path: Some("/data/a b/\\xff.db".into()),
                deleted: true,
                file_offset: Some(21),
                home_sector: Some(22),
                transaction: Some(23),
                cause: Some(process(31, "GCMReader")),
                cause_quality: CauseQuality::Transaction,
                dirtied_ns: Some(24),
            },
            Run::unknown(1008 + id * 64, 4096),
        ],
    }
}

fn empty_request(id: u64) -> Request {
    Request {
        id,
        device: DEVICE,
        sector: 0,
        bytes: 0,
        operation: Operation::Flush,
        flags: RequestFlags::default(),
        priority: None,
        queued_ns: None,
        inserted_ns: None,
        issued_ns: Some(id * 1000),
        completed_ns: None,
        status: None,
        in_flight: None,
        hardware_queue: None,
        submitter: None,
        mode: IoMode::Unknown,
        command: None,
        runs: Vec::new(),
    }
}

fn sample(requests: u64) -> BlockTrace {
    let request = |id| {
        if id % 3 == 2 {
            empty_request(id)
        } else {
            full_request(id)
        }
    };
    BlockTrace {
        header: header(),
        requests: (0..requests).map(request).collect(),
        events: vec![
            Event {
                time_ns: 0,
                kind: EventKind::Unlink,
                process: Some(process(42, "sqlite")),
                file: Some(FileIdentity {
                    file_system: DEVICE,
                    inode: 43,
                    generation: 44,
                }),
                path: Some("/x.db-journal".into()),
                name: Some("n".into()),
                value: 45,
            },
            Event {
                time_ns: 1_000_000_000_000,
                kind: EventKind::Lost,
                process: None,
                file: None,
                path: None,
                name: None,
                value: 3,
            },
        ],
    }
}

fn write(trace: &BlockTrace, path: &Path) {
    let mut writer =
        NativeWriter::create(path, TraceId::from_text("t-1"), &trace.header, Existing::Refuse).unwrap();
    for request in &trace.requests {
        writer.request(request).unwrap();
    }
    for event in &trace.events {
        writer.event(event).unwrap();
    }
    writer.finish(&trace.header).unwrap();
}

fn read(path: &Path) -> BlockTrace {
    read_all(&mut NativeReader::open(path).unwrap()).unwrap()
}

#[test]
fn what_is_written_is_read_again_to_the_last_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    // More than one batch of rows.
    let trace = sample(20_000);
    write(&trace, &path);
    assert_eq!(read(&path), trace);
    assert_eq!(read(&path.join("runs.parquet")), trace, "a table names its trace");
    let reader = NativeReader::open(&path).unwrap();
    assert_eq!(reader.stored_header().counts, reader.counts());
    assert_eq!(reader.counts().requests, 20_000);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing partial is left"
    );
}

#[test]
fn a_trace_without_anything_in_it_is_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.trace");
    let trace = BlockTrace {
        events: Vec::new(),
        ..sample(0)
    };
    write(&trace, &path);
    assert_eq!(read(&path), trace);
}

#[test]
fn events_stand_among_the_requests_by_their_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let trace = sample(2);
    write(&trace, &path);
    let mut kinds = [Vec::new(), Vec::new()];
    let mut native = NativeReader::open(&path).unwrap();
    let mut memory = MemorySource::new(trace);
    let sources: [&mut dyn TraceSource; 2] = [&mut native, &mut memory];
    for (source, kinds) in sources.into_iter().zip(&mut kinds) {
        while let Some(item) = source.next_item().unwrap() {
            kinds.push(matches!(item, TraceItem::Event(_)));
        }
    }
    assert_eq!(kinds[0], [true, false, false, true]);
    assert_eq!(kinds[0], kinds[1]);
}

#[test]
fn a_writer_that_is_dropped_leaves_a_partial_trace_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer =
        NativeWriter::create(&path, TraceId::from_text("t"), &header(), Existing::Refuse).unwrap();
    writer.request(&full_request(4)).unwrap();
    let partial = writer.partial_path().to_owned();
    drop(writer);
    assert!(!path.exists());
    let kept = read(&partial);
    assert_eq!(kept.requests, [full_request(4)]);
    assert!(!kept.header.complete);
}

#[test]
fn an_existing_trace_is_replaced_only_when_asked_and_nothing_else_ever() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(5), &path);
    let create =
        |path: &Path, existing| NativeWriter::create(path, TraceId::from_text("t"), &header(), existing);
    assert!(matches!(
        create(&path, Existing::Refuse),
        Err(NativeWriteError::Exists { .. })
    ));
    assert_eq!(read(&path).requests.len(), 5);
    // With a slash at its end, as shells complete names of folders.
    let with_slash = PathBuf::from(format!("{}/", path.display()));
    create(&with_slash, Existing::Replace)
        .unwrap()
        .finish(&header())
        .unwrap();
    assert_eq!(read(&path).requests.len(), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let other = folder.path().join("photos");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("cat.jpg"), "cat").unwrap();
    let refused = create(&other, Existing::Replace).unwrap_err();
    assert!(
        refused.to_string().contains("is no trace and is not replaced"),
        "{refused}"
    );
    assert!(other.join("cat.jpg").exists());
}

#[test]
fn a_number_too_large_refuses_its_request_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let mut writer =
        NativeWriter::create(&path, TraceId::from_text("t"), &header(), Existing::Refuse).unwrap();
    let mut huge = full_request(0);
    huge.runs[1].file_offset = Some(u64::MAX);
    let error = writer.request(&huge).unwrap_err();
    assert_eq!(
        error.to_string(),
        "request 0: file_offset is 18446744073709551615, expected at most 2^63 - 1"
    );
    writer.request(&full_request(1)).unwrap();
    let order = writer.request(&full_request(1)).unwrap_err();
    assert!(matches!(order, NativeWriteError::Order { id: 1, last: 1 }));
    writer.finish(&header()).unwrap();
    assert_eq!(read(&path).requests, [full_request(1)]);
}

fn error_of(path: &Path) -> String {
    match NativeReader::open(path) {
        Err(error) => error.to_string(),
        Ok(mut reader) => read_all(&mut reader).unwrap_err().to_string(),
    }
}

#[test]
fn a_trace_that_is_none_or_not_whole_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    assert!(error_of(&path).contains("is no native trace: expected a folder with header.json"));
    write(&sample(5), &path);
    let header_path = path.join("header.json");
    let good = fs::read_to_string(&header_path).unwrap();

    fs::write(&header_path, good.replace("\"schema\": 1", "\"schema\": 9")).unwrap();
    let error = error_of(&path);
    assert!(
        error.contains("found tidegate.block-trace of schema 9"),
        "{error}"
    );
    fs::write(&header_path, "{").unwrap();
    assert!(error_of(&path).contains("no header of a trace"));
    fs::write(&header_path, good).unwrap();

    let requests = path.join("requests.parquet");
    let whole = fs::read(&requests).unwrap();
    fs::write(&requests, &whole[..whole.len() - 10]).unwrap();
    let error = error_of(&path);
    assert!(
        error.contains("requests.parquet: cannot read the table"),
        "{error}"
    );
    // A table of another trace: its runs belong to nobody here.
    fs::write(&requests, &whole).unwrap();
    let other = folder.path().join("b.trace");
    write(&sample(9), &other);
    fs::copy(other.join("runs.parquet"), path.join("runs.parquet")).unwrap();
    let error = error_of(&path);
    assert!(
        error.contains("runs.parquet, row") && error.contains("request_id"),
        "{error}"
    );
}

/// Each byte of a table's footer is damaged in turn: an answer comes, whatever it is.
#[test]
fn damaged_footers_and_headers_are_errors_or_other_values_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(3), &path);
    for name in ["requests.parquet", "runs.parquet", "header.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let footer_bytes = match good.last_chunk::<8>() {
            Some([a, b, c, d, b'P', b'A', b'R', b'1']) => {
                usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap() + 8
            }
            _ => good.len(),
        };
        for place in (good.len() - footer_bytes..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[place] ^= 0x41;
            fs::write(&file, &bad).unwrap();
            if let Ok(mut reader) = NativeReader::open(&path) {
                let _ = read_all(&mut reader);
            }
        }
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(read(&path), sample(3));
}

#[test]
fn the_document_lists_the_columns_as_they_are() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/block-trace.md");
    let document = fs::read_to_string(document).unwrap();
    let documented: Vec<[&str; 3]> = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            Some([cells.next()?.trim_matches('`'), cells.next()?, cells.next()?])
        })
        .filter(|[_, _, presence]| ["yes", ""].contains(presence))
        .filter(|[_, kind, _]| ["boolean", "int32", "int64", "text"].contains(kind))
        .collect();
    let columns = schema::REQUEST_COLUMNS
        .iter()
        .chain(&schema::RUN_COLUMNS)
        .chain(&schema::EVENT_COLUMNS);
    let real: Vec<[&str; 3]> = columns
        .map(|column| {
            let kind = match column.kind {
                schema::ColumnKind::Boolean => "boolean",
                schema::ColumnKind::Int32 => "int32",
                schema::ColumnKind::Int64 => "int64",
                schema::ColumnKind::Text => "text",
            };
            let presence = match column.presence {
                schema::Presence::Always => "yes",
                schema::Presence::WhereKnown => "",
            };
            [column.name, kind, presence]
        })
        .collect();
    assert_eq!(documented, real);
}
