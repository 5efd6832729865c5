//! Reports that are lost: the host's queue overflows, or the daemon is stopped.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use super::changes::{CHANGES, make_subject};
use super::{PATIENCE, see, start_told};
use crate::harness::Mounted;

#[test]
fn changes_that_the_hosts_queue_has_lost_are_seen_once_the_daemon_goes_on() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    see(&mounted);
    // Names that do not exist are kept as well.
    let absent = mounted.mountpoint().join("made meanwhile");
    assert!(fs::symlink_metadata(&absent).is_err());
    let lost = lose_changes(&mounted, || {
        let source = mounted.source();
        fs::write(source.join("made meanwhile"), "").unwrap();
        fs::remove_file(source.join("a/one")).unwrap();
        fs::write(source.join("a/two"), "changed").unwrap();
        fs::set_permissions(source.join("b"), PermissionsExt::from_mode(0o711)).unwrap();
        fs::rename(source.join("c"), source.join("d")).unwrap();
    });
    if !lost {
        return;
    }
    see(&mounted);
    assert!(fs::symlink_metadata(&absent).is_ok());
    let stats = mounted.stats();
    assert_eq!(stats["negotiated"]["coherence"], "watch");
    // It goes on.
    fs::write(mounted.source().join("a/three"), "changed afterwards").unwrap();
    see(&mounted);
}

#[test]
fn what_is_mounted_on_a_folder_stays_when_the_hosts_queue_has_lost_changes() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    let nested = mounted.mountpoint().join("a/deep");
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&nested)
        .status();
    assert!(done.unwrap().success());
    fs::write(nested.join("inside"), "").unwrap();
    let lost = lose_changes(&mounted, || {
        fs::write(mounted.source().join("a/one"), "changed").unwrap();
    });
    let is_there = nested.join("inside").exists();
    let size = fs::metadata(mounted.mountpoint().join("a/one")).unwrap().len();
    assert!(Command::new("umount").arg(&nested).status().unwrap().success());
    assert!(is_there, "the nested mount is gone");
    assert!(!lost || size == 7, "{size} bytes");
}

/// Stops the daemon, lets the host's queue overflow, makes a change, lets the daemon go on, and waits until it has noticed.
/// False, with a printed reason, if the queue is too long for that.
fn lose_changes(mounted: &Mounted, change: impl FnOnce()) -> bool {
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: u64 = limit.trim().parse().unwrap();
    if limit > 60_000 {
        testkit::report_left_out(format!("a queue of {limit} events is too long to be filled"));
        return false;
    }
    let signal = |signal| rustix::process::kill_process(mounted.pid(), signal).unwrap();
    signal(rustix::process::Signal::STOP);
    // Threads stop one by one, and one that goes on would take the events in.
    let began = Instant::now();
    while !is_stopped(mounted) {
        assert!(began.elapsed() < PATIENCE, "the daemon does not stop");
    }
    let beside = mounted.source().parent().unwrap().join("beside");
    fs::create_dir(&beside).unwrap();
    // The host merges events of one name only. A file may have 65,000 names.
    let first = beside.join("first");
    File::create(&first).unwrap();
    for number in 0..limit + 1000 {
        fs::hard_link(&first, beside.join(number.to_string())).unwrap();
    }
    change();
    assert!(is_stopped(mounted), "the daemon was made to go on");
    signal(rustix::process::Signal::CONT);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = mounted.stats();
        let overflows = stats["backing"]["change_queue_overflows"].as_u64();
        if overflows >= Some(1) && stats["session"]["everything_invalidated"].as_u64() >= overflows {
            return true;
        }
        assert!(Instant::now() < deadline, "{}", stats["backing"]);
    }
}

/// True if all threads of the daemon are stopped.
fn is_stopped(mounted: &Mounted) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", mounted.pid().as_raw_nonzero())).unwrap();
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may contain some.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

#[test]
fn changes_made_while_the_daemon_was_stopped_are_seen_once_it_goes_on() {
    let Some(mounted) = start_told(make_subject, &[]) else {
        return;
    };
    for _ in 0..5 {
        see(&mounted);
        let signal = |signal| rustix::process::kill_process(mounted.pid(), signal).unwrap();
        signal(rustix::process::Signal::STOP);
        let beside = mounted.source().parent().unwrap().to_owned();
        for (number, (_, change)) in (0..).zip(CHANGES) {
            let _ = change(&mounted.source(), &beside, number);
        }
        signal(rustix::process::Signal::CONT);
        see(&mounted);
    }
}
