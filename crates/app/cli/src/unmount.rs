//! `tidegate unmount`: unmounts and waits until the daemon has written everything to the source.
//!
//! The daemon ends only after it has drained its buffer, so its end means that all data has been written, and its status
//! tells whether that failed ([`end_status`]). A dead mount, whose daemon was killed, is removed without waiting. If the
//! daemon's process is not visible from here, the mount is removed without waiting, which is an error.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::arguments::UnmountArguments;
use crate::end_status;
use crate::mount_table::{self, Mount};
use crate::output::{self, print_error};
use crate::stats_document::{self, ANSWER_LIMIT, Document, ReadError};

/// Number of retries of a busy mount, and the pause before each: half a second in total.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Reasons for a failed unmount.
enum UnmountFailure {
    Busy,
    Other(anyhow::Error),
}

/// Runs the command.
pub fn run(arguments: &UnmountArguments) -> Result<()> {
    let mount = mount_table::find(&arguments.mountpoint)?;
    if !mount.is_fuse() {
        bail!(
            "{}: this is a mount of type {}, not of tidegate",
            mount.mountpoint.display(),
            mount.kind
        );
    }
    let daemon = find_daemon(&mount, arguments)?;
    let detached = match take_away_patiently(&mount.mountpoint) {
        // Whether a silent daemon still has files open is unknown.
        Ok(()) => matches!(daemon, Found::Silent),
        Err(UnmountFailure::Busy) if arguments.lazy => {
            take_away(&mount.mountpoint, true).map_err(|failure| explain(failure, &mount.mountpoint))?;
            true
        }
        Err(failure) => return Err(explain(failure, &mount.mountpoint)),
    };
    let mountpoint = mount.mountpoint.display();
    match daemon {
        Found::Dead => {}
        _ if detached => {
            let process = match &daemon {
                Found::Daemon(daemon) => format!("process {}", daemon.pid),
                _ => "its process".to_owned(),
            };
            output::print_line(&format!(
                "{mountpoint}: out of sight; {process} ends when the last open file is closed"
            ))?;
        }
        Found::Daemon(daemon) => {
            daemon.wait_for_end(arguments.timeout)?;
            daemon.check_end().with_context(|| {
                format!("{mountpoint}: the mount is gone, but its process ended with an error")
            })?;
        }
        // Detached, above.
        Found::Silent => {}
        Found::OutOfReach(why) => bail!(
            "{mountpoint}: the mount is gone, but its process can't be waited for: {why}; its buffered data may not be \
             written yet, so see to its end before the source is unmounted"
        ),
    }
    Ok(())
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

fn find_daemon(mount: &Mount, arguments: &UnmountArguments) -> Result<Found> {
    let limit = arguments.timeout.min(ANSWER_LIMIT);
    let document = match stats_document::read_within(limit, &mount.mountpoint) {
        Ok(document) => document,
        Err(ReadError::Dead) if mount.is_tidegate() => {
            print_error(&format!(
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
            print_error(&error.to_string());
            return Ok(Found::OutOfReach("its root folder can't be read"));
        }
        Err(ReadError::Silent { .. }) if mount.is_tidegate() && arguments.lazy => {
            return Ok(Found::Silent);
        }
        Err(error @ ReadError::Silent { .. }) => {
            return Err(anyhow::Error::new(error).context(
                "nothing was unmounted, because the daemon's writes can't be waited for; --lazy removes the mount all \
                 the same",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    if document.pid_namespace != stats_document::own_pid_namespace() {
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
    fn check_end(&self) -> Result<()> {
        self.end
            .as_ref()
            .map_or(Ok(()), |end| end_status::check(end, self.pid))
    }

    fn wait_for_end(&self, timeout: Duration) -> Result<()> {
        let has_ended = match (&self.descriptor, &self.end) {
            (Some(descriptor), _) => ends_within(descriptor, timeout)?,
            (None, Some(end)) => end_status::wait(end, timeout)?,
            (None, None) => true,
        };
        if !has_ended {
            bail!(
                "the mount is gone, but process {} still writes to the source after {} s; wait for its end before \
                 the source is unmounted",
                self.pid,
                timeout.as_secs_f64()
            );
        }
        Ok(())
    }
}

fn ends_within(process: &OwnedFd, timeout: Duration) -> Result<bool> {
    let timeout = Timespec::try_from(timeout).context("the timeout is too long")?;
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&timeout)))
        .context("the daemon can't be waited for")?;
    Ok(ended > 0)
}

/// Retries a busy unmount for half a second: programs that inspect every mount (`df`, indexers) hold each one briefly, and
/// so does the kernel while it closes files.
fn take_away_patiently(mountpoint: &Path) -> Result<(), UnmountFailure> {
    for _ in 0..BUSY_TRIES {
        match take_away(mountpoint, false) {
            Err(UnmountFailure::Busy) => thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    take_away(mountpoint, false)
}

fn take_away(mountpoint: &Path, lazy: bool) -> Result<(), UnmountFailure> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazy {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(mountpoint, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountFailure::Busy),
        Err(Errno::PERM) => take_away_by_helper(mountpoint, lazy),
        Err(error) => Err(UnmountFailure::Other(
            anyhow::Error::new(error).context(format!("{} can't be unmounted", mountpoint.display())),
        )),
    }
}

/// Unmounts as an ordinary user: `fusermount3` may unmount the user's own mounts.
fn take_away_by_helper(mountpoint: &Path, lazy: bool) -> Result<(), UnmountFailure> {
    let mut command = Command::new("fusermount3");
    command
        .arg("-u")
        .args(lazy.then_some("-z"))
        .arg("--")
        .arg(mountpoint)
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    let result = command
        .output()
        .context("fusermount3 can't be run; it is in the package fuse3")
        .map_err(UnmountFailure::Other)?;
    if result.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&result.stderr).trim_end().to_owned();
    if message.contains("busy") {
        return Err(UnmountFailure::Busy);
    }
    Err(UnmountFailure::Other(anyhow::anyhow!(
        "{} can't be unmounted: {message}",
        mountpoint.display()
    )))
}

fn explain(failure: UnmountFailure, mountpoint: &Path) -> anyhow::Error {
    match failure {
        UnmountFailure::Busy => anyhow::anyhow!(
            "{0}: files are open or a process works inside; find it with `lsof +f -- {0}`, or use --lazy",
            mountpoint.display()
        ),
        UnmountFailure::Other(error) => error,
    }
}
