//! Two calls on descriptors that have no safe form: a `close` that reports the file system's error, and
//! `sync_file_range`.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

/// Closes the descriptor. It is closed even if this returns an error.
pub fn close(descriptor: OwnedFd) -> Result<(), Errno> {
    let number = descriptor.into_raw_fd();
    // SAFETY: the number was just taken out of its owner, so it is open and has no other owner.
    let answer = unsafe { libc::close(number) };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

/// Writes a range back and waits for it.
pub fn sync_range(descriptor: impl AsFd, offset: u64, bytes: u64) -> Result<(), Errno> {
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let bytes = i64::try_from(bytes).map_err(|_| Errno::INVAL)?;
    // SAFETY: the descriptor is borrowed and therefore open for the call, which takes only numbers and touches no
    // memory.
    let answer = unsafe { libc::sync_file_range(descriptor.as_fd().as_raw_fd(), offset, bytes, flags) };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
