//! The table of open files and directories, by [`Handle`].
//!
//! Handle numbers are counted up and never reused, so that a number used after its release is a [`FsError::BadHandle`]
//! and never another file. A shard's lock is held only to clone an `Arc`, never over a system call. The table's memory
//! shrinks with the number of handles.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use vfs::{Durability, FsError, FsResult, Handle, OpenFlags};

use crate::direct::DirectFile;
use crate::directory::DirStream;
use crate::inodes::Inode;
use crate::validity::Stamp;
use crate::watch::Watch;

const SHARDS: usize = 8;

/// The object behind a handle.
#[derive(Clone, Debug)]
pub(crate) enum Open {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDirectory>),
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub file: Arc<OwnedFd>,
    pub inode: Arc<Inode>,
    /// Opened for writing: a close may have to flush.
    pub writes: bool,
    /// The state of the content after this open, if the caller asked whether an earlier one still matches it.
    pub stamp: OnceLock<Stamp>,
    /// The host only lets this file grow (`chattr +a`): the descriptor has `O_APPEND`.
    pub append_only: bool,
    /// Its file system is one of FUSE.
    pub is_on_fuse: bool,
    /// A descriptor with `O_APPEND` for writes at the end, which is the server's to know; empty on local hosts.
    pub appending: OnceLock<OwnedFd>,
    /// Durability that the flags of the open require of changes without flags of their own.
    pub durability: Durability,
    /// Set for a writer, see [`crate::watch`].
    watch: Option<Arc<Watch>>,
    pub run: Mutex<WriteRun>,
    /// For long streams, see [`crate::direct`]; contains `None` if the host does not permit it.
    pub direct: OnceLock<Option<DirectFile>>,
}

/// Contiguous bytes written through one handle: from `first` to `end`, with write-out done or started up to `start`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteRun {
    pub first: u64,
    pub start: u64,
    pub end: u64,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub fd: OwnedFd,
    pub inode: Arc<Inode>,
    /// Held during a listing call, which owns the position in the host's stream.
    pub stream: Mutex<DirStream>,
}

impl OpenFile {
    /// `watch` is the watch of the source, if its changes are reported.
    pub(crate) fn new(
        file: OwnedFd,
        inode: Arc<Inode>,
        flags: OpenFlags,
        watch: Option<&Arc<Watch>>,
    ) -> Self {
        let file = Arc::new(file);
        let watch = watch.filter(|_| flags.writes()).map(Arc::clone);
        inode.opened_as(&file, watch.as_deref());
        Self {
            watch,
            file,
            inode,
            writes: flags.writes(),
            stamp: OnceLock::new(),
            append_only: false,
            is_on_fuse: false,
            appending: OnceLock::new(),
            durability: flags.durability(),
            run: Mutex::default(),
            direct: OnceLock::new(),
        }
    }

    /// Runs a call on each descriptor of the file, as a server may hold data by descriptor. All are called; the first error
    /// counts.
    pub(crate) fn each_descriptor(&self, call: impl Fn(&OwnedFd) -> FsResult<()>) -> FsResult<()> {
        let appended = self.appending.get().map_or(Ok(()), &call);
        appended.and(call(&self.file))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.inode.closed(&self.file, self.watch.as_deref());
    }
}

impl Open {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(open) => open.file.as_fd(),
            Self::Directory(open) => open.fd.as_fd(),
        }
    }
}

impl WriteRun {
    /// Adds a write; returns the range to write out once there are `threshold_bytes` contiguous bytes.
    pub(crate) fn extend(&mut self, offset: u64, length: u64, threshold_bytes: u64) -> Option<(u64, u64)> {
        if offset != self.end {
            (self.first, self.start) = (offset, offset);
        }
        self.end = offset.saturating_add(length);
        // 0 if another thread's write has moved `start` past this one.
        let length = self.end.saturating_sub(self.start);
        if length < threshold_bytes {
            return None;
        }
        let range = (self.start, length);
        self.start = self.end;
        Some(range)
    }

    /// Length of the run that a write at `offset` continues.
    pub(crate) const fn contiguous_before(&self, offset: u64) -> u64 {
        if offset == self.end {
            self.end.saturating_sub(self.first)
        } else {
            0
        }
    }
}

#[derive(Debug)]
pub(crate) struct HandleTable {
    shards: [RwLock<HashMap<u64, Open>>; SHARDS],
    /// At a million opens a second it wraps around after half a million years.
    next: AtomicU64,
}

impl HandleTable {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::default()),
            next: AtomicU64::new(0),
        }
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Open>> {
        let index = usize::try_from(number & 0xff).expect("eight bits fit in usize");
        &self.shards[index % SHARDS]
    }

    pub(crate) fn insert(&self, open: Open) -> Handle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(number).write().expect("no panic under a shard's lock");
        shard.insert(number, open);
        Handle(number)
    }

    pub(crate) fn get(&self, handle: Handle) -> FsResult<Open> {
        let shard = self
            .shard(handle.0)
            .read()
            .expect("no panic under a shard's lock");
        shard.get(&handle.0).cloned().ok_or(FsError::BadHandle)
    }

    pub(crate) fn file(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        match self.get(handle)? {
            Open::File(open) => Ok(open),
            Open::Directory(_) => Err(FsError::IsADirectory),
        }
    }

    pub(crate) fn directory(&self, handle: Handle) -> FsResult<Arc<OpenDirectory>> {
        match self.get(handle)? {
            Open::Directory(open) => Ok(open),
            Open::File(_) => Err(FsError::NotADirectory),
        }
    }

    pub(crate) fn remove(&self, handle: Handle) -> Option<Open> {
        let mut shard = self
            .shard(handle.0)
            .write()
            .expect("no panic under a shard's lock");
        let open = shard.remove(&handle.0);
        if let Some(capacity) = capacity_to_keep(shard.len(), shard.capacity()) {
            shard.shrink_to(capacity);
        }
        open
    }

    /// Number of open files and directories.
    pub(crate) fn held(&self) -> u64 {
        let lengths = self
            .shards
            .iter()
            .map(|shard| shard.read().expect("no panic under a shard's lock").len());
        u64::try_from(lengths.sum::<usize>()).expect("usize fits in u64")
    }
}

/// New capacity of a table with `length` entries, once most of its memory is unused.
pub(crate) fn capacity_to_keep(length: usize, capacity: usize) -> Option<usize> {
    const SMALL: usize = 64;
    (capacity > SMALL && length < capacity / 4).then_some(length * 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_directory() -> Open {
        let fd = || rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let stat = crate::attributes::stat(fd()).unwrap();
        let key = crate::attributes::HostKey::of(&stat);
        let anchor = crate::anchor::Anchor::Descriptor(fd());
        Open::Directory(Arc::new(OpenDirectory {
            fd: fd(),
            inode: Arc::new(Inode::new(anchor, key, vfs::FileKind::Directory)),
            stream: Mutex::default(),
        }))
    }

    #[test]
    fn numbers_go_on_past_32_bits_and_are_never_those_of_handles_that_are_open() {
        let table = HandleTable::new();
        let old = table.insert(open_directory());
        table.next.store(u64::from(u32::MAX) - 2, Ordering::Relaxed);
        let more: Vec<_> = (0..8).map(|_| table.insert(open_directory())).collect();
        assert!(
            more.iter()
                .all(|handle| *handle != old && table.get(*handle).is_ok())
        );
        assert_eq!(table.held(), 9);
        for handle in &more {
            assert!(table.remove(*handle).is_some());
            assert_eq!(table.get(*handle).err(), Some(FsError::BadHandle));
            assert!(table.remove(*handle).is_none());
        }
        assert!(table.get(old).is_ok());
    }

    #[test]
    fn write_out_starts_once_enough_contiguous_bytes_have_come_together() {
        let mut run = WriteRun::default();
        assert_eq!(run.extend(0, 60, 100), None);
        assert_eq!(run.extend(60, 60, 100), Some((0, 120)));
        assert_eq!(run.extend(120, 60, 100), None);
        assert_eq!(run.extend(500, 60, 100), None, "a jump starts anew");
        assert_eq!(run.extend(560, 40, 100), Some((500, 100)));
    }

    #[test]
    fn a_run_goes_on_over_write_outs_until_a_jump() {
        let mut run = WriteRun::default();
        run.extend(0, 100, 100);
        run.extend(100, 50, 100);
        assert_eq!((run.contiguous_before(150), run.contiguous_before(151)), (150, 0));
        run.extend(500, 10, 100);
        assert_eq!(run.contiguous_before(510), 10);
    }
}
