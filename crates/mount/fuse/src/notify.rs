//! Notifications to the kernel: cached names, attributes, data and listings that are no longer valid.
//!
//! # Locks
//! A notification of attributes alone ([`forget_attributes`]) takes no lock of an inode, so a worker may send it. The
//! others can block: for a name the kernel takes the lock of its directory, which a program holds while it waits for a
//! request in that directory (a lookup, a listing, a creation); for data it locks pages that a READ is filling. A worker
//! that waited there could be the one that has to answer that request. So they are sent only from the thread of the file
//! system below that reports changes ([`vfs::ChangeListener`]), which serves no request and holds no lock that a request
//! takes. This also makes invalidating a name race-free: a lookup of the name that is being answered completes first.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use vfs::{Change, ChangeListener, Ino};
use zerocopy::IntoBytes;

use crate::abi::{
    NOTIFY_INC_EPOCH, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NotifyInvalEntryOut, NotifyInvalInodeOut,
    OutHeader,
};
use crate::caching::Caching;
use crate::nested;

/// Scope of an invalidated inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Attributes,
    /// Attributes, and all data or the listing.
    All,
}

/// Invalidates the kernel's cached attributes of `ino`, but not its data: the caller being served may hold a mapping of
/// it.
pub fn forget_attributes(device: &OwnedFd, ino: Ino) {
    // ENOENT: the kernel does not know the inode, so it caches no attributes of it either.
    let _ = invalidate_inode(device, ino, Scope::Attributes);
}

fn invalidate_inode(device: &OwnedFd, ino: Ino, scope: Scope) -> Result<(), Errno> {
    let body = NotifyInvalInodeOut {
        ino: ino.0,
        off: match scope {
            Scope::Attributes => -1,
            Scope::All => 0,
        },
        // To the end.
        len: 0,
    };
    send(device, NOTIFY_INVAL_INODE, &[body.as_bytes()])
}

fn invalidate_name(device: &OwnedFd, parent: Ino, name: &[u8]) -> Result<(), Errno> {
    let body = NotifyInvalEntryOut {
        parent: parent.0,
        namelen: u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?,
        flags: 0,
    };
    send(device, NOTIFY_INVAL_ENTRY, &[body.as_bytes(), name, &[0]])
}

fn send(device: &OwnedFd, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
    let length = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = OutHeader {
        len: u32::try_from(length).map_err(|_| Errno::INVAL)?,
        error: code,
        unique: 0,
    };
    let mut slices = vec![IoSlice::new(header.as_bytes())];
    slices.extend(parts.iter().map(|part| IoSlice::new(part)));
    loop {
        match rustix::io::writev(device, &slices) {
            Err(Errno::INTR) => {}
            other => return other.map(drop),
        }
    }
}

/// Passes changes that bypassed the file system below on to the kernel.
pub struct Notifier {
    device: Arc<OwnedFd>,
    caching: Arc<Caching>,
    /// Device number of the mount.
    mount_device: u32,
}

impl Notifier {
    pub const fn new(device: Arc<OwnedFd>, caching: Arc<Caching>, mount_device: u32) -> Self {
        Self {
            device,
            caching,
            mount_device,
        }
    }
}

impl ChangeListener for Notifier {
    fn changed(&self, change: Change<'_>) -> bool {
        let device = &self.device;
        let told = &self.caching.told;
        match change {
            Change::Name { parent, name } => {
                told.name();
                // ENOENT: the name, or its directory, is not cached. A lookup that is being answered has completed by
                // now, as it holds the directory's lock.
                let _ = invalidate_name(device, parent, name);
                true
            }
            Change::AllNames => {
                told.all_names();
                // The kernel would detach them. The names expire by themselves, see `caching`.
                if !nested::are_mounted_on(self.mount_device) {
                    let _ = send(device, NOTIFY_INC_EPOCH, &[]);
                }
                true
            }
            Change::Attributes(ino) => {
                told.inode();
                invalidate_inode(device, ino, Scope::Attributes) != Err(Errno::NOENT)
            }
            Change::Content(ino) => {
                told.inode();
                let scope = match self.caching.keeps_written_data() {
                    // Dirty pages of the kernel's writeback cache stay: their size and times are the kernel's own.
                    true => Scope::Attributes,
                    false => Scope::All,
                };
                invalidate_inode(device, ino, scope) != Err(Errno::NOENT)
            }
        }
    }

    fn ended(&self, reason: &str) {
        self.caching.end(reason);
    }
}
