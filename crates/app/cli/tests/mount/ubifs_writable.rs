//! `tidegate ubifs mount -o rw` on chips and arrays in files: written data is kept, however the mount ends.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{can_mount, tidegate, unmount_in_a_process_namespace, wait_for_end};

/// Chips in files with a file system, and their mount point.
pub struct Scene {
    folder: TempDir,
    devices: Vec<String>,
    pid: Option<Pid>,
}

impl Scene {
    /// Makes an empty file system on `members` chips of 9 MiB in total. `None`, with a printed reason, if mounting is not
    /// possible.
    pub fn new(members: u32) -> Option<Self> {
        Self::of(members, &[])
    }

    /// The same with options of the format of an array.
    fn of(members: u32, format: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let folder = TempDir::new().expect("possible on this host");
        fs::create_dir(folder.path().join("mountpoint")).expect("possible on this host");
        let devices = match members {
            1 => Vec::new(),
            _ => vec!["--devices".to_owned(), members.to_string()],
        };
        let scene = Self {
            folder,
            devices,
            pid: None,
        };
        let blocks = (144 / members).to_string();
        scene.succeeds(
            &["nand", "create"],
            &["--page", "2048", "--pages-per-block", "32", "--blocks", &blocks],
        );
        match members {
            1 => {
                scene.succeeds(&["ubi", "format"], &[]);
                scene.succeeds(&["ubi", "mkvol"], &["-N", "data", "-m"]);
            }
            _ => drop(scene.succeeds(&["ubi", "format"], &[format, &["--label", "data"]].concat())),
        }
        scene.succeeds(&["ubifs", "mkfs"], &[]);
        Some(scene)
    }

    /// A file beside the chips, or the mount point.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn run(&self, command: &[&str], more: &[&str]) -> Output {
        tidegate()
            .args(command)
            .arg(self.path("chip"))
            .args(&self.devices)
            .args(more)
            .output()
            .expect("possible on this host")
    }

    fn succeeds(&self, command: &[&str], more: &[&str]) -> String {
        let output = self.run(command, more);
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Mounts it and returns the report.
    pub fn mount(&mut self, options: &str) -> Value {
        self.mount_with(&["-o", options])
    }

    fn mount_with(&mut self, options: &[&str]) -> Value {
        let to = self.text("mountpoint");
        let report = self.succeeds(&[&["ubifs", "mount", "--json"], options].concat(), &[&to]);
        let report: Value = serde_json::from_str(&report).expect("one line of JSON");
        let pid = report["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        self.pid = pid.and_then(Pid::from_raw);
        assert!(self.pid.is_some(), "{report}");
        report
    }

    /// Ends the mount, by a signal to its daemon or by unmounting it.
    pub fn end(&mut self, signal: Option<Signal>) {
        let pid = self.pid.take().expect("it is mounted");
        let daemon = pidfd_open(pid, PidfdFlags::empty()).expect("possible on this host");
        match signal {
            Some(signal) => kill_process(pid, signal).expect("it is there"),
            None => drop(self.unmount()),
        }
        wait_for_end(&daemon);
        if signal == Some(Signal::KILL) {
            self.unmount();
        }
    }

    fn unmount(&self) -> Output {
        let to = self.text("mountpoint");
        let output = tidegate().args(["unmount", &to]).output();
        output.expect("possible on this host")
    }

    /// Checks that the file system is consistent.
    pub fn check(&self) {
        let output = self.run(&["ubifs", "check"], &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.pid.is_some() {
            // Best effort: a failure here would hide the test's own message.
            let _ = tidegate()
                .args(["unmount", "--lazy", "--timeout", "10s", &self.text("mountpoint")])
                .output();
        }
    }
}

fn content(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from((at * seed + at / 977) % 251).expect("below 251"))
        .collect()
}

#[test]
fn changes_of_files_are_there_at_the_next_mount() {
    for members in [1, 2] {
        let Some(mut scene) = Scene::new(members) else {
            return;
        };
        let options = if members == 1 { "rw" } else { "rw,writeback=on" };
        scene.mount(options);
        let root = scene.path("mountpoint");
        fs::create_dir_all(root.join("a/b")).expect("there is room");
        fs::write(root.join("a/large"), content(700_001, 3)).expect("there is room");
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(root.join("log"))
            .expect("there is room");
        for line in 0..200 {
            writeln!(log, "line {line}").expect("there is room");
        }
        drop(log);
        let mut large = OpenOptions::new()
            .read(true)
            .write(true)
            .open(root.join("a/large"))
            .expect("it is there");
        large
            .write_all_at(b"in the middle", 300_000)
            .expect("there is room");
        large.set_len(600_000).expect("it can be cut");
        large.seek(SeekFrom::Start(299_990)).expect("possible");
        let mut middle = [0; 30];
        large.read_exact(&mut middle).expect("it is there");
        assert_eq!(&middle[10..23], b"in the middle");
        symlink("a/large", root.join("link")).expect("there is room");
        fs::hard_link(root.join("log"), root.join("a/log")).expect("there is room");
        fs::set_permissions(root.join("log"), PermissionsExt::from_mode(0o600)).expect("possible");
        rustix::fs::setxattr(root.join("log"), "user.note", b"value", XattrFlags::empty()).expect("possible");
        fs::write(root.join("first"), b"1").expect("there is room");
        fs::write(root.join("second"), b"2").expect("there is room");
        let exchanged = renameat_with(
            CWD,
            root.join("first"),
            CWD,
            root.join("second"),
            RenameFlags::EXCHANGE,
        );
        assert_eq!(exchanged, Ok(()));
        // Keeps an unlinked file open until after the end of the mount.
        let mut unnamed = File::create(root.join("gone")).expect("there is room");
        fs::remove_file(root.join("gone")).expect("it is there");
        unnamed.write_all(&content(50_000, 7)).expect("there is room");
        assert_eq!(unnamed.metadata().expect("it is open").nlink(), 0);
        drop((unnamed, large));
        let acl = rustix::fs::setxattr(
            root.join("log"),
            "system.posix_acl_access",
            b"x",
            XattrFlags::empty(),
        );
        assert!(acl.is_err(), "UBIFS has no ACLs");
        scene.end(None);
        scene.check();

        let report = scene.mount("ro");
        assert_eq!(report["clean"], true, "{report}");
        let mut expected = content(600_000, 3);
        expected[300_000..300_013].copy_from_slice(b"in the middle");
        assert!(fs::read(root.join("a/large")).expect("it is there") == expected);
        let lines = fs::read_to_string(root.join("a/log")).expect("it is there");
        assert_eq!(
            (lines.lines().count(), lines.lines().last()),
            (200, Some("line 199"))
        );
        let meta = fs::metadata(root.join("log")).expect("it is there");
        assert_eq!((meta.mode() & 0o7777, meta.nlink()), (0o600, 2));
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(root.join("log"), "user.note", &mut value);
        assert_eq!(length, Ok(5));
        assert_eq!(fs::read(root.join("first")).expect("it is there"), b"2");
        assert_eq!(
            fs::read_link(root.join("link")).expect("it is there"),
            PathBuf::from("a/large")
        );
        let names = fs::read_dir(&root).expect("it is there").count();
        assert_eq!(names, 5, "a, first, link, log, second");
        scene.end(None);
    }
}

#[test]
fn synced_data_survives_a_kill_and_all_data_a_sigterm() {
    let Some(mut scene) = Scene::new(2) else { return };
    scene.mount("rw");
    let root = scene.path("mountpoint");
    for number in 0..40_usize {
        let mut file = File::create(root.join(format!("file-{number}"))).expect("there is room");
        file.write_all(&content(number * 700, 5)).expect("there is room");
        file.sync_all().expect("it can be synced");
    }
    scene.end(Some(Signal::KILL));
    scene.check();
    let report = scene.mount("rw");
    assert_eq!(report["clean"], false, "{report}");
    for number in 0..40_usize {
        let found = fs::read(root.join(format!("file-{number}"))).expect("it was synced");
        assert!(found == content(number * 700, 5), "file {number}");
    }
    fs::write(root.join("late"), content(9000, 9)).expect("there is room");
    scene.end(Some(Signal::TERM));
    scene.check();
    let report = scene.mount("rw");
    assert_eq!(report["clean"], true, "{report}");
    assert!(fs::read(root.join("late")).expect("it was drained") == content(9000, 9));
    scene.end(None);
}

#[test]
fn a_full_mount_says_so_and_takes_files_again_once_others_go() {
    let Some(mut scene) = Scene::new(1) else { return };
    scene.mount("rw");
    let root = scene.path("mountpoint");
    // Incompressible data.
    let mut state = 1_u64;
    let mut noise = vec![0_u8; 256 << 10];
    for byte in &mut noise {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = u8::try_from(state >> 56).expect("a byte");
    }
    for round in 0..2 {
        let mut files = 0;
        let full = loop {
            match fs::write(root.join(format!("file-{files}")), &noise) {
                Ok(()) => files += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(
            full.raw_os_error(),
            Some(Errno::NOSPC.raw_os_error()),
            "round {round}"
        );
        assert!(files > 12, "round {round}: only {files} files");
        let space = rustix::fs::statvfs(&root).expect("possible");
        assert!(
            space.f_bavail * space.f_frsize < 512 << 10,
            "round {round}: {} of {} blocks",
            space.f_bavail,
            space.f_blocks
        );
        for number in 0..files {
            assert!(fs::read(root.join(format!("file-{number}"))).expect("it is there") == noise);
        }
        for number in 0..=files {
            let removed = fs::remove_file(root.join(format!("file-{number}")));
            assert!(removed.is_ok() || number == files, "round {round}: {removed:?}");
        }
    }
    let stats = tidegate()
        .args(["stats", "--json", &scene.text("mountpoint")])
        .output();
    let stats: Value = serde_json::from_slice(&stats.expect("it runs").stdout).expect("JSON");
    let of = |name: &str| stats["backing"][name].as_u64().expect("a number");
    assert!(
        of("commits") > 0 && of("collected_lebs") + of("reclaimed_lebs") > 0,
        "{stats}"
    );
    assert!(
        stats["backing"]["heads"]["data"]["bytes"].as_u64() > Some(6 << 20),
        "{stats}"
    );
    let page = tidegate()
        .args(["stats", "--prometheus", &scene.text("mountpoint")])
        .output();
    let page = String::from_utf8(page.expect("it runs").stdout).expect("text");
    for line in [
        "tidegate_source_commits_total{",
        "tidegate_source_heads_base_bytes_total{",
        "tidegate_source_free_bytes{",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    scene.end(None);
    scene.check();
}

/// One page of each block, in the syntax of `nand fail`.
fn places(page: &str) -> String {
    let places: Vec<String> = (0..144).map(|block| format!("{block}{page}")).collect();
    places.join(",")
}

/// Writes through a mount whose blocks take at most 20 pages until a write fails, then checks the answers to calls.
fn write_until_it_fails(scene: &Scene) {
    let root = scene.path("mountpoint");
    let mut synced = File::create(root.join("synced")).expect("there is room");
    synced.write_all(&content(9000, 3)).expect("there is room");
    synced.sync_all().expect("the first pages can be written");
    let mut large = File::create(root.join("large")).expect("there is room");
    // Incompressible data.
    let mut state = 7_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        u8::try_from(state >> 56).expect("a byte")
    })
    .take(300_000)
    .collect();
    let failed = large.write_all(&noise).and_then(|()| large.sync_all());
    assert_eq!(
        failed.expect_err("no block takes it").raw_os_error(),
        Some(Errno::IO.raw_os_error())
    );
    let refused = File::create(root.join("late")).expect_err("it is read-only");
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert!(fs::read(root.join("synced")).expect("reads go on") == content(9000, 3));
}

/// Checks that synced data is present once the device works again.
fn assert_synced_is_there(scene: &mut Scene) {
    scene.succeeds(&["nand", "fail"], &["--mend", &places("")]);
    scene.check();
    scene.mount("ro");
    let kept = fs::read(scene.path("mountpoint").join("synced")).expect("it was synced");
    assert!(kept == content(9000, 3));
    scene.end(None);
}

/// A device failure that UBI can't repair: reads continue, statistics report the cause, and so does the exit code of the
/// unmount.
#[test]
fn an_unmount_that_could_not_write_everything_fails_and_says_what_is_lost() {
    let Some(mut scene) = Scene::new(1) else { return };
    scene.succeeds(&["nand", "fail"], &["--program", &places(":20")]);
    scene.mount("rw");
    write_until_it_fails(&scene);
    let stats = tidegate()
        .args(["stats", "--json", &scene.text("mountpoint")])
        .output();
    let stats: Value = serde_json::from_slice(&stats.expect("it runs").stdout).expect("JSON");
    let failure = stats["backing"]["failure"].as_str().expect("there is one");
    assert!(
        failure.contains("LEB ") && failure.contains("offset "),
        "{failure}"
    );
    assert_eq!(stats["backing"]["is_read_only"], true, "{stats}");
    scene.pid = None;
    let unmounted = scene.unmount();
    let said = String::from_utf8_lossy(&unmounted.stderr);
    assert_eq!(unmounted.status.code(), Some(2), "{said}");
    for words in ["the mount is gone", "synced data is on the medium", "LEB "] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_synced_is_there(&mut scene);
}

/// As above for a mount in the foreground, which is its own daemon: its exit code reports the failure after an unmount or a
/// signal.
#[test]
fn a_mount_in_the_foreground_whose_writer_failed_exits_with_2() {
    for signal in [None, Some(Signal::TERM)] {
        let Some(mut scene) = Scene::new(1) else { return };
        scene.succeeds(&["nand", "fail"], &["--program", &places(":20")]);
        let mut daemon = tidegate()
            .args(["ubifs", "mount", "--foreground", "--json", "-o", "rw"])
            .args([scene.path("chip"), scene.path("mountpoint")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut report = String::new();
        let output = daemon.stdout.take().expect("a pipe");
        BufReader::new(output)
            .read_line(&mut report)
            .expect("it reports that it is mounted");
        assert!(report.contains("mountpoint"), "{report}");
        scene.pid = Some(Pid::from_child(&daemon));
        write_until_it_fails(&scene);
        scene.pid = None;
        match signal {
            Some(signal) => kill_process(Pid::from_child(&daemon), signal).expect("it is there"),
            None => assert_eq!(scene.unmount().status.code(), Some(2)),
        }
        let ended = daemon.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{signal:?}: {said}");
        assert!(
            said.contains("synced data is on the medium"),
            "{signal:?}: {said}"
        );
        assert_synced_is_there(&mut scene);
    }
}

/// Regression: it returned 0 at once while the daemon was still writing.
#[test]
fn an_unmount_from_another_process_namespace_waits_for_the_daemon_and_tells_how_it_ended() {
    for fails in [false, true] {
        let Some(mut scene) = Scene::new(1) else { return };
        if fails {
            scene.succeeds(&["nand", "fail"], &["--program", &places(":20")]);
        }
        scene.mount("rw");
        match fails {
            true => write_until_it_fails(&scene),
            // Overwritten data leaves blocks to erase.
            false => (0..8).for_each(|round| {
                let file = scene.path("mountpoint").join("file");
                fs::write(file, content(500_000, round + 3)).expect("there is room");
            }),
        }
        let daemon = pidfd_open(scene.pid.expect("it is mounted"), PidfdFlags::empty()).expect("possible");
        let Some(output) = unmount_in_a_process_namespace(&scene.path("mountpoint"), &[]) else {
            return;
        };
        let mut watched = [PollFd::new(&daemon, PollFlags::IN)];
        let ended = poll(&mut watched, Some(&Timespec::default())).expect("possible");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(ended, 1, "the daemon still runs: {said}");
        scene.pid = None;
        let code = if fails { 2 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("synced data is on the medium"), fails, "{said}");
    }
}

/// `sync` on the mount point covers all files; unsynced data is written in the background.
#[test]
fn a_sync_of_the_mountpoint_and_periodic_work_write_unsynced_data() {
    let Some(mut scene) = Scene::new(1) else { return };
    scene.mount("rw");
    let root = scene.path("mountpoint");
    fs::write(root.join("first"), content(3000, 3)).expect("there is room");
    let synced = std::process::Command::new("sync").arg(&root).status();
    assert!(synced.expect("it runs").success());
    scene.end(Some(Signal::KILL));
    scene.mount("rw");
    assert!(fs::read(root.join("first")).expect("it was synced") == content(3000, 3));
    fs::write(root.join("second"), content(3000, 5)).expect("there is room");
    let begun = Instant::now();
    loop {
        let stats = tidegate()
            .args(["stats", "--json", &scene.text("mountpoint")])
            .output();
        let stats: Value = serde_json::from_slice(&stats.expect("it runs").stdout).expect("JSON");
        let heads = stats["backing"]["heads"].as_object().expect("three heads");
        if heads.values().all(|head| head["buffered_bytes"] == 0) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{stats}");
    }
    scene.end(Some(Signal::KILL));
    scene.mount("ro");
    assert!(fs::read(root.join("second")).expect("it was written") == content(3000, 5));
    scene.end(None);
    scene.check();
}

/// Regression: the file in the damaged part of the journal was a hole, without an error.
#[test]
fn a_lost_part_of_the_journal_refuses_a_mount_that_only_reads() {
    let Some(mut scene) = Scene::new(1) else { return };
    scene.mount("rw");
    let root = scene.path("mountpoint");
    let random = |seed| testkit::prng::Prng::new(seed).bytes(9000);
    for seed in 1..4 {
        let mut file = File::create(root.join(format!("file-{seed}"))).expect("there is room");
        file.write_all(&random(seed)).expect("there is room");
        file.sync_all().expect("it can be synced");
    }
    scene.end(Some(Signal::KILL));
    let mut raw = fs::read(scene.path("chip")).expect("possible on this host");
    let lost = &random(1)[4096..4200];
    let at = raw.windows(lost.len()).position(|window| window == lost);
    raw[at.expect("random bytes are stored as they are")] ^= 1;
    fs::write(scene.path("chip"), raw).expect("possible on this host");
    let to = scene.text("mountpoint");
    for options in [&[][..], &["-o", "rw"]] {
        let refused = scene.run(&[&["ubifs", "mount"], options].concat(), &[&to]);
        assert_eq!(refused.status.code(), Some(2), "{options:?}: {refused:?}");
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(told.contains("journal: LEB"), "{told}");
        assert!(!options.is_empty() || told.contains("--salvage"), "{told}");
    }
    assert_eq!(scene.run(&["ubifs", "check"], &[]).status.code(), Some(1));
    assert_eq!(scene.run(&["ubifs", "ls"], &[]).status.code(), Some(1));
    let found = scene.run(&["ubifs", "mount", "--json", "--salvage"], &[&to]);
    assert_eq!(found.status.code(), Some(1), "the loss is reported: {found:?}");
    let report: Value = serde_json::from_slice(&found.stdout).expect("one line of JSON");
    let pid = report["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    scene.pid = pid.and_then(Pid::from_raw);
    for seed in 2..4 {
        assert!(fs::read(root.join(format!("file-{seed}"))).expect("it is there") == random(seed));
    }
    scene.end(None);
}

/// The statistics of the array below a mount.
fn array_of(scene: &Scene) -> Value {
    let output = tidegate()
        .args(["stats", "--json", &scene.text("mountpoint")])
        .output()
        .expect("possible on this host");
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    stats["backing"]["array"].clone()
}

#[test]
fn a_member_is_rebuilt_while_files_are_written_and_the_next_mount_goes_on_with_it() {
    let Some(mut scene) = Scene::of(4, &["--parity"]) else {
        return;
    };
    scene.mount("rw");
    let root = scene.path("mountpoint");
    for number in 0..20_usize {
        fs::write(root.join(format!("before-{number}")), content(40_000, number + 3)).expect("there is room");
    }
    scene.end(None);
    let blank = [
        "--page",
        "2048",
        "--pages-per-block",
        "32",
        "--blocks",
        "36",
        "--force",
    ];
    let made = tidegate()
        .args(["nand", "create"])
        .arg(scene.path("chip.2"))
        .args(blank)
        .output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    scene.mount("rw");
    assert_eq!(array_of(&scene)["absent"]["member"], 2);
    scene.end(None);
    let refused = scene.run(
        &["ubifs", "mount", "--rebuild", "2"],
        &[&scene.text("mountpoint")],
    );
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("-o rw"),
        "{refused:?}"
    );
    scene.mount_with(&["-o", "rw", "--rebuild", "2"]);
    // Killed in the middle of it, or at its end.
    let mut file = File::create(root.join("synced")).expect("there is room");
    file.write_all(&content(30_000, 7)).expect("there is room");
    file.sync_all().expect("it can be synced");
    drop(file);
    scene.end(Some(Signal::KILL));
    scene.mount("rw");
    let array = array_of(&scene);
    assert_eq!(array["absent"], Value::Null, "{array}");
    for number in 0..20_usize {
        fs::write(root.join(format!("during-{number}")), content(20_000, number + 5)).expect("there is room");
    }
    let started = Instant::now();
    while array_of(&scene)["rebuild"] != Value::Null {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{}",
            array_of(&scene)
        );
        poll(
            &mut [],
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            }),
        )
        .expect("nothing is waited for but time");
    }
    scene.end(None);
    scene.check();
    // Any other member may go.
    fs::remove_file(scene.path("chip.0")).expect("it is there");
    scene.mount("ro");
    assert_eq!(array_of(&scene)["absent"]["member"], 0);
    for (name, count, bytes, seed) in [("before", 20, 40_000, 3), ("during", 20, 20_000, 5)] {
        for number in 0..count {
            let found = fs::read(root.join(format!("{name}-{number}"))).expect("readable");
            assert!(found == content(bytes, number + seed), "{name}-{number}");
        }
    }
    assert!(fs::read(root.join("synced")).expect("readable") == content(30_000, 7));
    scene.end(None);
}
