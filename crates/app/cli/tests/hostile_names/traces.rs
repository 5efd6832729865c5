//! Names in traces of other people.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::run;
use super::support::shown::{TEXT, WORD, assert_harmless, assert_text_is_harmless};

const BLKPARSE: &str = include_str!("../../../../trace/formats/tests/traces/blkparse.txt");

/// Puts the name into each place of a trace that a name can have.
fn made_hostile(line: &str) -> String {
    let mut line: Value = serde_json::from_str(line).expect("it was written as JSON");
    let process = |process: &mut Value| {
        if process.is_object() {
            process["name"] = json!(TEXT);
            process["package"] = json!(TEXT);
        }
    };
    if let Some(request) = line.get_mut("request") {
        process(&mut request["submitter"]);
        for run in request["runs"].as_array_mut().into_iter().flatten() {
            run["path"] = json!(TEXT);
            run["detail"] = json!(TEXT);
            run["block_type"] = json!("data");
            process(&mut run["cause"]);
        }
    }
    if let Some(header) = line.get_mut("header") {
        header["source"] = json!(TEXT);
        header["limitations"] = json!([{ "what": TEXT, "why": TEXT }]);
        for device in header["devices"].as_array_mut().into_iter().flatten() {
            device["name"] = json!(TEXT);
            device["scheduler"] = json!(TEXT);
            device["file_system"] = json!([TEXT, TEXT]);
        }
    }
    line.to_string()
}

#[test]
fn a_trace_is_shown_and_converted_with_escaped_names() {
    let folder = TempDir::new().expect("possible on this host");
    fs::write(folder.path().join("good.txt"), BLKPARSE).expect("made");
    let made = run(folder.path(), "trace convert good.txt good.jsonl");
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let good = fs::read_to_string(folder.path().join("good.jsonl")).expect("it was made");
    let mut lines = good.lines();
    let mut hostile = vec![lines.next().expect("a first line").to_owned()];
    hostile.extend(lines.map(made_hostile));
    fs::write(folder.path().join("t.jsonl"), hostile.join("\n") + "\n").expect("made");
    let native = run(folder.path(), "trace convert t.jsonl t.trace --json");
    let told = assert_harmless("to native", &native);
    assert_eq!(native.status.code(), Some(0), "{told}");
    for input in ["t.jsonl", "t.trace"] {
        for words in ["trace info INPUT", "trace info INPUT --json", "inspect INPUT"] {
            let shown = assert_harmless(words, &run(folder.path(), &words.replace("INPUT", input)));
            assert!(
                shown.contains(WORD) || words.starts_with("inspect"),
                "{words}: {shown}"
            );
        }
        for to in ["blkparse", "most", "fio", "fio2", "jsonl"] {
            let words = format!("trace convert {input} - --to {to}");
            let shown = assert_harmless(&words, &run(folder.path(), &words));
            assert!(shown.contains(WORD), "{words}: {shown}");
        }
        let perfetto = run(folder.path(), &format!("trace convert {input} {input}.pftrace"));
        assert_harmless("to Perfetto", &perfetto);
        assert_eq!(perfetto.status.code(), Some(0), "{perfetto:?}");
    }
    // A document is the same one afterwards.
    let again = run(folder.path(), "trace convert t.trace - --to jsonl");
    let text = String::from_utf8(again.stdout).expect("checked above");
    let names = |text: &str| {
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let runs = lines.filter_map(|line| line["request"]["runs"][0]["path"].as_str().map(str::to_owned));
        runs.filter(|path| path == TEXT).count()
    };
    assert!(
        names(&text) > 0 && names(&text) == names(&hostile.join("\n")),
        "{text}"
    );
}

#[test]
fn lines_that_can_t_be_read_are_told_escaped() {
    let folder = TempDir::new().expect("possible on this host");
    let bad = format!("{BLKPARSE}{TEXT}\n  8,0 {TEXT}\n{BLKPARSE}");
    fs::write(folder.path().join("bad.txt"), bad).expect("made");
    for words in [
        "trace info bad.txt",
        "trace info bad.txt --json",
        "trace info bad.txt --strict",
        "trace convert bad.txt - --to blkparse",
        "trace convert bad.txt out.trace --json",
        "trace info bad.txt --from ftrace",
        "bench job --check bad.txt",
        "emmc run --card bad.txt --size 256k",
        "bench show bad.txt",
        "inspect bad.txt",
    ] {
        assert_harmless(words, &run(folder.path(), words));
    }
    // As the name of the trace itself.
    fs::write(folder.path().join(TEXT), BLKPARSE).expect("made");
    for (before, after) in [("info", &[][..]), ("convert", &["bad.txt/out.trace"])] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["trace", before, TEXT])
            .args(after)
            .current_dir(folder.path())
            .output()
            .expect("the program runs");
        assert_text_is_harmless(before, &output.stdout);
        assert_text_is_harmless(before, &output.stderr);
    }
}
