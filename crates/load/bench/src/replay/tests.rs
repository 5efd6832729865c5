//! Tests of complete replays: the resulting files, the counts, and the order of calls.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use results::call_trace::{Action, Handle, Layer, OpenFlags, Outcome, Trace};

use formats::calls::{Format, ReadOptions, detect, parse, words};

use super::*;
use crate::Measurement;
use crate::order::mixed;
use crate::progress::NoProgress;

fn spec(directory: &Path) -> ReplaySpec {
    ReplaySpec {
        directory: directory.to_owned(),
        speed: Speed::AsFastAsPossible,
        direct: DirectIo::AsTraced,
        cache: Cache::AsIs,
        seed: 1,
        keep_files: true,
    }
}

fn replayed(trace: &Trace, spec: &ReplaySpec) -> ReplayOutcome {
    run(trace, spec, &NoProgress, &AtomicBool::new(false)).unwrap()
}

fn open(trace: &mut Trace, thread: u32, path: &str, flags: OpenFlags) -> Handle {
    let (name, handle) = (trace.name(Path::new(path)), trace.new_handle());
    push(trace, thread, Action::Open { name, handle, flags });
    handle
}

/// Each call is a microsecond after the previous one.
fn push(trace: &mut Trace, thread: u32, action: Action) {
    let at_ns = u64::try_from(trace.calls.len()).unwrap() * 1000;
    trace.push(thread, at_ns, action);
}

fn count(outcome: &ReplayOutcome, kind: &str) -> u64 {
    outcome.kinds.get(kind).map_or(0, |kind| kind.count)
}

#[test]
fn a_database_like_trace_leaves_its_files_and_is_counted_call_by_call() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let database = open(&mut trace, 1, "/data/app/db", OpenFlags::READ_WRITE.creating());
    push(
        &mut trace,
        1,
        Action::ReadAt {
            handle: database,
            bytes: 100,
            offset: 24,
        },
    );
    let journal = open(
        &mut trace,
        1,
        "/data/app/db-journal",
        OpenFlags::READ_WRITE.creating(),
    );
    push(
        &mut trace,
        1,
        Action::Write {
            handle: journal,
            bytes: 512,
        },
    );
    push(
        &mut trace,
        1,
        Action::Write {
            handle: journal,
            bytes: 4096,
        },
    );
    push(&mut trace, 1, Action::Fdatasync { handle: journal });
    push(
        &mut trace,
        1,
        Action::WriteAt {
            handle: database,
            bytes: 4096,
            offset: 8192,
        },
    );
    push(&mut trace, 1, Action::Fsync { handle: database });
    push(&mut trace, 1, Action::Close { handle: journal });
    let (from, to) = (
        trace.name(Path::new("/data/app/db-journal")),
        trace.name(Path::new("/old")),
    );
    push(&mut trace, 1, Action::Rename { from, to });
    push(&mut trace, 1, Action::Close { handle: database });
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.notes(), Vec::<String>::new());
    assert!(outcome.complete);
    let kept = outcome.kept_directory.clone().unwrap();
    assert_eq!(fs::metadata(kept.join("data/app/db")).unwrap().len(), 8192 + 4096);
    assert_eq!(fs::metadata(kept.join("old")).unwrap().len(), 512 + 4096);
    assert!(!kept.join("data/app/db-journal").exists());
    for (kind, expected) in [
        ("open", 2),
        ("pread", 1),
        ("write", 2),
        ("pwrite", 1),
        ("fsync", 1),
        ("close", 2),
    ] {
        assert_eq!(count(&outcome, kind), expected, "{kind}");
    }
    assert_eq!(outcome.moved(), (100, 512 + 4096 + 4096));
    assert_eq!(outcome.response().count(), 11);
}

#[test]
fn a_run_leaves_nothing_behind_unless_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    open(&mut trace, 1, "../../escape", OpenFlags::WRITE.creating());
    let outcome = replayed(
        &trace,
        &ReplaySpec {
            keep_files: false,
            ..spec(directory.path())
        },
    );
    assert_eq!((outcome.kept_directory, outcome.leftover), (None, None));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn threads_keep_the_order_of_descriptors_and_positions() {
    const ROUNDS: u32 = 200;
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    for round in 0..ROUNDS {
        // Opened, written in turn and closed by three different threads; the third removes it.
        let path = format!("f{}", round % 3);
        let handle = open(&mut trace, 1, &path, OpenFlags::READ_WRITE.creating());
        for thread in [2, 3, 1, 2] {
            push(&mut trace, thread, Action::Write { handle, bytes: 10 });
        }
        let (offset, bytes) = (0, 40);
        push(
            &mut trace,
            1,
            Action::ReadAt {
                handle,
                bytes,
                offset,
            },
        );
        push(&mut trace, 2, Action::Close { handle });
        let name = trace.name(Path::new(&path));
        push(&mut trace, 3, Action::Unlink { name });
    }
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.threads, 3);
    assert_eq!(count(&outcome, "unlink"), u64::from(ROUNDS));
    // The reads wait only for the open, not for the writes of other threads.
    assert_eq!(outcome.unexpected, std::collections::BTreeMap::new());
    assert_eq!(outcome.left_out, std::collections::BTreeMap::new());
}

#[test]
fn errors_of_the_trace_are_expected_and_others_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let (missing, made) = (trace.name(Path::new("missing")), trace.name(Path::new("made")));
    push(&mut trace, 1, Action::Stat { name: missing });
    trace.calls.last_mut().unwrap().outcome = Outcome::Failed(libc::ENOENT);
    push(&mut trace, 1, Action::MakeDirectory { name: made });
    push(&mut trace, 1, Action::MakeDirectory { name: made });
    push(&mut trace, 1, Action::Unlink { name: missing });
    trace.calls.last_mut().unwrap().outcome = Outcome::Failed(libc::EACCES);
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.expected_errors, 1);
    let notes = outcome.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].contains("1 mkdir answered otherwise than in the trace: File exists"),
        "{notes:?}"
    );
}

#[test]
fn calls_on_a_descriptor_that_is_not_open_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let handle = trace.new_handle();
    push(&mut trace, 1, Action::Read { handle, bytes: 1 });
    push(&mut trace, 1, Action::Close { handle: Handle(77) });
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.left_out.values().sum::<u64>(), 2);
    assert_eq!(outcome.response().count(), 0);
}

#[test]
fn a_short_read_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let handle = open(&mut trace, 1, "a", OpenFlags::READ_WRITE.creating().truncating());
    push(&mut trace, 1, Action::Read { handle, bytes: 10 });
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.short_transfers, 1);
}

#[test]
fn block_requests_work_on_one_image() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::Block, "test");
    push(
        &mut trace,
        1,
        Action::BlockWrite {
            offset: 4096,
            bytes: 8192,
        },
    );
    push(
        &mut trace,
        1,
        Action::BlockRead {
            offset: 1 << 20,
            bytes: 4096,
        },
    );
    push(
        &mut trace,
        1,
        Action::BlockDiscard {
            offset: 4096,
            bytes: 4096,
        },
    );
    push(&mut trace, 1, Action::BlockFlush);
    let outcome = replayed(&trace, &spec(directory.path()));
    assert!(outcome.unexpected.is_empty(), "{:?}", outcome.unexpected);
    let image = outcome.kept_directory.clone().unwrap().join("image");
    assert_eq!(fs::metadata(image).unwrap().len(), (1 << 20) + 4096);
    assert_eq!(outcome.moved(), (4096, 8192));
}

#[test]
fn real_time_keeps_the_pace_of_the_trace_and_scaling_changes_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let name = trace.name(Path::new("a"));
    for step in 0..4 {
        trace.push(
            step % 2,
            5_000_000_000 + u64::from(step) * 20_000_000,
            Action::Stat { name },
        );
    }
    for (factor, least_ns) in [(1.0, 60_000_000), (2.0, 30_000_000)] {
        let speed = Speed::Scaled(factor);
        let outcome = replayed(
            &trace,
            &ReplaySpec {
                speed,
                ..spec(directory.path())
            },
        );
        assert!(
            outcome.elapsed_ns >= least_ns,
            "{factor}: {} ns",
            outcome.elapsed_ns
        );
        assert_eq!(outcome.lateness.count(), 4);
    }
    let outcome = replayed(&trace, &spec(directory.path()));
    assert_eq!(outcome.lateness.count(), 0);
}

#[test]
fn a_raised_flag_ends_a_sleeping_replay_with_a_partial_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "test");
    let name = trace.name(Path::new("a"));
    trace.push(1, 0, Action::Stat { name });
    trace.push(1, 3_600_000_000_000, Action::Stat { name });
    let stop = AtomicBool::new(false);
    let spec = ReplaySpec {
        speed: Speed::REAL_TIME,
        ..spec(directory.path())
    };
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| run(&trace, &spec, &NoProgress, &stop).unwrap());
        while fs::read_dir(directory.path()).unwrap().count() == 0 {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap()
    });
    assert!(!outcome.complete && outcome.response().count() <= 1);
}

#[test]
fn traces_that_cannot_be_replayed_are_refused_before_anything_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let mut empty = Trace::new(Layer::SystemCalls, "test");
    empty.skip("mmap");
    let mut unordered = Trace::new(Layer::Block, "test");
    unordered.push(1, 5, Action::BlockFlush);
    unordered.push(1, 4, Action::BlockFlush);
    let mut mixed = Trace::new(Layer::SystemCalls, "test");
    mixed.push(1, 0, Action::BlockFlush);
    for (trace, expected) in [
        (
            empty,
            "trace: no call that can be replayed; 1 entries were left out",
        ),
        (unordered, "trace: call 1 starts before the one that precedes it"),
        (
            mixed,
            "trace: call 0 is not of the layer `system calls, above the page cache`",
        ),
    ] {
        let error = run(
            &trace,
            &spec(directory.path()),
            &NoProgress,
            &AtomicBool::new(false),
        );
        assert_eq!(error.unwrap_err().to_string(), expected);
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_record_says_the_layer_and_what_was_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = Trace::new(Layer::SystemCalls, "strace");
    trace.skip_many("mmap of a file", 3);
    open(&mut trace, 1, "a", OpenFlags::WRITE.creating());
    let outcome = replayed(&trace, &spec(directory.path()));
    let identity = results::RunIdentity {
        command: Vec::new(),
        tool_version: String::new(),
        label: "run".to_owned(),
        round: 0,
        host: runner::environment::host(),
        target: runner::environment::target(directory.path()).unwrap(),
    };
    let record = outcome.into_record(identity).unwrap();
    assert_eq!(record.workload["layer"], "system_calls");
    assert_eq!(record.workload["skipped"]["mmap of a file"], 3);
    assert!((record.counters["skipped_count"] - 3.0).abs() < f64::EPSILON);
    assert_eq!(record.sample("open").unwrap().operations_count, 1);
    assert!(record.complete);
}

#[test]
fn speeds_are_named_as_in_the_help_text() {
    for (text, speed) in [
        ("asap", Speed::AsFastAsPossible),
        ("real", Speed::Scaled(1.0)),
        ("10", Speed::Scaled(10.0)),
        ("x0.5", Speed::Scaled(0.5)),
    ] {
        assert_eq!(text.parse(), Ok(speed), "{text}");
    }
    for text in [
        "", "x", "0", "x0", "-1", "x-1", "inf", "xinf", "2x", "xNaN", "fast",
    ] {
        text.parse::<Speed>().expect_err(text);
    }
}

const SAMPLES: [(Format, &str); 5] = [
    (
        Format::Mobigen,
        include_str!("../../../../trace/formats/tests/traces/mobigen.txt"),
    ),
    (
        Format::Strace,
        include_str!("../../../../trace/formats/tests/traces/strace.txt"),
    ),
    (
        Format::FioIolog,
        include_str!("../../../../trace/formats/tests/traces/fio-iolog-2.txt"),
    ),
    (
        Format::FioIolog,
        include_str!("../../../../trace/formats/tests/traces/fio-iolog-3.txt"),
    ),
    (
        Format::Blkparse,
        include_str!("../../../../trace/formats/tests/traces/blkparse.txt"),
    ),
];

/// Samples with bytes changed, cut, duplicated and concatenated, and plain noise: the parser returns a result or an
/// error.
#[test]
fn no_trace_panics_in_reader_or_plan() {
    let pieces = [
        "<unfinished ...>",
        "\"",
        "(",
        ")",
        "<",
        ">",
        "=",
        "-1",
        "\\",
        "[pid 5]",
        "99999999999999999999",
        ",",
        "{",
    ];
    for (format, text) in SAMPLES {
        for seed in 0..400_u64 {
            let mut bytes = text.as_bytes().to_vec();
            let random = |step: u64| usize::try_from(mixed(seed * 1000 + step) >> 33).unwrap();
            for step in 0..1 + seed % 20 {
                let place = random(step * 5) % (bytes.len() + 1);
                match random(step * 5 + 1) % 4 {
                    0 => bytes.truncate(place.max(1)),
                    1 => {
                        let piece = pieces[random(step * 5 + 2) % pieces.len()];
                        bytes.splice(place..place, piece.bytes());
                    }
                    2 => {
                        let value = u8::try_from(random(step * 5 + 3) % 256).unwrap();
                        let place = place.min(bytes.len() - 1);
                        bytes[place] = value;
                    }
                    _ => {
                        let end = (place + random(step * 5 + 4) % 200).min(bytes.len());
                        bytes.drain(place..end);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(b'\n');
                }
            }
            for (other, _, _) in words() {
                let answer = parse(bytes.as_slice(), Path::new("x"), other, ReadOptions::USUAL);
                if let Ok(trace) = &answer
                    && other == format
                {
                    Plan::of(trace).unwrap();
                }
            }
            let _ = detect(&bytes);
        }
    }
}
