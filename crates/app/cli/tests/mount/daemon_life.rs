//! Cost of a running daemon, its behaviour on a full source, and its end.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::harness::{Mounted, as_nobody, tidegate};
use rustix::io::Errno;
use rustix::process::Signal;

const BUFFERED: [&str; 2] = ["--passthrough", "off"];
const BUFFER_KIB: u64 = 8 << 10;

#[test]
fn the_daemon_needs_less_than_6_mib_beside_its_buffer() {
    let Some(mounted) = Mounted::start(&BUFFERED) else {
        return;
    };
    let root = mounted.mountpoint();
    let mut stream = File::create(root.join("stream")).unwrap();
    let record = vec![1; 512 << 10];
    for _ in 0..1024 {
        stream.write_all(&record).unwrap();
    }
    drop(stream);
    for number in 0..10_000 {
        File::create(root.join(number.to_string())).unwrap();
    }
    let status = fs::read_to_string(process_file(&mounted, "status")).unwrap();
    let kib_of = |field: &str| -> u64 {
        let rest = status.lines().find_map(|line| line.strip_prefix(field));
        rest.and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .unwrap()
    };
    // Pages of the program's file are clean, and shared by all daemons: 1.8 MiB of a release, more of a test build.
    let resident_kib = kib_of("VmRSS:") - kib_of("RssFile:");
    let beside_kib = resident_kib.saturating_sub(BUFFER_KIB);
    assert!(
        beside_kib < 4 << 10,
        "{resident_kib} KiB resident, {beside_kib} KiB beside the buffer"
    );
}

/// 2 million names in a full run: each round looks up all files again, because the kernel has forgotten them.
#[test]
fn looking_at_millions_of_files_leaves_the_daemon_small() {
    const FILES: u64 = 20_000;
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let rounds = if testkit::is_full() { 100 } else { 3 };
    let Some(mounted) = Mounted::start(&BUFFERED) else {
        return;
    };
    for number in 0..FILES {
        File::create(mounted.source().join(number.to_string())).unwrap();
    }
    let known = || mounted.stats()["backing"]["inodes_held"].as_u64().unwrap();
    for _ in 0..rounds {
        // Other programs may make the kernel drop names at any time, so a look that was disturbed is repeated.
        let told = (0..10).any(|_| {
            let names = fs::read_dir(mounted.mountpoint()).unwrap();
            let found = names.filter(|name| name.as_ref().unwrap().metadata().is_ok());
            assert_eq!(u64::try_from(found.count()).unwrap(), FILES);
            known() > FILES / 2
        });
        assert!(told, "the kernel was told of {} files at the end", known());
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        let forgotten = (0..1_000).any(|_| known() < FILES / 10);
        assert!(forgotten, "{} files are known still", known());
    }
    let status = fs::read_to_string(process_file(&mounted, "status")).unwrap();
    let kib_of = |field: &str| -> u64 {
        let rest = status.lines().find_map(|line| line.strip_prefix(field));
        rest.and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .unwrap()
    };
    let resident_kib = kib_of("VmRSS:") - kib_of("RssFile:").min(4 << 10);
    let beside_kib = resident_kib.saturating_sub(BUFFER_KIB);
    assert!(
        beside_kib < 12 << 10,
        "{resident_kib} KiB resident, {beside_kib} KiB beside the buffer, {} KiB anonymous",
        kib_of("RssAnon:")
    );
}

#[test]
fn an_idle_daemon_uses_no_processor_time() {
    let Some(mounted) = Mounted::start(&BUFFERED) else {
        return;
    };
    fs::write(mounted.mountpoint().join("file"), vec![1; 3 << 20]).unwrap();
    let descriptor =
        rustix::process::pidfd_open(mounted.pid(), rustix::process::PidfdFlags::empty()).unwrap();
    let stays_idle_for = |seconds| {
        // Waits for the full time, because the daemon does not end.
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut watched, Some(&timeout)), Ok(0), "the daemon ended");
    };
    // The kernel may still write access times and forget inodes, for longer on a busy machine, and the buffer releases its
    // memory up to two seconds after the last write.
    let is_idle = (0..8).any(|_| {
        let before = processor_ticks(&mounted);
        stays_idle_for(5);
        processor_ticks(&mounted) == before
    });
    assert!(is_idle, "it takes processor time in each of eight times 5 s");
}

#[test]
fn a_full_source_is_an_error_and_usable_again_after_a_removal() {
    let Some(full) = SmallExt4::new() else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let output = tidegate()
        .arg("mount")
        .arg(full.folder())
        .arg(folder.path())
        .args(BUFFERED)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let outcome = std::panic::catch_unwind(|| {
        let file = File::create(folder.path().join("file")).unwrap();
        let record = vec![1; 512 << 10];
        let written = (0..64).try_for_each(|number| file.write_all_at(&record, number * (512 << 10)));
        let first = written.and_then(|()| file.sync_all()).unwrap_err();
        assert_eq!(first.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        // The write itself may have reported it; one fsync reports a failed flush, and no other.
        let _ = file.sync_all();
        file.sync_all().unwrap();
        drop(file);
        fs::remove_file(folder.path().join("file")).unwrap();
        let small = File::create(folder.path().join("small")).unwrap();
        small.write_all_at(b"room again", 0).unwrap();
        small.sync_all().unwrap();
        assert_eq!(fs::read(full.folder().join("small")).unwrap(), b"room again");
    });
    let unmounted = tidegate()
        .arg("unmount")
        .arg("--lazy")
        .arg(folder.path())
        .output()
        .unwrap();
    outcome.unwrap();
    assert!(
        unmounted.status.success(),
        "{}",
        String::from_utf8_lossy(&unmounted.stderr)
    );
}

#[test]
fn sigterm_during_a_stream_keeps_every_acknowledged_write() {
    let Some(mounted) = Mounted::start(&["--passthrough", "off", "--flush-interval", "30s"]) else {
        return;
    };
    let path = mounted.mountpoint().join("stream");
    let mut stream = File::create(path).unwrap();
    let (sender, halfway) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        let mut acknowledged = 0;
        while acknowledged < 1 << 30 && stream.write_all(&[6; 65_536]).is_ok() {
            acknowledged += 65_536;
            if acknowledged == 16 << 20 {
                sender.send(()).unwrap();
            }
        }
        acknowledged
    });
    halfway.recv().unwrap();
    mounted.end_daemon(Signal::TERM);
    let acknowledged = writer.join().unwrap();
    let kept = fs::read(mounted.source().join("stream")).unwrap();
    assert!(
        kept.len() >= acknowledged,
        "{} of {acknowledged} bytes are kept",
        kept.len()
    );
    assert!(kept.iter().all(|byte| *byte == 6));
}

#[test]
fn an_ordinary_users_write_drops_setuid_and_asks_for_no_attribute_each_time() {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("setpriv")]) {
        return;
    }
    let Some(mounted) = Mounted::start(&["--passthrough", "off", "-o", "allow_other,suid"]) else {
        return;
    };
    for folder in [mounted.mountpoint().parent().unwrap(), &mounted.source()] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = mounted.mountpoint().join("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
    let written = as_nobody()
        .args(["dd", "if=/dev/zero", "bs=4k", "count=1024"])
        .arg(format!("of={}", path.display()))
        .args(["conv=notrunc", "status=none"])
        .status()
        .unwrap();
    assert!(written.success());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o777);
    let stats = mounted.stats();
    let questions = stats["session"]["operations"]
        .as_array()
        .unwrap()
        .iter()
        .find(|counted| counted["operation"] == "getxattr")
        .and_then(|counted| counted["count"].as_u64())
        .unwrap_or(0);
    assert!(questions < 20, "{questions} getxattr requests for 1,024 writes");
}

/// The mounting shell may have limits; by default the kernel kills a process whose write exceeds the file size limit.
#[test]
fn a_limit_on_file_sizes_fails_only_the_write_that_meets_it() {
    if !testkit::needs(&[testkit::Need::Root, testkit::Need::Program("prlimit")]) {
        return;
    }
    let limited = |limit: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "--"])
            .args(["prlimit", &format!("--fsize={limit}"), "--"])
            .arg(tidegate().get_program());
        command
    };
    let arguments = ["--passthrough", "off", "--flush-interval", "30s"];
    for (limit, expected) in [("1048576:1048576", Err(Errno::FBIG)), ("1048576:", Ok(()))] {
        let Some(mounted) = Mounted::start_by(limited(limit), |_| {}, &arguments) else {
            return;
        };
        let small = File::create(mounted.mountpoint().join("small")).unwrap();
        small.write_all_at(b"held back", 0).unwrap();
        let large = File::create(mounted.mountpoint().join("large")).unwrap();
        let data = vec![1; 3 << 20];
        let told = large.write_all_at(&data, 0).and_then(|()| large.sync_all());
        let told = told.map_err(|error| Errno::from_io_error(&error).unwrap());
        assert_eq!(told, expected, "limit {limit}");
        small.sync_all().unwrap();
        assert_eq!(fs::read(mounted.source().join("small")).unwrap(), b"held back");
    }
}

fn process_file(mounted: &Mounted, name: &str) -> String {
    format!("/proc/{}/{name}", mounted.pid().as_raw_nonzero())
}

/// User and system time of the daemon, in ticks.
fn processor_ticks(mounted: &Mounted) -> u64 {
    let line = fs::read_to_string(process_file(mounted, "stat")).expect("proc_pid_stat(5) says so");
    let after_name = line.rsplit_once(')').expect("proc_pid_stat(5) says so").1;
    // Fields 14 and 15 of proc_pid_stat(5); the first after the name is field 3.
    after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("proc_pid_stat(5) says so"))
        .sum()
}

/// A 16 MiB ext4 on a loop device, unmounted on drop.
struct SmallExt4 {
    folder: tempfile::TempDir,
}

impl SmallExt4 {
    /// `None` without root or a loop device.
    fn new() -> Option<Self> {
        let folder = tempfile::TempDir::new().expect("a temporary folder takes files");
        let image = folder.path().join("image");
        let mountpoint = folder.path().join("ext4");
        fs::create_dir(&mountpoint).expect("a temporary folder takes files");
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&image)
            .expect("a temporary folder takes files")
            .set_len(16 << 20)
            .expect("a temporary folder takes files");
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
        let mounted = made.is_ok_and(|status| status.success())
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &mountpoint])
                .output()
                .is_ok_and(|output| output.status.success());
        mounted.then_some(Self { folder })
    }

    fn folder(&self) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("ext4")
    }
}

impl Drop for SmallExt4 {
    fn drop(&mut self) {
        // Best effort; the image goes with its folder.
        let _ = Command::new("umount").arg("-l").arg(self.folder()).output();
    }
}
