//! The program `tidegate-ui` itself. Its page is tested through `tidegate ui`, in crates/app/cli/tests/ui.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program)
        .args(arguments)
        .env("PATH", "/nowhere")
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// Copies the program in another process: a process started by another test would inherit a descriptor that is open for
/// writing, and a program that is open for writing can't be run.
fn copy(to: &std::path::Path) {
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_tidegate-ui"))
        .arg(to)
        .status();
    assert!(copied.expect("cp runs").success());
}

#[test]
fn it_has_the_version_of_tidegate() {
    let (code, out, _) = run(env!("CARGO_BIN_EXE_tidegate-ui"), &["--version"]);
    assert_eq!(
        (code, out),
        (Some(0), format!("tidegate-ui {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn wrong_arguments_are_refused_with_the_right_ones() {
    let program = env!("CARGO_BIN_EXE_tidegate-ui");
    for (arguments, word) in [
        (&["--listn", "127.0.0.1:0"][..], "--listen"),
        (&["--listen", "here"], "ADDRESS:PORT"),
        (&["more"], "more"),
    ] {
        let (code, out, message) = run(program, arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(
            message.starts_with("tidegate: ") && message.contains(word),
            "{message}"
        );
    }
}

#[test]
fn without_tidegate_it_refuses_to_start() {
    let folder = TempDir::new().expect("a temporary folder");
    let alone = folder.path().join("tidegate-ui");
    copy(&alone);
    let (code, out, message) = run(&alone, &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{message}");
    assert!(message.contains("tidegate is found neither beside"), "{message}");
}

#[test]
fn the_program_that_runs_it_is_the_one_that_measures() {
    let folder = TempDir::new().expect("a temporary folder");
    let alone = folder.path().join("tidegate-ui");
    copy(&alone);
    let mut child = Command::new(&alone)
        .arg("--settings")
        .arg(folder.path().join("ui.json"))
        .envs([
            ("PATH", "/nowhere"),
            ("TIDEGATE_CORE", "/bin/sh"),
            ("TIDEGATE_HISTORY", "off"),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut address = String::new();
    let out = child.stdout.take().expect("a pipe");
    let read = BufReader::new(out).read_line(&mut address);
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    assert!(
        read.is_ok() && address.starts_with("http://127.0.0.1:"),
        "{address}"
    );
}
