//! Tests of a daemon whose file system panics. The daemon is this test program again, running [`serves_for_another_test`].

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use buffer::Buffered;
use clap::Parser;
use passfs::{AccessTimes, PassConfig, PassFs};
use testkit::FaultyFs;

use super::{Served, serve};
use crate::arguments::{Arguments, Command as Parsed};
use crate::mount_options::MountPlan;
use crate::output;

/// Names the folder with `source` and `mountpoint` of the daemon under test.
const FOLDER: &str = "TIDEGATE_TEST_DAEMON_FOLDER";

/// The daemon process. It buffers written data for half a minute, and panics in the next lookup after each line on its
/// standard input. Run as an ordinary test it does nothing.
#[test]
fn serves_for_another_test() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let words = [
        "tidegate",
        "mount",
        "source",
        "mountpoint",
        "-o",
        "flush_interval=30s,passthrough=off",
    ];
    std::env::set_current_dir(&folder).unwrap();
    let Parsed::Mount(arguments) = Arguments::parse_from(words).command else {
        unreachable!("the words are those of a mount");
    };
    let plan = MountPlan::from_arguments(&arguments).unwrap();
    let config = PassConfig {
        id_map: None,
        read_only: false,
        access_times: AccessTimes::OF_SOURCE,
        write_out_bytes: None,
        stream_direct_after_bytes: None,
        stream_direct_rate_min: 0,
        offer_backing: false,
    };
    let below = FaultyFs::new(PassFs::open(&plan.source, config).unwrap());
    let faults = below.faults();
    let buffered = Arc::new(Buffered::new(below, plan.buffer).unwrap());
    std::thread::spawn(move || {
        for _line in std::io::stdin().lines() {
            faults.after_lookup(|| panic!("a defect of the file system"));
            output::print_line("armed").unwrap();
        }
    });
    let served = Served {
        file_system: buffered.clone(),
        statistics: Box::new(|_, _| Vec::new()),
        drain: Box::new(move || {
            buffered.drain();
            Ok(())
        }),
    };
    let outcome = serve(&plan.mountpoint, &plan.session, served, |_| {
        output::print_line("mounted").map(drop)
    });
    // As main() does.
    if let Err(error) = outcome {
        output::print_error(&output::with_causes(&error));
        std::process::exit(2);
    }
}

/// A daemon in a temporary folder.
struct Daemon {
    folder: tempfile::TempDir,
    process: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Daemon {
    /// `None`, with a printed reason, if this user can't mount.
    fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            output::print_error("left out, needs root and /dev/fuse: a daemon that panics");
            return None;
        }
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        for name in ["source", "mountpoint"] {
            fs::create_dir(folder.path().join(name)).expect("a temporary folder takes folders");
        }
        let mut process = Command::new(std::env::current_exe().expect("/proc is mounted"))
            .args(["--exact", "daemon::tests::serves_for_another_test", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a test program runs");
        let input = process.stdin.take().expect("a pipe was asked for");
        let output = process.stdout.take().expect("a pipe was asked for");
        let mut daemon = Self {
            folder,
            process,
            input,
            lines: BufReader::new(output).lines(),
        };
        daemon.expect("mounted");
        Some(daemon)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Reads the output up to a line that ends with `end`; the test runner prints in between.
    fn expect(&mut self, end: &str) {
        let said = self.lines.by_ref().map_while(Result::ok);
        let found = said.into_iter().find(|line| line.ends_with(end));
        assert!(found.is_some(), "the daemon ended before it said `{end}`");
    }

    /// Makes one lookup of the daemon panic, and checks the reply.
    fn panic_once(&mut self) {
        self.input.write_all(b"panic\n").expect("the daemon runs");
        self.expect("armed");
        let error = fs::metadata(self.path("mountpoint/another"))
            .expect_err("the request that met the panic succeeded");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }

    /// Waits for the process; returns its exit code and messages.
    fn ended(&mut self) -> (Option<i32>, String) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let pid = rustix::process::Pid::from_child(&self.process);
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            .expect("a child that was not waited for has a descriptor");
        let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut watched, Some(&limit)), Ok(1), "the daemon does not end");
        let mut messages = String::new();
        let mut pipe = self.process.stderr.take().expect("a pipe was asked for");
        pipe.read_to_string(&mut messages).expect("messages are UTF-8");
        (self.process.wait().expect("it has ended").code(), messages)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fuse::unmount(&self.path("mountpoint"), true);
    }
}

#[test]
fn a_panic_in_a_request_ends_the_daemon_with_an_error_and_keeps_what_was_buffered() {
    let Some(mut daemon) = Daemon::start() else {
        return;
    };
    let held = fs::File::create(daemon.path("mountpoint/held")).unwrap();
    held.write_all_at(&[5; 100_000], 0).unwrap();
    let below = daemon.path("source/held");
    assert_eq!(fs::metadata(&below).unwrap().len(), 0, "nothing is held back");
    daemon.panic_once();
    let (code, messages) = daemon.ended();
    assert_eq!(code, Some(2), "{messages}");
    assert!(messages.contains("a defect of the file system"), "{messages}");
    assert!(messages.contains("panicked in thread fuse-"), "{messages}");
    assert_eq!(fs::read(&below).unwrap(), vec![5; 100_000]);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&format!("{} ", daemon.path("mountpoint").display())));
}
