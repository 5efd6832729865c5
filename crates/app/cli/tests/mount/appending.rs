//! Concurrent appends to one log, by a program on the source and one on the mount: every line of both is kept, complete.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Barrier;

use crate::harness::Mounted;

const LINES: usize = 300;

const MODES: [&[&str]; 8] = [
    &[],
    &["--passthrough", "off"],
    &["--passthrough", "off", "--flusher", "inline"],
    &["--passthrough", "off", "--flusher", "off"],
    &["--passthrough", "off", "--direct-io", "on"],
    &["--passthrough", "off", "--direct-io", "off"],
    &["--passthrough", "off", "--writeback", "on"],
    &["--passthrough", "off", "--writeback", "on", "--flusher", "off"],
];

/// Appends [`LINES`] lines of different lengths, one write per line.
fn append_lines(log: &Path, who: &str, before_each: impl Fn()) {
    let mut file = OpenOptions::new().append(true).open(log).unwrap();
    for number in 0..LINES {
        before_each();
        file.write_all(line(who, number).as_bytes()).unwrap();
    }
}

fn line(who: &str, number: usize) -> String {
    format!("{who} {number} {}\n", "x".repeat(number % 90))
}

/// Number of lines of `who` that are present in order and complete.
fn lines_kept(content: &str, who: &str) -> usize {
    let of_one = content
        .split_inclusive('\n')
        .filter(|found| found.starts_with(who));
    of_one
        .zip(0..)
        .take_while(|(found, number)| *found == line(who, *number))
        .count()
}

fn check(mounted: &Mounted, mode: &[&str]) {
    let (source, seen) = (mounted.source().join("log"), mounted.mountpoint().join("log"));
    let content = fs::read_to_string(&source).unwrap();
    for who in ["host", "mount"] {
        assert_eq!(
            lines_kept(&content, who),
            LINES,
            "lines of {who} in mode {mode:?}"
        );
    }
    assert_eq!(content.lines().count(), 2 * LINES, "lines in mode {mode:?}");
    if mode.contains(&"--writeback") {
        // The kernel uses its own file size: docs/reference/semantics.md.
        return;
    }
    // One more write through the mount invalidates the attributes and the page cache.
    let mut file = OpenOptions::new().append(true).open(&seen).unwrap();
    file.write_all(b"last\n").unwrap();
    drop(file);
    let through_the_mount = fs::read_to_string(&seen).unwrap();
    assert!(
        through_the_mount == content + "last\n",
        "content through the mount in mode {mode:?}"
    );
}

#[test]
fn two_programs_on_the_source_and_the_mount_append_at_once_and_lose_nothing() {
    for mode in MODES {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        fs::write(mounted.source().join("log"), "").unwrap();
        let start = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                append_lines(&mounted.source().join("log"), "host", || {});
            });
            start.wait();
            append_lines(&mounted.mountpoint().join("log"), "mount", || {});
        });
        check(&mounted, mode);
    }
}

/// The kernel's file size is outdated before each line.
#[test]
fn lines_appended_in_turns_on_the_source_and_the_mount_are_all_kept() {
    for mode in MODES {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        fs::write(mounted.source().join("log"), "").unwrap();
        let turn = Barrier::new(2);
        let in_turns = || {
            turn.wait();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| append_lines(&mounted.source().join("log"), "host", in_turns));
            append_lines(&mounted.mountpoint().join("log"), "mount", in_turns);
        });
        check(&mounted, mode);
    }
}

/// Dirty pages in the kernel's cache extend beyond the end of the source's file; an appended line must follow them.
#[test]
fn a_line_appended_behind_pages_that_are_not_written_back_comes_behind_them() {
    for mode in MODES {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        let path = mounted.mountpoint().join("file");
        // The data fills whole pages, so that no dirty page overlaps the appended line.
        let data = vec![b'd'; 8 << 20];
        let mut writer = fs::File::create(&path).unwrap();
        writer.write_all(&data).unwrap();
        let mut appender = OpenOptions::new().append(true).open(&path).unwrap();
        appender.write_all(b"behind\n").unwrap();
        drop((writer, appender));
        let content = fs::read(mounted.source().join("file")).unwrap();
        assert!(
            content == [&data[..], b"behind\n"].concat(),
            "in mode {mode:?}, {} bytes",
            content.len()
        );
    }
}
