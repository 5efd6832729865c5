//! Ten minutes of all operations of fsstress on a file system on an attached card. Runs only with `TIDEGATE_FULL`, if
//! `XFSTESTS_DIR` names a folder with a built xfstests.

use std::env;
use std::process::Command;

use crate::bed::{Bed, device_of, must, system, text};

#[test]
#[expect(clippy::print_stderr, reason = "the figures of a long run")]
fn ext4_is_clean_after_ten_minutes_of_fsstress() {
    if testkit::left_to_full("ten minutes of fsstress") {
        return;
    }
    if env::var_os("XFSTESTS_DIR").is_none() {
        testkit::report_left_out("XFSTESTS_DIR names no folder in which xfstests is built");
        return;
    }
    let Some(bed) = Bed::make() else { return };
    let report = bed.done("attach", &["--size", "1g", "--cache", "on", "--json"]);
    let device = device_of(&serde_json::from_str(&report).unwrap());
    must("mkfs.ext4", &["-q", "-F", &device]);
    bed.mount(&device);
    let output = Command::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../scripts/judges/external.sh"
    ))
    .args(["fsstress", &bed.path("mounted")])
    .output()
    .unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && said.contains("passes"), "{said}");
    bed.unmount();
    let stats = bed.stats(&device);
    for counter in ["writes_count", "reads_count", "flushes_count"] {
        assert!(stats[counter].as_u64() > Some(100), "{stats}");
    }
    let check = system("e2fsck", &["-f", "-n", &device]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
    eprintln!("{said}{stats}");
    bed.done("detach", &[&device]);
}
