//! The daemon's own mount of the source: a private clone, with an access time rule set at mount.
//!
//! The clone is detached: no path leads to it, it disappears when its last descriptor is closed, and mounts made later
//! do not appear in it (its propagation is private). So whatever is mounted below the source later, above all the
//! daemon's own mount, no call of the daemon can enter it and wait for itself. Mounts that exist below the source at
//! that moment are cloned with it; a mount that was made before can't depend on the one that the daemon is about to
//! make.
//!
//! The host updates access times by the options of the mount through which a file was opened, also when the kernel
//! reads a backing file by itself (passthrough). So the clone also implements the access time rule.
//!
//! This module does not set access times itself. If the host refuses the clone (it takes `CAP_SYS_ADMIN`), the source's
//! own mount decides, [`AccessTimeRule::Never`] is implemented by `O_NOATIME` on the files for which the host permits
//! it, and [`crate::PassFs::has_own_tree`] is false.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

/// Access time updates by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// The rule for files and directories; `None` uses the rule of the source's mount.
    pub rule: Option<AccessTimeRule>,
    /// Directories are never updated, whatever the rule.
    pub spare_directories: bool,
}

/// Access time rules, named after the mount(8) options.
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
    /// The rule of the source's mount.
    pub const OF_SOURCE: Self = Self {
        rule: None,
        spare_directories: false,
    };

    fn attributes(self) -> (u64, u64) {
        let (clear, set) = match self.rule {
            None => (0, 0),
            Some(AccessTimeRule::Never) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_NOATIME),
            Some(AccessTimeRule::Relative) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_RELATIME),
            Some(AccessTimeRule::Always) => (libc::MOUNT_ATTR__ATIME, libc::MOUNT_ATTR_STRICTATIME),
        };
        let directories = if self.spare_directories {
            libc::MOUNT_ATTR_NODIRATIME
        } else {
            0
        };
        (clear, set | directories)
    }
}

/// A private clone of the source's mount.
#[derive(Debug)]
pub(crate) struct OwnMount {
    /// An `O_PATH` descriptor of the source in the clone.
    pub fd: OwnedFd,
    /// The clone implements the access time rule.
    pub keeps_times: bool,
}

impl OwnMount {
    /// Clones the mount; `None` if the host refuses.
    pub(crate) fn of(source: &Path, times: AccessTimes) -> Option<Self> {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let fd = open_tree(CWD, source, flags).ok()?;
        let (clear, set) = times.attributes();
        let keeps_times = set_on(fd.as_fd(), clear, set);
        // Kernels without the call (before 5.12) propagate nothing to detached mounts.
        let _is_private = keeps_times || set_on(fd.as_fd(), 0, 0);
        Some(Self { fd, keeps_times })
    }
}

/// Changes attributes of all mounts of the tree and makes their propagation private.
fn set_on(mount: BorrowedFd<'_>, clear: u64, set: u64) -> bool {
    let wanted = libc::mount_attr {
        attr_set: set,
        attr_clr: clear,
        propagation: libc::MS_PRIVATE,
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
