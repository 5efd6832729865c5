//! `tidegate demo` with small files: its output files and its results.

use std::process::Command;

#[test]
fn a_demo_leaves_its_report_and_its_records_and_nothing_else() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let directory = folder.path().join("out");
    let (report, picture) = (directory.join("demo.html"), directory.join("demo.svg"));
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--rounds", "3", "--size", "32m", "--report"])
        .args([&report, &directory])
        .arg("--svg")
        .arg(&picture)
        .output()
        .expect("the binary runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("native"), "{table}");
    assert!(
        table.contains("64 (computed)"),
        "native has as many writes as records: {table}"
    );
    if !messages.contains("left out") {
        // The write counts of the paper's table 3 for 32 MiB: one write per 4 KiB, per record, per buffer entry.
        for line in ["fuse-4k", "fuse-512k", "bfuse-8m"] {
            assert!(table.contains(line), "{table}");
        }
        assert!(table.contains("8,192"), "{table}");
    }
    let mut left: Vec<_> = std::fs::read_dir(&directory)
        .expect("it is there")
        .map(|entry| {
            entry
                .expect("it is there")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    left.sort();
    assert_eq!(left, ["demo.html", "demo.jsonl", "demo.svg"]);
    let picture = std::fs::read_to_string(picture).expect("a picture");
    assert!(
        picture.starts_with("<svg xmlns=") && !picture.contains("var("),
        "{picture}"
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    assert!(!mounts.contains(directory.to_str().expect("UTF-8")), "{mounts}");
}
