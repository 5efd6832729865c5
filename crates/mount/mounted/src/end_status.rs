//! The exit status of a daemon for `tidegate unmount`, which is not its parent and gets no exit code.
//!
//! The daemon has an anonymous file (memfd), whose descriptor is in the document of `tidegate stats`, and writes its status
//! there as its last action. `unmount` opens the file through /proc while the daemon is alive, and reads it once the
//! process is gone: an empty file means that the daemon was killed. Every user who may unmount can open it: root and the
//! daemon's user.
//!
//! The daemon holds a lock on the file until it is gone, however it ends. So `unmount` can wait for a daemon in another
//! process namespace if it is visible in a /proc.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, MemfdFlags, OFlags, flock, memfd_create};
use rustix::io::Errno;

use crate::MountedError;

const NAME: &str = "tidegate-end";
/// Content after an end without an error.
const DONE: &str = "done";
/// Maximum length of a message.
const BYTES_MAX: u64 = 64 << 10;
/// Interval of polling the lock.
const PAUSE: Duration = Duration::from_millis(10);

/// One per process, because one process serves one mount.
static FILE: OnceLock<Option<File>> = OnceLock::new();

/// The descriptor of this process's file; `None` if it could not be created.
#[must_use]
pub fn descriptor() -> Option<i32> {
    let file = FILE.get_or_init(|| {
        let file = memfd_create(NAME, MemfdFlags::CLOEXEC).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(File::from(file))
    });
    file.as_ref().map(AsRawFd::as_raw_fd)
}

/// Records how this process ended; an error with its causes.
pub fn record(ended: Result<(), String>) {
    let text = match ended {
        Ok(()) => DONE.to_owned(),
        Err(error) => format!("error: {error}"),
    };
    if let Some(Some(file)) = FILE.get() {
        // If this fails, the process looks killed, which is an error too.
        let _ = file.write_all_at(text.as_bytes(), 0);
    }
}

/// Opens the file of a live daemon; `None` if this user may not. The document may come from any process, so this opens
/// nothing but such a file.
#[must_use]
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

/// Waits until the daemon is gone; returns `false` if it is still alive after `timeout`.
///
/// # Errors
/// When the lock can't be used.
pub fn wait(file: &File, timeout: Duration) -> Result<bool, MountedError> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < timeout => thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(source) => {
                return Err(MountedError::Wait {
                    what: "the daemon's lock",
                    source,
                });
            }
        }
    }
}

/// Checks the status of a daemon that is gone.
///
/// # Errors
/// The error that the daemon ended with.
pub fn check(file: &File, pid: u32) -> Result<(), MountedError> {
    let mut text = String::new();
    file.take(BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(MountedError::Status)?;
    match text.strip_prefix("error: ") {
        _ if text == DONE => Ok(()),
        Some(error) => Err(MountedError::Daemon(error.to_owned())),
        None => Err(MountedError::Killed { pid }),
    }
}
