//! References to host inodes: a descriptor, or a host file handle.
//!
//! A descriptor keeps the inode alive, and with it the space of a file that was removed behind the mount. So files and
//! symbolic links are referenced by `name_to_handle_at(2)` handles and opened for each call. This needs
//! `CAP_DAC_READ_SEARCH`, and a host file system whose handles lead to the file for as long as it has a name
//! ([`has_lasting_handles`]). Descriptors reference the rest:
//! - directories, through which names are resolved all the time;
//! - special files, which the caller's kernel may have open without this process knowing;
//! - everything on other mounts in the source, and everything on hosts without usable handles.
//!
//! If handles work but may not last, they also reference inodes that are found once seven eighths of the process's
//! descriptors are used. Without handles calls then fail with [`vfs::FsError::TooManyOpenFiles`].
//!
//! A handle does not keep the inode alive. It contains the host's generation, so a file that reuses the number is
//! distinguished, and a call on a removed inode is answered with [`vfs::FsError::Stale`]. A file that is open here
//! stays reachable without a name: see [`crate::inodes::Inode::fd`].

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::path::Arg;
use vfs::{FileKind, FsError, FsResult};

use crate::attributes::{HostKey, stat_of_server};
use crate::identity::errno;
use crate::magic;

/// `MAX_HANDLE_SZ`.
const HANDLE_BYTES_MAX: usize = 128;

/// A host file handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostHandle {
    /// Stored inline: ext4, xfs, f2fs and tmpfs.
    Short {
        kind: i32,
        length: u8,
        bytes: [u8; SHORT_BYTES],
    },
    /// btrfs and others.
    Long { kind: i32, bytes: Box<[u8]> },
}

const SHORT_BYTES: usize = 16;

/// A handle, and the mount on which its inode was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub handle: HostHandle,
    mount_id: i32,
}

/// `struct file_handle` with space for any handle.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

/// Reference to one inode.
#[derive(Debug)]
pub(crate) enum Anchor {
    /// An `O_PATH` descriptor.
    Descriptor(OwnedFd),
    /// A handle, and a descriptor of its mount.
    Handle(HostHandle, Arc<OwnedFd>),
}

/// A descriptor of an inode for the duration of a call, with at least `O_PATH` access.
#[derive(Debug)]
pub(crate) enum PathFd<'a> {
    Held(BorrowedFd<'a>),
    Shared(Arc<OwnedFd>),
    Opened(OwnedFd),
}

impl AsFd for PathFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(fd) => *fd,
            Self::Shared(fd) => fd.as_fd(),
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl Anchor {
    pub(crate) const fn handle(&self) -> Option<&HostHandle> {
        match self {
            Self::Descriptor(_) => None,
            Self::Handle(handle, _) => Some(handle),
        }
    }

    /// False if `found`, the handle of an inode with the same number, shows that the number was reused. A descriptor tells
    /// nothing here: see [`Anchor::is_outdated`].
    pub(crate) fn is_of(&self, found: Option<&HostHandle>) -> bool {
        match self {
            Self::Descriptor(_) => true,
            Self::Handle(handle, _) => found.is_none_or(|found| found == handle),
        }
    }

    /// The handle of its inode, if its file system has handles.
    pub(crate) fn handle_now(&self) -> Option<Cow<'_, HostHandle>> {
        match self {
            Self::Descriptor(fd) => Found::of(fd.as_fd()).map(|found| Cow::Owned(found.handle)),
            Self::Handle(handle, _) => Some(Cow::Borrowed(handle)),
        }
    }

    /// True if the descriptor no longer leads to the inode `number`, which was found again with the handle `found`, if its
    /// file system has handles. Makes system calls, and may ask a server.
    ///
    /// A descriptor holds the number of its inode on a local file system. A subvolume of btrfs frees that of its device when it
    /// is deleted, and a snapshot that gets it has the inodes' numbers, too. On FUSE and NFS the server gives numbers away, and
    /// behind a server that goes by paths a descriptor leads to the file that has its path now. There one file may have several
    /// handles, one for each of its names, so only the server's answer tells.
    pub(crate) fn is_outdated(&self, number: u64, found: Option<&HostHandle>) -> bool {
        let Self::Descriptor(fd) = self else { return false };
        match (Found::of(fd.as_fd()), found) {
            (Some(own), Some(found)) if own.handle == *found => false,
            (Some(own), Some(_)) if own.handle.is_of_btrfs() => true,
            _ => match stat_of_server(fd) {
                Ok(stat) => stat.stx_nlink == 0 || stat.stx_ino != number,
                Err(error) => matches!(error, FsError::Stale | FsError::NotFound),
            },
        }
    }
}

impl Found {
    /// The handle of the inode behind `fd`, if its file system has handles.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        Self::ask(fd, c"", libc::AT_EMPTY_PATH).ok()
    }

    /// The handle of the file with this name, without following a symbolic link; `None` if its file system has no
    /// handles.
    pub(crate) fn named(directory: BorrowedFd<'_>, name: &[u8]) -> FsResult<Option<Self>> {
        let ask = |name: &CStr| Ok(Self::ask(directory, name, 0));
        match name.into_with_c_str(ask).map_err(errno)? {
            Ok(found) => Ok(Some(found)),
            Err(FsError::NotSupported | FsError::Overflow) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn ask(directory: BorrowedFd<'_>, name: &CStr, flags: i32) -> FsResult<Self> {
        let mut raw = RawHandle {
            bytes: u32::try_from(HANDLE_BYTES_MAX).expect("a small constant"),
            kind: 0,
            data: [0; HANDLE_BYTES_MAX],
        };
        let mut mount_id = 0;
        let handle = (&raw mut raw).cast::<libc::file_handle>();
        // SAFETY: `raw` is laid out as `struct file_handle` followed by as many bytes as its first field says; the
        // path is NUL-terminated; all outlive the call.
        let result = unsafe {
            libc::name_to_handle_at(
                directory.as_raw_fd(),
                name.as_ptr(),
                handle,
                &raw mut mount_id,
                flags,
            )
        };
        if result != 0 {
            return Err(FsError::from(std::io::Error::last_os_error()));
        }
        let length = usize::try_from(raw.bytes).map_err(|_| FsError::Overflow)?;
        Ok(Self {
            handle: HostHandle::new(raw.kind, &raw.data[..length]),
            mount_id,
        })
    }
}

impl HostHandle {
    fn new(kind: i32, data: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match (bytes.get_mut(..data.len()), u8::try_from(data.len())) {
            (Some(room), Ok(length)) => {
                room.copy_from_slice(data);
                Self::Short { kind, length, bytes }
            }
            _ => Self::Long {
                kind,
                bytes: data.into(),
            },
        }
    }

    fn parts(&self) -> (i32, &[u8]) {
        match self {
            Self::Short { kind, length, bytes } => (*kind, &bytes[..usize::from(*length)]),
            Self::Long { kind, bytes } => (*kind, bytes),
        }
    }

    /// Opens the inode.
    pub(crate) fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> FsResult<OwnedFd> {
        let (kind, bytes) = self.parts();
        let mut raw = RawHandle {
            bytes: u32::try_from(bytes.len()).map_err(|_| FsError::Stale)?,
            kind,
            data: [0; HANDLE_BYTES_MAX],
        };
        raw.data[..bytes.len()].copy_from_slice(bytes);
        let handle = (&raw mut raw).cast::<libc::file_handle>();
        let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
        // SAFETY: `raw` is laid out as `struct file_handle` followed by as many bytes as its first field says, and
        // outlives the call.
        match unsafe { libc::open_by_handle_at(mount.as_raw_fd(), handle, flags) } {
            -1 => Err(match FsError::from(std::io::Error::last_os_error()) {
                // ext4's answer while the number is being given to another file.
                FsError::OutOfMemory => FsError::Stale,
                error => error,
            }),
            // SAFETY: the call made this descriptor, and it has no other owner.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    }

    /// Opens an `O_PATH` descriptor.
    pub(crate) fn open_path(&self, mount: BorrowedFd<'_>) -> FsResult<OwnedFd> {
        self.open(mount, OFlags::PATH | OFlags::NOFOLLOW)
    }

    fn is_of_btrfs(&self) -> bool {
        /// `FILEID_BTRFS_WITHOUT_PARENT`.
        const BTRFS: i32 = 0x4d;
        self.parts().0 == BTRFS
    }

    /// The inode number in the handle, if its layout is known.
    pub(crate) fn inode_number(&self) -> Option<u64> {
        let (kind, handle) = self.parts();
        inode_number_in(kind, handle)
    }
}

/// The inode number in a handle, if its layout is known. Numbers are in the host's byte order.
pub(crate) fn inode_number_in(kind: i32, handle: &[u8]) -> Option<u64> {
    let narrow = |at: usize| {
        let bytes = handle.get(at..)?.first_chunk::<4>()?;
        Some(u64::from(u32::from_ne_bytes(*bytes)))
    };
    let wide = || Some(u64::from_ne_bytes(*handle.first_chunk::<8>()?));
    match (kind, handle.len()) {
        // ext4, f2fs, nilfs2, and xfs with small numbers: number, generation.
        (1, 8) => narrow(0),
        // tmpfs: generation, lower half, upper half.
        (1, 12) => Some(narrow(8)? << 32 | narrow(4)?),
        // xfs: number of 64 bits, generation. btrfs: number, subvolume, generation.
        (0x81 | 0x4d, _) => wide(),
        _ => None,
    }
}

/// Use of handles instead of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Never,
    /// For inodes found when descriptors run short.
    WhenShort,
    /// For files always; for other inodes when descriptors run short.
    Always,
}

/// Chooses between descriptor and handle for each inode that is found.
#[derive(Debug)]
pub(crate) struct Anchors {
    mount: Arc<OwnedFd>,
    mount_id: i32,
    device: u32,
    /// The source's file system is local, so the attributes in this machine's memory are current.
    is_local: bool,
    handles: Use,
    /// Descriptors from this number on are not kept for inodes.
    short_from: u64,
    any_handles: AtomicBool,
}

impl Anchors {
    /// `mount` is the source, on `device`; `descriptors_max` is the process's descriptor limit.
    pub(crate) fn new(mount: Arc<OwnedFd>, device: u32, descriptors_max: u64) -> Self {
        let found = Found::of(mount.as_fd());
        let usable = found
            .as_ref()
            .is_some_and(|found| found.handle.open_path(mount.as_fd()).is_ok());
        let is_local = has_lasting_handles(mount.as_fd());
        let handles = match usable {
            false => Use::Never,
            true if is_local => Use::Always,
            true => Use::WhenShort,
        };
        Self {
            mount,
            mount_id: found.map_or(-1, |found| found.mount_id),
            device,
            is_local,
            handles,
            short_from: descriptors_max - descriptors_max / 8,
            any_handles: AtomicBool::new(handles == Use::Always),
        }
    }

    /// True if files are always referenced by handle, whatever the number of descriptors.
    pub(crate) fn always_by_handle(&self) -> bool {
        self.handles == Use::Always
    }

    /// True if an inode can be referenced by handle when descriptors run short.
    pub(crate) fn has_handles(&self, device: u32) -> bool {
        self.handles != Use::Never && device == self.device
    }

    /// True if attributes in the host's memory are current.
    pub(crate) fn is_local(&self, device: u32) -> bool {
        self.is_local && device == self.device
    }

    /// The reference for the inode `key` with the handle `found`, without opening it. `None` if it needs a descriptor.
    pub(crate) fn of_found(&self, found: Found, key: HostKey, kind: FileKind) -> Option<Anchor> {
        if !self.always_by_handle() || key.device != self.device || !needs_no_descriptor(kind) {
            return None;
        }
        self.by_handle(found)
    }

    /// The reference for the inode `key` of this kind behind an open file, without another descriptor.
    pub(crate) fn of_fd(&self, file: BorrowedFd<'_>, key: HostKey, kind: FileKind) -> Option<Anchor> {
        if !self.always_by_handle() || key.device != self.device || !needs_no_descriptor(kind) {
            return None;
        }
        self.by_handle(Found::of(file)?)
    }

    fn by_handle(&self, found: Found) -> Option<Anchor> {
        (found.mount_id == self.mount_id).then(|| Anchor::Handle(found.handle, Arc::clone(&self.mount)))
    }

    /// The handle of the inode behind `fd`, if handles are in use or may become so for it.
    pub(crate) fn handle_of(&self, fd: BorrowedFd<'_>, device: u32) -> Option<Found> {
        let wanted = self.is_short(fd) || self.any_handles.load(Ordering::Relaxed);
        (device == self.device && wanted).then(|| Found::of(fd)).flatten()
    }

    /// The reference for the inode of this kind behind `fd`.
    pub(crate) fn anchor(&self, fd: OwnedFd, kind: FileKind, found: Option<&Found>) -> Anchor {
        let by_handle = self.is_short(fd.as_fd()) || self.always_by_handle() && needs_no_descriptor(kind);
        match found {
            Some(found) if by_handle && found.mount_id == self.mount_id => {
                self.any_handles.store(true, Ordering::Relaxed);
                Anchor::Handle(found.handle.clone(), Arc::clone(&self.mount))
            }
            _ => Anchor::Descriptor(fd),
        }
    }

    fn is_short(&self, fd: BorrowedFd<'_>) -> bool {
        let number = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
        self.handles != Use::Never && number >= self.short_from
    }
}

const fn needs_no_descriptor(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Symlink)
}

/// True for file systems on which a handle leads to the file for as long as the file has a name. Elsewhere it may end
/// when the host drops the inode from its memory (FAT), or at a server's discretion.
fn has_lasting_handles(source: BorrowedFd<'_>) -> bool {
    use magic::{BTRFS, EXT4, F2FS, TMPFS, XFS};
    magic::is_on(source, &[EXT4, XFS, BTRFS, F2FS, TMPFS])
}

#[cfg(test)]
impl Anchor {
    /// A handle of a nonexistent file, for tests of tables.
    pub(crate) fn of_bytes(kind: i32, bytes: &[u8]) -> Self {
        let mount = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        Self::of_bytes_on(&Arc::new(mount), kind, bytes)
    }

    /// Like [`Anchor::of_bytes`], with a shared mount descriptor.
    pub(crate) fn of_bytes_on(mount: &Arc<OwnedFd>, kind: i32, bytes: &[u8]) -> Self {
        Self::Handle(HostHandle::new(kind, bytes), Arc::clone(mount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inode_number_is_found_in_each_known_layout() {
        let handle = HostHandle::new;
        let number = |value: u32| value.to_ne_bytes();
        let short = [number(77), number(5)].concat();
        assert_eq!(handle(1, &short).inode_number(), Some(77));
        let tmpfs = [number(5), number(77), number(1)].concat();
        assert_eq!(handle(1, &tmpfs).inode_number(), Some(1 << 32 | 77));
        let wide = (1_u64 << 40 | 3).to_ne_bytes();
        assert_eq!(handle(0x81, &wide).inode_number(), Some(1 << 40 | 3));
        assert_eq!(handle(0x4d, &wide).inode_number(), Some(1 << 40 | 3));
        assert_eq!(handle(1, &[1; 3]).inode_number(), None);
        assert_eq!(handle(200, &wide).inode_number(), None);
    }
}
