//! Variables given to `make` stay out of the builds of crates with C in them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// libbpf is built by a make of its own: with a `DESTDIR` its library was installed there, and the linker did not find it.
#[test]
fn variables_given_to_make_do_not_reach_the_builds_of_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let made = Command::new("make")
        .args(["--silent", "--file=-", "DESTDIR=/nowhere", "PREFIX=/nowhere"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut make| {
            let input = b"all:\n\t@. scripts/cargo_path.sh; env\n";
            make.stdin.take().expect("it is piped").write_all(input)?;
            make.wait_with_output()
        })
        .expect("make runs");
    assert!(made.status.success());
    let environment = String::from_utf8_lossy(&made.stdout);
    assert!(environment.contains("PATH="));
    assert!(!environment.contains("/nowhere"), "{environment}");
}
