//! Writers: their output is read again by the crate's readers and accepted by the tools that define the formats.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use formats::export::{ForeignFormat, Target, create};
use formats::{BadLines, MemorySource, ReadOptions, Written, carry, open, open_reader, read_all};
use results::block_trace::{
    BLOCK_TRACE_SCHEMA, BlockTrace, BlockType, CaptureMethod, CauseQuality, DeviceNumber, Event, EventKind,
    IoMode, Operation, Process, Request, RequestFlags, Run, TraceHeader, TracedDevice,
};

const DEVICE: DeviceNumber = DeviceNumber { major: 8, minor: 0 };

fn process(pid: u32, name: &str) -> Option<Arc<Process>> {
    Some(Arc::new(Process {
        pid,
        tid: pid,
        name: name.into(),
        package: None,
    }))
}

fn request(id: u64, operation: Operation, sector: u64, bytes: u64) -> Request {
    let submitter = process(697, "my app");
    let run = Run {
        block_type: BlockType::Data,
        path: Some(format!("/dir/file {id}").into()),
        cause: submitter.clone(),
        cause_quality: CauseQuality::Submitter,
        ..Run::unknown(sector, bytes)
    };
    Request {
        id,
        device: DEVICE,
        sector,
        bytes,
        operation,
        flags: RequestFlags::SYNC,
        priority: None,
        queued_ns: Some(id * 10_000),
        inserted_ns: Some(id * 10_000 + 10),
        issued_ns: Some(id * 10_000 + 20),
        // Longer than the interval to the next request.
        completed_ns: Some(id * 10_000 + 25_000),
        status: Some(0),
        in_flight: Some(u32::try_from(id.min(2)).unwrap() + 1),
        hardware_queue: None,
        submitter,
        mode: IoMode::Unknown,
        command: None,
        runs: if bytes > 0 { vec![run] } else { Vec::new() },
    }
}

fn sample() -> BlockTrace {
    let mut requests = vec![
        request(0, Operation::Write, 2048, 8192),
        request(1, Operation::Read, 4096, 4096),
        request(2, Operation::Discard, 8192, 65_536),
        request(3, Operation::Write, 100, 512),
        request(4, Operation::Flush, 0, 0),
    ];
    requests[3].runs[0].block_type = BlockType::Journal;
    requests[3].runs[0].path = None;
    BlockTrace {
        header: TraceHeader {
            schema: BLOCK_TRACE_SCHEMA,
            source: "a test".to_owned(),
            method: CaptureMethod::Import,
            host: None,
            start_realtime_ns: None,
            duration_ns: 65_000,
            devices: vec![TracedDevice {
                device: DEVICE,
                name: "sda".to_owned(),
                sectors: None,
                file_system: None,
                scheduler: None,
            }],
            limitations: Vec::new(),
            lost_records: 0,
            refused: 0,
            ring_was_tight: false,
            complete: true,
        },
        requests,
        events: vec![Event {
            time_ns: 15_000,
            kind: EventKind::Unlink,
            process: None,
            file: None,
            path: Some("/dir/gone".into()),
            name: None,
            value: 0,
        }],
    }
}

fn write_to(trace: &BlockTrace, format: ForeignFormat, path: &Path) -> Written {
    let sink = create(Target::File(path.to_owned()), format).unwrap();
    carry(&mut MemorySource::new(trace.clone()), sink, |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// The output as bytes; checks that no partial file remains.
fn written(format: ForeignFormat) -> (Vec<u8>, Written) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let written = write_to(&sample(), format, &path);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    (fs::read(&path).unwrap(), written)
}

fn read_again(format: ForeignFormat) -> BlockTrace {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Refuse,
    };
    let (bytes, _) = written(format);
    let mut source = open_reader(Box::new(Cursor::new(bytes)), Path::new("x"), options).unwrap();
    read_all(&mut *source).unwrap()
}

/// The parts of a request that block tracer text preserves: operation, sectors, times, process.
type Step = (Operation, u64, u64, [Option<u64>; 4], Option<u32>);

fn steps(trace: &BlockTrace) -> Vec<Step> {
    let of = |request: &Request| {
        let times = [
            request.queued_ns,
            request.inserted_ns,
            request.issued_ns,
            request.completed_ns,
        ];
        let pid = request.submitter.as_ref().map(|process| process.pid);
        (request.operation, request.sector, request.bytes, times, pid)
    };
    trace.requests.iter().map(of).collect()
}

#[test]
fn text_of_blkparse_is_in_the_order_of_time_and_read_again() {
    let (bytes, written) = written(ForeignFormat::Blkparse);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), 20);
    assert_eq!(
        text.lines().next(),
        Some("    8,0  0        1     0.000000000   697  Q  WS 2048 + 16 [my app]")
    );
    let times: Vec<&str> = text
        .lines()
        .map(|line| line.split_ascii_whitespace().nth(3).unwrap())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(steps(&read_again(ForeignFormat::Blkparse)), steps(&sample()));
    assert_eq!(written.left_out["events that are no requests"], 1);
    assert_eq!(written.left_out["files behind requests"], 3);
}

#[test]
fn text_of_most_keeps_types_paths_and_processes() {
    let trace = read_again(ForeignFormat::Most);
    let owners = |trace: &BlockTrace| -> Vec<_> {
        let runs = trace.requests.iter().filter_map(|request| request.runs.first());
        runs.map(|run| (run.block_type, run.path.clone())).collect()
    };
    assert_eq!(owners(&trace), owners(&sample()));
    let sectors: Vec<_> = steps(&trace)
        .iter()
        .map(|step| (step.0, step.1, step.2, step.3))
        .collect();
    let expected: Vec<_> = steps(&sample())
        .iter()
        .map(|step| (step.0, step.1, step.2, step.3))
        .collect();
    assert_eq!(sectors, expected);
}

#[test]
fn json_lines_hold_everything() {
    let (bytes, written) = written(ForeignFormat::JsonLines);
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["format"], "tidegate.block-trace");
    let pick = |key: &str| {
        lines
            .iter()
            .filter_map(|line| line.get(key).cloned())
            .collect::<Vec<_>>()
    };
    let requests: Vec<Request> = pick("request")
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
    let events: Vec<Event> = pick("event")
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
    let header: TraceHeader = serde_json::from_value(pick("header").remove(0)).unwrap();
    assert_eq!(
        BlockTrace {
            header,
            requests,
            events
        },
        sample()
    );
    assert_eq!((written.requests, written.events), (5, 1));
}

#[test]
fn logs_of_fio_keep_order_places_and_times() {
    let (bytes, _) = written(ForeignFormat::FioIolog3);
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        "fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n0 /dev/sda write 1048576 8192\n\
         10 /dev/sda read 2097152 4096\n20 /dev/sda trim 4194304 65536\n30 /dev/sda write 51200 512\n\
         40 /dev/sda sync 0 0\n40 /dev/sda close\n"
    );
    for format in [ForeignFormat::FioIolog2, ForeignFormat::FioIolog3] {
        let seen: Vec<_> = steps(&read_again(format))
            .iter()
            .map(|step| (step.0, step.1, step.2, step.3[0]))
            .collect();
        let expected: Vec<_> = steps(&sample())
            .iter()
            .map(|step| (step.0, step.1, step.2, step.3[0]))
            .collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn fio_replays_the_log_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let medium = folder.path().join("medium");
    fs::File::create(&medium).unwrap().set_len(8 << 20).unwrap();
    let mut trace = sample();
    trace.header.devices[0].name = medium.display().to_string();
    for format in [ForeignFormat::FioIolog2, ForeignFormat::FioIolog3] {
        let log = folder.path().join(format.word());
        write_to(&trace, format, &log);
        let fio = Command::new("fio")
            .args([
                "--name=replay",
                "--ioengine=psync",
                "--output-format=json",
                "--rw=randrw",
            ])
            .arg(format!("--read_iolog={}", log.display()))
            .output();
        let Ok(output) = fio else {
            testkit::report_left_out("fio is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let json = text.get(text.find('{').unwrap()..).unwrap();
        let document: serde_json::Value = serde_json::from_str(json).unwrap();
        let job = &document["jobs"][0];
        assert_eq!(job["write"]["io_bytes"], 8192 + 512, "{format}");
        assert_eq!(job["read"]["io_bytes"], 4096, "{format}");
    }
}

/// Fields of a message: numbers and bytes by field number. Accepts only encodings that the writer may produce.
fn fields(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field<'_>>> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7F) << shift;
            if first & 0x80 == 0 {
                return value;
            }
        }
        unreachable!()
    }
    let mut fields: BTreeMap<u64, Vec<Field<'_>>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.entry(key >> 3).or_default().push(value);
    }
    fields
}

#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> u64 {
        let Self::Number(number) = self else {
            panic!("{self:?} is no number")
        };
        number
    }

    fn bytes(self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else {
            panic!("{self:?} is no message")
        };
        bytes
    }
}

#[test]
fn slices_of_perfetto_nest_on_every_track_and_tell_what_they_are() {
    let (bytes, written) = written(ForeignFormat::Perfetto);
    assert_eq!((written.requests, written.events), (5, 1));
    let mut names = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut slices, mut counters, mut instants, mut annotated) = (0, 0, 0, 0);
    for packet in &fields(&bytes)[&1] {
        let packet = fields(packet.bytes());
        assert_eq!(packet[&10][0].number(), 1, "all are of one sequence");
        if let Some(track) = packet.get(&60) {
            let track = fields(track[0].bytes());
            names.insert(
                track[&1][0].number(),
                String::from_utf8(track[&2][0].bytes().to_vec()).unwrap(),
            );
            continue;
        }
        let time = packet[&8][0].number();
        let event = fields(packet[&11][0].bytes());
        let track = event[&11][0].number();
        assert!(names.contains_key(&track), "track {track} has no name");
        let stack = open.entry(track).or_default();
        let previous = last.insert(track, time).unwrap_or(0);
        match event[&9][0].number() {
            1 => {
                assert!(previous <= time, "slices of a lane follow each other");
                stack.push(String::from_utf8(event[&23][0].bytes().to_vec()).unwrap());
                slices += 1;
                annotated += usize::from(event.get(&4).is_some_and(|all| all.len() > 4));
            }
            2 => assert!(
                stack.pop().is_some() && previous <= time,
                "a slice ends that never began"
            ),
            3 => instants += 1,
            4 => counters += 1,
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    assert_eq!((slices, instants, counters, annotated), (10, 1, 5, 5));
    let names: Vec<&str> = names.values().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "files and journal",
            "sda",
            "in flight",
            "lane 0",
            "lane 1",
            "lane 2"
        ]
    );
}

/// Every pair of a real tool's steps: blkparse itself checks our readers, on a binary trace made here.
#[test]
fn our_reading_of_blkparse_s_own_text_is_what_was_traced() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("t");
    fs::write(folder.path().join("t.blktrace.0"), blktrace_file()).unwrap();
    let Ok(output) = Command::new("blkparse").arg("-i").arg(&base).output() else {
        testkit::report_left_out("blkparse is not installed");
        return;
    };
    let text = folder.path().join("t.txt");
    fs::write(&text, &output.stdout).unwrap();
    let trace = read_path(&text);
    assert_eq!(
        steps(&trace),
        expected_of_blktrace(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let name = trace.requests[0].submitter.as_ref().unwrap();
    assert_eq!(&*name.name, "my app");
}

#[test]
fn binary_records_are_read_as_blkparse_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("t.blktrace.0");
    fs::write(&one, blktrace_file()).unwrap();
    let trace = read_path(&one);
    assert_eq!(steps(&trace), expected_of_blktrace());
    assert_eq!(&*trace.requests[0].submitter.as_ref().unwrap().name, "my app");
    // By the common name of the processors' files, with the steps divided between two of them.
    let file = blktrace_file();
    let (head, records) = file.split_at(48 + 16);
    let mut files = [head.to_vec(), Vec::new()];
    for (index, record) in records.chunks(48).enumerate() {
        files[index % 2].extend(record);
    }
    fs::write(&one, &files[0]).unwrap();
    fs::write(folder.path().join("t.blktrace.1"), &files[1]).unwrap();
    assert_eq!(
        steps(&read_path(&folder.path().join("t"))),
        expected_of_blktrace()
    );
    // With the last record truncated.
    fs::write(folder.path().join("u.blktrace.0"), &file[..file.len() - 5]).unwrap();
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Skip,
    };
    let mut source = open(&folder.path().join("u.blktrace.0"), options).unwrap();
    let cut = read_all(&mut *source).unwrap();
    assert!(!cut.header.complete);
    assert_eq!(cut.requests.len(), 3);
    assert_eq!(source.skipped().unwrap().first[0].found, "43 bytes at the end");
    fs::write(
        folder.path().join("v.blktrace.0"),
        [file.as_slice(), b"nonsense"].concat(),
    )
    .unwrap();
    let strict = ReadOptions {
        bad_lines: BadLines::Refuse,
        ..options
    };
    let error = read_all(&mut *open(&folder.path().join("v"), strict).unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("byte 544: expected a record of 48 bytes, found 8 bytes at the end"),
        "{error}"
    );
}

#[test]
fn damaged_binary_records_are_never_a_panic() {
    let good = blktrace_file();
    for place in 0..good.len() {
        for bit in [0, 4, 7] {
            let mut bytes = good.clone();
            bytes[place] ^= 1 << bit;
            let options = ReadOptions {
                format: None,
                bad_lines: BadLines::Skip,
            };
            if let Ok(mut source) = open_reader(Box::new(Cursor::new(bytes)), Path::new("x"), options) {
                let _ = read_all(&mut *source);
            }
        }
    }
}

#[test]
fn json_lines_are_read_as_they_were() {
    assert_eq!(read_again(ForeignFormat::JsonLines), sample());
}

fn read_path(path: &Path) -> BlockTrace {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Refuse,
    };
    read_all(&mut *open(path, options).unwrap()).unwrap()
}

fn expected_of_blktrace() -> Vec<Step> {
    vec![
        (
            Operation::Write,
            2048,
            8192,
            [Some(0), Some(100), Some(200), Some(900)],
            Some(697),
        ),
        (
            Operation::Read,
            4096,
            4096,
            [Some(300), None, Some(400), Some(500)],
            Some(697),
        ),
        (
            Operation::Discard,
            8192,
            4096,
            [Some(600), None, Some(650), Some(700)],
            Some(697),
        ),
    ]
}

/// One processor's file of blktrace: `struct blk_io_trace` of 48 bytes for each step, little-endian, version 7.
fn blktrace_file() -> Vec<u8> {
    const MAGIC: u32 = 0x6561_7407;
    const READ: u32 = 1;
    const WRITE: u32 = 1 << 1;
    const SYNC: u32 = 1 << 3;
    const QUEUE: u32 = 1 << 4;
    const ISSUE: u32 = 1 << 6;
    const COMPLETE: u32 = 1 << 7;
    const FS: u32 = 1 << 8;
    const NOTIFY: u32 = 1 << 10;
    const DISCARD: u32 = 1 << 13;
    let mut file = Vec::new();
    let mut record =
        |sequence: u32, time: u64, sector: u64, bytes: u32, action: u32, pid: u32, extra: &[u8]| {
            file.extend(MAGIC.to_le_bytes());
            file.extend(sequence.to_le_bytes());
            file.extend(time.to_le_bytes());
            file.extend(sector.to_le_bytes());
            file.extend(bytes.to_le_bytes());
            file.extend(action.to_le_bytes());
            file.extend(pid.to_le_bytes());
            file.extend((8_u32 << 20).to_le_bytes());
            file.extend(0_u32.to_le_bytes());
            file.extend(0_u16.to_le_bytes());
            file.extend(u16::try_from(extra.len()).unwrap().to_le_bytes());
            file.extend(extra);
        };
    // Process names precede their first step as messages.
    record(0, 0, 0, 0, NOTIFY << 16, 697, b"my app\0\0\0\0\0\0\0\0\0\0");
    let base = 5_000_000_000;
    let steps: [(u64, u64, u32, u32, u32); 10] = [
        (0, 2048, 8192, 1, WRITE | SYNC | QUEUE),
        (100, 2048, 8192, 12, WRITE | SYNC | QUEUE),
        (200, 2048, 8192, 7, WRITE | SYNC | ISSUE),
        (300, 4096, 4096, 1, READ | QUEUE),
        (400, 4096, 4096, 7, READ | ISSUE),
        (500, 4096, 4096, 8, READ | COMPLETE),
        (600, 8192, 4096, 1, WRITE | DISCARD | QUEUE),
        (650, 8192, 4096, 7, WRITE | DISCARD | ISSUE),
        (700, 8192, 4096, 8, WRITE | DISCARD | COMPLETE),
        (900, 2048, 8192, 8, WRITE | SYNC | COMPLETE),
    ];
    for (index, (time, sector, bytes, action, category)) in steps.into_iter().enumerate() {
        let sequence = u32::try_from(index).unwrap() + 1;
        record(
            sequence,
            base + time,
            sector,
            bytes,
            action | (category | FS) << 16,
            697,
            &[],
        );
    }
    file
}
