//! Kernel passthrough that the kernel grants for some files of a mount and refuses for others.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Mounted, can_mount, tidegate};

/// An overlay file system, unmounted on drop. The kernel refuses passthrough to its files, which are already stacked.
struct Overlay {
    mountpoint: PathBuf,
    layers: tempfile::TempDir,
}

impl Overlay {
    /// `None`, with a printed reason, without root or overlayfs.
    fn mount_at(mountpoint: &Path) -> Option<Self> {
        let layers = tempfile::TempDir::new().expect("a temporary folder");
        fs::create_dir(mountpoint).expect("the source takes folders");
        // Upper layers need extended attributes, which not every temporary folder supports.
        let script = "mount -t tmpfs layers \"$0\" && mkdir \"$0/lower\" \"$0/upper\" \"$0/work\" && exec mount -t overlay \
            overlay -o \"lowerdir=$0/lower,upperdir=$0/upper,workdir=$0/work\" \"$1\"";
        let output = Command::new("sh")
            .args(["-c", script])
            .args([layers.path(), mountpoint])
            .output()
            .expect("a shell runs");
        let overlay = Self {
            mountpoint: mountpoint.to_owned(),
            layers,
        };
        if output.status.success() {
            return Some(overlay);
        }
        let error = String::from_utf8_lossy(&output.stderr);
        testkit::report_left_out(format!("an overlay below the source: {error}"));
        None
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let layers = self.layers.path().to_owned();
        for mountpoint in [&self.mountpoint, &layers] {
            let _ = Command::new("umount").arg("-l").arg(mountpoint).output();
        }
    }
}

/// A file system of 2 MiB, unmounted on drop.
struct Tmpfs {
    mountpoint: PathBuf,
    _folder: tempfile::TempDir,
}

impl Tmpfs {
    /// `None`, with a printed reason, if this user can't mount one.
    fn of_two_mib() -> Option<Self> {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let mountpoint = folder.path().join("tmpfs");
        fs::create_dir(&mountpoint).expect("a temporary folder takes folders");
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "small"])
            .arg(&mountpoint)
            .output()
            .expect("mount(8) runs");
        let tmpfs = Self {
            mountpoint,
            _folder: folder,
        };
        if output.status.success() && can_mount() {
            return Some(tmpfs);
        }
        testkit::report_left_out("a small file system: this needs root and /dev/fuse");
        None
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = Command::new("umount").arg("-l").arg(&self.mountpoint).output();
    }
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Number of bytes read through the daemon.
pub fn bytes_served(mounted: &Mounted) -> u64 {
    mounted.stats()["session"]["read_bytes"]
        .as_u64()
        .expect("the document counts the bytes read")
}

#[test]
fn a_file_system_without_passthrough_below_the_source_changes_nothing_for_other_files() {
    let mut overlay = None;
    let prepared = Mounted::start_over(
        |source| {
            overlay = Overlay::mount_at(&source.join("overlay"));
            for name in ["kept-open", "opened-later"] {
                fs::write(source.join(name), name).unwrap();
            }
            if overlay.is_some() {
                fs::write(source.join("overlay/file"), "stacked").unwrap();
            }
        },
        &[],
    );
    let (Some(mounted), Some(_overlay)) = (prepared, overlay) else {
        return;
    };
    if mounted.stats()["negotiated"]["passthrough"] != true {
        testkit::report_left_out("files with and without passthrough: this kernel has none");
        return;
    }
    let root = mounted.mountpoint();
    let mut kept_open = File::open(root.join("kept-open")).unwrap();
    assert_eq!(content(&root.join("overlay/file")), "stacked");
    assert_eq!(bytes_served(&mounted), 7, "the overlay's file passes the daemon");

    // An open file, and a second descriptor of it.
    assert_eq!(content(&root.join("kept-open")), "kept-open");
    let mut first = String::new();
    kept_open.read_to_string(&mut first).unwrap();
    assert_eq!(first, "kept-open");

    // Files outside the overlay bypass the daemon, those in it do not, even if they are open twice.
    assert_eq!(content(&root.join("opened-later")), "opened-later");
    assert_eq!(
        bytes_served(&mounted),
        7,
        "files beside the overlay lost passthrough"
    );
    let _stacked = File::open(root.join("overlay/file")).unwrap();
    assert_eq!(content(&root.join("overlay/file")), "stacked");
    let reasons = mounted.stats()["negotiated"]["not_granted"].to_string();
    assert_eq!(reasons.matches("passthrough").count(), 1, "{reasons}");
}

/// A source that, like NFS, writes back at close: another mount of tidegate, on a file system that fills up.
#[test]
fn a_close_under_passthrough_tells_what_the_source_could_not_write() {
    let Some(full) = Tmpfs::of_two_mib() else {
        return;
    };
    let below = tempfile::TempDir::new().unwrap();
    let lower = tidegate()
        .arg("mount")
        .args([full.mountpoint.as_path(), below.path()])
        .args(["--passthrough", "off", "--flush-interval", "30s"])
        .output()
        .unwrap();
    assert!(
        lower.status.success(),
        "{}",
        String::from_utf8_lossy(&lower.stderr)
    );
    let place = tempfile::TempDir::new().unwrap();
    let upper = tidegate()
        .arg("mount")
        .args([below.path(), place.path()])
        .output()
        .unwrap();
    assert!(
        upper.status.success(),
        "{}",
        String::from_utf8_lossy(&upper.stderr)
    );
    // Fills the space that the lower mount needs while it buffers the data. Only `os.close` reports the error.
    let script = "import os, sys
fd = os.open(sys.argv[1] + '/file', os.O_CREAT | os.O_WRONLY)
os.write(fd, b'1' * (1 << 20))
try:
    with open(sys.argv[2] + '/filler', 'wb', 0) as filler:
        while filler.write(b'2' * 65536): pass
except OSError: pass
try: os.close(fd)
except OSError as error: print(error.errno)";
    let output = Command::new("python3")
        .args(["-c", script])
        .args([place.path(), &full.mountpoint])
        .output();
    for mountpoint in [place.path(), below.path()] {
        let _ = tidegate().args(["unmount", "--lazy"]).arg(mountpoint).output();
    }
    let output = output.unwrap();
    let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let expected = rustix::io::Errno::NOSPC.raw_os_error().to_string();
    assert_eq!(told, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

/// Also without passthrough, and for any descriptor, because the buffer merges the writes of several.
#[test]
fn each_close_has_a_source_that_writes_at_close_write_what_all_descriptors_wrote() {
    let Some(lower) = Mounted::start(&["--passthrough", "off", "--flush-interval", "30s"]) else {
        return;
    };
    for flusher in ["thread", "inline", "off"] {
        let place = tempfile::TempDir::new().unwrap();
        let upper = tidegate()
            .arg("mount")
            .args([lower.mountpoint().as_path(), place.path()])
            .args(["--passthrough", "off", "--flusher", flusher])
            .output()
            .unwrap();
        assert!(
            upper.status.success(),
            "{}",
            String::from_utf8_lossy(&upper.stderr)
        );
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            options.open(place.path().join(flusher)).unwrap()
        };
        let (one, other) = (open(), open());
        one.write_all_at(b"of the one ", 0).unwrap();
        other.write_all_at(b"of the other", 11).unwrap();
        drop(other);
        let found = fs::read(lower.source().join(flusher)).unwrap();
        drop(one);
        let _ = tidegate().args(["unmount", "--lazy"]).arg(place.path()).output();
        assert_eq!(
            String::from_utf8_lossy(&found),
            "of the one of the other",
            "{flusher}"
        );
    }
}
