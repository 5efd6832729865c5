//! A daemon's own mount among others at its mount point, an aborted connection, and a silent daemon.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Mounted, tidegate};

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_daemon_that_is_ended_leaves_a_later_mount_at_its_place_alone() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off"]) else {
        return;
    };
    let root = mounted.mountpoint();
    let open = File::create(root.join("open")).expect("it can be made");
    assert!(mounted.run("unmount", &["--lazy"]).status.success());
    let other = mounted.source().with_file_name("other");
    fs::create_dir(&other).expect("a temporary folder takes folders");
    assert!(runs(tidegate().arg("mount").arg(&other).arg(&root)));

    mounted.end_daemon(Signal::TERM);
    fs::write(root.join("file"), "of the later mount").expect("it is there still");
    assert_eq!(
        fs::read_to_string(other.join("file")).expect("it is in its source"),
        "of the later mount"
    );
    drop(open);
    assert!(mounted.run("unmount", &[]).status.success());
}

#[test]
fn a_daemon_that_is_ended_leaves_what_was_mounted_over_it_alone() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off"]) else {
        return;
    };
    let root = mounted.mountpoint();
    if !runs(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&root)) {
        testkit::report_left_out("only root mounts a tmpfs");
        return;
    }
    fs::write(root.join("file"), "in memory alone").expect("there is room");
    mounted.end_daemon(Signal::TERM);
    let kept = fs::read_to_string(root.join("file"));
    assert!(runs(Command::new("umount").arg(&root)) || kept.is_err());
    assert_eq!(kept.expect("the daemon took it away"), "in memory alone");
}

#[test]
fn a_cut_connection_is_reported_and_leaves_no_dead_mount() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let log = folder.path().join("log");
    let log_argument = log.display().to_string();
    let Some(mounted) = Mounted::start(&["--passthrough", "off", "--log-file", &log_argument]) else {
        return;
    };
    let mut open = File::create(mounted.mountpoint().join("open")).expect("it can be made");
    open.write_all(b"acknowledged").expect("there is room");
    let daemon = rustix::process::pidfd_open(mounted.pid(), rustix::process::PidfdFlags::empty())
        .expect("the daemon runs");
    // umount reports that the mount is busy, but aborts the connection anyway.
    assert!(!runs(Command::new("umount").arg("-f").arg(mounted.mountpoint())));
    crate::harness::wait_for_end(&daemon);
    assert!(!mounted.is_listed(), "a dead mount was left behind");
    let said = fs::read_to_string(&log).expect("the log is there");
    assert!(said.contains("aborted"), "{said}");
    assert!(!said.contains("nothing is held back"), "{said}");
    assert_eq!(
        fs::read(mounted.source().join("open")).expect("it was made"),
        b"acknowledged"
    );
}

#[test]
fn a_daemon_that_does_not_answer_holds_no_unmount_up() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off"]) else {
        return;
    };
    let daemon = rustix::process::pidfd_open(mounted.pid(), rustix::process::PidfdFlags::empty())
        .expect("the daemon runs");
    let send = |signal| rustix::process::pidfd_send_signal(&daemon, signal).expect("it may be signalled");
    send(Signal::STOP);
    let unmount = |more: &[&str]| {
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", "20"])
            .arg(tidegate().get_program());
        command.args(["unmount", "--timeout", "1s"]).args(more);
        command.arg(mounted.mountpoint()).output().expect("it runs")
    };
    let refused = unmount(&[]);
    let listed = mounted.is_listed();
    let lazy = unmount(&["--lazy"]);
    send(Signal::CONT);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--lazy") && said.contains("did not answer"),
        "{said}"
    );
    assert!(listed, "it was unmounted with nobody to wait for");
    assert!(lazy.status.success(), "{lazy:?}");
    assert!(!mounted.is_listed());
    crate::harness::wait_for_end(&daemon);
}

/// Waits for the end of a command, which may be beyond the reach of SIGKILL.
fn ends_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait().expect("a child of this process") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// A process that waits for the answer to a request that a daemon has read can't be killed.
#[test]
fn a_daemon_that_keeps_requests_to_itself_holds_no_command_up() {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::FUSE]) {
        return;
    }
    let folder = tempfile::TempDir::new().expect("possible on this host");
    let (source, place) = (folder.path().join("source"), folder.path().join("place"));
    fs::create_dir(&source).expect("made");
    fs::create_dir(&place).expect("made");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/silent.py");
    let daemon = Command::new("python3")
        .arg(script)
        .arg(&place)
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut daemon) = daemon else {
        testkit::report_left_out("there is no python3");
        return;
    };
    let mut said = String::new();
    let output = daemon.stdout.take().expect("a pipe");
    BufReader::new(output)
        .read_line(&mut said)
        .expect("it says one line");
    let start = |words: &[&str]| {
        let words = words.iter().map(|word| match *word {
            "PLACE" => place.as_os_str(),
            "SOURCE" => source.as_os_str(),
            word => word.as_ref(),
        });
        let mut command = tidegate();
        command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the binary runs")
    };
    // The limit for an answer is 10 s.
    let end = |child: &mut Child| ends_within(child, Duration::from_secs(40)).map(|status| status.code());
    let beside: [&[&str]; 5] = [
        &["stats", "PLACE"],
        &["stats"],
        &["unmount", "--timeout", "1s", "PLACE"],
        &["mount", "SOURCE", "PLACE"],
        &["mount", "-o", "remount,ro,buffer=4m", "SOURCE", "PLACE"],
    ];
    let mut running: Vec<Child> = beside.iter().map(|words| start(words)).collect();
    let mut ended: Vec<_> = running.iter_mut().map(end).collect();
    running.push(start(&["unmount", "--timeout", "1s", "--lazy", "PLACE"]));
    ended.extend(running.last_mut().map(end));
    let is_gone = !fs::read_to_string("/proc/self/mountinfo")
        .expect("/proc is mounted")
        .contains(&*place.to_string_lossy());
    daemon.kill().expect("it is a child of this process");
    daemon.wait().expect("it is a child of this process");
    for child in &mut running {
        child.wait().expect("a child of this process");
    }
    if !is_gone {
        let _ = runs(Command::new("umount").arg("-l").arg(&place));
    }
    assert_eq!(said, "mounted\n");
    let [stats, list, unmount, over, remount, lazy] = ended[..].try_into().expect("one of each");
    assert_eq!(list, Some(Some(0)), "stats");
    for (name, ended) in [
        ("stats", stats),
        ("unmount", unmount),
        ("mount", over),
        ("remount", remount),
    ] {
        assert_eq!(ended, Some(Some(2)), "{name}");
    }
    assert_eq!(lazy, Some(Some(0)), "unmount --lazy");
    assert!(is_gone, "it is mounted still");
}
