//! Mounts for the tests of the command: temporary folders, the built binary, and an unmount on drop.
//!
//! Tests that mount need `/dev/fuse` and, as an ordinary user, `fusermount3`; without them they print a reason and pass
//! ([`Mounted::start`] returns `None`).

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{Timespec, Timestamps};
use serde_json::Value;
use tempfile::TempDir;

/// Times that no file of a test has.
pub const LONG_AGO: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 1,
        tv_nsec: 1,
    },
    last_modification: Timespec {
        tv_sec: 1,
        tv_nsec: 1,
    },
};

/// A source and a mount point in a temporary folder, mounted in the background.
pub struct Mounted {
    folder: TempDir,
    /// The output of `tidegate mount --json`.
    pub report: Value,
}

impl Mounted {
    /// Mounts with further arguments. `None`, with a printed reason, if this machine can't mount.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_over(|_| {}, arguments)
    }

    /// Mounts a source filled by `prepare`.
    pub fn start_over(prepare: impl FnOnce(&Path), arguments: &[&str]) -> Option<Self> {
        Self::start_by(tidegate(), prepare, arguments)
    }

    /// Mounts by a command that ends with the binary, or replaces it.
    pub fn start_by(mut program: Command, prepare: impl FnOnce(&Path), arguments: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("source")).expect("a source");
        std::fs::create_dir(folder.path().join("mountpoint")).expect("a mountpoint");
        prepare(&folder.path().join("source"));
        let output = program
            .args(["mount", "--json"])
            .arg(folder.path().join("source"))
            .arg(folder.path().join("mountpoint"))
            .args(arguments)
            .output()
            .expect("the binary runs");
        assert!(
            output.status.success(),
            "mount failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        Some(Self { folder, report })
    }

    /// Mounts as [`NOBODY`], who owns the source. `None`, with a printed reason, if root can't mount as that user.
    pub fn start_as_nobody(arguments: &[&str]) -> Option<Self> {
        Self::start_as_nobody_by(as_nobody(), arguments)
    }

    /// As [`Self::start_as_nobody`], by a command that ends with the binary.
    pub fn start_as_nobody_by(mut program: Command, arguments: &[&str]) -> Option<Self> {
        if !can_mount_as_nobody() {
            return None;
        }
        // The user may not access the folder of the built binary.
        let folder = TempDir::new().expect("a temporary folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        let [binary, source, mountpoint] =
            ["tidegate", "source", "mountpoint"].map(|name| folder.path().join(name));
        std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).expect("room for it");
        for owned in [&source, &mountpoint] {
            std::fs::create_dir(owned).expect("a folder");
            std::os::unix::fs::chown(owned, Some(NOBODY), Some(NOBODY)).expect("root may");
        }
        program
            .arg(&binary)
            .args(["mount", "--json"])
            .arg(&source)
            .arg(&mountpoint);
        let output = program.args(arguments).output().expect("setpriv runs");
        assert!(
            output.status.success(),
            "mount failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        Some(Self { folder, report })
    }

    /// The copy of the binary that [`NOBODY`] may run.
    pub fn binary(&self) -> PathBuf {
        self.folder.path().join("tidegate")
    }

    pub fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.folder.path().join("mountpoint")
    }

    /// The daemon's process id.
    pub fn pid(&self) -> rustix::process::Pid {
        let pid = self.report["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        pid.and_then(rustix::process::Pid::from_raw)
            .expect("the report has the daemon's pid")
    }

    /// Runs a subcommand on the mount point, with further arguments.
    pub fn run(&self, command: &str, arguments: &[&str]) -> Output {
        tidegate()
            .arg(command)
            .arg(self.mountpoint())
            .args(arguments)
            .output()
            .expect("the binary runs")
    }

    /// The document of `tidegate stats --json`.
    pub fn stats(&self) -> Value {
        let output = self.run("stats", &["--json"]);
        assert!(
            output.status.success(),
            "stats failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("a document in JSON")
    }

    /// Returns true while the kernel lists the mount.
    pub fn is_listed(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        table.contains(&format!(" {} ", self.mountpoint().display()))
    }

    /// Sends the daemon a signal and waits for its end.
    pub fn end_daemon(&self, signal: rustix::process::Signal) {
        let descriptor = rustix::process::pidfd_open(self.pid(), rustix::process::PidfdFlags::empty())
            .expect("the daemon runs");
        rustix::process::pidfd_send_signal(&descriptor, signal).expect("the daemon may be signalled");
        wait_for_end(&descriptor);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_listed() {
            // Best effort: a failure here would hide the test's own message.
            let _ = self.run("unmount", &["--lazy", "--timeout", "10s"]);
        }
    }
}

/// A mount in a source that is detached at the end, while the daemon still holds it, so that the folder above can be removed.
pub struct Detached(pub PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        let done = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(std::thread::panicking() || done.is_ok_and(|done| done.success()));
    }
}

/// Names a copy of the binary, for tests that run again as a user who may not access the folder of the built one.
pub const BINARY: &str = "TIDEGATE_TEST_BINARY";

/// The built binary.
pub fn tidegate() -> Command {
    let built = || env!("CARGO_BIN_EXE_tidegate").into();
    Command::new(std::env::var_os(BINARY).unwrap_or_else(built))
}

/// Runs `tidegate unmount` in its own process namespace, made by `unshare` with these options. `None`, with a printed
/// reason, if that is not possible.
pub fn unmount_in_a_process_namespace(mountpoint: &Path, options: &[&str]) -> Option<Output> {
    let unshare = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork"]).args(options);
        unshare
    };
    let is_possible = unshare()
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    if !is_possible {
        testkit::report_left_out("an unmount from another process namespace: this needs root and unshare");
        return None;
    }
    let program = tidegate();
    let output = unshare()
        .arg(program.get_program())
        .arg("unmount")
        .arg(mountpoint)
        .output();
    Some(output.expect("unshare runs"))
}

/// Waits until the process of a pidfd has ended.
pub fn wait_for_end(descriptor: &rustix::fd::OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&timeout))).expect("poll works");
    assert_eq!(ended, 1, "the daemon did not end within 20 s");
}

/// Returns true if a FUSE mount is possible; otherwise prints the reason.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    if let Err(error) = device {
        testkit::report_left_out(format!("/dev/fuse can't be opened: {error}"));
        return false;
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && !Path::new("/usr/bin/fusermount3").exists() && !Path::new("/bin/fusermount3").exists() {
        testkit::report_left_out("fusermount3 is missing (package fuse3) and this is not root");
        return false;
    }
    true
}

/// A user that exists on every Debian and owns nothing.
pub const NOBODY: u32 = 65534;

/// A command that runs its further arguments as [`NOBODY`].
pub fn as_nobody() -> Command {
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
    command
}

/// Runs `work` in a thread of [`NOBODY`]; no other user may access that user's mount, not even root.
pub fn in_a_thread_of_nobody(work: impl FnOnce() + Send) {
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (
        rustix::fs::Uid::from_raw(NOBODY),
        rustix::fs::Gid::from_raw(NOBODY),
    );
    let become_nobody = || {
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            become_nobody().expect("root may become anybody");
            work();
        });
        worker.join().expect("its own message is above");
    });
}

/// Returns true if root can mount as an ordinary user; otherwise prints the reason.
pub fn can_mount_as_nobody() -> bool {
    let succeeds = |words: &[&str]| {
        let output = as_nobody().args(words).output();
        output.is_ok_and(|output| output.status.success())
    };
    let reason = if !rustix::process::geteuid().is_root() {
        "this is an ordinary user: every other test here is this one"
    } else if !succeeds(&["true"]) {
        "setpriv (util-linux) is missing, or may not become nobody"
    } else if !succeeds(&["fusermount3", "--version"]) {
        "fusermount3 (fuse3) is missing"
    } else if !succeeds(&["sh", "-c", ": <>/dev/fuse"]) {
        "/dev/fuse is root's alone here, and fusermount3 opens it as its user"
    } else {
        return true;
    };
    testkit::report_left_out(reason);
    false
}
