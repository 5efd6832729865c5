//! Sets attributes on files that an extraction made. Never follows a symbolic link.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Result;
use ubifs::Extended;
use ubifs::format::{EntryKind, Inode};

/// A file made by the extraction, by descriptor or by name.
pub enum Made<'a> {
    /// An open file or folder.
    Open(BorrowedFd<'a>),
    /// Any file, by its name in a folder that no other user may change.
    Name(BorrowedFd<'a>, &'a OsStr),
}

impl Made<'_> {
    /// Sets the owner and group of the inode.
    pub fn set_owner(&self, inode: &Inode) -> Result<()> {
        let (user, group) = (Uid::from_raw(inode.user), Gid::from_raw(inode.group));
        match self {
            Self::Open(file) => rustix::fs::fchown(file, Some(user), Some(group)),
            Self::Name(folder, name) => {
                rustix::fs::chownat(folder, *name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Sets the permissions; symbolic links have none.
    pub fn set_mode(&self, inode: &Inode, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(file) => rustix::fs::fchmod(file, mode),
            Self::Name(..) if inode.kind() == Some(EntryKind::Symlink) => Ok(()),
            Self::Name(folder, name) => rustix::fs::chmodat(folder, *name, mode, AtFlags::empty()),
        }
    }

    /// Sets the access and modification times.
    pub fn set_times(&self, inode: &Inode) -> Result<()> {
        let time = |seconds: u64, nanoseconds: u32| Timespec {
            tv_sec: seconds.cast_signed(),
            tv_nsec: i64::from(nanoseconds.min(999_999_999)),
        };
        let times = Timestamps {
            last_access: time(inode.accessed_seconds, inode.accessed_nanoseconds),
            last_modification: time(inode.modified_seconds, inode.modified_nanoseconds),
        };
        match self {
            Self::Open(file) => rustix::fs::futimens(file, &times),
            Self::Name(folder, name) => {
                rustix::fs::utimensat(folder, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, xattr: &Extended) -> Result<()> {
        let (attribute, value) = (OsStr::from_bytes(&xattr.name), &xattr.value);
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, attribute, value, XattrFlags::empty()),
            // Linux has a system call that takes a folder (`setxattrat`) only since 6.13.
            Self::Name(folder, name) => {
                let path = Path::new("/proc/self/fd")
                    .join(folder.as_raw_fd().to_string())
                    .join(name);
                rustix::fs::lsetxattr(&path, attribute, value, XattrFlags::empty())
            }
        }
    }
}
