//! Cells that failed and are measured again, hangups, and devices under other names.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use testkit::{Need, needs};

use crate::{IMAGE_PLAN, done, folder, folder_plan, records, text, tidegate};

#[test]
fn resume_measures_what_failed_and_keeps_the_rest() {
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place)
        .replace("flusher = \"off\"", "flusher = \"off\"\npath = \"mergerfs\"")
        .replace("x = \"mount.io-unit\"", "x = \"workload.record\"")
        .replace(
            "axes.mount.io-unit = [\"4k\", \"512k\"]",
            "axes.workload.record = [\"64k\"]",
        )
        .replace(
            "cell = { mount.io-unit = \"4k\" }",
            "cell = { workload.record = \"64k\" }",
        );
    fs::write(place.join("plan.toml"), plan).unwrap();
    // It mounts nothing, so that the cell measures an empty folder, as soon as there is the file `able`.
    fs::create_dir(place.join("bin")).unwrap();
    let peer = place.join("bin/mergerfs");
    fs::write(
        &peer,
        format!("#!/bin/sh\n[ -e {} ]\n", place.join("able").display()),
    )
    .unwrap();
    fs::set_permissions(&peer, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |arguments: &[&str]| -> Output {
        let path = std::env::var("PATH").unwrap();
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(arguments)
            .current_dir(place)
            .env("TIDEGATE_HISTORY", "off")
            .env("PATH", format!("{}:{path}", place.join("bin").display()))
            .output()
            .unwrap()
    };
    let begun = run(&["study", "run", "plan.toml", "-d", "s", "--rounds", "2"]);
    assert_eq!(begun.status.code(), Some(1), "{}", text(&begun.stderr));
    let failed = || {
        let all = records(&place.join("s"));
        let failed = all
            .iter()
            .filter(|record| !record["workload"]["study"]["failed"].is_null());
        (failed.count(), all.len())
    };
    assert_eq!(failed(), (2, 4));
    fs::write(place.join("able"), "").unwrap();
    let resumed = run(&["study", "resume", "s"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    assert_eq!(failed(), (0, 4));
    // Nothing is left to measure.
    let stored = fs::read(place.join("s/cells.jsonl")).unwrap();
    run(&["study", "resume", "s"]);
    assert_eq!(fs::read(place.join("s/cells.jsonl")).unwrap(), stored);
}

#[test]
fn a_hangup_ends_a_study_as_an_interrupt_does() {
    let place = folder();
    let place = place.path();
    let plan = folder_plan(place).replace("flusher = \"off\"", "flusher = \"off\"\npath = \"native\"");
    fs::write(
        place.join("plan.toml"),
        plan.replace("size = \"1m\"", "size = \"512m\""),
    )
    .unwrap();
    // Under nohup the tests ignore the signal, and so would the study.
    let mut child = Command::new("env")
        .args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tidegate")])
        .args(["study", "run", "plan.toml", "-d", "s"])
        .current_dir(place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while fs::read_dir(place.join("data")).unwrap().next().is_none() {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(fs::read_dir(place.join("data")).unwrap().count(), 0);
    assert!(place.join("s/report.html").exists());
}

/// A loop device with one partition, and a link to it in /dev; both are removed with it.
struct Disk {
    device: String,
    link: PathBuf,
}

impl Disk {
    /// `None` if the machine can't make one.
    fn new(place: &Path) -> Option<Self> {
        let run = |program: &str, words: &[&str]| {
            let output = Command::new(program).args(words).output().ok()?;
            output
                .status
                .success()
                .then(|| text(&output.stdout).trim().to_owned())
        };
        let image = place.join("disk.img");
        fs::File::create(&image).ok()?.set_len(96 << 20).ok()?;
        let image = image.display().to_string();
        let device = run("losetup", &["--find", "--show", &image])?;
        let link = PathBuf::from(format!("/dev/tidegate-test-{}", std::process::id()));
        let disk = Self { device, link };
        symlink(&disk.device, &disk.link).ok()?;
        // Sectors: where it begins, and its length.
        run("addpart", &[&disk.device, "1", "2048", "163840"])?;
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
        for (program, words) in [
            ("delpart", &[&self.device, "1"][..]),
            ("losetup", &["--detach", &self.device]),
        ] {
            let _ = Command::new(program).args(words).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn a_device_is_measured_by_a_link_and_in_a_partition() {
    if !needs(&[Need::Root, Need::LOOP]) {
        return;
    }
    let place = folder();
    let place = place.path();
    let Some(disk) = Disk::new(place) else {
        testkit::report_left_out("no partition could be made on a loop device");
        return;
    };
    let partition = format!("{}p1", disk.device);
    for (name, device) in [("link", disk.link.to_str().unwrap()), ("partition", &partition)] {
        let device = format!("device = \"{device}\"\ndestroy-data = true");
        let plan = IMAGE_PLAN.replace("device = \"image\"", &device);
        if name == "link" {
            // The disk is held by its partition.
            let _ = Command::new("delpart").args([&disk.device, "1"]).status();
        } else {
            let _ = Command::new("addpart")
                .args([&disk.device, "1", "2048", "163840"])
                .status();
        }
        let file = format!("{name}.toml");
        fs::write(place.join(&file), &plan).unwrap();
        done(&["study", "run", &file, "-d", name, "--rounds", "1"], place);
        let other = plan.replace("mq-deadline", "mq-dead");
        fs::write(place.join(&file), other).unwrap();
        let check = tidegate(&["study", "check", &file], place);
        let message = text(&check.stderr);
        assert_eq!(check.status.code(), Some(1), "{message}");
        assert!(
            message.contains("scheduler `mq-dead`: this kernel has"),
            "{message}"
        );
    }
}
