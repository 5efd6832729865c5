//! `tidegate unmount`: takes the mount away and waits until its daemon has written everything to the source.
//!
//! The daemon ends only after it has drained its buffer, so its end is the sign that all data is on its way, and says whether that
//! failed ([`end_status`]). A dead mount, whose daemon was killed, is removed without waiting.

use std::fs::File;
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
use crate::stats_document::{self, ReadError};

/// How often a busy mount is tried again, and the pause before each: half a second in all.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// Why a mount could not be taken away.
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
    let daemon = find_daemon(&mount)?;
    let detached = match take_away_patiently(&mount.mountpoint) {
        Ok(()) => false,
        Err(UnmountFailure::Busy) if arguments.lazy => {
            take_away(&mount.mountpoint, true).map_err(|failure| explain(failure, &mount.mountpoint))?;
            true
        }
        Err(failure) => return Err(explain(failure, &mount.mountpoint)),
    };
    match daemon {
        Some(daemon) if detached => {
            output::print_line(&format!(
                "{}: out of sight; process {} ends when the last open file is closed",
                mount.mountpoint.display(),
                daemon.pid
            ))?;
        }
        Some(daemon) => {
            daemon.wait_for_end(arguments.timeout)?;
            daemon.check_end().with_context(|| {
                let mountpoint = mount.mountpoint.display();
                format!("{mountpoint}: the mount is gone, but its process ended with an error")
            })?;
        }
        None => {}
    }
    Ok(())
}

/// The process that serves a mount.
struct Daemon {
    pid: u32,
    descriptor: OwnedFd,
    /// Says how it ended, once it has.
    end: Option<File>,
}

/// The daemon of a live mount; `None` where it is dead or lives in a process namespace that we can't see into.
fn find_daemon(mount: &Mount) -> Result<Option<Daemon>> {
    let document = match stats_document::read(&mount.mountpoint) {
        Ok(document) => document,
        Err(ReadError::Dead) if mount.is_tidegate() => {
            print_error(&format!(
                "{}: its daemon is gone, and what it held back is lost; its last messages are in its --log-file or, without \
                 one, in the system log (`journalctl -t tidegate`)",
                mount.mountpoint.display()
            ));
            return Ok(None);
        }
        Err(ReadError::Refused { .. }) if mount.is_tidegate() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if document.pid_namespace != stats_document::own_pid_namespace() {
        return Ok(None);
    }
    let pid = i32::try_from(document.pid).ok().and_then(Pid::from_raw);
    // It may end at any moment, for example by a signal: then there is nothing to wait for.
    Ok(pid
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
        .map(|descriptor| Daemon {
            pid: document.pid,
            descriptor,
            end: document
                .end_descriptor
                .and_then(|end| end_status::open(document.pid, end)),
        }))
}

impl Daemon {
    /// The error that it ended with, as far as that can be known.
    fn check_end(&self) -> Result<()> {
        self.end
            .as_ref()
            .map_or(Ok(()), |end| end_status::check(end, self.pid))
    }

    fn wait_for_end(&self, timeout: Duration) -> Result<()> {
        let timeout_spec = Timespec::try_from(timeout).context("the timeout is too long")?;
        let mut watched = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&timeout_spec)))
            .context("the daemon can't be waited for")?;
        if ended == 0 {
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

/// Tries for a moment: programs that look at every mount (`df`, indexers) hold each one for an instant, and so does the
/// kernel while it closes what a program has just left.
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

/// As an ordinary user: `fusermount3` may unmount what the user mounted.
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
