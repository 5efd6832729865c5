//! `tidegate ubifs bench`: the figures are reproducible, the promises for an array are kept, and missed ones are reported.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ubifs", "bench", "--json"])
        .args(words)
        .output()
        .expect("the program starts")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// The lines of missed promises.
fn missed(output: &Output) -> Vec<Value> {
    let mut lines = lines(output);
    lines.retain(|line| line["missed"] == true);
    lines
}

const SMALL: [&str; 8] = [
    "--what",
    "throughput",
    "--cells",
    "mlc",
    "--size",
    "64m",
    "--total",
    "2m",
];

#[test]
fn small_and_large_records_are_as_fast_as_promised_and_each_time_the_same() {
    let words = [&SMALL[..], &["--records", "4k,1m", "--check"]].concat();
    let first = bench(&words);
    assert_eq!(missed(&first), Vec::<Value>::new());
    let errors = String::from_utf8_lossy(&first.stderr);
    assert_eq!(first.status.code(), Some(0), "{errors}");
    let rows = lines(&first);
    let workloads = rows.iter().filter(|row| row["what"] == "throughput");
    // Five workloads, two record sizes; one, two and four devices.
    assert_eq!(workloads.count(), 5 * 2 * 3);
    let judged = rows
        .iter()
        .filter(|row| row["what"] == "promise" && !row["worst"].is_null());
    assert_eq!(judged.count(), 3, "small writes, nothing slower, the limit");
    assert_eq!(
        lines(&bench(&words)),
        rows,
        "virtual time is the same on every machine and at every time"
    );
}

#[test]
fn mounts_and_applications_on_four_devices_are_as_fast_as_promised() {
    let mounts = bench(&[
        "--what",
        "mount",
        "--size",
        "1g",
        "--contents",
        "empty,files:200",
        "--devices",
        "4",
        "--check",
    ]);
    assert_eq!(missed(&mounts), Vec::<Value>::new());
    assert_eq!(
        mounts.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&mounts.stderr)
    );
    let applications = bench(&[
        "--what",
        "applications",
        "--devices",
        "2,4",
        "--scale",
        "0.03",
        "--check",
    ]);
    assert_eq!(missed(&applications), Vec::<Value>::new());
    assert_eq!(
        applications.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&applications.stderr)
    );
    let judged = lines(&applications);
    assert!(
        judged
            .iter()
            .all(|row| row["what"] != "promise" || !row["worst"].is_null())
    );
}

#[test]
fn impossible_benches_are_refused_with_the_reason() {
    for (words, reason) in [
        (&["--devices", "17"][..], "1 to 16 devices"),
        (&["--records", "0"], "a byte at least"),
        (&["--contents", "two:3"], "one:SIZE"),
        // The LEBs of eight TLC devices exceed the limit of UBIFS.
        (
            &[
                "--cells",
                "tlc",
                "--devices",
                "8",
                "--total",
                "4k",
                "--records",
                "4k",
                "--what",
                "throughput",
            ],
            "LEB size",
        ),
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(reason), "{words:?}: {errors}");
    }
}
