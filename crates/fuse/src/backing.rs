//! Backing files registered with the kernel for passthrough.
//!
//! The kernel allows one backing file an inode at a time: every open of an inode must name the same id, and the id is
//! given up with the last release. Registering costs an ioctl and needs `CAP_SYS_ADMIN`.
//!
//! Lock order: a shard's lock is held across the ioctl, and nothing else is locked under it.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use vfs::Ino;

use crate::abi::{BackingMap, DEV_IOC_BACKING_CLOSE, DEV_IOC_BACKING_OPEN};

const SHARDS: usize = 16;

struct Backing {
    id: i32,
    opens: u64,
    /// An open may map the file for writing: such changes pass both this process and the kernel's cached attributes.
    mapped: bool,
}

/// Backing ids by inode.
pub struct BackingFiles {
    device: Arc<OwnedFd>,
    shards: [Mutex<HashMap<Ino, Backing>>; SHARDS],
    refused: AtomicBool,
    refusal: OnceLock<String>,
}

impl BackingFiles {
    pub fn new(device: Arc<OwnedFd>) -> Self {
        Self {
            device,
            shards: std::array::from_fn(|_| Mutex::default()),
            refused: AtomicBool::new(false),
            refusal: OnceLock::new(),
        }
    }

    fn shard(&self, ino: Ino) -> std::sync::MutexGuard<'_, HashMap<Ino, Backing>> {
        let shards = u64::try_from(SHARDS).expect("a small constant");
        let index = usize::try_from(ino.0 % shards).expect("smaller than the constant");
        self.shards[index].lock().expect("no panic under this lock")
    }

    /// The id for one more open of `ino`; `None` when the kernel refuses passthrough for this file.
    ///
    /// A refusal of the first kind (`EPERM`, `ELOOP`, `EOPNOTSUPP`) holds for the mount and is not asked again.
    pub fn open(&self, ino: Ino, file: BorrowedFd<'_>, may_map: bool) -> Option<i32> {
        if self.refused.load(Relaxed) {
            return None;
        }
        let mut shard = self.shard(ino);
        if let Some(backing) = shard.get_mut(&ino) {
            backing.opens += 1;
            backing.mapped |= may_map;
            return Some(backing.id);
        }
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
        if id <= 0 {
            let error = std::io::Error::last_os_error();
            if matches!(
                error.raw_os_error(),
                Some(libc::EPERM | libc::ELOOP | libc::EOPNOTSUPP | libc::ENOTTY)
            ) {
                self.refused.store(true, Relaxed);
                let _ = self.refusal.set(error.to_string());
            }
            return None;
        }
        let (opens, mapped) = (1, may_map);
        shard.insert(ino, Backing { id, opens, mapped });
        Some(id)
    }

    /// One open of `ino` that had an id is gone.
    pub fn release(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        let Some(backing) = shard.get_mut(&ino) else {
            return;
        };
        backing.opens -= 1;
        if backing.opens > 0 {
            return;
        }
        let id = u32::try_from(backing.id).expect("ids are positive");
        shard.remove(&ino);
        // SAFETY: the ioctl reads one u32, which lives across the call.
        unsafe {
            libc::ioctl(
                self.device.as_raw_fd(),
                libc::c_ulong::from(DEV_IOC_BACKING_CLOSE),
                &raw const id,
            )
        };
    }

    /// True while `ino` has an open that may map it for writing (or had one, and is open still).
    pub fn may_be_mapped(&self, ino: Ino) -> bool {
        self.shard(ino).get(&ino).is_some_and(|backing| backing.mapped)
    }

    /// Why the kernel refused, once it has.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }
}
