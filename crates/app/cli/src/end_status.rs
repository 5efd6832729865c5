//! How a daemon ended, for `tidegate unmount`, which is not its parent and so gets no exit code.
//!
//! The daemon has a file in memory (memfd), whose descriptor the document of `tidegate stats` names, and writes there how it ended,
//! as the last thing that it does. `unmount` opens the file through /proc while the daemon lives, and reads it once the process is
//! gone: that nothing is in it means that the daemon was killed. Whoever may unmount may open it: root and the daemon's user.
//!
//! The daemon holds a lock on it until it is gone, however it ends, so that one that lives in another process namespace can be waited for
//! wherever a /proc shows it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, MemfdFlags, OFlags, flock, memfd_create};
use rustix::io::Errno;

use crate::output;

const NAME: &str = "tidegate-end";
/// What is written after an end without an error.
const DONE: &str = "done";
/// A message is a line or two.
const BYTES_MAX: u64 = 64 << 10;
/// Between two looks at the lock.
const PAUSE: Duration = Duration::from_millis(10);

/// One process serves one mount.
static FILE: OnceLock<Option<File>> = OnceLock::new();

/// The descriptor of this process's file; `None` where the kernel gives none.
pub fn descriptor() -> Option<i32> {
    let file = FILE.get_or_init(|| {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(File::from(file))
    });
    file.as_ref().map(AsRawFd::as_raw_fd)
}

/// Notes how this process ended.
pub fn record(ended: &Result<()>) {
    let text = match ended {
        Ok(()) => DONE.to_owned(),
        Err(error) => format!("error: {}", output::with_causes(error)),
    };
    if let Some(Some(file)) = FILE.get() {
        // Where it fails, the process looks like one that was killed, which is an error as well.
        let _ = file.write_all_at(text.as_bytes(), 0);
    }
}

/// The file of a daemon that lives; `None` where this user may not look. The document that names it may be anybody's, so nothing
/// but such a file is opened.
pub fn open(pid: u32, descriptor: i32) -> Option<File> {
    let path = PathBuf::from(format!("/proc/{pid}/fd/{descriptor}"));
    let target = std::fs::read_link(&path).ok()?;
    if !target.to_str()?.starts_with(&format!("/memfd:{NAME}")) {
        return None;
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).ok()?;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

/// Waits until the daemon of a file is gone; `false` when it still lives after `timeout`.
pub fn wait(file: &File, timeout: Duration) -> Result<bool> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < timeout => thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error).context("the daemon's lock can't be waited for"),
        }
    }
}

/// The error that a daemon, which is gone by now, ended with.
pub fn check(file: &File, pid: u32) -> Result<()> {
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    match text.strip_prefix("error: ") {
        _ if text == DONE => Ok(()),
        Some(error) => bail!("{error}"),
        None => bail!("process {pid} was killed before all was written; what was not synced is lost"),
    }
}
