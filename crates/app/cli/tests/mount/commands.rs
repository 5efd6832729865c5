//! `tidegate mount`, `unmount` and `stats` as a user runs them, on real mounts.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::harness::{Mounted, tidegate, unmount_in_a_process_namespace, wait_for_end};
use rustix::process::{PidfdFlags, Signal, pidfd_open};

/// All data passes through the daemon and its buffer, without passthrough; unflushed data waits for half a minute.
const HELD_BACK: [&str; 6] = [
    "--passthrough",
    "off",
    "--writeback",
    "off",
    "--flush-interval",
    "30s",
];

#[test]
fn a_mount_in_the_background_answers_when_the_command_returns() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    fs::write(mounted.source().join("file"), "from below").unwrap();
    assert_eq!(
        fs::read_to_string(mounted.mountpoint().join("file")).unwrap(),
        "from below"
    );
    assert!(mounted.is_listed());
}

#[test]
fn data_written_through_the_mount_is_in_the_source_after_close() {
    let Some(mounted) = Mounted::start(&HELD_BACK) else {
        return;
    };
    fs::create_dir(mounted.mountpoint().join("folder")).unwrap();
    fs::write(mounted.mountpoint().join("folder/file"), vec![7; 3 << 20]).unwrap();
    assert_eq!(
        fs::read(mounted.source().join("folder/file")).unwrap(),
        vec![7; 3 << 20]
    );
}

#[test]
fn unmount_returns_after_the_daemon_has_ended() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let daemon = pidfd_open(mounted.pid(), PidfdFlags::empty()).unwrap();
    fs::write(mounted.mountpoint().join("file"), "kept").unwrap();
    let output = mounted.run("unmount", &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!mounted.is_listed());
    wait_for_end(&daemon);
    assert_eq!(fs::read_to_string(mounted.source().join("file")).unwrap(), "kept");
}

#[test]
fn unmount_that_can_not_see_the_daemon_says_so_and_fails() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    fs::write(mounted.mountpoint().join("file"), "kept").unwrap();
    let Some(output) = unmount_in_a_process_namespace(&mounted.mountpoint(), &["--mount-proc"]) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("can't be waited for"), "{said}");
}

#[test]
fn a_busy_mount_stays_and_the_message_says_how_to_find_the_user() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let _open = fs::File::create(mounted.mountpoint().join("file")).unwrap();
    let output = mounted.run("unmount", &[]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("lsof") && message.contains("--lazy"),
        "{message}"
    );
    assert!(mounted.is_listed());
}

/// The working folder is the use that needs `--lazy`, and it has no path once the mount is gone.
#[test]
fn a_lazy_unmount_from_inside_of_the_mount_succeeds_and_names_it() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let output = tidegate()
        .args(["unmount", "--lazy", "."])
        .current_dir(mounted.mountpoint())
        .output()
        .expect("the binary runs");
    let (said, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{error}");
    let place = format!("{}: out of sight; process ", mounted.mountpoint().display());
    assert!(said.starts_with(&place), "{said}{error}");
    assert!(!mounted.is_listed());
}

#[test]
fn sigterm_drains_what_was_written_and_not_flushed() {
    let Some(mounted) = Mounted::start(&HELD_BACK) else {
        return;
    };
    let mut file = fs::File::create(mounted.mountpoint().join("file")).unwrap();
    file.write_all(&[5; 300_000]).unwrap();
    mounted.end_daemon(Signal::TERM);
    assert_eq!(fs::read(mounted.source().join("file")).unwrap(), vec![5; 300_000]);
    assert!(!mounted.is_listed());
}

#[test]
fn after_sigkill_the_mount_is_removable_and_fsynced_data_is_there() {
    let Some(mounted) = Mounted::start(&HELD_BACK) else {
        return;
    };
    let file = fs::File::create(mounted.mountpoint().join("file")).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 10_000], 10_000).unwrap();
    mounted.end_daemon(Signal::KILL);
    drop(file);
    let output = mounted.run("unmount", &[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!mounted.is_listed());
    let kept = fs::read(mounted.source().join("file")).unwrap();
    assert_eq!(kept.get(..10_000), Some(&[1; 10_000][..]));
}

#[test]
fn statistics_count_the_writes_that_passed() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off", "--writeback", "off", "--direct-io", "on"])
    else {
        return;
    };
    fs::write(mounted.mountpoint().join("file"), vec![0; 1 << 20]).unwrap();
    let stats = mounted.stats();
    assert_eq!(stats["version"], 1);
    assert_eq!(stats["pid"], mounted.report["pid"]);
    assert_eq!(stats["session"]["written_bytes"], 1 << 20);
    assert_eq!(stats["backing"]["written_bytes"], 1 << 20);
    let operations = stats["session"]["operations"].as_array().unwrap();
    assert!(
        operations.iter().any(|counted| counted["operation"] == "write"),
        "{operations:?}"
    );
}

#[test]
fn statistics_come_as_a_table_and_for_prometheus() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    let brief = String::from_utf8(mounted.run("stats", &[]).stdout).unwrap();
    let table = String::from_utf8(mounted.run("stats", &["--all"]).stdout).unwrap();
    for table in [&brief, &table] {
        assert!(
            table.contains("negotiated") && table.contains("write buffer"),
            "{table}"
        );
    }
    assert!(brief.lines().count() * 2 < table.lines().count(), "{brief}");
    assert!(
        mounted.report["negotiated"]["threads"].is_number(),
        "{:?}",
        mounted.report
    );
    let page = String::from_utf8(mounted.run("stats", &["--prometheus"]).stdout).unwrap();
    assert!(page.contains("# TYPE tidegate_requests_total counter"), "{page}");
}

#[test]
fn a_read_only_mount_refuses_a_write() {
    let Some(mounted) = Mounted::start(&["-o", "ro"]) else {
        return;
    };
    let error = fs::write(mounted.mountpoint().join("file"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn the_helpers_form_mounts_too() {
    let Some(mounted) = Mounted::start(&[]) else {
        return;
    };
    // A second mount of the same source, with the arguments of mount.fuse3.
    let second = tempfile::TempDir::new().unwrap();
    let output = tidegate()
        .arg(mounted.source())
        .arg(second.path())
        .args(["-o", "rw,dev,suid"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(mounted.source().join("file"), "seen").unwrap();
    let seen = fs::read_to_string(second.path().join("file"));
    let unmounted = tidegate().arg("unmount").arg(second.path()).output().unwrap();
    assert_eq!(seen.unwrap(), "seen");
    assert!(
        unmounted.status.success(),
        "{}",
        String::from_utf8_lossy(&unmounted.stderr)
    );
}

/// The options of the mount in mountinfo, before the dash.
fn flags_in_force(mounted: &Mounted) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let place = format!(" {} ", mounted.mountpoint().display());
    let line = table
        .lines()
        .find(|line| line.contains(&place))
        .expect("it is listed");
    line.split(' ').nth(5).expect("a line has ten fields").to_owned()
}

#[test]
fn a_remount_switches_read_only_on_and_off_and_keeps_the_other_flags() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let Some(mounted) = Mounted::start(&["-o", "noexec,nosuid"]) else {
        return;
    };
    let remount = |options: &str| {
        let output = tidegate()
            .args(["mount", "any", "-o", options])
            .arg(mounted.mountpoint())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let file = mounted.mountpoint().join("file");
    assert_eq!(remount("remount,ro"), (Some(0), String::new()));
    assert_eq!(
        fs::write(&file, "x").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    let flags = flags_in_force(&mounted);
    assert!(flags.contains("noexec") && flags.contains("nosuid"), "{flags}");

    assert_eq!(
        remount("remount,rw,nodev,noatime,flusher=thread"),
        (Some(0), String::new())
    );
    fs::write(&file, "x").unwrap();
    let flags = flags_in_force(&mounted);
    assert!(flags.contains("noexec") && flags.contains("noatime"), "{flags}");

    let (code, message) = remount("remount,buffer=4m");
    assert_eq!(code, Some(2));
    assert!(
        message.contains("buffer=4m") && message.contains("unmount first"),
        "{message}"
    );
}

#[test]
fn a_mount_made_read_only_can_be_made_writable() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let Some(mounted) = Mounted::start(&["-o", "ro"]) else {
        return;
    };
    let file = mounted.mountpoint().join("file");
    assert_eq!(
        fs::write(&file, "x").unwrap_err().kind(),
        std::io::ErrorKind::ReadOnlyFilesystem
    );
    let output = tidegate()
        .args(["mount", "any", "-o", "remount,rw"])
        .arg(mounted.mountpoint())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::write(&file, "x").unwrap();
    assert_eq!(fs::read(mounted.source().join("file")).unwrap(), b"x");
}
