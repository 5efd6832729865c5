//! Open files and directories: from [`Handle`] to what it stands for.
//!
//! A handle's number is shard, slot and the slot's generation, so that a number used after its release is a
//! [`FsError::BadHandle`] and never someone else's file. The lock of a shard is held to clone an `Arc` only, never over
//! a system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use vfs::{Durability, FsError, FsResult, Handle, OpenFlags};

use crate::direct::DirectFile;
use crate::directory::DirStream;
use crate::inodes::Inode;

const SHARD_BITS: u32 = 3;

/// What a handle stands for.
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
    /// Changed content since the last stamp of the inode.
    pub wrote: AtomicBool,
    /// The host lets this file grow only (`chattr +a`): the descriptor has `O_APPEND`.
    pub append_only: bool,
    /// What the flags of the open ask of changes that carry no flags of their own.
    pub durability: Durability,
    pub run: Mutex<WriteRun>,
    /// For long streams, see [`crate::direct`]; `None` inside where the host does not permit it.
    pub direct: OnceLock<Option<DirectFile>>,
}

/// Contiguous bytes written through one handle: from `first` to `end`, written out or on its way up to `start`.
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
    /// Held while one listing call runs: the position in the host's stream belongs to it.
    pub stream: Mutex<DirStream>,
}

impl OpenFile {
    pub(crate) fn new(file: OwnedFd, inode: Arc<Inode>, flags: OpenFlags) -> Self {
        let file = Arc::new(file);
        inode.opened_as(&file);
        Self {
            file,
            inode,
            wrote: AtomicBool::new(false),
            append_only: false,
            durability: flags.durability(),
            run: Mutex::default(),
            direct: OnceLock::new(),
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.inode.closed(&self.file);
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
    /// Adds a write; answers the range to write out once `threshold_bytes` contiguous bytes have come together.
    pub(crate) fn extend(&mut self, offset: u64, length: u64, threshold_bytes: u64) -> Option<(u64, u64)> {
        if offset != self.end {
            (self.first, self.start) = (offset, offset);
        }
        self.end = offset.saturating_add(length);
        // Nothing while another thread's write has moved `start` past this one.
        let length = self.end.saturating_sub(self.start);
        if length < threshold_bytes {
            return None;
        }
        let range = (self.start, length);
        self.start = self.end;
        Some(range)
    }

    /// Bytes of the run that a write at `offset` continues.
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
    shards: Vec<RwLock<Shard>>,
    next_shard: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    open: Option<Open>,
}

impl HandleTable {
    pub(crate) fn new() -> Self {
        let shards = (0..1_u32 << SHARD_BITS).map(|_| RwLock::default()).collect();
        Self {
            shards,
            next_shard: AtomicUsize::new(0),
        }
    }

    pub(crate) fn insert(&self, open: Open) -> Handle {
        let shard_index = self.next_shard.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let mut shard = self.shards[shard_index]
            .write()
            .expect("no panic under a shard's lock");
        let slot = shard.free.pop().unwrap_or_else(|| {
            shard.slots.push(Slot::default());
            shard.slots.len() - 1
        });
        shard.slots[slot].open = Some(open);
        let generation = u64::from(shard.slots[slot].generation);
        let low = u64::try_from(slot << SHARD_BITS | shard_index).expect("usize fits in u64");
        Handle(generation << 32 | low)
    }

    pub(crate) fn get(&self, handle: Handle) -> FsResult<Open> {
        let (shard, slot, generation) = self.place(handle).ok_or(FsError::BadHandle)?;
        let shard = self.shards[shard].read().expect("no panic under a shard's lock");
        match shard.slots.get(slot) {
            Some(found) if found.generation == generation => found.open.clone().ok_or(FsError::BadHandle),
            _ => Err(FsError::BadHandle),
        }
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
        let (shard, slot_index, generation) = self.place(handle)?;
        let mut shard = self.shards[shard].write().expect("no panic under a shard's lock");
        let slot = shard.slots.get_mut(slot_index)?;
        if slot.generation != generation {
            return None;
        }
        let open = slot.open.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        shard.free.push(slot_index);
        Some(open)
    }

    /// Open files and directories.
    pub(crate) fn held(&self) -> u64 {
        let held = self.shards.iter().map(|shard| {
            let shard = shard.read().expect("no panic under a shard's lock");
            shard.slots.len() - shard.free.len()
        });
        u64::try_from(held.sum::<usize>()).expect("usize fits in u64")
    }

    fn place(&self, handle: Handle) -> Option<(usize, usize, u32)> {
        let low = usize::try_from(handle.0 & u64::from(u32::MAX)).ok()?;
        let generation = u32::try_from(handle.0 >> 32).ok()?;
        Some((low % self.shards.len(), low >> SHARD_BITS, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
