//! The process that serves one mount, from mounting to the last byte written to the source.
//!
//! Order at the end: the session ends (the kernel sends no more requests), the buffer is drained, the process exits.
//! SIGTERM, SIGINT and SIGHUP end the session; one thread waits for them.
//!
//! After a failed session (a request panicked) every wait has a time limit, and no destructor runs: either could block on a
//! lock that the panic left behind.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fuse::{MountConfig, MountError, Negotiated, RequestError, Session, StatsDocument};
use outfile::Readers;
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use vfs::{FileSystem, FsError, Ino};

use crate::log::{self, Level};

use crate::end_status;

#[cfg(test)]
mod tests;

/// A file system to serve, with its statistics and its drain.
pub struct Served {
    pub file_system: Arc<dyn FileSystem>,
    /// Its document for `tidegate stats`.
    pub statistics: StatsDocument,
    /// Writes out buffered data after the last request.
    pub drain: Box<dyn FnOnce() -> Result<()> + Send>,
}

/// Time limit of a drain after a failure. Together with the session's limits it stays below the 30 s for which `tidegate
/// unmount` waits.
const DRAIN_LIMIT: Duration = Duration::from_secs(12);

/// Mounts, calls `announce` once the mount answers, and serves until it is unmounted or a signal arrives. Records the
/// result for `tidegate unmount`.
pub fn serve(
    mountpoint: &Path,
    config: &MountConfig,
    served: Served,
    announce: impl FnOnce(&Negotiated) -> Result<()>,
) -> Result<()> {
    let ended = serve_to_the_end(mountpoint, config, served, announce);
    end_status::record(ended.as_ref().copied().map_err(crate::output::with_causes));
    ended
}

fn serve_to_the_end(
    mountpoint: &Path,
    config: &MountConfig,
    served: Served,
    announce: impl FnOnce(&Negotiated) -> Result<()>,
) -> Result<()> {
    outlive_limits().context("the limits of this process can't be met")?;
    // Catch signals before mounting: one that arrives in between must not leave a dead mount.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals can't be caught")?;
    let file_system = served.file_system.clone();
    // A mount without a root would answer nothing, not even the query for its owner.
    let root = file_system.getattr(Ino::ROOT, None);
    let root = root.context("the root folder can't be read, so nothing is mounted");
    let errors = Box::new(|error: &RequestError| log::message(Level::Error, &text_of(error)));
    let session = root.and_then(|_| {
        let mounted = Session::mount(served.file_system, mountpoint, config, served.statistics, errors);
        Ok(mounted?)
    });
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            // Nothing was written through a mount; a drain that fails as well says nothing more.
            let _ = (served.drain)();
            return Err(error);
        }
    };
    let stopper = session.stopper();
    let place = mountpoint.display().to_string();
    let watcher = signals.handle();
    let signal_thread = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                log::message(Level::Info, &format!("{place}: ended by {}", name_of(signal)));
                stopper.stop();
            }
        })
        .context("the thread for signals can't be started");
    let announced = signal_thread.and_then(|thread| {
        announce(session.negotiated())?;
        Ok(thread)
    });
    if announced.is_err() {
        session.stopper().stop();
    }
    let waited = session.wait();
    let aborted = matches!(waited, Err(MountError::Aborted));
    if let Err(failure) = waited
        && !aborted
    {
        // Leak it, so that its destructor never runs, whoever drops the last reference.
        std::mem::forget(file_system);
        let failure = anyhow::Error::new(failure);
        return Err(match drain_within(DRAIN_LIMIT, served.drain) {
            Ok(()) => failure,
            Err(error) => failure.context(error),
        });
    }
    let drained = (served.drain)();
    watcher.close();
    // The signal thread returns nothing; the panic hook has printed any panic in it.
    let _ = announced?.join();
    if aborted {
        drained?;
        return Err(MountError::Aborted.into());
    }
    if drained.is_ok() {
        let text = format!("{}: unmounted, and nothing is held back", mountpoint.display());
        log::message(Level::Info, &text);
    }
    drained
}

/// Raises the limits on file size and processor time as far as privileges allow: the limits of the starting shell must not
/// apply to the programs served here. A write beyond a remaining file size limit fails with EFBIG; by default the signal
/// would kill the process, with all its buffered data.
fn outlive_limits() -> Result<()> {
    for resource in [Resource::Fsize, Resource::Cpu] {
        let unlimited = Rlimit {
            current: None,
            maximum: None,
        };
        let hard = rustix::process::getrlimit(resource).maximum;
        let up_to_hard = Rlimit {
            current: hard,
            maximum: hard,
        };
        let raised = |limit| rustix::process::setrlimit(resource, limit).is_ok();
        // The second call can't fail: any process may raise its soft limit to the hard one.
        let _ = raised(unlimited) || raised(up_to_hard);
    }
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok(())
}

fn name_of(signal: i32) -> &'static str {
    match signal {
        SIGTERM => "SIGTERM",
        SIGINT => "SIGINT",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    }
}

/// Describes a failed request, with the file's name if it is known.
fn text_of(error: &RequestError) -> String {
    let file = match (&error.path, error.handle) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(handle)) => format!("inode {} (handle {})", error.ino.0, handle.0),
        (None, None) => format!("inode {}", error.ino.0),
    };
    let more = match error.left_out {
        0 => String::new(),
        count => format!(" (and {count} like it since the last message)"),
    };
    let hint = match error.error {
        FsError::TooManyOpenFiles | FsError::TooManyOpenFilesInSystem => {
            "; the daemon has no descriptors left: raise its limit (ulimit -n, LimitNOFILE=)"
        }
        _ => "",
    };
    format!("{} of {file}: {}{hint}{more}", error.operation, error.error)
}

/// Drains in a thread, which is abandoned at the time limit.
fn drain_within(limit: Duration, drain: Box<dyn FnOnce() -> Result<()> + Send>) -> Result<()> {
    let (sender, outcome) = mpsc::channel();
    let thread = thread::Builder::new().name("drain".into());
    thread
        .spawn(move || sender.send(drain()))
        .context("the thread that writes out what is held back can't be started")?;
    match outcome.recv_timeout(limit) {
        Ok(drained) => drained,
        Err(RecvTimeoutError::Timeout) => bail!(
            "what is held back was not written within {} s and is lost",
            limit.as_secs()
        ),
        Err(RecvTimeoutError::Disconnected) => {
            bail!("writing out what is held back panicked; the rest is lost")
        }
    }
}

/// Starts a new session, so that the terminal's hangup and keys no longer reach this process.
pub fn leave_session() {
    // Fails only for a process group leader, which a spawned child is not.
    let _ = rustix::process::setsid();
}

/// Opens /dev/null, for [`let_go_of_terminal`], and changes to `/` so that no folder is kept busy.
pub fn nowhere() -> Result<File> {
    std::env::set_current_dir("/").context("/ can't be entered")?;
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).open("/dev/null");
    opened.context("/dev/null can't be opened")
}

/// Redirects the standard streams to /dev/null, except messages to a log file.
pub fn let_go_of_terminal(nowhere: &File, log_file: Option<&Path>) -> Result<()> {
    rustix::stdio::dup2_stdin(nowhere).context("standard input can't be closed")?;
    rustix::stdio::dup2_stdout(nowhere).context("standard output can't be closed")?;
    if log_file.is_none() {
        rustix::stdio::dup2_stderr(nowhere).context("standard error can't be closed")?;
    }
    Ok(())
}

/// Opens a log for appending, readable only by its owner. Refuses symbolic links of other users.
pub fn open_log(path: &Path) -> Result<File> {
    outfile::append(path, Readers::Owner)
        .with_context(|| format!("log file {} can't be opened", path.display()))
}
