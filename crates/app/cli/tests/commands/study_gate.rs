//! The gate as a user runs it: a slow daemon is found, a program against itself passes, and two studies are compared.
//!
//! Other work on the machine makes cells of some 20 ms differ by half, so the bound of the short run is 0.5; the full run
//! has longer cells, the default bound and 20 runs of each, and wants a machine without other work. A daemon that waits
//! 1 ms for each request has less than a quarter of the speed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use fuse::{MountConfig, Session, Switch};
use passfs::{AccessTimes, PassConfig, PassFs};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{FaultyFs, Need, is_full, needs};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// Set for the daemon that waits: the source and the mount point.
const DELAYED: [&str; 2] = ["TIDEGATE_TEST_SOURCE", "TIDEGATE_TEST_MOUNTPOINT"];

/// The name of the test that is that daemon.
const DAEMON: &str = "study_gate::daemon_that_waits";

/// Time that it waits for each request. The short run may share a machine with ten busy processes a processor.
fn delay() -> Duration {
    Duration::from_millis(if is_full() { 1 } else { 4 })
}

fn bound() -> &'static [&'static str] {
    if is_full() { &[] } else { &["--min-ratio", "0.5"] }
}

/// Rounds in which a program against itself has to pass. Cells of 0.2 s differ by 9 % on a shared machine, so that some 130
/// rounds show that a ratio is above 0.97.
fn rounds() -> &'static [&'static str] {
    if is_full() { &["--rounds", "192"] } else { &[] }
}

fn tidegate(arguments: &[&str], folder: &Path) -> Output {
    Command::new(TIDEGATE)
        .args(arguments)
        .current_dir(folder)
        .env("TIDEGATE_HISTORY", "off")
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

fn refused(arguments: &[&str], folder: &Path) -> String {
    let output = tidegate(arguments, folder);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    message
}

/// A folder with a plan for a folder in memory, where a cell is short.
struct Place {
    folder: TempDir,
    _data: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build directory is writable");
        let data = tempfile::tempdir_in("/dev/shm").expect("there is a file system in memory");
        let plan = format!(
            r#"
name = "<gate>"
[environment]
device = "directory:{}"
[workload]
size = "{}"
record = "128k"
[defaults]
mount.flusher = "off"
mount.passthrough = "off"
mount.writeback = "off"
[axes]
mount.io-unit = ["128k"]
"#,
            data.path().display(),
            if is_full() { "256m" } else { "32m" }
        );
        fs::write(folder.path().join("plan.toml"), plan).expect("it is writable");
        Self { folder, _data: data }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program that serves mounts with a delay, and otherwise is this program.
    fn slow_program(&self) -> PathBuf {
        let program = self.path().join("slow");
        let this = std::env::current_exe().expect("/proc is mounted");
        let script = format!(
            "#!/bin/sh\n\
             case $1 in\n\
             mount) {}=$2 {}=$3 {} {DAEMON} --exact >/dev/null 2>&1 </dev/null &\n\
                until grep -q \" $3 \" /proc/self/mountinfo; do\n\
                    kill -0 $! || exit 1; sleep 0.01\n\
                done ;;\n\
             stats) echo '{{}}' ;;\n\
             unmount) umount $2 2>/dev/null || fusermount3 -u $2 ;;\n\
             *) exec {TIDEGATE} \"$@\" ;;\n\
             esac\n",
            DELAYED[0],
            DELAYED[1],
            this.display()
        );
        fs::write(&program, script).expect("it is writable");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&program, executable).expect("it is ours");
        program
    }

    /// Compares a program with this one.
    fn gate(&self, study: &str, other: &Path, more: &[&str]) -> Output {
        let [a, b] = [Path::new(TIDEGATE), other].map(Path::display);
        let [a, b] = [format!("A={a}"), format!("B={b}")];
        let words = ["study", "gate", "plan.toml", "--binary", &a, "--binary", &b];
        let rule = ["--until-decided", "-d", study];
        tidegate(&[&words[..], &rule, bound(), more].concat(), self.path())
    }
}

/// No test of its own: [`Place::slow_program`] runs it as a daemon.
#[test]
fn daemon_that_waits() {
    let [Some(source), Some(mountpoint)] = DELAYED.map(std::env::var_os) else {
        return;
    };
    let below = PassConfig {
        id_map: None,
        read_only: false,
        write_out_bytes: None,
        stream_direct_after_bytes: None,
        stream_direct_rate_min: 0,
        offer_backing: false,
        access_times: AccessTimes::OF_SOURCE,
    };
    let faulty = FaultyFs::new(PassFs::open(Path::new(&source), below).expect("the folder is there"));
    faulty.faults().delay(delay());
    let config = MountConfig {
        source: "slow".to_owned(),
        subtype: "tidegate-test".to_owned(),
        io_unit_bytes: None,
        writeback: Switch::Off,
        passthrough: Switch::Off,
        uring: Switch::Off,
        direct_io: Switch::Off,
        threads: Some(2),
        poll: None,
        read_only: false,
        allow_other: false,
        posix_acl: false,
        attr_ttl: Duration::from_secs(1),
        entry_ttl: Duration::from_secs(1),
        coherence: fuse::Coherence::Timeout,
        opens: fuse::Opens::default(),
        kernel_options: Vec::new(),
    };
    let document = Box::new(|_: &_, _: &_| Vec::new());
    let session = Session::mount(
        Arc::new(faulty),
        Path::new(&mountpoint),
        &config,
        document,
        Box::new(|_| {}),
    );
    session
        .expect("it can mount")
        .wait()
        .expect("it ends by an unmount");
}

/// Runs of each canary.
fn repetitions() -> usize {
    if is_full() { 20 } else { 1 }
}

#[test]
fn a_daemon_that_waits_for_each_request_is_found() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = Place::new();
    let slow = place.slow_program();
    let mut missed = Vec::new();
    for run in 0..repetitions() {
        let output = place.gate(&format!("s{run}"), &slow, &["--junit", "gate.xml", "--json"]);
        if output.status.code() != Some(1) {
            missed.push(format!("{run}: {}{}", text(&output.stdout), text(&output.stderr)));
            continue;
        }
        let document: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(document["outcome"], "failed");
        assert_eq!(document["cells"][0]["verdict"], "worse");
        let xml = fs::read_to_string(place.path().join("gate.xml")).unwrap();
        assert!(
            xml.contains("failures=\"1\"") && xml.contains("&lt;gate&gt;"),
            "{xml}"
        );
    }
    assert!(missed.len() * 20 <= repetitions(), "{missed:#?}");
}

#[test]
fn a_program_against_itself_passes() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = Place::new();
    let mut wrong = Vec::new();
    for run in 0..repetitions() {
        let output = place.gate(
            &format!("s{run}"),
            Path::new(TIDEGATE),
            &[&["--markdown", "gate.md"], rounds()].concat(),
        );
        if output.status.code() != Some(0) {
            wrong.push(format!("{run}: {}{}", text(&output.stdout), text(&output.stderr)));
        }
        let table = fs::read_to_string(place.path().join("gate.md")).unwrap();
        assert!(table.contains("io-unit=128k"), "{table}");
    }
    assert!(wrong.len() * 20 <= repetitions(), "{wrong:#?}");
    // Each program in each round; the daemons' own folders are gone.
    let stored = fs::read_to_string(place.path().join("s0/cells.jsonl")).unwrap();
    for name in ["A", "B"] {
        assert_eq!(
            stored.matches(&format!("\"binary\":\"{name}\"")).count() * 2,
            stored.lines().count()
        );
    }
    let status = tidegate(&[&["study", "gate", "s0"], bound()].concat(), place.path());
    assert_eq!(
        status.status.code(),
        Some(0),
        "the stored records give the same decision"
    );
}

#[test]
fn a_comparison_is_resumed_only_with_the_programs_that_it_began_with() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = Place::new();
    let program = place.path().join("copy");
    let write = |remark: &str| {
        fs::write(
            &program,
            format!("#!/bin/sh\n# {remark}\nexec {TIDEGATE} \"$@\"\n"),
        )
        .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    };
    write("one");
    place.gate("s", &program, &["--rounds", "2"]);
    let resume = || tidegate(&["study", "resume", "s"], place.path());
    assert_eq!(resume().status.code(), Some(0));
    write("two");
    let resumed = resume();
    let message = text(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(2), "{message}");
    assert!(
        message.contains("the program B (") && message.contains("has changed"),
        "{message}"
    );
}

#[test]
fn too_few_rounds_are_no_pass() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = Place::new();
    let output = place.gate("s", Path::new(TIDEGATE), &["--rounds", "2"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    assert!(shown.contains("too few rounds"), "{shown}");
}

#[test]
fn two_studies_are_compared_only_under_the_same_conditions() {
    if !needs(&[Need::FUSE]) {
        return;
    }
    let place = Place::new();
    for study in ["old", "new"] {
        let run = tidegate(
            &["study", "run", "plan.toml", "-d", study, "--rounds", "6"],
            place.path(),
        );
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    }
    let against = |rule: &[&str]| {
        let words = ["study", "gate", "new", "--baseline", "old"];
        tidegate(&[&words[..], rule].concat(), place.path())
    };
    assert_eq!(against(&["--min-ratio", "0.05"]).status.code(), Some(0));
    assert_eq!(against(&["--min-ratio", "20"]).status.code(), Some(1));
    let state = place.path().join("old/environment.json");
    let stored = fs::read_to_string(&state).unwrap();
    fs::write(
        &state,
        stored.replace("\"time_scale\": 1.0", "\"time_scale\": 9.0"),
    )
    .unwrap();
    let message = refused(&["study", "gate", "new", "--baseline", "old"], place.path());
    assert!(
        message.contains("can't be compared: time scale: 9 before, 1 after"),
        "{message}"
    );
}

#[test]
fn a_gate_that_can_not_be_judged_is_refused() {
    let place = Place::new();
    let one = format!("A={TIDEGATE}");
    for (words, expected) in [
        (&["plan.toml", "--binary", &one][..], "1 programs, expected 2"),
        (
            &["plan.toml", "--binary", &one, "--binary", &one],
            "both are named `A`",
        ),
        (
            &["plan.toml", "--binary", &one, "--binary", "B=nowhere"],
            "nowhere can't be used",
        ),
        (
            &["plan.toml", "--binary", &one, "--binary", "B=plan.toml"],
            "plan.toml is no program",
        ),
        (&["plan.toml", "--binary", "tidegate"], "expected NAME=PATH"),
        (&["nowhere"], "nowhere holds no study"),
        (
            &["nowhere", "--baseline", "elsewhere"],
            "elsewhere holds no study",
        ),
        (&["nowhere", "--min-ratio", "nan"], "expected a number above 0"),
        (&["nowhere", "--until-decided"], "--binary"),
    ] {
        let message = refused(&[&["study", "gate"], words].concat(), place.path());
        assert!(message.contains(expected), "{message}\nexpected: {expected}");
    }
    assert!(!place.path().join("study").exists());
}
