//! `--open kernel`: files of a read-only mount are opened without a request.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::harness::{Mounted, tidegate};

const BY_KERNEL: [&str; 3] = ["--open", "kernel", "--read-only"];

fn start(more: &[&str]) -> Option<Mounted> {
    if !testkit::needs(&[testkit::Need::Root]) {
        return None;
    }
    let prepare = |source: &std::path::Path| {
        for number in 0..50_u8 {
            let name = source.join(number.to_string());
            fs::write(&name, vec![number; 5000]).unwrap();
        }
    };
    Mounted::start_over(prepare, &[&BY_KERNEL, more].concat())
}

fn count(mounted: &Mounted, operation: &str) -> u64 {
    let stats = mounted.stats();
    let all = stats["session"]["operations"].as_array().unwrap();
    let found = all.iter().find(|one| one["operation"] == operation);
    found.map_or(0, |one| one["count"].as_u64().unwrap())
}

fn read_all(mounted: &Mounted) {
    for number in 0..50_u8 {
        let content = fs::read(mounted.mountpoint().join(number.to_string())).unwrap();
        assert!(content == vec![number; 5000], "file {number}");
    }
}

#[test]
fn opening_reading_and_closing_a_known_file_sends_no_request() {
    // Explicit times, so that attributes stay valid also if no host reports changes.
    let Some(mounted) = start(&["--attr-timeout", "3600s", "--entry-timeout", "3600s"]) else {
        return;
    };
    assert_eq!(mounted.report["negotiated"]["opens"], "kernel");
    assert_eq!(mounted.report["negotiated"]["passthrough"], false);
    read_all(&mounted);
    let kinds = ["open", "release", "flush", "read", "getattr", "statx", "lookup"];
    let all = || kinds.map(|kind| count(&mounted, kind));
    let before = all();
    // The first open, and the first close, are refused.
    assert!(before[0] <= 1 && before[1] == 0 && before[2] <= 1, "{before:?}");
    assert!(before[3] >= 50, "{before:?}");
    // The attributes with the access times of the reads before.
    read_all(&mounted);
    let between = all();
    assert_eq!(between[..4], before[..4]);
    read_all(&mounted);
    assert_eq!(all(), between);
}

#[test]
fn calls_on_open_files_work_without_handles() {
    let Some(mounted) = start(&[]) else { return };
    let source = File::options()
        .write(true)
        .open(mounted.source().join("0"))
        .unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&source, punch, 0, 4096).unwrap();
    let mut file = File::open(mounted.mountpoint().join("0")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    file.seek(SeekFrom::Start(4990)).unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [0; 10]);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(4096));
    file.sync_all().unwrap();
    rustix::fs::ioctl_getflags(&file).unwrap();
    // A file without a name stays readable as long as its data is cached; a new read of it fails.
    let done = Command::new("cat").arg(mounted.mountpoint().join("7")).output();
    assert_eq!(done.unwrap().stdout, [7; 5000]);
}

#[test]
fn nothing_is_changed_also_after_a_remount() {
    let Some(mounted) = start(&[]) else { return };
    let root = mounted.mountpoint();
    let refused = |error: std::io::Error| Errno::from_io_error(&error) == Some(Errno::ROFS);
    assert!(refused(File::create(root.join("new")).unwrap_err()));
    let done = Command::new("mount")
        .args(["-i", "-o", "remount,rw"])
        .arg(&root)
        .status();
    if !done.unwrap().success() {
        return;
    }
    assert!(refused(File::create(root.join("new")).unwrap_err()));
    assert!(refused(fs::remove_file(root.join("1")).unwrap_err()));
    assert!(refused(fs::rename(root.join("1"), root.join("x")).unwrap_err()));
    assert!(refused(
        fs::set_permissions(root.join("1"), PermissionsExt::from_mode(0o600)).unwrap_err()
    ));
    // The open is the kernel's own; the write arrives at once or at the close.
    if let Ok(file) = OpenOptions::new().write(true).open(root.join("1")) {
        let written = file.write_all_at(b"changed", 0).and_then(|()| file.sync_all());
        assert!(refused(written.unwrap_err()));
    }
    assert_eq!(fs::read(mounted.source().join("1")).unwrap(), [1; 5000]);
    assert!(!mounted.source().join("new").exists());
}

#[test]
fn content_that_changes_behind_the_mount_is_seen() {
    let Some(mounted) = start(&[]) else { return };
    let reader = File::open(mounted.mountpoint().join("3")).unwrap();
    for number in 0..10_u8 {
        read_all(&mounted);
        let text = vec![100 + number; 5001];
        fs::write(mounted.source().join("3"), &text).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let mut seen = vec![0; 6000];
            let length = reader.read_at(&mut seen, 0).unwrap();
            if seen[..length] == text && fs::read(mounted.mountpoint().join("3")).unwrap() == text {
                break;
            }
            assert!(Instant::now() < deadline, "change {number} is not seen");
        }
        fs::write(mounted.source().join("3"), [3; 5000]).unwrap();
        while fs::read(mounted.mountpoint().join("3")).unwrap() != [3; 5000] {
            assert!(Instant::now() < deadline, "change {number} back is not seen");
        }
    }
}

#[test]
fn a_mount_that_may_be_written_to_is_refused() {
    if !crate::harness::can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["source", "mountpoint"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let output = tidegate()
        .args(["mount", "--open", "kernel"])
        .args([folder.path().join("source"), folder.path().join("mountpoint")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("needs a read-only mount"), "{message}");
}
