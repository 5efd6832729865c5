//! Access times by a rule given at mount, instead of the one of the source's own mount.
//!
//! The host updates access times by the options of the mount through which a file was opened, also when the kernel reads
//! a backing file by itself (passthrough). So a rule is kept by a mount of our own: a detached clone of the source's, which
//! no path leads to and which goes when its last descriptor is closed. Mounts below the source at that moment are cloned
//! with it; later changes of mounts there (mount, unmount, remount) are not seen through it.
//!
//! It is not: an update of access times by hand. Where the host refuses the clone (it takes `CAP_SYS_ADMIN`), the source's
//! own mount decides, and [`AccessTimeRule::Never`] is kept by `O_NOATIME` on the files for which the host permits it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

/// When the host updates access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// The rule for files and directories; `None` leaves the one of the source's mount.
    pub rule: Option<AccessTimeRule>,
    /// Directories keep theirs, whatever the rule.
    pub spare_directories: bool,
}

/// As the options of mount(8) of the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessTimeRule {
    /// `noatime`
    Never,
    /// `relatime`
    Relative,
    /// `strictatime`
    Always,
}

impl AccessTimes {
    /// As the source's mount has it.
    pub const OF_SOURCE: Self = Self {
        rule: None,
        spare_directories: false,
    };

    /// An `O_PATH` descriptor of `source` on a mount of our own that keeps these rules; `None` where none is needed or
    /// the host refuses.
    pub(crate) fn clone_mount(self, source: &Path) -> Option<OwnedFd> {
        if self == Self::OF_SOURCE {
            return None;
        }
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let clone = open_tree(CWD, source, flags).ok()?;
        self.set_on(clone.as_fd()).then_some(clone)
    }

    fn set_on(self, mount: BorrowedFd<'_>) -> bool {
        let (clear, mut set) = match self.rule {
            None => (0, 0),
            Some(AccessTimeRule::Never) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_NOATIME),
            Some(AccessTimeRule::Relative) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_RELATIME),
            Some(AccessTimeRule::Always) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_STRICTATIME),
        };
        if self.spare_directories {
            set |= libc::MOUNT_ATTR_NODIRATIME;
        }
        let wanted = libc::mount_attr {
            attr_set: set,
            attr_clr: clear,
            propagation: 0,
            userns_fd: 0,
        };
        // SAFETY: the path is NUL-terminated, `wanted` is laid out as the kernel's `struct mount_attr` of the size given,
        // and both outlive the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                mount.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
                &raw const wanted,
                size_of::<libc::mount_attr>(),
            )
        };
        result == 0
    }
}
