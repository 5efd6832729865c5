//! A fanotify group with a mark on the source's whole file system.
//!
//! Only such a mark sees every change: through any mount, any name of a file with several, and files opened by handle.
//! It needs `CAP_SYS_ADMIN`.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use rustix::io::Errno;

/// Events of interest. Removed files themselves are reported as a change of their number of links.
const WANTED: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ATTRIB
    | libc::FAN_MODIFY
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ONDIR;
/// Events of a file that is open for writing through the mount.
const OF_WRITERS: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
/// `FAN_MARK_IGNORE` (Linux 6.0).
const MARK_IGNORE: u32 = 0x400;

/// The group's descriptor.
#[derive(Debug)]
pub(crate) struct Group(OwnedFd);

impl Group {
    /// Watches the file system of `source`. The error is a reason for people.
    pub(crate) fn watching(source: BorrowedFd<'_>) -> Result<Self, String> {
        const FLAGS: u32 = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DIR_FID
            | libc::FAN_REPORT_NAME
            | libc::FAN_REPORT_TARGET_FID;
        // SAFETY: the call takes no pointer.
        let group = match unsafe { libc::fanotify_init(FLAGS, 0) } {
            -1 => return Err(refused("fanotify_init")),
            // SAFETY: the call made this descriptor, and it has no other owner.
            group => Self(unsafe { OwnedFd::from_raw_fd(group) }),
        };
        let filesystem = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        match group.mark(filesystem, WANTED, source) {
            Ok(()) => Ok(group),
            Err(_) => Err(refused("fanotify_mark of the source's file system")),
        }
    }

    /// Reports no writes to the open file `file` until [`Group::heed_writes`].
    pub(crate) fn ignore_writes(&self, file: BorrowedFd<'_>) {
        let flags = libc::FAN_MARK_ADD | MARK_IGNORE | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        // On failure the writes are reported: that is slower and not wrong.
        let _ = self.mark(flags, OF_WRITERS, file);
    }

    /// Reports writes again.
    pub(crate) fn heed_writes(&self, file: BorrowedFd<'_>) {
        let flags = libc::FAN_MARK_REMOVE | MARK_IGNORE | libc::FAN_MARK_IGNORED_SURV_MODIFY;
        let _ = self.mark(flags, OF_WRITERS, file);
    }

    fn mark(&self, flags: u32, mask: u64, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: without a path the call takes no pointer.
        let result =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, mask, file.as_raw_fd(), ptr::null()) };
        match result {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        }
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn refused(call: &str) -> String {
    format!("the host refuses {call}: {}", std::io::Error::last_os_error())
}

/// A reason why names on the source's file system may not be kept, although changes are reported: two different names
/// may lead to one file there, and a change of one is not reported for the other.
pub(crate) fn ignores_case(source: BorrowedFd<'_>, device: u32) -> Option<String> {
    use crate::magic::{BTRFS, EXT4, TMPFS, XFS};
    let folds = "its file system may ignore case in names".to_owned();
    let found = rustix::fs::fstatfs(source).ok()?;
    let is_exact = match found.f_type {
        BTRFS => true,
        EXT4 => ext4_is_exact(device),
        XFS => xfs_is_exact(source),
        TMPFS => tmpfs_is_exact(device),
        _ => false,
    };
    (!is_exact).then_some(folds)
}

/// True if the kernel folds no case on ext4 at all, or not on this one, by the features in its superblock.
fn ext4_is_exact(device: u32) -> bool {
    use std::os::unix::fs::FileExt;
    let features = Path::new("/sys/fs/ext4/features");
    if features.exists() && !features.join("casefold").exists() {
        return true;
    }
    const INCOMPATIBLE_AT: u64 = 1024 + 0x60;
    const CASEFOLD: u32 = 0x2_0000;
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    let uevent = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let Some(Ok(device)) = name.map(|name| fs::File::open(format!("/dev/{name}"))) else {
        return false;
    };
    let mut word = [0; 4];
    let read = device.read_exact_at(&mut word, INCOMPATIBLE_AT);
    read.is_ok() && u32::from_le_bytes(word) & CASEFOLD == 0
}

fn xfs_is_exact(source: BorrowedFd<'_>) -> bool {
    /// `XFS_IOC_FSGEOMETRY`
    const GEOMETRY: rustix::ioctl::Opcode = 0x8100_587e;
    /// `XFS_FSOP_GEOM_FLAGS_DIRV2CI`
    const IGNORES_CASE: u32 = 1 << 13;
    const FLAGS_AT: usize = 92;
    type Geometry = [u8; 256];
    // SAFETY: the kernel writes 256 bytes, the size that is part of the command's number.
    let geometry =
        unsafe { rustix::ioctl::ioctl(source, rustix::ioctl::Getter::<GEOMETRY, Geometry>::new()) };
    let flags = geometry
        .ok()
        .and_then(|geometry| geometry[FLAGS_AT..].first_chunk::<4>().copied());
    flags.is_some_and(|flags| u32::from_ne_bytes(flags) & IGNORES_CASE == 0)
}

fn tmpfs_is_exact(device: u32) -> bool {
    let device = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut of_device = mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(&device))
        .peekable();
    // A source that no mount of this namespace shows can't be judged.
    of_device.peek().is_some() && of_device.all(|line| !line.contains("casefold"))
}
