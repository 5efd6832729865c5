//! Changes of attributes, in the order size, owner, mode, times.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use vfs::{Attr, Caller, FileKind, FsError, FsResult, Handle, SetAttr, SetTime};

use crate::anchor::PathFd;
use crate::attributes::stat;
use crate::handles::Open;
use crate::identity::{errno, with_privileges};
use crate::inodes::Inode;
use crate::owner::Change;
use crate::{ITSELF, PassFs, proc_path};

impl PassFs {
    pub(crate) fn change(&self, inode: &Inode, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.check_writable()?;
        let open = handle.and_then(|handle| self.handles.get(handle).ok());
        let fd = match &open {
            Some(open) => PathFd::Held(open.fd()),
            None => inode.fd()?,
        };
        if let Some(size) = change.size {
            with_privileges(change.privileges, || {
                truncate(inode.kind, open.as_ref(), fd.as_fd(), size)
            })??;
        }
        if self.config.id_map.is_none() {
            // The host itself clears setuid and setgid of a file whose owner changes, even for root. With the daemon's
            // CAP_FSETID it keeps setgid without group execution (mandatory locking once), as it does natively for
            // root.
            if change.uid.is_some() || change.gid.is_some() {
                self.as_owner(change.owner.as_ref(), fd.as_fd(), Change::Owner, || {
                    change_owner(fd.as_fd(), change.uid, change.gid)
                })?;
            }
            if let Some(mode) = change.mode {
                self.change_mode_as(change.owner.as_ref(), inode.kind, fd.as_fd(), mode)?;
            }
        } else if change.mode.is_some() && change.privileges.are_killed() {
            // Not a chmod, but the clearing of bits that goes with a change of content by the kernel itself.
            let mode = u32::from(stat(&fd)?.stx_mode);
            if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                change_mode(inode.kind, fd.as_fd(), mode & !(libc::S_ISUID | libc::S_ISGID))?;
            }
        }
        change_times(fd.as_fd(), change.atime, change.mtime)?;
        Ok(self.attr(&stat(&fd)?))
    }

    fn change_mode_as(
        &self,
        caller: Option<&Caller>,
        kind: FileKind,
        fd: BorrowedFd<'_>,
        mode: u32,
    ) -> FsResult<()> {
        let change = match mode & libc::S_ISGID {
            0 => Change::Rights,
            _ => Change::RightsOfGroup,
        };
        let changed = self.as_owner(caller, fd, change, || change_mode(kind, fd, mode));
        if matches!(changed, Err(FsError::NotPermitted | FsError::Stale)) {
            // A kernel that clears setuid and setgid itself does so also for writers who are not the owner.
            let found = u32::from(stat(fd)?.stx_mode) & 0o7777;
            let kept = mode & 0o7777;
            if kept | (found & (libc::S_ISUID | libc::S_ISGID)) == found && kept != found {
                return change_mode(kind, fd, mode);
            }
        }
        changed
    }
}

fn truncate(kind: FileKind, open: Option<&Open>, fd: BorrowedFd<'_>, size: u64) -> FsResult<()> {
    match kind {
        FileKind::Directory => return Err(FsError::IsADirectory),
        FileKind::Regular => {}
        FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice
        | FileKind::Unknown => return Err(FsError::Invalid),
    }
    if let Some(Open::File(open)) = open {
        return rustix::fs::ftruncate(&open.file, size).map_err(errno);
    }
    truncate_path(&proc_path(fd), size)
}

/// Truncates without an open file: unlike an open with `O_RDWR`, it also works if only root may write.
fn truncate_path(path: &str, size: u64) -> FsResult<()> {
    let path = std::ffi::CString::new(path).map_err(|_| FsError::Invalid)?;
    let size = i64::try_from(size).map_err(|_| FsError::FileTooBig)?;
    // SAFETY: `path` is a NUL-terminated string that outlives the call.
    match unsafe { libc::truncate64(path.as_ptr(), size) } {
        0 => Ok(()),
        _ => Err(FsError::from(std::io::Error::last_os_error())),
    }
}

fn change_owner(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
    // To the host all ones means "unchanged", and it is not an id.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    let (itself, by_descriptor) = ITSELF;
    rustix::fs::chownat(
        fd,
        itself,
        uid.map(Uid::from_raw),
        gid.map(Gid::from_raw),
        by_descriptor,
    )
    .map_err(errno)
}

/// Through `/proc`, since `fchmodat2` is newer than the oldest supported host.
pub(crate) fn change_mode(kind: FileKind, fd: BorrowedFd<'_>, mode: u32) -> FsResult<()> {
    if kind == FileKind::Symlink {
        return Err(FsError::NotSupported);
    }
    let mode = Mode::from_bits_retain(mode & 0o7777);
    rustix::fs::chmodat(rustix::fs::CWD, proc_path(fd), mode, AtFlags::empty()).map_err(errno)
}

fn change_times(fd: BorrowedFd<'_>, atime: Option<SetTime>, mtime: Option<SetTime>) -> FsResult<()> {
    if atime.is_none() && mtime.is_none() {
        return Ok(());
    }
    let times = Timestamps {
        last_access: host_time(atime),
        last_modification: host_time(mtime),
    };
    let (itself, by_descriptor) = ITSELF;
    rustix::fs::utimensat(fd, itself, &times, by_descriptor).map_err(errno)
}

fn host_time(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(SetTime::At(time)) => Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds),
        },
    }
}
