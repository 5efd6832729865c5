//! Cells in the lab guest: measured there, left out with the reason, and gone when the study is.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::lab::Lab;
use testkit::{Need, has_dirty_limit, needs, report_left_out};

use crate::{done, folder, records, text};

/// One cell of this machine, and three of the guest with a file system that this kernel may lack.
const PLAN: &str = r#"
name = "guest"
[environment]
device = "image"
size = "96m"
dirty-limit = "16m"
[workload]
size = "1m"
record = "64k"
final-sync = "timed"
[defaults.mount]
flusher = "off"
passthrough = "off"
uring = "off"
writeback = "off"
io-unit = "4k"
[[exhibit]]
name = "host"
x = "fs"
where = { path = "native" }
axes.fs = ["ext4"]
[[exhibit]]
name = "guest"
x = "path"
y = "share-of-max"
where = { machine = "guest", fs = "f2fs" }
axes.path = ["native", "mount"]
[[exhibit]]
name = "writes"
x = "fs"
y = "backing_writes_count"
where = { machine = "guest" }
axes.fs = ["f2fs"]
[[exhibit.claim]]
sentence = "1 MiB in requests of 4 KiB"
cell = { fs = "f2fs" }
low = 256
high = 256
exact = true
"#;

fn study(arguments: &[&str], folder: &Path, lab: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("TIDEGATE_HISTORY", "off");
    if let Some(lab) = lab {
        command.env("TIDEGATE_LAB", lab);
    }
    let output = command.output().expect("the binary runs");
    let all = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), all)
}

/// Processes of a program with the study's folder in their environment.
fn of_study(folder: &Path, program: &str) -> Vec<i32> {
    let variable = [b"TIDEGATE_STUDY=", folder.as_os_str().as_bytes()].concat();
    let has = |pid: i32, file: &str, wanted: &[u8]| {
        let words = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == wanted)
    };
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| has(*pid, "environ", &variable) && has(*pid, "cmdline", program.as_bytes()))
        .collect()
}

fn until(what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const QEMU: &str = "qemu-system-x86_64";

const KEEPER: &str = "tidegate-lab-keeper";

#[test]
fn a_panel_without_a_guest_is_left_out_and_measured_when_there_is_one() {
    if !needs(&[Need::Root, Need::LOOP]) || !has_dirty_limit() {
        return;
    }
    let place = folder();
    let place = place.path();
    fs::write(place.join("plan.toml"), PLAN).unwrap();
    let (code, said) = study(&["study", "check", "plan.toml"], place, Some("no"));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("left out: cells of the guest: TIDEGATE_LAB=no"),
        "{said}"
    );
    let words = ["study", "run", "plan.toml", "-d", "s", "--rounds", "1"];
    let (code, said) = study(&words, place, Some("no"));
    assert_eq!(code, Some(0), "{said}");
    for expected in [
        "left out: TIDEGATE_LAB=no leaves out",
        "measured in the lab guest; nothing was measured",
        "not measured: 1 MiB in requests of 4 KiB",
    ] {
        assert!(said.contains(expected), "{said}\nexpected: {expected}");
    }
    let status = done(&["study", "status", "s"], place);
    assert_eq!(
        status,
        "guest: 1 of 4 cells measured in 1 round, 0 of them failed; 3 left out\n"
    );
    if let Err(why) = Lab::available() {
        report_left_out(why);
        return;
    }
    if !needs(&[Need::Program("mkfs.f2fs")]) {
        return;
    }
    let (code, said) = study(&["study", "resume", "s"], place, None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("holds: 1 MiB in requests of 4 KiB"), "{said}");
    let stored = records(&place.join("s"));
    assert_eq!(stored.len(), 4);
    let (guest, host): (Vec<&Value>, Vec<&Value>) = stored
        .iter()
        .partition(|record| record["workload"]["study"]["cell"]["machine"] == "guest");
    assert_eq!((guest.len(), host.len()), (3, 1));
    let version = Lab::available().unwrap().version().to_owned();
    for record in guest {
        assert_eq!(record["host"]["kernel"], format!("Linux {version}"));
        let machine = record["workload"]["study"]["machine"].as_str().unwrap();
        assert!(machine.starts_with("QEMU "), "{machine}");
        assert_eq!(record["workload"]["study"]["cell"]["fs"], "f2fs");
    }
    let page = fs::read_to_string(place.join("s/report.html")).unwrap();
    assert!(page.contains(&format!("measured in the lab guest (Linux {version}; QEMU ")));
    assert!(!place.join("s/guest").exists());
}

#[test]
fn no_guest_outlives_its_study() {
    if !needs(&[Need::Root]) {
        return;
    }
    if let Err(why) = Lab::available() {
        report_left_out(why);
        return;
    }
    let place = folder();
    let place = place.path();
    let plan = PLAN.replace(
        "[[exhibit]]\nname = \"host\"\nx = \"fs\"\nwhere = { path = \"native\" }\naxes.fs = [\"ext4\"]\n",
        "",
    );
    fs::write(place.join("plan.toml"), plan).unwrap();
    for (signal, name) in [
        (rustix::process::Signal::INT, "interrupted"),
        (rustix::process::Signal::KILL, "killed"),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["study", "run", "plan.toml", "-d", name])
            .current_dir(place)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let study = place
            .join(name)
            .canonicalize()
            .unwrap_or_else(|_| place.join(name));
        // The shell beside QEMU names it too, and a process that prints QEMU's version has ended by then.
        until("QEMU does not start", || {
            let shells = of_study(&study, KEEPER).len();
            shells > 0 && of_study(&study, QEMU).len() > shells
        });
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        let ended = child.wait().unwrap();
        until("QEMU stays", || of_study(&study, QEMU).is_empty());
        until("its shell stays", || of_study(&study, KEEPER).is_empty());
        if name == "interrupted" {
            assert_eq!(ended.code(), Some(1));
            assert!(study.join("report.html").exists());
        }
        done(&["study", "clean", name], place);
        assert!(!study.join("guest").exists());
        assert!(!study.join("cells.jsonl").exists(), "no round was whole");
    }
}
