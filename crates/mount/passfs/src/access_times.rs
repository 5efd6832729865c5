//! The source's mount as the daemon sees it: a clone of its own, with access times by a rule given at mount.
//!
//! The clone is detached: no path leads to it, it goes when its last descriptor is closed, and nothing that is mounted
//! after it was made appears in it (its propagation is private). So whatever is mounted below the source later, the
//! daemon's own mount above all, no call of the daemon enters it and waits for itself. Mounts below the source at that
//! moment are cloned with it; a mount that was made before can't depend on the one that the daemon is about to make.
//!
//! The host updates access times by the options of the mount through which a file was opened, also when the kernel reads
//! a backing file by itself (passthrough). So the clone also keeps the rule for them.
//!
//! It is not: an update of access times by hand. Where the host refuses the clone (it takes `CAP_SYS_ADMIN`), the source's
//! own mount decides, [`AccessTimeRule::Never`] is kept by `O_NOATIME` on the files for which the host permits it, and
//! [`crate::PassFs::has_own_tree`] is false.

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

/// A mount of our own of the source.
#[derive(Debug)]
pub(crate) struct OwnMount {
    /// An `O_PATH` descriptor of the source on it.
    pub fd: OwnedFd,
    /// It keeps the rule for access times.
    pub keeps_times: bool,
}

impl OwnMount {
    /// `None` where the host refuses.
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

/// Changes attributes of all mounts of the tree and takes them out of propagation.
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
