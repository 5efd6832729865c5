//! A mounted ext4 on a loop device, for tests of the tracer as root.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Standard output of a program that succeeds.
pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

/// Runs `tidegate trace` in a folder.
pub fn tidegate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .current_dir(folder)
        .arg("trace")
        .args(arguments)
        .output()
        .unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A mounted ext4 on a loop device; gone with the value.
pub struct Disk {
    pub device: String,
    pub mountpoint: PathBuf,
    /// Folder of the image and of traces, in memory.
    pub folder: tempfile::TempDir,
}

impl Disk {
    /// `None`, with a reason printed, where it can't be made or traced.
    pub fn make() -> Option<Self> {
        let skip = |reason: &str| testkit::report_left_out(reason);
        if run("id", &["-u"]).as_deref() != Some("0") {
            skip("needs root");
            return None;
        }
        let folder = tempfile::tempdir_in("/dev/shm").ok()?;
        let image = folder.path().join("image");
        let mountpoint = folder.path().join("mounted");
        fs::create_dir(&mountpoint).unwrap();
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let Some(device) = run("losetup", &["-f", "--show", image.to_str().unwrap()]) else {
            skip("no loop device can be had");
            return None;
        };
        let disk = Self {
            device,
            mountpoint,
            folder,
        };
        let mounted = run("mkfs.ext4", &["-q", &disk.device])
            .and_then(|_| run("mount", &[&disk.device, disk.mountpoint.to_str().unwrap()]));
        if mounted.is_none() {
            skip("ext4 can't be made or mounted");
            return None;
        }
        let probe = tidegate(
            disk.folder.path(),
            &["record", "-d", &disk.device, "-o", "probe", "--", "true"],
        );
        if probe.status.code() == Some(2) && text(&probe.stderr).contains("can't be traced") {
            skip(&text(&probe.stderr));
            return None;
        }
        Some(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: while another test of this process spawns a program, the child holds this process's files until exec.
        let _ = Command::new("umount").arg("-l").arg(&self.mountpoint).output();
        let _ = run("losetup", &["-d", &self.device]);
    }
}
