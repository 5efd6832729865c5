//! A mount point that is already in use, and the list of mounts.

use std::fs;
use std::process::Output;

use rustix::process::Signal;

use crate::harness::{Mounted, as_nobody, can_mount_as_nobody, tidegate};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Mounts the same source on the same mount point again.
fn mount_again(mounted: &Mounted, arguments: &[&str]) -> Output {
    tidegate()
        .arg("mount")
        .args([mounted.source(), mounted.mountpoint()])
        .args(arguments)
        .output()
        .expect("the binary runs")
}

/// Number of mounts that the kernel lists at the mount point.
fn depth(mounted: &Mounted) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    table
        .matches(&format!(" {} ", mounted.mountpoint().display()))
        .count()
}

#[test]
fn a_second_mount_on_the_same_place_is_refused_unless_over_is_given() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let refused = mount_again(&mounted, &[]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    let pid = mounted.pid().as_raw_nonzero().to_string();
    for part in [
        &mounted.source().display().to_string(),
        &pid,
        "tidegate unmount",
        "--over",
    ] {
        assert!(message.contains(part), "`{part}` is missing: {message}");
    }
    assert_eq!(depth(&mounted), 1);

    let stacked = mount_again(&mounted, &["--over"]);
    assert!(stacked.status.success(), "{}", text(&stacked.stderr));
    assert_eq!(depth(&mounted), 2);
    assert!(mounted.run("unmount", &[]).status.success());
    let stacked = mount_again(&mounted, &["-o", "over"]);
    assert!(stacked.status.success(), "{}", text(&stacked.stderr));
    assert!(mounted.run("unmount", &[]).status.success());
    assert_eq!(depth(&mounted), 1);
}

#[test]
fn a_mount_that_has_another_type_is_recognised() {
    let Some(mounted) = Mounted::start(&["-o", "subtype=other"]) else {
        return;
    };
    let refused = mount_again(&mounted, &[]);
    let message = text(&refused.stderr);
    assert!(message.contains("--over"), "{message}");
    assert_eq!(depth(&mounted), 1);
}

#[test]
fn an_ordinary_user_is_told_that_a_place_is_taken_and_not_of_permissions() {
    if !can_mount_as_nobody() {
        return;
    }
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    use std::os::unix::fs::PermissionsExt;
    let folder = mounted.source().parent().unwrap().to_owned();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.join("tidegate");
    fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).unwrap();
    let refused = as_nobody()
        .arg(&binary)
        .arg("mount")
        .args([mounted.source(), mounted.mountpoint()])
        .output()
        .unwrap();
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("mounted here already"), "{message}");
}

#[test]
fn statistics_without_a_mountpoint_list_the_mounts_dead_ones_too() {
    let (Some(alive), Some(dead)) = (Mounted::start(&[]), Mounted::start(&[])) else {
        return;
    };
    dead.end_daemon(Signal::KILL);
    let output = tidegate().arg("stats").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = text(&output.stdout);
    let line_of = |mounted: &Mounted| {
        let place = mounted.mountpoint().display().to_string();
        let line = listed.lines().find(|line| line.contains(&place));
        line.unwrap_or_else(|| panic!("{place} is not listed:\n{listed}"))
            .to_owned()
    };
    assert!(line_of(&alive).contains(&alive.pid().as_raw_nonzero().to_string()));
    assert!(line_of(&alive).contains(&alive.source().display().to_string()));
    assert!(line_of(&dead).contains("dead"));

    let asked = dead.run("stats", &[]);
    assert_eq!(asked.status.code(), Some(2));
    let unmounted = dead.run("unmount", &[]);
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
    for message in [asked.stderr, unmounted.stderr].map(|bytes| text(&bytes)) {
        assert!(
            message.contains("journalctl -t tidegate"),
            "where its messages are: {message}"
        );
    }
}

/// A daemon with a dead source passes on its error, which differs from that of a mount without a daemon: the daemon may
/// still hold unwritten data.
#[test]
fn a_mount_whose_source_is_dead_is_no_dead_mount_and_can_be_taken_away() {
    let Some(below) = Mounted::start(&["--attr-timeout", "0s"]) else {
        return;
    };
    let folder = tempfile::TempDir::new().expect("possible on this host");
    let mountpoint = folder.path();
    let mounted = tidegate()
        .arg("mount")
        .args([&below.mountpoint(), mountpoint])
        .args(["--attr-timeout", "0s", "--entry-timeout", "0s"])
        .output()
        .expect("the binary runs");
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    below.end_daemon(Signal::KILL);
    let asked = fs::metadata(mountpoint).expect_err("its source is dead");
    let unmounted = tidegate()
        .arg("unmount")
        .arg(mountpoint)
        .output()
        .expect("the binary runs");
    let told = text(&unmounted.stderr);
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    assert!(!table.contains(&mountpoint.display().to_string()), "{told}");
    assert_eq!(asked.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    assert!(!told.contains("its daemon is gone"), "{told}");
    assert_eq!(unmounted.status.code(), Some(2), "{told}");
    assert!(told.contains("can't be waited for"), "{told}");
}
