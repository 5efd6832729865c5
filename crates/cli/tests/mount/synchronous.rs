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

use crate::harness::{Mounted, report_skip};

const WRITES: usize = 40;

/// The calls of a daemon that write or sync, from now on.
struct Traced {
    strace: Child,
    log: PathBuf,
}

impl Traced {
    /// `None`, with a reason printed, where strace is missing or may not trace.
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
                report_skip("strace is missing");
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
        report_skip(&format!("strace may not trace: {first}"));
        strace.wait().expect("it was started here");
        None
    }

    /// Ends the trace; one line for each call.
    fn lines(mut self) -> Vec<String> {
        rustix::process::kill_process(Pid::from_child(&self.strace), Signal::TERM).expect("strace runs");
        self.strace.wait().expect("it was started here");
        let log = std::fs::read_to_string(&self.log).expect("strace wrote its log");
        log.lines().map(str::to_owned).collect()
    }
}

/// How a program asks for durability with each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    OpenedDsync,
    OpenedSync,
    EachDsync,
    EachSync,
}

impl Way {
    fn write_all(self, path: &Path) {
        let (open_flags, write_flags) = match self {
            Self::Plain => (OFlags::empty(), ReadWriteFlags::empty()),
            Self::OpenedDsync => (OFlags::DSYNC, ReadWriteFlags::empty()),
            Self::OpenedSync => (OFlags::SYNC, ReadWriteFlags::empty()),
            Self::EachDsync => (OFlags::empty(), ReadWriteFlags::DSYNC),
            Self::EachSync => (OFlags::empty(), ReadWriteFlags::SYNC),
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(open_flags.bits().cast_signed())
            .open(path)
            .unwrap();
        let data = [7; 4096];
        for number in 0..WRITES {
            let offset = u64::try_from(number * data.len()).unwrap();
            if write_flags.is_empty() {
                file.write_all_at(&data, offset).unwrap();
            } else {
                let pieces = [IoSlice::new(&data)];
                let written = rustix::io::pwritev2(&file, &pieces, offset, write_flags).unwrap();
                assert_eq!(written, data.len());
            }
        }
    }

    /// Whether this call of the daemon gives what the program asked for.
    fn is_met_by(self, call: &str) -> bool {
        let everything = call.contains("RWF_SYNC") || call.contains("fsync(");
        match self {
            Self::OpenedSync | Self::EachSync => everything,
            Self::Plain | Self::OpenedDsync | Self::EachDsync => {
                everything || call.contains("RWF_DSYNC") || call.contains("fdatasync(")
            }
        }
    }
}

/// The daemon's syncs while a program writes this way; `None` where nothing can be traced.
fn syncs(mounted: &Mounted, way: Way) -> Option<usize> {
    let traced = Traced::start(mounted.pid(), &mounted.source())?;
    way.write_all(&mounted.mountpoint().join(format!("{way:?}")));
    let lines = traced.lines();
    Some(lines.iter().filter(|line| way.is_met_by(line)).count())
}

const MODES: [&[&str]; 7] = [
    &["--passthrough", "off"],
    &["--passthrough", "off", "--flusher", "inline"],
    &["--passthrough", "off", "--flusher", "off"],
    &["--passthrough", "off", "--direct-io", "on"],
    &["--passthrough", "off", "--direct-io", "off"],
    &["--passthrough", "off", "--writeback", "on"],
    &["--passthrough", "off", "--io-unit", "4k"],
];

#[test]
fn each_synchronous_write_is_synced_in_the_source_before_it_returns() {
    for mode in MODES {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        let Some(plain) = syncs(&mounted, Way::Plain) else {
            return;
        };
        assert_eq!(plain, 0, "plain writes in mode {mode:?}");
        for way in [Way::OpenedDsync, Way::OpenedSync, Way::EachDsync, Way::EachSync] {
            let syncs = syncs(&mounted, way).expect("strace worked a moment ago");
            assert!(
                syncs >= WRITES,
                "{syncs} syncs for {WRITES} writes of {way:?} in mode {mode:?}"
            );
        }
    }
}

#[test]
fn a_mount_with_sync_syncs_plain_writes_in_the_source() {
    for mode in MODES {
        let arguments = [&["-o", "sync"], mode].concat();
        let Some(mounted) = Mounted::start(&arguments) else {
            return;
        };
        let Some(syncs) = syncs(&mounted, Way::Plain) else {
            return;
        };
        assert!(
            syncs >= WRITES,
            "{syncs} syncs for {WRITES} writes in mode {mode:?}"
        );
    }
}
