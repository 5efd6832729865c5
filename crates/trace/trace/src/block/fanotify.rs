//! The system calls of fanotify and of file handles; the only unsafe part of the block recorder.
//!
//! It makes calls and interprets nothing: [`super::renames`] reads the events.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A group of marks, and the queue of its events.
#[derive(Debug)]
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    /// A group whose events name files by handles, with their folders and names. Needs CAP_SYS_ADMIN and Linux 5.17.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_DFID_NAME_TARGET;
        let event_flags = libc::c_uint::try_from(libc::O_RDONLY | libc::O_CLOEXEC).unwrap_or(0);
        // SAFETY: the call takes two numbers.
        let descriptor = unsafe { libc::fanotify_init(flags, event_flags) };
        owned(descriptor).map(Self)
    }

    /// Asks for the renames of files and folders on the file system of this path.
    pub(crate) fn watch_renames(&self, path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let mask = libc::FAN_RENAME | libc::FAN_ONDIR;
        // SAFETY: the path is a text that ends with 0 and outlives the call.
        let marked =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, mask, libc::AT_FDCWD, path.as_ptr()) };
        if marked == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Removes all marks: no further events arrive.
    pub(crate) fn stop(&self) {
        let flags = libc::FAN_MARK_FLUSH | libc::FAN_MARK_FILESYSTEM;
        // SAFETY: the path is a text that ends with 0.
        let _ = unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, 0, libc::AT_FDCWD, c"/".as_ptr()) };
    }

    /// Reads waiting events: their bytes, whole events only; 0 if there are none.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match rustix::io::read(&self.0, buffer) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the file of a handle, as a place only (`O_PATH`); `mount` is any descriptor on its file system.
pub(crate) fn open_handle(mount: BorrowedFd<'_>, handle: &[u8]) -> io::Result<OwnedFd> {
    let lengths: (Option<&[u8; 4]>, usize) = (handle.first_chunk(), handle.len());
    let (Some(bytes), whole) = lengths else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let content = usize::try_from(u32::from_ne_bytes(*bytes)).unwrap_or(usize::MAX);
    if content.checked_add(8).is_none_or(|needed| needed > whole) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The kernel's structure begins with two words, so it has to lie at a multiple of four.
    let mut aligned = vec![0_u32; whole.div_ceil(4)];
    for (word, bytes) in aligned.iter_mut().zip(handle.chunks(4)) {
        let mut filled = [0; 4];
        filled[..bytes.len()].copy_from_slice(bytes);
        *word = u32::from_ne_bytes(filled);
    }
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle holds as many bytes as it says, which was checked, and outlives the call.
    let descriptor =
        unsafe { libc::open_by_handle_at(mount.as_raw_fd(), aligned.as_mut_ptr().cast(), flags) };
    owned(descriptor)
}

fn owned(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
