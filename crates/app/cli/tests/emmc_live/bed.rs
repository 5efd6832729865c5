//! Fixture of all tests here: a private folder, system programs, and a card with fast flash.

use std::fs::{self, OpenOptions};
use std::process::{Command, Output};

use rustix::process::Pid;
use serde_json::Value;
use tempfile::TempDir;

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a system program, which Debian may keep outside the `PATH` of ordinary shells.
pub fn system(program: &str, arguments: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub fn must(program: &str, arguments: &[&str]) -> String {
    let output = system(program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The folder of one test, with a fast card and the descriptions of attached cards. Detaches all cards on drop.
pub struct Bed {
    pub folder: TempDir,
}

impl Bed {
    /// Returns `None`, with a printed reason, if loop devices or FUSE are not available.
    pub fn make() -> Option<Self> {
        let skip = |reason: &str| {
            testkit::report_left_out(reason);
            None
        };
        if !testkit::needs(&[testkit::Need::Root]) {
            return None;
        }
        for device in ["/dev/fuse", "/dev/loop-control"] {
            if let Err(error) = OpenOptions::new().read(true).write(true).open(device) {
                return skip(&format!("{device}: {error}"));
            }
        }
        let folder = TempDir::new().unwrap();
        let card = include_str!("../../../../emmc/emmc/cards/gt-i9300.toml")
            .replace("program_us = [500, 1300]", "program_us = [20, 40]")
            .replace("read_us = [100, 100]", "read_us = [5, 5]")
            .replace("program_slc_us = 400", "program_slc_us = 15")
            .replace("erase_us = 3500", "erase_us = 100")
            .replace("transfer_ns = 200000", "transfer_ns = 4000")
            .replace("command_ns = 100000", "command_ns = 5000")
            .replace("cache = false", "cache = true");
        fs::write(folder.path().join("quick.toml"), card).unwrap();
        fs::create_dir(folder.path().join("mounted")).unwrap();
        Some(Self { folder })
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn emmc(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["emmc", command, "--run-folder", &self.path("run")])
            .args(arguments)
            .output()
            .unwrap()
    }

    pub fn done(&self, command: &str, arguments: &[&str]) -> String {
        let output = self.emmc(command, arguments);
        assert!(
            output.status.success(),
            "{command} {arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Attaches a fast card and returns the report.
    pub fn attach(&self, arguments: &[&str]) -> Value {
        let (card, host) = (self.path("quick.toml"), "cqhci-hs400");
        let fixed = ["--card", &card, "--host", host, "--json"];
        serde_json::from_str(&self.done("attach", &[&fixed, arguments].concat())).unwrap()
    }

    pub fn stats(&self, device: &str) -> Value {
        serde_json::from_str(&self.done("stats", &["--json", device])).unwrap()
    }

    pub fn mount(&self, device: &str) {
        must("mount", &[device, &self.path("mounted")]);
    }

    /// Unmounts the file system. While another test of this process spawns a program, the child holds every open file of
    /// this process until exec, so the mount can be busy briefly.
    pub fn unmount(&self) {
        for _ in 0..200 {
            let output = system("umount", &[&self.path("mounted")]);
            if output.status.success() {
                return;
            }
            let said = text(&output.stderr);
            assert!(said.contains("busy"), "{said}");
        }
        panic!("{} stays busy", self.path("mounted"));
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = self.emmc("detach", &["--all", "--force"]);
    }
}

pub fn device_of(report: &Value) -> String {
    report["device"].as_str().unwrap().to_owned()
}

/// The process that serves a card.
pub fn pid_of(report: &Value) -> Pid {
    let pid = i32::try_from(report["pid"].as_i64().unwrap()).unwrap();
    Pid::from_raw(pid).unwrap()
}

/// Content of file `number`; length and bytes differ per file.
pub fn content(number: u64) -> Vec<u8> {
    let length = 1000 + usize::try_from(number * 7919 % 60_000).unwrap();
    let mut random = testkit::prng::Prng::new(number);
    std::iter::from_fn(|| Some(random.next_u64().to_le_bytes()))
        .flatten()
        .take(length)
        .collect()
}
