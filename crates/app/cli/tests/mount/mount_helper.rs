//! mount(8), umount(8) and /etc/fstab with the helper `/sbin/mount.fuse.tidegate` installed.
//!
//! Runs in its own mount namespace, with a link to the built binary overlaid on the folder of mount(8)'s helpers and
//! another file over /etc/fstab, so the machine itself is not touched.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Installs the helper and the table for mount(8), only in this namespace.
const PREPARE: &str = "\
    mount -t overlay overlay -o lowerdir=helpers:\"$(realpath /sbin)\" \"$(realpath /sbin)\"
    mount --bind fstab /etc/fstab
";

/// Runs a script under `set -eu` in its own namespace, in a folder with `source` and `mountpoint`; returns its output.
/// `None`, with a printed reason, if that is not possible.
fn run(script: &str) -> Option<String> {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::FUSE]) {
        return None;
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    for name in ["source", "mountpoint", "helpers"] {
        fs::create_dir(folder.path().join(name)).expect("a temporary folder takes files");
    }
    symlink(
        env!("CARGO_BIN_EXE_tidegate"),
        folder.path().join("helpers/mount.fuse.tidegate"),
    )
    .expect("a temporary folder takes files");
    let place = folder.path().display();
    let table =
        format!("{place}/source {place}/mountpoint fuse.tidegate noauto,noatime,passthrough=off 0 0\n");
    fs::write(folder.path().join("fstab"), table).expect("a temporary folder takes files");
    let in_namespace = |script: &str| {
        Command::new("unshare")
            .args(["--mount", "sh", "-euc", script])
            .current_dir(folder.path())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
    };
    if !in_namespace(PREPARE).is_ok_and(|output| output.status.success()) {
        testkit::report_left_out("mount(8) with the helper: this needs unshare, overlayfs and an /etc/fstab");
        return None;
    }
    // End the daemon in any case: it would keep the namespace alive.
    let script = format!("trap 'umount -l mountpoint 2>/dev/null || true' EXIT\n{PREPARE}{script}");
    let output = in_namespace(&script).expect("unshare ran before");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {error}", output.status);
    assert_eq!(error, "", "a helper of mount(8) says nothing unless asked to");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints the mount table's line of the mount. The namespace has the mounts of other tests too.
const SHOW: &str = "grep \" $PWD/mountpoint \" /proc/self/mountinfo\n";

#[test]
fn mount_8_with_the_type_calls_the_helper_and_umount_8_ends_it() {
    let script = format!(
        "mount -t fuse.tidegate -o nosuid,passthrough=off \"$PWD/source\" mountpoint
         echo kept > mountpoint/file
         {SHOW}
         mount -o remount,ro mountpoint
         if touch mountpoint/refused 2>/dev/null; then echo 'still writable' >&2; fi
         umount mountpoint
         cat source/file mountpoint/file 2>/dev/null || echo gone"
    );
    let Some(shown) = run(&script) else { return };
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert!(
        lines[0].contains("nosuid") && lines[0].contains("/source "),
        "{shown}"
    );
    assert_eq!(lines[1..], ["kept", "gone"], "{shown}");
    assert!(
        !Path::new("/etc/fstab").exists() || !fs::read_to_string("/etc/fstab").unwrap().contains("tidegate")
    );
}

#[test]
fn a_line_of_fstab_mounts_by_the_mountpoint_alone() {
    let script = format!(
        "mount \"$PWD/mountpoint\"\necho kept > mountpoint/file\n{SHOW}umount mountpoint\ncat source/file"
    );
    let Some(shown) = run(&script) else { return };
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].contains("noatime"), "{shown}");
    assert_eq!(lines[1], "kept");
}
