//! A program that opens more files than the daemon has descriptors for.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::harness::{Detached, Mounted, as_nobody, can_mount, in_a_thread_of_nobody};

const LIMIT: usize = 400;

#[test]
fn a_program_that_takes_all_descriptors_gets_an_error_and_others_continue() {
    // Run as root without the capability to raise limits, as in a container.
    let limited = || {
        let mut command = Command::new("setpriv");
        command
            .args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "--"])
            .args(["prlimit", &format!("--nofile={LIMIT}:{LIMIT}"), "--"])
            .arg(env!("CARGO_BIN_EXE_tidegate"));
        command
    };
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("prlimit")]) {
        return;
    }
    let prepare = |source: &std::path::Path| {
        for number in 0..2 * LIMIT {
            fs::write(source.join(number.to_string()), "content").unwrap();
        }
    };
    for passthrough in ["auto", "off"] {
        let Some(mounted) = Mounted::start_by(limited(), prepare, &["--passthrough", passthrough]) else {
            return;
        };
        let root = mounted.mountpoint();
        let mut open = Vec::new();
        let error = loop {
            match File::open(root.join(open.len().to_string())) {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NFILE.raw_os_error()), "{error}");
        assert!(
            open.len() > LIMIT * 9 / 10 - 20,
            "only {} files were opened",
            open.len()
        );

        // A refused creation creates nothing, and a refused truncation keeps the content.
        File::create(root.join("new")).unwrap_err();
        assert!(!mounted.source().join("new").exists());
        File::create(root.join((2 * LIMIT - 1).to_string())).unwrap_err();
        assert_eq!(
            fs::read(mounted.source().join((2 * LIMIT - 1).to_string())).unwrap(),
            b"content"
        );

        // Lookups, listing and closing still work.
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2 * LIMIT);
        assert_eq!(fs::metadata(root.join("0")).unwrap().len(), 7);
        fs::rename(root.join("0"), root.join("renamed")).unwrap();
        let shortages = mounted.stats()["session"]["descriptor_shortages"].as_u64();
        assert!(shortages >= Some(3), "{shortages:?}");

        open.truncate(LIMIT / 2);
        // Closes reach the daemon after close(2) has returned.
        let deadline = Instant::now() + Duration::from_secs(10);
        let content = loop {
            match fs::read(root.join("300")) {
                Err(_) if Instant::now() < deadline => std::thread::yield_now(),
                other => break other,
            }
        };
        assert_eq!(content.unwrap(), b"content");
        fs::write(root.join("new"), "room again").unwrap();
    }
}

#[test]
fn a_mount_with_hardly_a_descriptor_is_there_or_is_an_error() {
    if !can_mount() || !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("prlimit")]) {
        return;
    }
    let (folder, mountpoint) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut outcomes = Vec::new();
    for descriptors in 6..24 {
        let limit = format!("--nofile={descriptors}:{descriptors}");
        let mounted = Command::new("setpriv")
            .args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "--"])
            .args(["prlimit", &limit, "--", env!("CARGO_BIN_EXE_tidegate"), "mount"])
            .args([folder.path(), mountpoint.path()])
            .args(["--threads", "2", "--uring", "off", "--poll", "20us"])
            .output()
            .unwrap();
        let stats = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["stats", "--json"])
            .arg(mountpoint.path())
            .output()
            .unwrap();
        let _detached = stats
            .status
            .success()
            .then(|| Detached(mountpoint.path().to_owned()));
        assert_eq!(
            mounted.status.success(),
            stats.status.success(),
            "{descriptors}: {mounted:?}"
        );
        if mounted.status.success() {
            let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
            let negotiated = &stats["negotiated"];
            let reasons = negotiated["not_granted"].as_array().unwrap().iter();
            let told = reasons.filter_map(|reason| reason.as_str()?.strip_prefix("poll: "));
            let polls = negotiated["poll_ns"].as_u64() != Some(0);
            assert!(polls || told.count() == 1, "{negotiated}");
        }
        outcomes.push(mounted.status.success());
    }
    assert!(
        outcomes.contains(&true) && outcomes.contains(&false),
        "{outcomes:?}"
    );
}

/// An ordinary user's daemon holds one descriptor per known folder, and another while it is open.
#[test]
fn a_program_that_takes_all_descriptors_by_folders_fails_no_close() {
    let mut limited = as_nobody();
    limited.args(["prlimit", "--nofile=256:256", "--"]);
    let Some(mounted) = Mounted::start_as_nobody_by(limited, &["--passthrough", "off"]) else {
        return;
    };
    let root = mounted.mountpoint();
    for number in 0..256 {
        fs::create_dir(mounted.source().join(number.to_string())).expect("root may");
    }
    in_a_thread_of_nobody(|| {
        let file = File::create(root.join("file")).unwrap();
        let mut open = Vec::new();
        let error = loop {
            match File::open(root.join(open.len().to_string())) {
                Ok(folder) => open.push(folder),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NFILE.raw_os_error()), "{error}");
        assert!(open.len() > 100, "only {} folders were opened", open.len());
        rustix::io::write(&file, b"written while there were none").unwrap();
        drop(file);
        // Known folders can still be looked up.
        assert!(fs::metadata(root.join("0")).unwrap().is_dir());
        drop(open);
        fs::write(root.join("new"), "room again").unwrap();
    });
    let kept = fs::read(mounted.source().join("file")).unwrap();
    assert_eq!(kept, b"written while there were none");
    let stats = as_nobody()
        .arg(mounted.binary())
        .args(["stats", "--json"])
        .arg(&root)
        .output()
        .unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    let operations = stats["session"]["operations"].as_array().unwrap().iter();
    let mut closes = operations.filter(|counted| counted["operation"] == "flush");
    assert_eq!(closes.next().unwrap()["errors"], 0, "a close failed");
}
