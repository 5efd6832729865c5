//! Kernel passthrough where the kernel grants it for some files of a mount and refuses it for others.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Mounted, report_skip};

/// An overlay file system, unmounted at the end. The kernel refuses passthrough to its files: they are stacked already.
struct Overlay {
    mountpoint: PathBuf,
    layers: tempfile::TempDir,
}

impl Overlay {
    /// `None`, with a reason printed, where there is no root or no overlayfs.
    fn mount_at(mountpoint: &Path) -> Option<Self> {
        let layers = tempfile::TempDir::new().expect("a temporary folder");
        fs::create_dir(mountpoint).expect("the source takes folders");
        // Upper layers need extended attributes, which not every temporary folder has.
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
        report_skip(&format!("an overlay below the source: {error}"));
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

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Bytes that reads fetched through the daemon.
fn bytes_served(mounted: &Mounted) -> u64 {
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
        report_skip("files with and without passthrough: this kernel has none");
        return;
    }
    let root = mounted.mountpoint();
    let mut kept_open = File::open(root.join("kept-open")).unwrap();
    assert_eq!(content(&root.join("overlay/file")), "stacked");
    assert_eq!(bytes_served(&mounted), 7, "the overlay's file passes the daemon");

    // An open file and a second descriptor of it.
    assert_eq!(content(&root.join("kept-open")), "kept-open");
    let mut first = String::new();
    kept_open.read_to_string(&mut first).unwrap();
    assert_eq!(first, "kept-open");

    // Files beside the overlay go on past the daemon, those in it through the daemon, also when they are open twice.
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
