//! Names of programs that are traced, and of the files that they use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::report_left_out;

use super::run;
use super::support::disk::{self, Disk};
use super::support::shown::{self, TEXT, WORD, assert_harmless, assert_text_is_harmless};

/// Escape sequences that `trace top` itself uses.
const DRAWN: [&str; 8] = [
    "\x1b[?1049h",
    "\x1b[?25l",
    "\x1b[?25h",
    "\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
    "\r",
];

/// Runs `dd` under a name whose first 15 bytes a process has.
const SCRIPT: &str = "cd \"$1\" && \"./$2\" if=/dev/zero of=\"$3\" bs=4k count=400 oflag=sync 2>/dev/null; \
                      cp \"$3\" \"$4\"; rm \"$4\"; mv \"$3\" \"$4\"";

fn program(folder: &Path) -> PathBuf {
    let found = ["/usr/bin/dd", "/bin/dd"].map(Path::new);
    let dd = found
        .into_iter()
        .find(|path| path.exists())
        .expect("every system has one");
    let path = folder.join("\x1b[2J\nforged:\u{9b}");
    fs::copy(dd, &path).expect("there is room");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("ours");
    path
}

fn words(folder: &Path) -> [std::ffi::OsString; 7] {
    let dd = program(folder).file_name().expect("it has one").to_owned();
    [
        "sh".into(),
        "-c".into(),
        SCRIPT.into(),
        TEXT.into(),
        folder.into(),
        dd,
        TEXT.into(),
    ]
}

fn tidegate(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(folder);
    command
}

#[test]
fn calls_of_a_program_are_recorded_and_replayed_and_no_name_is_printed_as_it_is() {
    let folder = TempDir::new().expect("possible on this host");
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("made");
    let recorded = tidegate(folder.path())
        .args(["trace", "syscalls", "-o", "calls.jsonl", "--"])
        .args(words(&tree))
        .arg(shown::name())
        .output()
        .expect("the program runs");
    let told = assert_harmless("trace syscalls", &recorded);
    assert_eq!(recorded.status.code(), Some(0), "{told}");
    let trace = fs::read_to_string(folder.path().join("calls.jsonl")).expect("it was written");
    assert!(trace.contains(WORD), "{trace}");
    fs::create_dir(folder.path().join("again")).expect("made");
    assert_harmless("replay", &run(folder.path(), "replay calls.jsonl again"));
    // One that can't be started, and a trace that can't be written.
    for (output, program) in [
        ("x.jsonl", TEXT),
        (TEXT, "/nowhere/program"),
        ("calls.jsonl/x", "true"),
    ] {
        let refused = tidegate(folder.path())
            .args(["trace", "syscalls", "-o", output, "--", program])
            .output()
            .expect("the program runs");
        let told = assert_harmless("trace syscalls", &refused);
        assert_eq!(refused.status.code(), Some(2), "{told}");
    }
}

/// A mountpoint to clean up when the test fails.
struct Mounted<'place>(&'place Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = tidegate(Path::new("/"))
            .args(["unmount", "--lazy"])
            .arg(self.0)
            .output();
    }
}

#[test]
fn a_mount_of_a_hostile_folder_is_told_escaped() {
    let folder = TempDir::new().expect("possible on this host");
    let (source, place) = (folder.path().join(TEXT), folder.path().join("p"));
    fs::create_dir(&source).expect("made");
    fs::create_dir(&place).expect("made");
    let command = |words: &[&str], path: &Path| {
        let output = tidegate(folder.path()).args(words).arg(path).output();
        let output = output.expect("the program runs");
        let what = words.join(" ");
        (output.status.code(), assert_harmless(&what, &output))
    };
    let source = source.to_str().expect("it is text");
    let (code, told) = command(&["mount", source], &place);
    if code != Some(0) {
        report_left_out(format!("a mount of a hostile folder: {told}"));
        return;
    }
    let _mounted = Mounted(&place);
    for words in [&["stats"][..], &["stats", "--json"], &["stats", "--prometheus"]] {
        let (code, shown) = command(words, &place);
        assert_eq!(code, Some(0), "{words:?}: {shown}");
    }
    for words in ["stats", "stats --json"] {
        let shown = assert_harmless(words, &run(folder.path(), words));
        assert!(shown.contains(WORD), "{words}: {shown}");
    }
    let (code, told) = command(&["unmount"], &place);
    assert_eq!(code, Some(0), "{told}");
}

/// Output of a command that has a terminal.
fn on_a_terminal(folder: &Path, words: &str) -> Option<Output> {
    let line = format!(
        "stty cols 200 rows 50; exec {} {words}",
        env!("CARGO_BIN_EXE_tidegate")
    );
    let ran = Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .output();
    ran.ok()
}

#[test]
fn requests_of_a_program_are_recorded_and_watched_and_no_name_is_printed_as_it_is() {
    let Some(disk) = Disk::make() else { return };
    let place = disk.folder.path();
    for method in ["bpf", "tracefs"] {
        let trace = format!("{method}.trace");
        let recorded = tidegate(place)
            .args(["trace", "record", "-d", &disk.device, "--method", method])
            .args(["-o", &trace, "--"])
            .args(words(&disk.mountpoint))
            .arg(shown::name())
            .output()
            .expect("the program runs");
        let told = assert_harmless("trace record", &recorded);
        assert_eq!(recorded.status.code(), Some(0), "{told}");
        for words in ["trace info TRACE", "trace info TRACE --json"] {
            assert_harmless(words, &run(place, &words.replace("TRACE", &trace)));
        }
        for to in ["blkparse", "most", "fio", "fio2", "jsonl"] {
            let words = format!("trace convert {trace} - --to {to}");
            let shown = assert_harmless(&words, &run(place, &words));
            let is_named = shown.contains("forged:");
            assert!(is_named || to.starts_with("fio"), "{words} names no process");
        }
        let perfetto = run(place, &format!("trace convert {trace} {trace}.pftrace"));
        assert_harmless("to Perfetto", &perfetto);
    }
    let top = format!("trace top -d {} --interval 700ms --count 8", disk.device);
    let writing = || {
        Command::new("sh")
            .args([
                "-c",
                // Bounded: nobody ends it if this process is killed.
                "i=0; while [ $i -lt 400 ] && sh -c \"$0\" \"$@\" >/dev/null 2>&1; do i=$((i+1)); done",
            ])
            .args(&words(&disk.mountpoint)[2..])
            .arg(shown::name())
            .process_group(0)
            .spawn()
            .expect("sh runs")
    };
    let mut load = writing();
    let plain = run(place, &top);
    let as_json = run(place, &format!("{top} --json"));
    let drawn = on_a_terminal(place, &top);
    let group = rustix::process::Pid::from_child(&load);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("it is ours");
    load.wait().expect("it is ours");
    for output in [&plain, &as_json] {
        let shown = assert_harmless("trace top", output);
        assert!(shown.contains("forged:"), "{shown}");
    }
    let Some(drawn) = drawn else {
        report_left_out("trace top on a terminal: no program `script`");
        return;
    };
    let mut shown = disk::text(&drawn.stdout);
    assert!(
        shown.contains(DRAWN[0]) && shown.contains("forged:"),
        "it was not drawn: {shown:?}"
    );
    for sequence in DRAWN {
        shown = shown.replace(sequence, "");
    }
    assert_text_is_harmless("trace top on a terminal", shown.as_bytes());
}
