//! Waiting for the readers of FIFOs, so that a program that catches signals can still be stopped.
//!
//! A handler of signals that raises a flag does not end an `open` or a `write` that waits: the kernel makes them again. So they are
//! made without waiting, and the flag is looked at in between.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Time between two looks at the flag.
const INTERVAL: Duration = Duration::from_millis(20);

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Lets no output wait for a reader any longer once `flag` is raised. The first flag of a process counts.
pub fn stop_with(flag: Arc<AtomicBool>) {
    // A second one is of a command that another one has started in the same process.
    let _first = STOP.set(flag);
}

fn check_stop() -> io::Result<()> {
    match STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        true => Err(io::Error::other("stopped while it waited for a reader")),
        false => Ok(()),
    }
}

/// Opens a FIFO when it has a reader.
pub(crate) fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    loop {
        match rustix::fs::openat(CWD, path, flags | OFlags::NONBLOCK, Mode::empty()) {
            Err(Errno::NXIO) => {
                check_stop()?;
                thread::sleep(INTERVAL);
            }
            opened => return Ok(opened?),
        }
    }
}

/// Writes to a FIFO that was full.
pub(crate) fn write(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
    let interval = Timespec::try_from(INTERVAL).expect("it is short");
    loop {
        check_stop()?;
        let mut waited_for = [PollFd::new(file, PollFlags::OUT)];
        match poll(&mut waited_for, Some(&interval)) {
            Err(error) if error != Errno::INTR => return Err(error.into()),
            _ => {}
        }
        match file.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return written,
        }
    }
}
