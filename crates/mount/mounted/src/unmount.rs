//! The end of a mount: unmounts, and waits until the daemon has written everything to the source.
//!
//! The daemon ends only after it has drained its buffer, so its end means that all data has been written, and its status
//! tells whether that failed ([`end_status`]). A dead mount, whose daemon was killed, is removed without waiting. If the
//! daemon's process is not visible from here, the mount is removed without waiting, which is an error.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::document::{self, ANSWER_LIMIT, Document, ReadError};
use crate::table::{self, Mount};
use crate::{MountedError, end_status};

/// Number of retries of a busy mount, and the pause before each: half a second in total.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// The way to unmount.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Limit of the wait for the daemon's end.
    pub timeout: Duration,
    /// Remove a mount that is in use from the tree; it ends when it is no longer used.
    pub lazy: bool,
}

/// State of a mount that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The daemon has ended without an error, or had been dead before.
    Done,
    /// The daemon ends when the last open file is closed.
    Detached {
        /// The mount point, resolved while the mount was there: a relative path may mean nothing afterwards.
        mountpoint: PathBuf,
        /// The daemon, if it is known.
        pid: Option<u32>,
    },
}

/// Unmounts the FUSE file system at `mountpoint`; `say` gets messages about a daemon that can't be waited for.
///
/// # Errors
/// [`MountedError`] when nothing was unmounted, or when the daemon's data may not be written.
pub fn unmount(mountpoint: &Path, how: How, say: &dyn Fn(&str)) -> Result<Ended, MountedError> {
    let mount = table::find_fuse(mountpoint)?;
    let daemon = find_daemon(&mount, how, say)?;
    let mountpoint = mount.mountpoint;
    let is_detached = match take_away_patiently(&mountpoint) {
        // Whether a silent daemon still has files open is unknown.
        Ok(()) => matches!(daemon, Found::Silent),
        Err(MountedError::Busy(_)) if how.lazy => {
            take_away(&mountpoint, true)?;
            true
        }
        Err(failure) => return Err(failure),
    };
    match daemon {
        Found::Dead => Ok(Ended::Done),
        Found::Daemon(daemon) if is_detached => Ok(Ended::Detached {
            mountpoint,
            pid: Some(daemon.pid),
        }),
        Found::Daemon(daemon) => {
            daemon.wait_for_end(how.timeout)?;
            daemon.check_end().map_err(|source| MountedError::EndedBadly {
                mountpoint,
                source: Box::new(source),
            })?;
            Ok(Ended::Done)
        }
        Found::Silent => Ok(Ended::Detached {
            mountpoint,
            pid: None,
        }),
        Found::OutOfReach(_) if is_detached => Ok(Ended::Detached {
            mountpoint,
            pid: None,
        }),
        Found::OutOfReach(reason) => Err(MountedError::OutOfReach { mountpoint, reason }),
    }
}

/// The process behind a mount, if it is visible.
enum Found {
    /// It has already ended.
    Dead,
    /// It can be waited for.
    Daemon(Daemon),
    /// It does not answer, and was not to be waited for.
    Silent,
    /// It can't be waited for, with the reason.
    OutOfReach(&'static str),
}

/// The process that serves a mount.
struct Daemon {
    /// Its id in its own process namespace.
    pid: u32,
    /// `None` if it is in another process namespace; then `end` is locked until it ends.
    descriptor: Option<OwnedFd>,
    /// The file with its end status.
    end: Option<File>,
}

fn find_daemon(mount: &Mount, how: How, say: &dyn Fn(&str)) -> Result<Found, MountedError> {
    let limit = how.timeout.min(ANSWER_LIMIT);
    let document = match document::read_within(limit, &mount.mountpoint) {
        Ok(document) => document,
        Err(ReadError::Dead) if mount.is_tidegate() => {
            say(&format!(
                "{}: its daemon is gone, and its buffered data is lost; its last messages are in its --log-file or, without \
                 one, in the system log (`journalctl -t tidegate`)",
                mount.mountpoint.display()
            ));
            return Ok(Found::Dead);
        }
        Err(ReadError::Refused { .. }) if mount.is_tidegate() => {
            return Ok(Found::OutOfReach("only the user that mounted it may ask for it"));
        }
        Err(error @ ReadError::NotOurs { .. }) if mount.is_tidegate() => {
            say(&error.to_string());
            return Ok(Found::OutOfReach("its root folder can't be read"));
        }
        Err(ReadError::Silent { .. }) if mount.is_tidegate() && how.lazy => {
            return Ok(Found::Silent);
        }
        Err(error @ ReadError::Silent { .. }) => return Err(MountedError::Silent(error)),
        Err(error) => return Err(error.into()),
    };
    if document.pid_namespace != document::own_pid_namespace() {
        return Ok(find_in_other_namespace(&document));
    }
    let pid = i32::try_from(document.pid).ok().and_then(Pid::from_raw);
    // It may end at any moment, for example by a signal, and then needs no waiting.
    let descriptor = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    Ok(descriptor.map_or(Found::Dead, |descriptor| {
        Found::Daemon(Daemon {
            pid: document.pid,
            descriptor: Some(descriptor),
            end: document
                .end_descriptor
                .and_then(|end| end_status::open(document.pid, end)),
        })
    }))
}

/// Finds a daemon of another process namespace, if this /proc shows its process.
fn find_in_other_namespace(document: &Document) -> Found {
    let end = document
        .end_descriptor
        .zip(number_in_proc(document))
        .and_then(|(end, number)| end_status::open(number, end));
    match end {
        None => Found::OutOfReach("it lives in another process namespace, which is not to be seen from here"),
        Some(end) => Found::Daemon(Daemon {
            pid: document.pid,
            descriptor: None,
            end: Some(end),
        }),
    }
}

/// The id of a daemon in the process namespace of /proc, which may differ from this process's namespace.
fn number_in_proc(document: &Document) -> Option<u32> {
    let namespace = document.pid_namespace.as_ref()?;
    let own_number = |process: &Path| {
        let status = fs::read_to_string(process.join("status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    let mut processes = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((number, entry.path()))
    });
    let found = processes.find(|(_, process)| {
        let is_there = fs::read_link(process.join("ns/pid")).is_ok_and(|found| found == *namespace);
        is_there && own_number(process) == Some(document.pid)
    });
    found.map(|(number, _)| number)
}

impl Daemon {
    /// Returns the error that the daemon ended with, if it is known.
    fn check_end(&self) -> Result<(), MountedError> {
        self.end
            .as_ref()
            .map_or(Ok(()), |end| end_status::check(end, self.pid))
    }

    fn wait_for_end(&self, timeout: Duration) -> Result<(), MountedError> {
        let has_ended = match (&self.descriptor, &self.end) {
            (Some(descriptor), _) => ends_within(descriptor, timeout)?,
            (None, Some(end)) => end_status::wait(end, timeout)?,
            (None, None) => true,
        };
        if has_ended {
            return Ok(());
        }
        Err(MountedError::StillWriting {
            pid: self.pid,
            seconds: timeout.as_secs_f64(),
        })
    }
}

fn ends_within(process: &OwnedFd, timeout: Duration) -> Result<bool, MountedError> {
    let timeout = Timespec::try_from(timeout).map_err(|_| MountedError::TimeoutTooLong)?;
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&timeout)));
    let ended = ended.map_err(|source| MountedError::Wait {
        what: "the daemon",
        source,
    })?;
    Ok(ended > 0)
}

/// Retries a busy unmount for half a second: programs that inspect every mount (`df`, indexers) hold each one briefly, and
/// so does the kernel while it closes files.
fn take_away_patiently(mountpoint: &Path) -> Result<(), MountedError> {
    for _ in 0..BUSY_TRIES {
        match take_away(mountpoint, false) {
            Err(MountedError::Busy(_)) => thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    take_away(mountpoint, false)
}

fn take_away(mountpoint: &Path, lazy: bool) -> Result<(), MountedError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    let mountpoint = mountpoint.to_owned();
    match rustix::mount::unmount(&mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountedError::Busy(mountpoint)),
        Err(Errno::PERM) => take_away_by_helper(mountpoint, lazy),
        Err(source) => Err(MountedError::Unmount { mountpoint, source }),
    }
}

/// Unmounts as an ordinary user: `fusermount3` may unmount the user's own mounts.
fn take_away_by_helper(mountpoint: PathBuf, lazy: bool) -> Result<(), MountedError> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(&mountpoint)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    let result = command.output().map_err(MountedError::NoHelper)?;
    if result.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&result.stderr).trim_end().to_owned();
    Err(match message.contains("busy") {
        true => MountedError::Busy(mountpoint),
        false => MountedError::Helper { mountpoint, message },
    })
}
