//! Programs that query a file between writes, as databases and logs do, still cause few writes to the source.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::harness::Mounted;

/// The program that writes and queries.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/looks.py");
/// Modes in which data stays in the buffer: no flush by time.
const MODES: [&[&str]; 3] = [
    &["--passthrough", "off", "--flush-interval", "30s"],
    &[
        "--passthrough",
        "off",
        "--flush-interval",
        "30s",
        "--flusher",
        "inline",
    ],
    &[
        "--passthrough",
        "off",
        "--flush-interval",
        "30s",
        "--direct-io",
        "off",
    ],
];

/// For each mode, the number of backing writes of the script and the file's content in the source. Empty if no mount is
/// possible.
fn backing_writes(look: &str) -> Vec<(u64, Vec<u8>)> {
    if Command::new("python3").arg("--version").output().is_err() {
        testkit::report_left_out("there is no python3");
        return Vec::new();
    }
    let run = |mode: &&[&str]| {
        let mounted = Mounted::start(mode)?;
        let mut script = Command::new("python3")
            .arg(SCRIPT)
            .arg(mounted.mountpoint().join("file"))
            .arg(look)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was there");
        let (input, output) = (script.stdin.take(), script.stdout.take());
        let (mut input, output) = input.zip(output).expect("both are pipes");
        for size in BufReader::new(output).lines() {
            let size = size.expect("the script prints numbers");
            let listed = Command::new("ls").arg("-l").arg(mounted.mountpoint()).output();
            let listed = String::from_utf8(listed.expect("ls runs").stdout).expect("a name in ASCII");
            assert!(
                listed.contains(&format!(" {size} ")),
                "{mode:?}: {size} bytes were written, the listing says {listed}"
            );
            writeln!(input).expect("the script reads");
        }
        let ended = script.wait().expect("a child of this process");
        assert!(ended.success(), "{mode:?}, {look}: {ended}");
        let count = mounted.stats()["buffer"]["backing_writes"].as_u64();
        let content = fs::read(mounted.source().join("file")).expect("a closed file is in the source");
        Some((count.expect("a count"), content))
    };
    MODES.iter().filter_map(run).collect()
}

#[test]
fn looks_between_writes_cost_no_backing_writes() {
    let records: Vec<u8> = (0..512_u32)
        .flat_map(|index| vec![u8::try_from(index % 251).expect("less than 251"); 4096])
        .collect();
    for (look, most) in [("fstat", 4), ("pread", 4), ("listing", 8)] {
        for (count, content) in backing_writes(look) {
            assert!(
                count <= most,
                "{look}: {count} backing writes, at most {most} are needed"
            );
            assert!(content == records, "{look}: wrong bytes in the source");
        }
    }
}

#[test]
fn a_log_with_a_look_after_each_line_costs_few_backing_writes() {
    for (count, content) in backing_writes("log") {
        assert!(count <= 4, "{count} backing writes for 5000 lines");
        assert_eq!(content.len(), 500_000);
    }
}

#[test]
fn times_that_were_told_stay() {
    for (_, content) in backing_writes("times") {
        assert_eq!(content.len(), 1000);
    }
}
