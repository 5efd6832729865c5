//! What holds a host inode: a descriptor, or a host file handle where descriptors are short.
//!
//! A descriptor is the rule: nothing beats it in speed, and it keeps the inode alive. Once the process's descriptors are
//! seven eighths used, inodes that come on top are held by `name_to_handle_at(2)` handles and opened for each call. This
//! needs `CAP_DAC_READ_SEARCH` and a host file system with handles; without them calls fail with
//! [`vfs::FsError::TooManyOpenFiles`].
//!
//! A handle does not keep the inode alive. It contains the host's generation, so a file that took over the number is told
//! apart, and a call on one that is gone is answered with [`vfs::FsError::Stale`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vfs::{FsError, FsResult};

/// `MAX_HANDLE_SZ`.
const HANDLE_BYTES_MAX: usize = 128;

/// A host inode by name, in the host's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostHandle {
    kind: i32,
    bytes: Box<[u8]>,
}

/// `struct file_handle` with room for any handle.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

/// What holds one inode.
#[derive(Debug)]
pub(crate) enum Anchor {
    /// An `O_PATH` descriptor.
    Descriptor(OwnedFd),
    /// A handle, and a descriptor of the mount that it belongs to.
    Handle(HostHandle, Arc<OwnedFd>),
}

/// An `O_PATH` descriptor of an inode for the time of a call.
#[derive(Debug)]
pub(crate) enum PathFd<'a> {
    Held(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for PathFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Held(fd) => *fd,
            Self::Opened(fd) => fd.as_fd(),
        }
    }
}

impl Anchor {
    pub(crate) fn path_fd(&self) -> FsResult<PathFd<'_>> {
        match self {
            Self::Descriptor(fd) => Ok(PathFd::Held(fd.as_fd())),
            Self::Handle(handle, mount) => handle.open(mount.as_fd()).map(PathFd::Opened),
        }
    }

    /// False when `found`, the handle of an inode with the same number, shows that the number was reused.
    pub(crate) fn is_of(&self, found: Option<&HostHandle>) -> bool {
        match self {
            Self::Descriptor(_) => true,
            Self::Handle(handle, _) => found.is_none_or(|found| found == handle),
        }
    }
}

impl HostHandle {
    /// The handle of the inode behind `fd`, where its file system has handles.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        let bytes = u32::try_from(HANDLE_BYTES_MAX).ok()?;
        let mut raw = RawHandle {
            bytes,
            kind: 0,
            data: [0; HANDLE_BYTES_MAX],
        };
        let mut mount_id = 0;
        let handle = (&raw mut raw).cast::<libc::file_handle>();
        // SAFETY: `raw` is laid out as `struct file_handle` followed by as many bytes as its first field says; the
        // path is NUL-terminated; all outlive the call.
        let result = unsafe {
            libc::name_to_handle_at(
                fd.as_raw_fd(),
                c"".as_ptr(),
                handle,
                &raw mut mount_id,
                libc::AT_EMPTY_PATH,
            )
        };
        let length = usize::try_from(raw.bytes).ok()?;
        (result == 0).then(|| Self {
            kind: raw.kind,
            bytes: raw.data[..length].into(),
        })
    }

    fn open(&self, mount: BorrowedFd<'_>) -> FsResult<OwnedFd> {
        let mut raw = RawHandle {
            bytes: 0,
            kind: self.kind,
            data: [0; HANDLE_BYTES_MAX],
        };
        raw.bytes = u32::try_from(self.bytes.len()).map_err(|_| FsError::Stale)?;
        raw.data[..self.bytes.len()].copy_from_slice(&self.bytes);
        let handle = (&raw mut raw).cast::<libc::file_handle>();
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: `raw` is laid out as `struct file_handle` followed by as many bytes as its first field says, and
        // outlives the call.
        match unsafe { libc::open_by_handle_at(mount.as_raw_fd(), handle, flags) } {
            -1 => Err(FsError::from(std::io::Error::last_os_error())),
            // SAFETY: the call made this descriptor and nobody else owns it.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    }
}

/// Decides between descriptor and handle for each inode that comes.
#[derive(Debug)]
pub(crate) struct Anchors {
    mount: Arc<OwnedFd>,
    device: u64,
    /// Descriptors from this number on are not kept for inodes; `None` where handles can't be used.
    kept_below: Option<u64>,
    any_handles: AtomicBool,
}

impl Anchors {
    /// `mount` is the source, on `device`; the process may have `descriptors_max` descriptors.
    pub(crate) fn new(mount: Arc<OwnedFd>, device: u64, descriptors_max: u64) -> Self {
        let usable = HostHandle::of(mount.as_fd()).is_some_and(|handle| handle.open(mount.as_fd()).is_ok());
        let kept_below = usable.then_some(descriptors_max - descriptors_max / 8);
        Self {
            mount,
            device,
            kept_below,
            any_handles: AtomicBool::new(false),
        }
    }

    /// The handle of the inode behind `fd`, if it may be held by handle or be compared with one that is.
    pub(crate) fn handle_of(&self, fd: BorrowedFd<'_>, device: u64) -> Option<HostHandle> {
        if device != self.device || !(self.is_short(fd) || self.any_handles.load(Ordering::Relaxed)) {
            return None;
        }
        HostHandle::of(fd)
    }

    /// What is to hold the inode behind `fd`.
    pub(crate) fn anchor(&self, fd: OwnedFd, handle: Option<&HostHandle>) -> Anchor {
        match handle {
            Some(handle) if self.is_short(fd.as_fd()) => {
                self.any_handles.store(true, Ordering::Relaxed);
                Anchor::Handle(handle.clone(), Arc::clone(&self.mount))
            }
            _ => Anchor::Descriptor(fd),
        }
    }

    fn is_short(&self, fd: BorrowedFd<'_>) -> bool {
        let number = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
        self.kept_below.is_some_and(|limit| number >= limit)
    }
}
