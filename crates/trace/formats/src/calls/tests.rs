//! Tests each format on a sample of its real output, and all of them on arbitrary input.

use std::collections::BTreeMap;

use results::call_trace::{Action, Layer, Outcome};

use super::*;

const MOBIGEN: &str = include_str!("../../tests/traces/mobigen.txt");
const STRACE: &str = include_str!("../../tests/traces/strace.txt");
const IOLOG_2: &str = include_str!("../../tests/traces/fio-iolog-2.txt");
const IOLOG_3: &str = include_str!("../../tests/traces/fio-iolog-3.txt");
const BLKPARSE: &str = include_str!("../../tests/traces/blkparse.txt");

const SAMPLES: [(Format, &str); 5] = [
    (Format::Mobigen, MOBIGEN),
    (Format::Strace, STRACE),
    (Format::FioIolog, IOLOG_2),
    (Format::FioIolog, IOLOG_3),
    (Format::Blkparse, BLKPARSE),
];

fn read(format: Format, text: &str) -> Trace {
    parse(text.as_bytes(), Path::new("sample"), format, ReadOptions::USUAL).unwrap()
}

fn counts(trace: &Trace) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for call in &trace.calls {
        *counts.entry(call.action.kind()).or_default() += 1;
    }
    counts
}

fn error(format: Format, text: &str) -> String {
    let found = parse(text.as_bytes(), Path::new("x.txt"), format, ReadOptions::USUAL);
    found.unwrap_err().to_string()
}

#[test]
fn each_sample_is_recognised() {
    for (format, text) in SAMPLES {
        assert_eq!(detect(text.as_bytes()), Some(format));
    }
    assert_eq!(
        detect(br#"{"schema":"tidegate.calls/1","layer":"block"}"#),
        Some(Format::Calls)
    );
    for text in ["", "hello\nworld\n", "\u{7f}ELF", "1 2 3 4 5\n"] {
        assert_eq!(detect(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn names_of_formats_are_read_back() {
    for (format, word, _) in words() {
        assert_eq!((word.parse(), format.to_string()), (Ok(format), word.to_owned()));
    }
    let message = "tar".parse::<Format>().unwrap_err();
    assert_eq!(
        message,
        "`tar` is none of calls, mobigen, strace, fio-iolog, blkparse, block-trace, blktrace, jsonl, most, biotracer, \
         msr, alibaba, pixel-csv, ftrace"
    );
}

#[test]
fn a_mobigen_script_is_counted_in_full() {
    let trace = read(Format::Mobigen, MOBIGEN);
    assert_eq!(
        (trace.layer, trace.origin.as_str()),
        (Layer::SystemCalls, "Mobibench script")
    );
    let expected = [
        ("access", 1),
        ("close", 2),
        ("fstat", 1),
        ("fsync", 1),
        ("open", 3),
        ("pread", 1),
        ("pwrite", 2),
        ("read", 1),
        ("stat", 2),
        ("unlink", 1),
        ("write", 1),
    ];
    assert_eq!(counts(&trace), BTreeMap::from(expected));
    let skipped: u64 = trace.skipped.values().sum();
    let entries = MOBIGEN.lines().count();
    assert_eq!(
        trace.calls.len() + usize::try_from(skipped).unwrap(),
        entries,
        "{:?}",
        trace.skipped
    );
    assert_eq!(trace.calls[0].at_ns, 1_378_000);
    let missing = trace
        .calls
        .iter()
        .filter(|call| call.outcome == Outcome::Failed(libc::ENOENT));
    assert_eq!(missing.count(), 2);
    let pwrite = trace.calls.iter().find_map(|call| match call.action {
        Action::WriteAt { offset, bytes, .. } => Some((offset, bytes)),
        _ => None,
    });
    assert_eq!(pwrite, Some((0, 4096)));
}

#[test]
fn pipes_in_a_mobigen_script_are_replayed_when_asked_for() {
    let options = ReadOptions {
        ipc: Ipc::AsFiles,
        ..ReadOptions::USUAL
    };
    let trace = parse(MOBIGEN.as_bytes(), Path::new("x"), Format::Mobigen, options).unwrap();
    assert_eq!(counts(&trace)["write"], 4);
}

#[test]
fn strace_output_is_followed_through_forks_dups_and_unfinished_calls() {
    let trace = read(Format::Strace, STRACE);
    let expected = [
        ("access", 1),
        ("close", 6),
        ("copy", 1),
        ("dup", 1),
        ("fdatasync", 1),
        ("fstat", 1),
        ("lseek", 1),
        ("mkdir", 1),
        ("open", 5),
        ("pread", 1),
        ("pwrite", 1),
        ("read", 2),
        ("rename", 1),
        ("stat", 1),
        ("unlink", 1),
        ("write", 3),
    ];
    assert_eq!(counts(&trace), BTreeMap::from(expected), "{:?}", trace.skipped);
    for reason in [
        "socket",
        "pipe",
        "event counter",
        "mmap of a file: what programs do to mapped memory is no system call",
    ] {
        assert!(
            trace.skipped.contains_key(reason),
            "{reason}: {:?}",
            trace.skipped
        );
    }
    let names: Vec<&Path> = trace.names().collect();
    for path in ["etc/ld.so.cache", "data/app/rel", "data/a\"b", "data/app/sub/at"] {
        assert!(names.contains(&Path::new(path)), "{path}: {names:?}");
    }
    let first = trace.calls[0];
    assert_eq!(
        (first.action.kind(), first.outcome),
        ("access", Outcome::Failed(libc::ENOENT))
    );
    assert_eq!(first.recorded_duration_ns, Some(4000));
    assert!(trace.calls.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

#[test]
fn fio_logs_of_both_versions_have_files_times_and_bytes() {
    let two = read(Format::FioIolog, IOLOG_2);
    assert_eq!(two.origin, "fio iolog version 2");
    assert_eq!(two.calls.last().unwrap().at_ns, 1_500_000);
    assert_eq!(counts(&two)["fallocate"], 1);
    let three = read(Format::FioIolog, IOLOG_3);
    let expected = [
        ("close", 1),
        ("fdatasync", 1),
        ("fsync", 1),
        ("open", 1),
        ("pread", 3),
        ("pwrite", 2),
    ];
    assert_eq!(counts(&three), BTreeMap::from(expected));
    assert_eq!(three.calls[0].at_ns, 119_000);
}

#[test]
fn blkparse_output_gives_issued_requests_with_response_times() {
    let trace = read(Format::Blkparse, BLKPARSE);
    assert_eq!(trace.layer, Layer::Block);
    let expected = [
        ("block-discard", 1),
        ("block-flush", 1),
        ("block-read", 1),
        ("block-write", 2),
    ];
    assert_eq!(counts(&trace), BTreeMap::from(expected));
    let read = trace
        .calls
        .iter()
        .find(|call| matches!(call.action, Action::BlockRead { .. }))
        .unwrap();
    assert_eq!(read.recorded_duration_ns, Some(400_000));
    assert_eq!(
        read.action,
        Action::BlockRead {
            offset: 2048 * 512,
            bytes: 8 * 512
        }
    );
}

#[test]
fn errors_name_file_line_expected_and_found() {
    for (format, text, expected) in [
        (
            Format::Mobigen,
            "1 0 access x 0\n1 zero write 3 4\n",
            "x.txt, line 2: expected microseconds, found `1 zero write 3 4`",
        ),
        (
            Format::Mobigen,
            "1 5 mmap 3 4\n",
            "x.txt, line 1: expected one of the calls open, close",
        ),
        (
            Format::Mobigen,
            "1 5 write 3 -9\n",
            "expected a size or answer of at least 0 in `write`",
        ),
        (
            Format::FioIolog,
            "fio version 9 iolog\n",
            "expected `fio version 2 iolog` or `fio version 3 iolog`",
        ),
        (
            Format::FioIolog,
            "fio version 2 iolog\n/x add\n/x jump\n",
            "line 3: expected add, open or close, found `/x jump`",
        ),
        (Format::Strace, "nothing\nhere\n", "expected output of strace"),
        (Format::Blkparse, "CPU0 (8,0):\n", "expected an event of blkparse"),
        (Format::Calls, "{}\n", "x.txt, line 1: expected tidegate.calls/1"),
    ] {
        let message = error(format, text);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn calls_beyond_the_limit_are_counted() {
    let options = ReadOptions {
        calls_max: 2,
        ..ReadOptions::USUAL
    };
    let trace = parse(IOLOG_3.as_bytes(), Path::new("x"), Format::FioIolog, options).unwrap();
    assert_eq!(trace.calls.len(), 2);
    assert_eq!(trace.skipped.values().sum::<u64>(), 7);
}

fn read_text(text: &str, format: Option<Format>) -> Trace {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    assert_eq!(
        format_of(file.path(), None).unwrap(),
        Format::Block(None),
        "told by its content"
    );
    read_trace(file.path(), format, ReadOptions::USUAL).unwrap()
}

/// Two requests of the Nexus 5: a write, and a read to which the driver added a sector.
const BIOTRACER: &str = "4220896\t\t8\t\t4096\t\t5\t\t1398406382.756832267\t\t1398406382.757233725\t\t1398406382.757241486\t\t1398406382.757950028\n\
                         49592392\t\t17\t\t8704\t\t0\t\t1398406382.762147944\t\t1398406382.762182267\t\t1398406382.762199194\t\t1398406382.763593934\n";

#[test]
fn requests_of_biotracer_are_made_when_the_driver_took_them() {
    for format in [None, Some(Format::Block(Some(crate::Format::Biotracer)))] {
        let trace = read_text(BIOTRACER, format);
        assert_eq!(trace.layer, Layer::Block);
        let seen: Vec<_> = trace.calls.iter().map(|call| (call.at_ns, call.action)).collect();
        assert_eq!(
            seen,
            [
                (
                    0,
                    Action::BlockWrite {
                        offset: 4_220_896 * 512,
                        bytes: 4096
                    }
                ),
                (
                    4_948_542,
                    Action::BlockRead {
                        offset: 49_592_392 * 512,
                        bytes: 8192
                    }
                ),
            ]
        );
        assert_eq!(trace.calls[0].recorded_duration_ns, Some(716_303));
    }
}

#[test]
fn requests_of_the_pixel_traces_keep_their_threads_and_one_device() {
    let text = "proces,device,rw_flag,sector,size,timestamp\r\n\
                dmd-1151,8388608,W,93897440,1024,44186.011543\r\n\
                kworker/0:0H-5,8388608,R,47866368,16,44186.02139\r\n\
                other-7,8388624,R,8,8,44186.03\r\n\
                broken\r\n";
    let trace = read_text(text, None);
    let seen: Vec<_> = trace
        .calls
        .iter()
        .map(|call| (call.thread, call.at_ns, call.action))
        .collect();
    assert_eq!(
        seen,
        [
            (
                1151,
                0,
                Action::BlockWrite {
                    offset: 93_897_440 * 512,
                    bytes: 1 << 19
                }
            ),
            (
                5,
                9_847_000,
                Action::BlockRead {
                    offset: 47_866_368 * 512,
                    bytes: 8192
                }
            ),
        ]
    );
    let skipped: Vec<_> = trace
        .skipped
        .iter()
        .map(|(reason, count)| (reason.as_str(), *count))
        .collect();
    assert_eq!(
        skipped,
        [
            ("line that can't be read", 1),
            ("request of another device than the first one's", 1)
        ]
    );
}
