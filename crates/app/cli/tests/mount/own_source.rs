//! A mount inside its own source: no call may wait for itself, or the mount is refused.
//!
//! A watchdog aborts the connection if a test's calls take too long, so that nothing stays blocked.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::{NOBODY, as_nobody, can_mount, can_mount_as_nobody, tidegate};

const PATIENCE: Duration = Duration::from_secs(30);
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Aborts a connection whose test has exceeded the time limit.
struct Watchdog {
    done: Sender<()>,
    thread: Option<JoinHandle<bool>>,
}

impl Watchdog {
    /// `None`, with a printed reason, if connections can't be aborted.
    fn over(mountpoint: &Path) -> Option<Self> {
        if !runs(Command::new("mountpoint").args(["-q", CONNECTIONS]))
            && !runs(Command::new("mount").args(["-t", "fusectl", "none", CONNECTIONS]))
        {
            testkit::report_left_out("fusectl can't be mounted: a test that hangs could not be ended");
            return None;
        }
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table
            .lines()
            .rfind(|line| line.split(' ').nth(4) == mountpoint.to_str())
            .expect("it is mounted");
        let minor = line.split(' ').nth(2).and_then(|device| device.split(':').nth(1));
        let abort = Path::new(CONNECTIONS)
            .join(minor.expect("devices have two numbers"))
            .join("abort");
        let (done, waits) = channel();
        let thread = std::thread::spawn(move || {
            let in_time = waits.recv_timeout(PATIENCE).is_ok();
            if !in_time {
                fs::write(abort, "1").expect("root may abort a connection");
            }
            in_time
        });
        Some(Self {
            done,
            thread: Some(thread),
        })
    }

    fn assert_in_time(mut self) {
        self.done.send(()).ok();
        let thread = self.thread.take().expect("taken once");
        assert!(thread.join().unwrap(), "a call waited for its own mount");
    }
}

/// Folders of a test with their mounts, unmounted on drop.
struct Folders {
    folder: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        let folders = Self {
            folder: tempfile::TempDir::new().unwrap(),
        };
        fs::set_permissions(folders.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["source", "source/sub", "source/loop", "outside", "bound"] {
            fs::create_dir(folders.path(name)).unwrap();
        }
        fs::write(folders.path("source/file"), "content").unwrap();
        folders
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mount(&self, source: &str, mountpoint: &str, arguments: &[&str]) -> Output {
        let mut command = tidegate();
        command
            .arg("mount")
            .args([self.path(source), self.path(mountpoint)]);
        command.args(arguments).output().unwrap()
    }

    fn bind(&self, from: &str, to: &str) {
        let paths = [self.path(from), self.path(to)];
        assert!(runs(Command::new("mount").arg("--bind").args(paths)));
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        // Best effort, the last mount first: a failure here would hide the test's own message.
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = table.lines().filter_map(|line| line.split(' ').nth(4));
        let own: Vec<_> = own
            .filter(|at| Path::new(at).starts_with(self.folder.path()))
            .collect();
        for mountpoint in own.iter().rev() {
            let _ = Command::new("umount").args(["-l", mountpoint]).output();
        }
    }
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The output of `ls`, or its error.
fn ls(path: &Path) -> String {
    let output = Command::new("ls").arg(path).output().unwrap();
    let text = if output.status.success() {
        output.stdout
    } else {
        output.stderr
    };
    String::from_utf8(text)
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn roots_mount_on_a_folder_of_its_own_source_shows_what_is_below_it() {
    if !testkit::needs(&[testkit::Need::Root]) || !can_mount() {
        return;
    }
    for arguments in [
        &[][..],
        &["--passthrough", "off"],
        &["--passthrough", "off", "-o", "noatime"],
    ] {
        let folders = Folders::new();
        fs::write(folders.path("source/sub/covered"), "x").unwrap();
        let mounted = folders.mount("source", "source/sub", arguments);
        assert!(
            mounted.status.success(),
            "{}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        let Some(watchdog) = Watchdog::over(&folders.path("source/sub")) else {
            return;
        };
        assert_eq!(ls(&folders.path("source/sub")), "file loop sub");
        assert_eq!(ls(&folders.path("source/sub/sub")), "covered");
        fs::write(folders.path("source/sub/new"), "through the mount").unwrap();
        assert_eq!(
            fs::read_to_string(folders.path("source/new")).unwrap(),
            "through the mount"
        );
        let found = Command::new("find").arg(folders.path("source")).output().unwrap();
        assert_eq!(String::from_utf8(found.stdout).unwrap().lines().count(), 10);
        let unmounted = tidegate()
            .arg("unmount")
            .arg(folders.path("source/sub"))
            .output()
            .unwrap();
        assert!(
            unmounted.status.success(),
            "{}",
            String::from_utf8_lossy(&unmounted.stderr)
        );
        watchdog.assert_in_time();
    }
}

#[test]
fn a_later_mount_below_the_source_of_roots_mount_is_not_entered() {
    if !testkit::needs(&[testkit::Need::Root]) || !can_mount() {
        return;
    }
    for shared in [false, true] {
        let folders = Folders::new();
        folders.bind("source", "source");
        let propagation = if shared { "--make-shared" } else { "--make-private" };
        assert!(runs(
            Command::new("mount").arg(propagation).arg(folders.path("source"))
        ));
        let mounted = folders.mount("source", "outside", &["--passthrough", "off"]);
        assert!(
            mounted.status.success(),
            "{}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        let Some(watchdog) = Watchdog::over(&folders.path("outside")) else {
            return;
        };
        folders.bind("outside", "source/loop");
        assert_eq!(
            ls(&folders.path("source/loop")),
            "file loop sub",
            "shared: {shared}"
        );
        assert_eq!(ls(&folders.path("source/loop/loop")), "", "shared: {shared}");
        assert_eq!(ls(&folders.path("outside/loop")), "", "shared: {shared}");
        watchdog.assert_in_time();
    }
}

#[test]
fn mounts_below_the_source_at_the_time_of_roots_mount_are_shown() {
    if !testkit::needs(&[testkit::Need::Root]) || !can_mount() {
        return;
    }
    let folders = Folders::new();
    fs::write(folders.path("bound/inside"), "x").unwrap();
    folders.bind("bound", "source/sub");
    let mounted = folders.mount("source", "outside", &[]);
    assert!(
        mounted.status.success(),
        "{}",
        String::from_utf8_lossy(&mounted.stderr)
    );
    assert_eq!(ls(&folders.path("outside/sub")), "inside");
}

/// The file system of the source stays busy, although the daemon has its own mount of it.
#[test]
fn the_file_system_of_the_source_can_not_be_unmounted_below_the_daemon() {
    if !testkit::needs(&[testkit::Need::Root]) || !can_mount() {
        return;
    }
    let folders = Folders::new();
    assert!(runs(
        Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(folders.path("source"))
    ));
    let mounted = folders.mount("source", "outside", &[]);
    assert!(
        mounted.status.success(),
        "{}",
        String::from_utf8_lossy(&mounted.stderr)
    );
    assert!(!runs(Command::new("umount").arg(folders.path("source"))));
    assert!(runs(tidegate().arg("unmount").arg(folders.path("outside"))));
    assert!(runs(Command::new("umount").arg(folders.path("source"))));
}

/// Copies the binary where an ordinary user may run it, and creates folders of that user.
fn folders_of_nobody() -> Folders {
    let folders = Folders::new();
    fs::copy(env!("CARGO_BIN_EXE_tidegate"), folders.path("tidegate")).unwrap();
    for name in ["source", "source/sub", "source/loop", "outside", "bound"] {
        std::os::unix::fs::chown(folders.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    folders
}

fn mount_as_nobody(folders: &Folders, source: &str, mountpoint: &str) -> Output {
    as_nobody()
        .arg(folders.path("tidegate"))
        .arg("mount")
        .args([folders.path(source), folders.path(mountpoint)])
        .output()
        .unwrap()
}

#[test]
fn an_ordinary_users_mount_inside_of_its_own_source_is_refused_by_whatever_name() {
    if !can_mount_as_nobody() {
        return;
    }
    let folders = folders_of_nobody();
    symlink(folders.path("source/sub"), folders.path("link")).unwrap();
    symlink(folders.path("source"), folders.path("source-link")).unwrap();
    folders.bind("source", "bound");
    for (source, mountpoint) in [
        ("source", "source"),
        ("source", "source/sub"),
        ("source", "link"),
        ("source-link", "source/sub"),
        ("source", "bound/sub"),
        ("bound", "source/sub"),
    ] {
        let refused = mount_as_nobody(&folders, source, mountpoint);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(
            refused.status.code(),
            Some(2),
            "{source} at {mountpoint}: {message}"
        );
        assert!(
            message.contains("inside of the source"),
            "{source} at {mountpoint}: {message}"
        );
    }
    assert!(
        mount_as_nobody(&folders, "source", "outside").status.success(),
        "a mountpoint outside"
    );
}

#[test]
fn an_ordinary_users_mount_that_is_bound_into_its_source_later_is_never_entered() {
    if !can_mount_as_nobody() {
        return;
    }
    let folders = folders_of_nobody();
    let mounted = mount_as_nobody(&folders, "source", "outside");
    assert!(
        mounted.status.success(),
        "{}",
        String::from_utf8_lossy(&mounted.stderr)
    );
    let Some(watchdog) = Watchdog::over(&folders.path("outside")) else {
        return;
    };
    // Root may access another user's mount only to bind it.
    folders.bind("outside", "source/loop");
    let look = |command: &str| {
        let output = as_nobody()
            .args([
                "sh",
                "-c",
                &format!("cd {} && {command}", folders.path("outside").display()),
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for command in [
        "ls -l loop",
        "ls -l loop/loop",
        "stat loop",
        "cat loop/file",
        "touch loop/new",
    ] {
        let said = look(command);
        assert!(
            said.contains("Too many levels of symbolic links"),
            "{command}: {said}"
        );
    }
    assert!(look("ls -l").contains("Too many levels"), "the others are listed");
    assert_eq!(look("cat file"), "");
    watchdog.assert_in_time();
}
