//! Registering host files with the kernel, which then reads and writes them itself (passthrough).
//!
//! Registering costs an ioctl and needs `CAP_SYS_ADMIN`. The kernel decides by file: it refuses those of file systems that
//! are stacked themselves (`ELOOP`), so one mount may have files of both kinds.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::abi::{BackingMap, DEV_IOC_BACKING_CLOSE, DEV_IOC_BACKING_OPEN};

/// A host file that the kernel knows; dropping it unregisters the file.
pub struct Backing {
    id: i32,
    device: Arc<OwnedFd>,
}

/// Registers backing files, and keeps the first refusal of each device for the statistics.
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

    /// Registers `file`; `None` when the kernel refuses.
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
            let device = self.device.clone();
            return Some(Backing { id, device });
        }
        let error = io::Error::last_os_error();
        if let Ok(stat) = rustix::fs::fstat(file) {
            let mut refusals = self.refusals.lock().expect("no panic under this lock");
            refusals.entry(stat.st_dev).or_insert(error);
        }
        None
    }

    /// The devices whose files the kernel refused, each with the reason.
    pub fn refusals(&self) -> Vec<String> {
        let refusals = self.refusals.lock().expect("no panic under this lock");
        let describe = |(device, error): (&u64, &io::Error)| {
            let (major, minor) = (rustix::fs::major(*device), rustix::fs::minor(*device));
            format!("passthrough for files on device {major}:{minor}: the kernel refused one: {error}")
        };
        refusals.iter().map(describe).collect()
    }
}

impl Backing {
    pub const fn id(&self) -> i32 {
        self.id
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
