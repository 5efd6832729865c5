//! The process that serves one mount, from mounting to the last byte written to the source.
//!
//! Order at the end: the session has ended (the kernel sends nothing more), then the buffer is drained, then the
//! process exits. SIGTERM, SIGINT and SIGHUP end the session; one thread waits for them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use fuse::{MountConfig, Negotiated, Session, StatsDocument};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vfs::FileSystem;

/// What is served.
pub struct Served {
    /// The file system.
    pub file_system: Arc<dyn FileSystem>,
    /// Its document of `tidegate stats`.
    pub statistics: StatsDocument,
    /// Writes out what is held back, after the last request.
    pub drain: Box<dyn FnOnce() -> Result<()>>,
}

/// Mounts, calls `announce` when the mount answers, and serves until it is unmounted or a signal ends it.
pub fn serve(
    mountpoint: &Path,
    config: &MountConfig,
    served: Served,
    announce: impl FnOnce(&Negotiated) -> Result<()>,
) -> Result<()> {
    // Caught from before the mount on: a signal that comes in between must not leave a dead mount.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("signals can't be caught")?;
    let session = Session::mount(served.file_system, mountpoint, config, served.statistics)?;
    let stopper = session.stopper();
    let watcher = signals.handle();
    let signal_thread = thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().for_each(|_signal| stopper.stop()))
        .context("the thread for signals can't be started");
    let announced = signal_thread.and_then(|thread| {
        announce(session.negotiated())?;
        Ok(thread)
    });
    if announced.is_err() {
        session.stopper().stop();
    }
    let waited = session.wait();
    let drained = (served.drain)();
    watcher.close();
    if let Ok(thread) = announced.map(thread::JoinHandle::join)? {
        // The signal thread returns nothing; a panic in it was printed by the panic hook.
        let () = thread;
    }
    waited?;
    drained
}

/// Leaves the terminal's session, so that its end and its keys reach this process no more.
pub fn leave_session() {
    // It fails only where this process leads a group already, which a spawned child does not.
    let _ = rustix::process::setsid();
}

/// Sends standard streams to nowhere, or messages to a log, and goes to `/` so that no folder is kept busy.
pub fn let_go_of_terminal(log_file: Option<&Path>) -> Result<()> {
    let nowhere = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("/dev/null can't be opened")?;
    rustix::stdio::dup2_stdin(&nowhere).context("standard input can't be closed")?;
    rustix::stdio::dup2_stdout(&nowhere).context("standard output can't be closed")?;
    if log_file.is_none() {
        rustix::stdio::dup2_stderr(&nowhere).context("standard error can't be closed")?;
    }
    std::env::set_current_dir("/").context("/ can't be entered")
}

/// Opens a log for appending; made readable by its owner alone.
pub fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("log file {} can't be opened", path.display()))
}
