//! A source with an exhausted quota: a btrfs on a loop device whose subvolume has a limit.
//!
//! Among Linux's quotas this one also applies to root, who makes the writes of a root mount, so it needs no other user.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::harness::tidegate;

/// The quota of the subvolume.
const LIMIT: &str = "8M";
const MIB: usize = 1 << 20;

/// A btrfs whose subvolume `limited` has the quota [`LIMIT`]; unmounted on drop.
struct Limited {
    folder: tempfile::TempDir,
}

impl Limited {
    /// `None`, with a printed reason, without root, a loop device or btrfs.
    fn new() -> Option<Self> {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let limited = Self { folder };
        let (image, root) = (limited.folder.path().join("image"), limited.root());
        fs::create_dir(&root).expect("a temporary folder takes files");
        let file = File::create(&image).expect("a temporary folder takes files");
        file.set_len(128 << 20).expect("a temporary folder takes files");
        let (image, root, source) = (text(&image), text(&root), text(&limited.source()));
        // Enabling starts a scan; limits apply only after it.
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
                testkit::report_left_out(format!(
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

/// Runs a check on a mount of the subvolume without flushes by time.
fn on_a_mount(check: impl Fn(&Limited, &Path)) {
    let Some(limited) = Limited::new() else {
        return;
    };
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let output = tidegate()
        .arg("mount")
        .arg(limited.source())
        .arg(folder.path())
        .args(["--passthrough", "off", "--flush-interval", "30s"])
        .output()
        .expect("the binary runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let checked = std::panic::AssertUnwindSafe(|| check(&limited, folder.path()));
    let outcome = std::panic::catch_unwind(checked);
    let unmounted = tidegate()
        .args(["unmount", "--lazy"])
        .arg(folder.path())
        .output()
        .expect("the binary runs");
    outcome.expect("what the check said stands above");
    assert!(
        unmounted.status.success(),
        "{}",
        String::from_utf8_lossy(&unmounted.stderr)
    );
}

/// Creates `count` files of `bytes` each in the source.
fn fill(limited: &Limited, count: usize, bytes: usize) {
    for number in 0..count {
        let path = limited.source().join(format!("filler {number}"));
        fs::write(&path, vec![1; bytes]).expect("the quota has room for it");
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.expect("the quota has room for it");
    }
}

/// Removes one of them. btrfs frees its space with the next transaction.
fn empty(limited: &Limited, folder: &Path, number: usize) {
    fs::remove_file(folder.join(format!("filler {number}"))).expect("removing takes no room");
    let source = File::open(limited.source()).expect("the source is there");
    rustix::fs::syncfs(source).expect("the source can be synced");
}

#[test]
fn a_flush_over_the_quota_is_told_once_to_each_descriptor_and_the_mount_stays_usable() {
    on_a_mount(|limited, folder| {
        fill(limited, 1, 7 * MIB);
        let path = folder.join("file");
        let first = File::create(&path).unwrap();
        let second = OpenOptions::new().write(true).open(&path).unwrap();
        let other = File::create(folder.join("other")).unwrap();
        // The buffer takes 4 MiB; 1 MiB of the quota is left.
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

        empty(limited, folder, 0);
        first.write_all_at(b"room again", 0).unwrap();
        assert_eq!(told(first.sync_all()), None);
        assert_eq!(
            fs::read(limited.source().join("file")).unwrap()[..10],
            *b"room again"
        );
    });
}

/// statfs does not include the quota and reports free space.
#[test]
fn data_acknowledged_after_a_quota_error_is_kept() {
    on_a_mount(|limited, folder| {
        fill(limited, 14, MIB / 2);
        let names = ["one", "other"];
        let files = names.map(|name| File::create(folder.join(name)).unwrap());
        for number in 0..8 {
            files[0]
                .write_all_at(&vec![2; MIB / 2], number * (1 << 19))
                .unwrap();
        }
        assert_eq!(told(files[0].sync_all()), Some(Errno::DQUOT.raw_os_error()));
        let mut contents = names.map(|name| fs::read(folder.join(name)).unwrap());
        let (mut kept, mut fillers) = (0, 0..14);
        for round in 0..400_usize {
            let (file, content) = (&files[round % 2], &mut contents[round % 2]);
            let block = [u8::try_from(round % 251).unwrap(); 32 << 10];
            match told(file.write_all_at(&block, content.len().try_into().unwrap())) {
                None => {
                    content.extend_from_slice(&block);
                    kept += 1;
                }
                Some(error) => {
                    assert_eq!(error, Errno::DQUOT.raw_os_error());
                    // Make room for a few more writes.
                    if let Some(number) = fillers.next() {
                        empty(limited, folder, number);
                    }
                }
            }
        }
        assert!(
            kept > 100 && fillers.is_empty(),
            "{kept} blocks, {fillers:?} were not needed"
        );
        for ((name, file), content) in names.iter().zip(&files).zip(contents) {
            assert_eq!(
                told(file.sync_all()),
                None,
                "{name}: what was acknowledged is lost"
            );
            let found = fs::read(limited.source().join(name)).unwrap();
            assert!(found.starts_with(&content), "{name}");
        }
    });
}
