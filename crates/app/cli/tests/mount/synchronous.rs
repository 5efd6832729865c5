//! Synchronous writes reach the medium of the source before they return, in every mode without passthrough: strace counts
//! the daemon's syncs.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;
use rustix::process::{Pid, Signal};

use crate::harness::{Mounted, in_a_thread_of_nobody};

const WRITES: usize = 40;

/// Traces write and sync calls of a daemon from now on.
struct Traced {
    strace: Child,
    log: PathBuf,
}

impl Traced {
    /// `None`, with a printed reason, if strace is missing or may not trace.
    fn start(daemon: Pid, folder: &Path) -> Option<Self> {
        let log = folder.join("strace.log");
        let mut strace = Command::new("strace")
            .args(["-f", "-s", "0", "-e", "trace=pwrite64,pwritev2,fsync,fdatasync"])
            .arg("-o")
            .arg(&log)
            .args(["-p", &daemon.as_raw_pid().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .ok()
            .or_else(|| {
                testkit::report_left_out("strace is missing");
                None
            })?;
        let mut first = String::new();
        let stderr = strace.stderr.as_mut().expect("it is piped");
        BufReader::new(stderr)
            .read_line(&mut first)
            .expect("strace prints text");
        if first.contains("attached") {
            return Some(Self { strace, log });
        }
        testkit::report_left_out(format!("strace may not trace: {first}"));
        strace.wait().expect("it was started here");
        None
    }

    /// Ends the trace; returns one line per call.
    fn lines(mut self) -> Vec<String> {
        rustix::process::kill_process(Pid::from_child(&self.strace), Signal::TERM).expect("strace runs");
        self.strace.wait().expect("it was started here");
        let log = std::fs::read_to_string(&self.log).expect("strace wrote its log");
        log.lines().map(str::to_owned).collect()
    }
}

/// The data of a write, in one page of memory: with `--io-unit 4k` a direct write becomes one request per page that it
/// touches.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Requests of durability by a program, for each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    OpenedDsync,
    OpenedSync,
    EachDsync,
    EachSync,
    /// Such files bypass the page cache in every mode.
    AppendedDsync,
    /// They still bypass it after `O_APPEND` is cleared.
    OnceAppendedDsync,
}

/// All except the plain one.
const SYNCHRONOUS: [Way; 6] = [
    Way::OpenedDsync,
    Way::OpenedSync,
    Way::EachDsync,
    Way::EachSync,
    Way::AppendedDsync,
    Way::OnceAppendedDsync,
];

impl Way {
    fn write_all(self, path: &Path) {
        let (open_flags, write_flags) = match self {
            Self::Plain => (OFlags::empty(), ReadWriteFlags::empty()),
            Self::OpenedDsync => (OFlags::DSYNC, ReadWriteFlags::empty()),
            Self::OpenedSync => (OFlags::SYNC, ReadWriteFlags::empty()),
            Self::EachDsync => (OFlags::empty(), ReadWriteFlags::DSYNC),
            Self::EachSync => (OFlags::empty(), ReadWriteFlags::SYNC),
            Self::AppendedDsync | Self::OnceAppendedDsync => {
                (OFlags::DSYNC | OFlags::APPEND, ReadWriteFlags::empty())
            }
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(open_flags.bits().cast_signed())
            .open(path)
            .unwrap();
        if self == Self::OnceAppendedDsync {
            rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
        }
        let Page(data) = &Page([7; 4096]);
        for number in 0..WRITES {
            let offset = u64::try_from(number * data.len()).unwrap();
            if write_flags.is_empty() {
                file.write_all_at(data, offset).unwrap();
            } else {
                let pieces = [IoSlice::new(data)];
                let written = rustix::io::pwritev2(&file, &pieces, offset, write_flags).unwrap();
                assert_eq!(written, data.len());
            }
        }
    }

    /// Returns true if this call of the daemon provides the requested durability.
    fn is_met_by(self, call: &str) -> bool {
        let everything = call.contains("RWF_SYNC") || call.contains("fsync(");
        match self {
            Self::OpenedSync | Self::EachSync => everything,
            Self::Plain
            | Self::OpenedDsync
            | Self::EachDsync
            | Self::AppendedDsync
            | Self::OnceAppendedDsync => {
                everything || call.contains("RWF_DSYNC") || call.contains("fdatasync(")
            }
        }
    }
}

/// The user who mounts and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The user who runs the tests.
    Tester,
    /// An ordinary user, through fusermount3.
    Nobody,
}

impl Who {
    fn mount(self, arguments: &[&str]) -> Option<Mounted> {
        match self {
            Self::Tester => Mounted::start(arguments),
            Self::Nobody => Mounted::start_as_nobody(arguments),
        }
    }

    fn write_all(self, way: Way, path: &Path) {
        match self {
            Self::Tester => way.write_all(path),
            Self::Nobody => in_a_thread_of_nobody(|| way.write_all(path)),
        }
    }
}

/// Number of the daemon's syncs during the writes; `None` if tracing is not possible.
fn syncs(mounted: &Mounted, who: Who, way: Way) -> Option<usize> {
    let traced = Traced::start(mounted.pid(), &mounted.source())?;
    who.write_all(way, &mounted.mountpoint().join(format!("{way:?}")));
    let lines = traced.lines();
    Some(lines.iter().filter(|line| way.is_met_by(line)).count())
}

/// Mount modes in which the daemon sees each write.
const MODES: [&[&str]; 8] = [
    &["--passthrough", "off"],
    &["--passthrough", "off", "--flusher", "inline"],
    &["--passthrough", "off", "--flusher", "off"],
    &["--passthrough", "off", "--direct-io", "on"],
    &["--passthrough", "off", "--direct-io", "off"],
    &["--passthrough", "off", "--writeback", "on"],
    &["--passthrough", "off", "--io-unit", "4k"],
    &["--passthrough", "off", "--uring", "on"],
];

/// The modes that this kernel supports; prints the skipped ones.
fn modes() -> Vec<&'static [&'static str]> {
    let enabled = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let has_uring = enabled.is_ok_and(|text| text.trim() == "Y");
    if !has_uring {
        testkit::report_left_out("io_uring: /sys/module/fuse/parameters/enable_uring is not Y");
    }
    let modes = MODES.into_iter();
    modes
        .filter(|mode| has_uring || !mode.contains(&"--uring"))
        .collect()
}

#[test]
fn each_synchronous_write_is_synced_in_the_source_before_it_returns() {
    for who in [Who::Tester, Who::Nobody] {
        for mode in modes() {
            let Some(mounted) = who.mount(mode) else {
                break;
            };
            let Some(plain) = syncs(&mounted, who, Way::Plain) else {
                return;
            };
            assert_eq!(plain, 0, "plain writes by {who:?} in mode {mode:?}");
            for way in SYNCHRONOUS {
                let syncs = syncs(&mounted, who, way).expect("strace worked a moment ago");
                assert_eq!(
                    syncs, WRITES,
                    "{WRITES} writes of {way:?} by {who:?} in mode {mode:?}: each is synced, and once"
                );
            }
        }
    }
}

#[test]
fn a_mount_with_sync_syncs_plain_writes_in_the_source() {
    // Covers the default mode too: the kernel would not apply the option to passthrough files, so there is no passthrough.
    let default: &[&str] = &[];
    for who in [Who::Tester, Who::Nobody] {
        for mode in modes().into_iter().chain([default]) {
            let arguments = [&["-o", "sync"], mode].concat();
            let Some(mounted) = who.mount(&arguments) else {
                break;
            };
            let Some(syncs) = syncs(&mounted, who, Way::Plain) else {
                return;
            };
            // One more sync for the new name.
            assert_eq!(syncs, WRITES + 1, "{WRITES} writes by {who:?} in mode {mode:?}");
        }
    }
}

#[test]
fn a_mount_with_dirsync_syncs_each_new_name_in_the_source() {
    for who in [Who::Tester, Who::Nobody] {
        for (option, is_synced) in [("async", false), ("dirsync", true)] {
            let Some(mounted) = who.mount(&["-o", option]) else {
                break;
            };
            let Some(traced) = Traced::start(mounted.pid(), &mounted.source()) else {
                return;
            };
            let make_all = || {
                for number in 0..WRITES {
                    std::fs::create_dir(mounted.mountpoint().join(number.to_string())).unwrap();
                }
            };
            match who {
                Who::Tester => make_all(),
                Who::Nobody => in_a_thread_of_nobody(make_all),
            }
            let syncs = traced
                .lines()
                .iter()
                .filter(|line| line.contains(" fsync("))
                .count();
            assert_eq!(
                syncs,
                if is_synced { WRITES } else { 0 },
                "{WRITES} folders made by {who:?} with -o {option}"
            );
        }
    }
}

/// An ext4 on its own loop device, whose flushes are counted.
struct Ext4 {
    folder: tempfile::TempDir,
}

impl Ext4 {
    /// `None`, with a printed reason, without root, a loop device or ext4.
    fn new() -> Option<Self> {
        let ext4 = Self {
            folder: tempfile::TempDir::new().expect("a temporary folder"),
        };
        let (image, root) = (ext4.folder.path().join("image"), ext4.root());
        std::fs::create_dir(&root).expect("a temporary folder takes files");
        let file = std::fs::File::create(&image).expect("a temporary folder takes files");
        file.set_len(64 << 20).expect("a temporary folder takes files");
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).output();
        let mounted = || {
            let mut command = Command::new("mount");
            command
                .args(["-t", "ext4", "-o", "loop"])
                .arg(&image)
                .arg(&root)
                .output()
        };
        let is_done = |output: std::io::Result<std::process::Output>| {
            output.is_ok_and(|output| output.status.success())
        };
        if is_done(made) && is_done(mounted()) {
            return Some(ext4);
        }
        testkit::report_left_out("flushes of a device: needs root, a loop device and e2fsprogs");
        None
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("ext4")
    }

    /// Number of cache flushes that its device completed.
    fn flushes(&self) -> usize {
        let device = rustix::fs::stat(self.root()).expect("it is mounted").st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let counts =
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).expect("a block device");
        counts
            .split_whitespace()
            .nth(15)
            .and_then(|count| count.parse().ok())
            .expect("Linux 5.5 or newer")
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // Best effort; the image goes with its folder.
        let _ = Command::new("umount").arg("-l").arg(self.root()).output();
    }
}

/// Under passthrough the daemon sees no writes, so this counts the device's flushes; in other modes they agree.
#[test]
fn each_synchronous_write_flushes_the_device_of_the_source_also_under_passthrough() {
    let Some(ext4) = Ext4::new() else {
        return;
    };
    let shows_ext4 = |source: &Path| {
        std::fs::remove_dir(source).expect("it is empty");
        std::os::unix::fs::symlink(ext4.root(), source).expect("a temporary folder takes links");
    };
    for mode in [&[][..], &["--passthrough", "off"], &["-o", "sync"]] {
        let Some(mounted) = Mounted::start_over(shows_ext4, mode) else {
            return;
        };
        let flushes = |way: Way| {
            let before = ext4.flushes();
            way.write_all(&mounted.mountpoint().join(format!("{way:?}")));
            ext4.flushes() - before
        };
        let syncs_all = mode.contains(&"sync");
        for way in [Way::Plain].into_iter().chain(SYNCHRONOUS) {
            let flushes = flushes(way);
            let is_synced = flushes >= WRITES;
            assert_eq!(
                is_synced,
                syncs_all || way != Way::Plain,
                "{flushes} flushes for {WRITES} writes of {way:?} in mode {mode:?}"
            );
        }
    }
}
