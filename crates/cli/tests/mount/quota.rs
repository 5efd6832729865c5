//! A source with a quota that is really used up: a btrfs on a loop device whose subvolume has a limit.
//!
//! Of the quotas of Linux this one holds for root too, whose writes a root mount's are, and needs no other user.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::harness::{report_skip, tidegate};

/// What the subvolume may hold.
const LIMIT: &str = "8M";
const MIB: usize = 1 << 20;

/// A btrfs whose subvolume `limited` may hold [`LIMIT`]; unmounted at the end.
struct Limited {
    folder: tempfile::TempDir,
}

impl Limited {
    /// `None`, with a reason printed, where there is no root, loop device or btrfs.
    fn new() -> Option<Self> {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let limited = Self { folder };
        let (image, root) = (limited.folder.path().join("image"), limited.root());
        fs::create_dir(&root).expect("a temporary folder takes files");
        let file = File::create(&image).expect("a temporary folder takes files");
        file.set_len(128 << 20).expect("a temporary folder takes files");
        let (image, root, source) = (text(&image), text(&root), text(&limited.source()));
        // Enabling starts a scan, and limits hold only after it.
        let steps: [&[&str]; 6] = [
            &["mkfs.btrfs", "-q", "-f", &image],
            &["mount", "-t", "btrfs", "-o", "loop", &image, &root],
            &["btrfs", "quota", "enable", &root],
            &["btrfs", "subvolume", "create", &source],
            &["btrfs", "qgroup", "limit", LIMIT, &source],
            &["btrfs", "quota", "rescan", "-w", &root],
        ];
        for step in steps {
            let output = Command::new(step[0]).args(&step[1..]).output();
            if !output.is_ok_and(|output| output.status.success()) {
                report_skip(&format!(
                    "a source with a quota: `{}` needs root, a loop device, btrfs and btrfs-progs",
                    step.join(" ")
                ));
                return None;
            }
        }
        Some(limited)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("btrfs")
    }

    fn source(&self) -> PathBuf {
        self.root().join("limited")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Best effort; the image goes with its folder.
        let _ = Command::new("umount").arg("-l").arg(self.root()).output();
    }
}

fn text(path: &Path) -> String {
    path.to_str()
        .expect("temporary folders are named in UTF-8")
        .to_owned()
}

fn told(answer: io::Result<()>) -> Option<i32> {
    answer.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_flush_over_the_quota_is_told_once_to_each_descriptor_and_the_mount_stays_usable() {
    let Some(limited) = Limited::new() else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let output = tidegate()
        .arg("mount")
        .arg(limited.source())
        .arg(folder.path())
        .args(["--passthrough", "off", "--flush-interval", "30s"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let outcome = std::panic::catch_unwind(|| {
        let filler = limited.source().join("filler");
        fs::write(&filler, vec![1; 7 * MIB]).unwrap();
        File::open(&filler).unwrap().sync_all().unwrap();

        let path = folder.path().join("file");
        let first = File::create(&path).unwrap();
        let second = OpenOptions::new().write(true).open(&path).unwrap();
        let other = File::create(folder.path().join("other")).unwrap();
        // The buffer takes 4 MiB; the quota has 1 MiB left.
        for number in 0..8 {
            first.write_all_at(&vec![2; MIB / 2], number * (1 << 19)).unwrap();
        }
        let over_quota = Some(Errno::DQUOT.raw_os_error());
        assert_eq!(told(first.sync_all()), over_quota);
        assert_eq!(told(second.sync_all()), over_quota);
        assert_eq!(told(other.sync_all()), None, "another file was told");
        assert_eq!(
            told(first.sync_all()),
            None,
            "the first descriptor was told twice"
        );
        assert_eq!(
            told(second.sync_all()),
            None,
            "the second descriptor was told twice"
        );

        fs::remove_file(folder.path().join("filler")).unwrap();
        // btrfs gives back what a file took with its next transaction.
        rustix::fs::syncfs(File::open(limited.source()).unwrap()).unwrap();
        first.write_all_at(b"room again", 0).unwrap();
        assert_eq!(told(first.sync_all()), None);
        assert_eq!(
            fs::read(limited.source().join("file")).unwrap()[..10],
            *b"room again"
        );
    });
    let unmounted = tidegate()
        .args(["unmount", "--lazy"])
        .arg(folder.path())
        .output()
        .unwrap();
    outcome.unwrap();
    assert!(
        unmounted.status.success(),
        "{}",
        String::from_utf8_lossy(&unmounted.stderr)
    );
}
