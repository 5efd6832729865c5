//! Appended writes go to the end of the host's file, whatever offset the caller gives.

use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use passfs::PassConfig;
use vfs::{FileSystem, OpenFlags, Privileges, WriteMode};

use crate::source::{PLAIN, Source, write_mode};

fn mode(flags: i32) -> WriteMode {
    WriteMode {
        flags: OpenFlags(libc::O_RDWR | flags),
        ..write_mode(Privileges::Keep)
    }
}

#[test]
fn an_appended_write_goes_to_the_end_whatever_its_offset() {
    let source = Source::new();
    let (entry, handle) = source.create("log");
    let write = |offset, data: &[u8], mode| source.fs.write(entry.ino, handle, offset, data, mode);
    let content = || std::fs::read_to_string(source.path("log")).unwrap();
    std::fs::write(source.path("log"), "host").unwrap();
    for (offset, flags) in [(0, 0), (1 << 40, 0), (4, libc::O_DSYNC), (0, libc::O_SYNC)] {
        let before = content();
        assert_eq!(write(offset, b"+mount", mode(libc::O_APPEND | flags)), Ok(6));
        assert_eq!(content(), before + "+mount");
    }
    let pages = WriteMode {
        from_page_cache: true,
        ..mode(libc::O_APPEND)
    };
    assert_eq!(write(0, b"page", pages), Ok(4));
    assert_eq!(content(), "page+mount+mount+mount+mount", "a page has its place");
    assert_eq!(
        write(0, b"PAGE", mode(0)),
        Ok(4),
        "O_APPEND was taken off the descriptor"
    );
    assert_eq!(content(), "PAGE+mount+mount+mount+mount");
}

#[test]
fn lines_of_the_host_and_of_several_appenders_are_all_there_and_whole() {
    const LINES: usize = 500;
    let source = Source::new();
    let (entry, handle) = source.create("log");
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        for (who, flags) in [("a", 0), ("b", libc::O_DSYNC)] {
            let (source, start) = (&source, &start);
            scope.spawn(move || {
                start.wait();
                for line in 0..LINES {
                    let line = format!("{who} {line}\n");
                    // The guess of a caller that has not queried the file since it was empty.
                    let written = source.fs.write(
                        entry.ino,
                        handle,
                        0,
                        line.as_bytes(),
                        mode(libc::O_APPEND | flags),
                    );
                    assert_eq!(written, Ok(line.len()));
                }
            });
        }
        start.wait();
        let mut host = std::fs::OpenOptions::new()
            .append(true)
            .open(source.path("log"))
            .unwrap();
        for line in 0..LINES {
            host.write_all(format!("host {line}\n").as_bytes()).unwrap();
        }
    });
    let content = std::fs::read_to_string(source.path("log")).unwrap();
    for who in ["a", "b", "host"] {
        let of_one = content.lines().filter(|line| line.starts_with(who));
        let in_order = of_one
            .zip(0..LINES)
            .filter(|(line, number)| *line == format!("{who} {number}"));
        assert_eq!(in_order.count(), LINES, "lines of {who}");
    }
    assert_eq!(content.lines().count(), 3 * LINES);
}

/// A long appended write is not split into pieces that another appender's data could separate.
#[test]
fn a_long_appended_stream_stays_whole_beside_another_appender() {
    const MIB: usize = 1 << 20;
    const RECORDS: usize = 24;
    let done = AtomicBool::new(false);
    let source = Source::with(PassConfig {
        stream_direct_after_bytes: Some(1 << 20),
        ..PLAIN
    });
    let (entry, handle) = source.create("log");
    let mut room = vec![0; 3 * MIB];
    let aligned = room.as_ptr().addr().next_multiple_of(4096) - room.as_ptr().addr();
    let record = &mut room[aligned..aligned + MIB + 4096];
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            let mut host = std::fs::OpenOptions::new()
                .append(true)
                .open(source.path("log"))
                .unwrap();
            // Bounded, in case an assertion below fails.
            for _ in 0..10_000 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                host.write_all(&[b'h'; 4096]).unwrap();
            }
        });
        start.wait();
        for number in 0..RECORDS {
            let byte = b'A' + u8::try_from(number).unwrap();
            // Odd lengths leave a tail that direct I/O can't write.
            let length = MIB + (number % 3) * 100;
            record[..length].fill(byte);
            let end = std::fs::metadata(source.path("log")).unwrap().len();
            let written = source
                .fs
                .write(entry.ino, handle, end, &record[..length], mode(libc::O_APPEND));
            assert_eq!(written, Ok(length));
        }
        done.store(true, Ordering::Relaxed);
    });
    let content = std::fs::read(source.path("log")).unwrap();
    let mut at = 0;
    let mut records = 0;
    while at < content.len() {
        let byte = content[at];
        let run = content[at..].iter().take_while(|found| **found == byte).count();
        if byte == b'h' {
            assert_eq!(run % 4096, 0, "at {at}");
        } else {
            let number = usize::from(byte - b'A');
            assert_eq!(run, MIB + (number % 3) * 100, "record {number} at {at}");
            records += 1;
        }
        at += run;
    }
    assert_eq!(records, RECORDS);
}
