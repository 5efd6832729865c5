//! Flags, extended attributes, ACLs, holes, unnamed files: a mount answers each call like Linux's own UBIFS.
//!
//! `answers.txt` holds the answers, one call per line: that of Linux 6.1 and, after ` || `, that of the mount if it
//! differs; the mount never refuses a call that Linux accepts. With `TIDEGATE_FULL` the calls run again on Linux in the lab
//! guest. `TIDEGATE_WRITE_ANSWERS=FILE` writes the answers found.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::lab::{FlashFile, Job, Lab, Options};

use crate::ubifs_writable::Scene;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/answers.py");

/// The expected answers to all calls: of Linux, and of a mount.
fn known() -> (Vec<String>, Vec<String>) {
    let lines = include_str!("answers.txt").lines();
    lines
        .map(|line| match line.split_once(" || ") {
            None => (line.to_owned(), line.to_owned()),
            Some((linux, other)) => {
                let what = linux.rsplit_once(": ").map_or(linux, |(what, _)| what);
                (linux.to_owned(), format!("{what}: {other}"))
            }
        })
        .unzip()
}

fn assert_answers(found: &str, expected: &[String]) {
    if let Ok(path) = std::env::var("TIDEGATE_WRITE_ANSWERS") {
        fs::write(path, found).expect("possible on this host");
    }
    let found: Vec<&str> = found.lines().collect();
    let differing: Vec<_> = found
        .iter()
        .zip(expected)
        .filter(|(found, expected)| found != expected)
        .collect();
    assert!(differing.is_empty(), "found, expected: {differing:#?}");
    assert_eq!(found.len(), expected.len(), "the script ended early: {found:#?}");
}

#[test]
fn a_mount_answers_as_linux_does() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        testkit::report_left_out("there is no python3");
        return;
    }
    let Some(mut scene) = Scene::new(1) else { return };
    scene.mount("rw,suid,dev");
    let output = Command::new("python3")
        .arg(SCRIPT)
        .arg(scene.path("mountpoint"))
        .output()
        .expect("it was there");
    scene.end(None);
    scene.check();
    assert!(output.status.success(), "{output:?}");
    assert_answers(&String::from_utf8_lossy(&output.stdout), &known().1);
}

#[test]
fn linux_answers_what_is_noted_of_it() {
    if testkit::left_to_full("Linux is asked again in a guest") {
        return;
    }
    let lab = match Lab::with_flash() {
        Ok(lab) => lab,
        Err(why) => {
            testkit::report_left_out(why);
            return;
        }
    };
    let folder = tempfile::tempdir().expect("possible on this host");
    let chip = FlashFile::erased(&folder.path().join("chip"), 32 << 20).expect("there is room");
    let options = Options {
        flash: vec![chip],
        ..Options::default()
    };
    let mut guest = lab.boot(&options).unwrap_or_else(|error| panic!("{error}"));
    let job = Job::ready_made("write.sh").expect("the script is in the repository");
    let job = job
        .copy_of("answers.py", Path::new(SCRIPT))
        .variable("LOAD", "python3 /host/answers.py . >/host/answers");
    let outcome = guest.run(&job).unwrap_or_else(|error| panic!("{error}"));
    let outcome = outcome.expect_success();
    assert_answers(
        &outcome.read_text("answers").expect("the job wrote it"),
        &known().0,
    );
}
