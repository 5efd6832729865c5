//! A source on btrfs, whose snapshots are replaced behind the mount.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use vfs::FileSystem;

use crate::source::Source;

/// A btrfs in an image, unmounted on drop.
pub(crate) struct Btrfs {
    image: tempfile::NamedTempFile,
    root: PathBuf,
}

impl Btrfs {
    /// `None`, with a printed reason, without root, a loop device or btrfs.
    pub(crate) fn on(folder: &Path) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        image
            .as_file()
            .set_len(128 << 20)
            .expect("a temporary file grows");
        let made = Self {
            image,
            root: folder.to_owned(),
        };
        let mut make = Command::new("unshare");
        let mut mount = Command::new("mount");
        let maker = ["mkfs.btrfs", "mkfs.btrfs", "-q", "-f"];
        make.args(["-m", "sh", "-c", testkit::BESIDE_DEAD_MOUNTS])
            .args(maker);
        if runs(make.arg(made.image.path()))
            && runs(
                mount
                    .args(["-t", "btrfs", "-o", "loop"])
                    .arg(made.image.path())
                    .arg(folder),
            )
        {
            return Some(made);
        }
        testkit::report_left_out("tests on btrfs need root, a loop device and btrfs");
        None
    }

    fn subvolume(&self, words: &[&str], names: &[&str]) {
        let paths = names.iter().map(|name| self.root.join(name));
        let mut command = Command::new("btrfs");
        assert!(
            runs(command.arg("subvolume").args(words).args(paths)),
            "{words:?} {names:?}"
        );
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // Best effort; descriptors of the source may still be open.
        let _ = Command::new("umount").arg("-l").arg(&self.root).output();
    }
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The host gives the number of the old snapshot's device to a new one, while the old one's inodes are known.
#[test]
fn a_snapshot_that_took_over_the_number_of_another_is_another() {
    let folder = tempfile::TempDir::new().unwrap();
    let Some(btrfs) = Btrfs::on(folder.path()) else {
        return;
    };
    let root = btrfs.root.clone();
    btrfs.subvolume(&["create"], &["origin"]);
    fs::write(root.join("origin/file"), "before").unwrap();
    btrfs.subvolume(&["snapshot"], &["origin", "snapshot"]);
    let device = |name: &str| fs::metadata(root.join(name)).unwrap().dev();
    let number = device("snapshot");
    let source = Source::in_folder(folder);
    // Detached before its folder is removed.
    let btrfs = btrfs;
    let find = || {
        let snapshot = source.lookup("snapshot").unwrap();
        (snapshot, source.fs.lookup(snapshot.ino, b"file").unwrap())
    };
    let before = find();
    let again = find();
    assert_eq!((before.0.ino, before.1.ino), (again.0.ino, again.1.ino));

    btrfs.subvolume(&["delete"], &["snapshot"]);
    fs::write(root.join("origin/file"), "and after").unwrap();
    let reused = (0..40).map(|number| format!("next{number}")).find(|name| {
        btrfs.subvolume(&["snapshot"], &["origin", name]);
        device(name) == number
    });
    let Some(reused) = reused else {
        testkit::report_left_out("no snapshot got the number of the one that was deleted");
        return;
    };
    fs::rename(root.join(reused), root.join("snapshot")).unwrap();
    let after = find();
    assert_ne!(before.0.ino, after.0.ino);
    assert_ne!(before.1.ino, after.1.ino);
    assert_eq!(after.1.attr.size, 9);
}
