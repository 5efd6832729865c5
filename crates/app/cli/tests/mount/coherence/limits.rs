//! Limits of the watch: own changes, writes under passthrough, other file systems, ordinary users, given timeouts.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use super::changes::{CHANGES, make_subject};
use super::{TOLD, see, start_told};
use crate::harness::{Detached, Mounted, NOBODY, as_nobody, can_mount_as_nobody};

#[test]
fn own_changes_invalidate_nothing_and_are_seen_at_once() {
    let Some(mounted) = start_told(make_subject, &["--passthrough", "off"]) else {
        return;
    };
    let root = mounted.mountpoint();
    for number in 0..200 {
        let name = root.join(format!("made {number}"));
        assert!(fs::symlink_metadata(&name).is_err());
        fs::write(&name, vec![0; number]).unwrap();
        assert_eq!(fs::metadata(&name).unwrap().len(), u64::try_from(number).unwrap());
        fs::rename(&name, root.join("moved")).unwrap();
        assert!(fs::symlink_metadata(&name).is_err());
        let listed = || {
            fs::read_dir(&root)
                .unwrap()
                .filter(|name| name.as_ref().is_ok_and(|name| name.file_name() == "moved"))
        };
        assert_eq!(listed().count(), 1);
        fs::remove_file(root.join("moved")).unwrap();
        assert_eq!(listed().count(), 0);
    }
    let stats = mounted.stats();
    assert!(
        stats["backing"]["change_events_own"].as_u64() > Some(200),
        "{}",
        stats["backing"]
    );
    // Some may be reports of other files, to which the host has given the number of a removed one.
    let invalidated = stats["session"]["names_invalidated"].as_u64();
    assert!(invalidated < Some(40), "{}", stats["session"]);
}

#[test]
fn writes_under_passthrough_are_not_reported_one_by_one() {
    let Some(mounted) = start_told(make_subject, &["--passthrough", "auto"]) else {
        return;
    };
    if mounted.report["negotiated"]["passthrough"] != true {
        testkit::report_left_out("passthrough");
        return;
    }
    let file = OpenOptions::new()
        .write(true)
        .open(mounted.mountpoint().join("a/one"))
        .unwrap();
    let events = || mounted.stats()["session"]["inodes_invalidated"].as_u64().unwrap();
    let before = events();
    for number in 0..2000 {
        file.write_all_at(b"written through the mount", number).unwrap();
        if number % 100 == 0 {
            assert_eq!(file.metadata().unwrap().len(), (number + 25).max(16));
            // Time for several batches of events, if there were any.
            events();
        }
    }
    let reported = events() - before;
    assert!(reported <= 2, "{reported} inodes were invalidated");
    drop(file);
    see(&mounted);
    // Once it is closed, changes behind the mount are reported again.
    fs::write(mounted.source().join("a/one"), "behind the mount").unwrap();
    see(&mounted);
}

#[test]
fn a_file_system_below_the_source_keeps_the_timeouts() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let mut below = None;
    let mount = |source: &Path| {
        fs::create_dir(source.join("below")).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(source.join("below"))
            .status();
        assert!(done.unwrap().success());
        below = Some(Detached(source.join("below")));
        make_subject(&source.join("below"));
    };
    let Some(mounted) = start_told(mount, &[]) else {
        return;
    };
    let _below = below;
    let beside = mounted.source().parent().unwrap().to_owned();
    for (number, (_, change)) in (0..10).zip(CHANGES) {
        see(&mounted);
        let _ = change(&mounted.source().join("below"), &beside, number);
    }
    fs::write(mounted.source().join("below/absent"), "").unwrap();
    see(&mounted);
    fs::write(mounted.source().join("beside it"), "").unwrap();
    see(&mounted);
}

/// Anonymous memory of the daemon.
fn memory_kib(mounted: &Mounted) -> u64 {
    let file = format!("/proc/{}/status", mounted.pid().as_raw_nonzero());
    let status = fs::read_to_string(file).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap()
}

/// A number for which the tables of inodes have just grown: their share is the largest then.
#[test]
fn a_known_file_takes_less_than_200_bytes_of_the_daemon() {
    const FILES: u64 = 15_000;
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let make = |source: &Path| {
        for number in 0..FILES {
            let folder = source.join((number / 1000).to_string());
            if number % 1000 == 0 {
                fs::create_dir(&folder).unwrap();
            }
            fs::File::create(folder.join(number.to_string())).unwrap();
        }
    };
    let Some(mounted) = start_told(make, &[]) else {
        return;
    };
    let before = memory_kib(&mounted);
    // Other programs may make the kernel drop names at any time.
    let mut known = 0;
    for _ in 0..10 {
        let status = Command::new("find")
            .arg(mounted.mountpoint())
            .args(["-size", "+1k"])
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        known = mounted.stats()["backing"]["inodes_held"].as_u64().unwrap();
        if known > FILES {
            break;
        }
    }
    let bytes = memory_kib(&mounted).saturating_sub(before) * 1024;
    assert!(known > FILES, "{known} files are known");
    // Buffers of the requests of the walk are part of it.
    let bytes_a_file = bytes.saturating_sub(512 << 10) / known;
    assert!(bytes_a_file < 200, "{bytes} bytes for {known} files");
}

#[test]
fn without_root_names_are_kept_for_a_limited_time() {
    if !can_mount_as_nobody() {
        return;
    }
    let Some(mounted) = Mounted::start_as_nobody(&["--coherence", "auto"]) else {
        return;
    };
    assert_eq!(mounted.report["negotiated"]["coherence"], "timeout");
    let reasons = mounted.report["negotiated"]["not_granted"].to_string();
    assert!(reasons.contains("coherence: it needs root"), "{reasons}");
    let folder = tempfile::tempdir().unwrap();
    for name in ["source", "mountpoint"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        std::os::unix::fs::chown(folder.path().join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let output = as_nobody()
        .arg(mounted.binary())
        .args(["mount", "--coherence", "watch"])
        .args([folder.path().join("source"), folder.path().join("mountpoint")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("coherence=watch can't be had: it needs root"),
        "{message}"
    );
}

#[test]
fn given_timeouts_are_kept() {
    for times in [["--attr-timeout", "0s"], ["--entry-timeout", "5s"]] {
        let Some(mounted) = Mounted::start(&[&TOLD[..], &times].concat()) else {
            return;
        };
        assert_eq!(mounted.report["negotiated"]["coherence"], "timeout");
    }
}
