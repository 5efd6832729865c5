//! `tidegate trace convert` and `trace info` as programs: output streams, exit codes, and a round trip through all formats.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const TRACE: &str = "\
8,0 0 1 0.000000001 5 Q W 1000 + 16 [my app]
8,0 0 2 0.000000003 5 D W 1000 + 16 [my app]
8,0 0 3 0.000000005 0 C W 1000 + 16 [0]
8,0 0 4 0.000000007 5 Q R 3000 + 8 [my app]
8,0 0 5 0.000000008 5 D R 3000 + 8 [my app]
8,0 0 6 0.000000009 0 C R 3000 + 8 [0]
";

fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder)
        .arg("trace")
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn a_trace_goes_through_all_formats_and_back() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), TRACE).unwrap();
    let mut from = "a.txt";
    for to in [
        "b.trace",
        "c.blkparse",
        "d.jsonl",
        "e.po",
        "f.trace",
        "g.iolog",
        "h.iolog2",
        "i.trace",
    ] {
        let converted = tidegate(folder.path(), &["convert", from, to, "--json"]);
        assert_eq!(
            converted.status.code(),
            Some(0),
            "{from} to {to}: {}",
            text(&converted.stderr)
        );
        assert_eq!(json(&converted)["requests"], 2, "{from} to {to}");
        from = to;
    }
    let info = tidegate(folder.path(), &["info", "b.trace", "--json"]);
    let document = json(&info);
    assert_eq!(document["counts"]["requests"], 2);
    assert_eq!(document["header"]["source"], "a.txt (blkparse)");
    let info = text(&tidegate(folder.path(), &["info", "i.trace"]).stdout);
    assert!(
        info.contains("requests     2\n") && info.contains("not told"),
        "{info}"
    );
    let perfetto = tidegate(folder.path(), &["convert", "b.trace", "x.pftrace"]);
    assert_eq!(perfetto.status.code(), Some(0));
    assert!(text(&perfetto.stderr).contains("2 requests and 0 events in x.pftrace"));
}

#[test]
fn streams_go_in_and_out_and_messages_stay_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder.path())
        .args(["trace", "convert", "-", "-", "--to", "jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(TRACE.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let lines: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 4, "head, two requests, header");
    assert!(text(&output.stderr).contains("missing in the source: files"));
}

#[test]
fn a_device_is_written_to_without_force() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), TRACE).unwrap();
    let output = tidegate(folder.path(), &["convert", "a.txt", "/dev/null", "--to", "jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn impossible_conversions_are_refused_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), TRACE).unwrap();
    fs::write(folder.path().join("bad.txt"), format!("{TRACE}nonsense\n")).unwrap();
    fs::write(folder.path().join("other.txt"), "hello\n").unwrap();
    fs::write(folder.path().join("there.po"), "mine").unwrap();
    for (arguments, expected) in [
        (
            &["convert", "other.txt", "x.trace"][..],
            "no known format of traces",
        ),
        (
            &["convert", "a.txt", "x.what"][..],
            "the name does not tell the format",
        ),
        (&["convert", "a.txt", "there.po"][..], "exists already"),
        (
            &["convert", "a.txt", "-", "--to", "native"][..],
            "is a folder and can't go to standard output",
        ),
        (
            &["convert", "bad.txt", "x.po", "--strict"][..],
            "bad.txt, line 7: expected an event of blkparse",
        ),
        (&["info", "nowhere.trace"][..], "nowhere.trace"),
    ] {
        let output = tidegate(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(expected),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    assert_eq!(fs::read(folder.path().join("there.po")).unwrap(), b"mine");
    assert!(!folder.path().join("x.trace").exists() && !folder.path().join("x.po").exists());
    // Without --strict the bad line is skipped and reported.
    let output = tidegate(folder.path(), &["convert", "bad.txt", "there.po", "--force"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("line 7: expected an event of blkparse"),
        "{}",
        text(&output.stderr)
    );
}
