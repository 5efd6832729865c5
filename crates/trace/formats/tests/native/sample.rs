//! A small trace with a value in every field, and functions to write and read it.

use std::path::Path;
use std::sync::Arc;

use formats::native::{Existing, NativeReader, NativeWriter, TraceId};
use formats::read_all;
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, BlockType, CaptureMethod, CauseQuality, DeviceNumber, DriverCommand,
    Event, EventKind, FileIdentity, IoMode, IoPriority, Limitation, Operation, Process, Request,
    RequestFlags, Run, TraceHeader, TracedDevice,
};

pub const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

pub fn header() -> TraceHeader {
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
        refused: 0,
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

/// A request in which all fields have different values.
pub fn full_request(id: u64) -> Request {
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
            bytes: Some(14),
            tag: Some(15),
            waits_busy: true,
            issued_ns: Some(16),
            completed_ns: Some(17),
            status: Some(18),
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
                one_of_names: true,
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

pub fn sample(requests: u64) -> BlockTrace {
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

pub fn write(trace: &BlockTrace, path: &Path) {
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

pub fn read(path: &Path) -> BlockTrace {
    read_all(&mut NativeReader::open(path).unwrap()).unwrap()
}
