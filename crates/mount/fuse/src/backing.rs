//! Registers host files with the kernel, which then reads and writes them itself (passthrough).
//!
//! Registering costs an ioctl and needs `CAP_SYS_ADMIN`. The kernel decides per file: it refuses files of file systems
//! that are stacked themselves (`ELOOP`), so one mount may have both kinds of files.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::abi::{BackingMap, DEV_IOC_BACKING_CLOSE, DEV_IOC_BACKING_OPEN};

/// A host file registered with the kernel; dropping it unregisters the file.
pub struct Backing {
    id: i32,
    device: Arc<OwnedFd>,
    close_may_fail: bool,
}

/// Magic numbers of file systems whose `close(2)` never reports an error: they write to their own page cache, and
/// errors surface at fsync. On all others (NFS, SMB, FUSE, unknown ones) a close may write and fail.
const SILENT_AT_CLOSE: [u32; 18] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS (ntfs3)
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
    0x3434,      // NILFS2
    0x1501_3346, // UDF
    0x2405_1905, // UBIFS
    0x72b6,      // JFFS2
    0xe0f5_e1e2, // EROFS
    0x7371_7368, // SquashFS
];

/// Registers backing files and keeps the first refusal per device for the statistics.
pub struct Registrar {
    device: Arc<OwnedFd>,
    refusals: Mutex<BTreeMap<u64, io::Error>>,
}

impl Registrar {
    pub fn new(device: Arc<OwnedFd>) -> Self {
        Self {
            device,
            refusals: Mutex::default(),
        }
    }

    /// Registers `file`; `None` if the kernel refuses.
    pub fn register(&self, file: BorrowedFd<'_>) -> Option<Backing> {
        let map = BackingMap {
            fd: file.as_raw_fd(),
            ..BackingMap::default()
        };
        // SAFETY: the ioctl reads one BackingMap, which lives across the call; both descriptors are open.
        let id = unsafe {
            libc::ioctl(
                self.device.as_raw_fd(),
                libc::c_ulong::from(DEV_IOC_BACKING_OPEN),
                &raw const map,
            )
        };
        if id > 0 {
            return Some(Backing {
                id,
                device: self.device.clone(),
                close_may_fail: close_may_fail(file),
            });
        }
        let error = io::Error::last_os_error();
        if let Ok(stat) = rustix::fs::fstat(file) {
            let mut refusals = self.refusals.lock().expect("no panic under this lock");
            refusals.entry(stat.st_dev).or_insert(error);
        }
        None
    }

    /// One line per device for whose files the kernel refused passthrough, with the reason.
    pub fn refusals(&self) -> Vec<String> {
        let refusals = self.refusals.lock().expect("no panic under this lock");
        let describe = |(device, error): (&u64, &io::Error)| {
            let (major, minor) = (rustix::fs::major(*device), rustix::fs::minor(*device));
            format!("passthrough for files on device {major}:{minor}: the kernel refused one: {error}")
        };
        refusals.iter().map(describe).collect()
    }
}

fn close_may_fail(file: BorrowedFd<'_>) -> bool {
    let Ok(stat) = rustix::fs::fstatfs(file) else {
        return true;
    };
    // The magic number is the low half of a word whose size depends on the architecture.
    let magic = stat.f_type.to_le_bytes();
    !SILENT_AT_CLOSE
        .iter()
        .any(|silent| silent.to_le_bytes()[..] == magic[..4])
}

impl Backing {
    pub const fn id(&self) -> i32 {
        self.id
    }

    /// True if a close may report a write error, because the file's file system writes at close or might.
    pub const fn close_may_fail(&self) -> bool {
        self.close_may_fail
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let id = u32::try_from(self.id).expect("ids are positive");
        // SAFETY: the ioctl reads one u32, which lives across the call.
        unsafe {
            libc::ioctl(
                self.device.as_fd().as_raw_fd(),
                libc::c_ulong::from(DEV_IOC_BACKING_CLOSE),
                &raw const id,
            )
        };
    }
}
