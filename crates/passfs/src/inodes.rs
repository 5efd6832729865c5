//! The inode table: from [`Ino`] to a held host inode, and from the host's (device, inode) pair back to the `Ino`.
//!
//! Each entry holds a host file handle or an `O_PATH` descriptor, see [`crate::anchor`]. While a descriptor is held the
//! host can't give the inode's number to another file, so the pair identifies the file; a handle contains the host's
//! generation and tells files apart that had one number in turn. The table is cut into shards by that pair; both
//! directions of one entry live in one shard, so each operation takes one short lock and never makes a system call under
//! it.
//!
//! An `Ino` is built of shard, slot and the slot's generation. A number that was forgotten is answered with
//! [`FsError::Stale`], also after its slot was taken again. [`Ino::ROOT`] is kept beside the shards and never leaves.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rustix::fs::OFlags;
use vfs::{FileKind, FsError, FsResult, Ino};

use crate::anchor::{Anchor, HostHandle, PathFd};
use crate::attributes::HostKey;
use crate::validity::Stamp;

const SHARD_BITS: u32 = 4;
const SLOT_BITS: u32 = 32;
const GENERATION_BITS: u32 = 64 - SHARD_BITS - SLOT_BITS - 1;
/// The first number after [`Ino::ROOT`].
const FIRST: u64 = 2;

/// A host inode that the caller knows.
#[derive(Debug)]
pub(crate) struct Inode {
    anchor: Anchor,
    pub key: HostKey,
    pub kind: FileKind,
    /// State of the content when this file system last vouched for it; see [`crate::validity`].
    pub stamp: Mutex<Option<Stamp>>,
    /// Open files of an inode that is held by handle. The last that lives is used for calls on the inode.
    opened: Mutex<Vec<Weak<OwnedFd>>>,
}

impl Inode {
    pub(crate) fn new(anchor: Anchor, key: HostKey, kind: FileKind) -> Self {
        Self {
            anchor,
            key,
            kind,
            stamp: Mutex::new(None),
            opened: Mutex::default(),
        }
    }

    /// A descriptor for calls for which `O_PATH` is enough: the one that is held, that of an open file, or one opened
    /// by handle, in this order. Stale when the inode is held by handle, is open nowhere here, and is gone.
    pub(crate) fn fd(&self) -> FsResult<PathFd<'_>> {
        match &self.anchor {
            Anchor::Descriptor(fd) => Ok(PathFd::Held(fd.as_fd())),
            Anchor::Handle(handle, mount) => match self.any_open() {
                Some(open) => Ok(PathFd::Shared(open)),
                None => handle.open_path(mount.as_fd()).map(PathFd::Opened),
            },
        }
    }

    /// Opens an inode that is held by handle anew; `None` where a descriptor leads to it.
    pub(crate) fn open_by_handle(&self, flags: OFlags) -> Option<FsResult<OwnedFd>> {
        match &self.anchor {
            Anchor::Handle(handle, mount) if self.any_open().is_none() => {
                Some(handle.open(mount.as_fd(), flags))
            }
            Anchor::Handle(..) | Anchor::Descriptor(_) => None,
        }
    }

    /// Takes note of an open file: while it is open the inode needs no name.
    pub(crate) fn opened_as(&self, file: &Arc<OwnedFd>) {
        if self.anchor.handle().is_none() {
            return;
        }
        let mut opened = self.opened.lock().expect("no panic under this lock");
        if opened.len() == opened.capacity() {
            opened.retain(|open| open.strong_count() > 0);
        }
        opened.push(Arc::downgrade(file));
    }

    fn any_open(&self) -> Option<Arc<OwnedFd>> {
        let mut opened = self.opened.lock().expect("no panic under this lock");
        while let Some(last) = opened.last() {
            match last.upgrade() {
                Some(open) => return Some(open),
                None => opened.pop(),
            };
        }
        None
    }
}

/// An inode as handed out: number, generation, and the inode itself.
#[derive(Debug)]
pub(crate) struct Interned {
    pub ino: Ino,
    pub generation: u64,
    pub inode: Arc<Inode>,
}

#[derive(Debug)]
pub(crate) struct InodeTable {
    root: Arc<Inode>,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Debug, Default)]
struct Shard {
    by_key: HashMap<HostKey, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    inode: Arc<Inode>,
    lookups: u64,
}

#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    slot: u32,
    generation: u32,
}

impl InodeTable {
    pub(crate) fn new(root: Inode) -> Self {
        let shards = (0..1_u32 << SHARD_BITS).map(|_| Mutex::default()).collect();
        Self {
            root: Arc::new(root),
            shards,
        }
    }

    pub(crate) fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// The inode behind `ino`.
    pub(crate) fn get(&self, ino: Ino) -> FsResult<Arc<Inode>> {
        if ino == Ino::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let place = Place::of(ino).ok_or(FsError::Stale)?;
        let mut shard = self.lock(place.shard);
        shard
            .live(place)
            .map(|live| Arc::clone(&live.inode))
            .ok_or(FsError::Stale)
    }

    /// Counts one more entry of the host inode that `candidate` holds; the candidate itself enters the table when there
    /// is none of it yet, and is given up otherwise. `handle` is the inode's handle where the candidate is held by a
    /// descriptor and entries may be held by handle: an entry whose number the host gave to another file since is
    /// replaced, and is stale.
    pub(crate) fn intern(&self, candidate: Inode, handle: Option<&HostHandle>) -> Interned {
        let key = candidate.key;
        if key == self.root.key {
            return Interned {
                ino: Ino::ROOT,
                generation: 0,
                inode: Arc::clone(&self.root),
            };
        }
        let shard_index = shard_of(key);
        // Declared before the guard: a candidate that is not wanted is closed after the lock is gone.
        let mut candidate = Some(candidate);
        let mut shard = self.lock(shard_index);
        let slot_index = shard.slot_for(key, handle, &mut candidate);
        let slot = shard.slot(slot_index);
        let place = Place {
            shard: shard_index,
            slot: slot_index,
            generation: slot.generation,
        };
        let live = slot.live.as_mut().expect("slot_for answers a live slot");
        live.lookups += 1;
        Interned {
            ino: place.ino(),
            generation: u64::from(place.generation),
            inode: Arc::clone(&live.inode),
        }
    }

    /// Counts one more entry of a known inode that is held by a descriptor: its number can't have been reused.
    pub(crate) fn count_held(&self, key: HostKey) -> Option<(Ino, u64)> {
        if key == self.root.key {
            return Some((Ino::ROOT, 0));
        }
        let shard_index = shard_of(key);
        let mut shard = self.lock(shard_index);
        let index = shard.by_key.get(&key).copied()?;
        let slot = shard.slot(index);
        let live = slot.live.as_mut().expect("a key leads to a live slot");
        if live.inode.anchor.handle().is_some() {
            return None;
        }
        live.lookups += 1;
        let place = Place {
            shard: shard_index,
            slot: index,
            generation: slot.generation,
        };
        Some((place.ino(), u64::from(place.generation)))
    }

    /// Counts one more entry of a known inode; stale when it was forgotten meanwhile.
    pub(crate) fn count_again(&self, ino: Ino) -> FsResult<u64> {
        if ino == Ino::ROOT {
            return Ok(0);
        }
        let place = Place::of(ino).ok_or(FsError::Stale)?;
        let mut shard = self.lock(place.shard);
        let live = shard.live(place).ok_or(FsError::Stale)?;
        live.lookups += 1;
        Ok(u64::from(place.generation))
    }

    /// Takes `count` entries back; the last one closes the descriptor unless an open handle still needs it.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        let Some(place) = Place::of(ino) else { return };
        let mut shard = self.lock(place.shard);
        let Some(live) = shard.live(place) else { return };
        live.lookups = live.lookups.saturating_sub(count);
        if live.lookups > 0 {
            return;
        }
        let slot = shard.slot(place.slot);
        let dropped = slot.live.take();
        slot.generation = slot.generation.wrapping_add(1);
        if let Some(live) = &dropped
            && shard.by_key.get(&live.inode.key) == Some(&place.slot)
        {
            shard.by_key.remove(&live.inode.key);
        }
        shard.free.push(place.slot);
        drop(shard);
        // The descriptor is closed here, outside the lock.
        drop(dropped);
    }

    /// Inodes held, the root included.
    pub(crate) fn held(&self) -> u64 {
        let lengths = (0..self.shards.len()).map(|index| {
            let shard = self.lock(index);
            shard.slots.len() - shard.free.len()
        });
        u64::try_from(lengths.sum::<usize>() + 1).expect("usize fits in u64")
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().expect("no panic under a shard's lock")
    }
}

impl Shard {
    fn slot(&mut self, index: u32) -> &mut Slot {
        let index = usize::try_from(index).expect("u32 fits in usize");
        &mut self.slots[index]
    }

    fn live(&mut self, place: Place) -> Option<&mut Live> {
        let index = usize::try_from(place.slot).ok()?;
        let slot = self.slots.get_mut(index)?;
        if slot.generation & generation_mask() != place.generation & generation_mask() {
            return None;
        }
        slot.live.as_mut()
    }

    fn slot_for(&mut self, key: HostKey, handle: Option<&HostHandle>, candidate: &mut Option<Inode>) -> u32 {
        if let Some(slot) = self.by_key.get(&key).copied() {
            let live = self.slot(slot).live.as_ref().expect("a key leads to a live slot");
            let own = candidate.as_ref().and_then(|inode| inode.anchor.handle());
            if live.inode.anchor.is_of(handle.or(own)) {
                return slot;
            }
        }
        let inode = candidate.take().expect("taken once, here");
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("descriptors run out long before 2^32 inodes")
        });
        self.slot(slot).live = Some(Live {
            inode: Arc::new(inode),
            lookups: 0,
        });
        self.by_key.insert(key, slot);
        slot
    }
}

impl Place {
    fn of(ino: Ino) -> Option<Self> {
        let bits = ino.0.checked_sub(FIRST)?;
        let shard = bits & ((1 << SHARD_BITS) - 1);
        let slot = bits >> SHARD_BITS & u64::from(u32::MAX);
        let generation = bits >> (SHARD_BITS + SLOT_BITS);
        Some(Self {
            shard: usize::try_from(shard).ok()?,
            slot: u32::try_from(slot).ok()?,
            generation: u32::try_from(generation).ok()?,
        })
    }

    fn ino(self) -> Ino {
        let generation = u64::from(self.generation & generation_mask());
        let shard = u64::try_from(self.shard).expect("usize fits in u64");
        let bits = generation << (SHARD_BITS + SLOT_BITS) | u64::from(self.slot) << SHARD_BITS | shard;
        Ino(bits + FIRST)
    }
}

const fn generation_mask() -> u32 {
    (1 << GENERATION_BITS) - 1
}

fn shard_of(key: HostKey) -> usize {
    let mixed = (key.inode ^ key.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> (64 - SHARD_BITS)).expect("four bits fit in usize")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(number: u64) -> Inode {
        let key = HostKey {
            device: 1,
            inode: number,
        };
        let fd = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        Inode::new(Anchor::Descriptor(fd), key, FileKind::Regular)
    }

    fn table() -> InodeTable {
        InodeTable::new(inode(1))
    }

    #[test]
    fn the_same_host_inode_has_one_number_until_it_is_forgotten() {
        let table = table();
        let first = table.intern(inode(5), None).ino;
        assert_eq!(table.intern(inode(5), None).ino, first);
        table.forget(first, 1);
        assert!(table.get(first).is_ok());
        table.forget(first, 1);
        assert_eq!(table.get(first).err(), Some(FsError::Stale));
        assert_eq!(table.held(), 1);
    }

    #[test]
    fn a_forgotten_number_is_stale_after_its_slot_was_taken_again() {
        let table = table();
        let first = table.intern(inode(5), None).ino;
        table.forget(first, 1);
        let second = table.intern(inode(5), None).ino;
        assert_ne!(first, second);
        assert_eq!(table.get(first).err(), Some(FsError::Stale));
        assert!(table.get(second).is_ok());
    }

    #[test]
    fn numbers_of_many_inodes_are_distinct_and_found_again() {
        let table = table();
        let numbers: Vec<_> = (10..500)
            .map(|number| table.intern(inode(number), None).ino)
            .collect();
        let distinct: std::collections::HashSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len());
        for (number, ino) in (10..500).zip(&numbers) {
            assert_eq!(table.get(*ino).unwrap().key.inode, number);
        }
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let table = table();
        table.forget(Ino::ROOT, 1_000);
        assert!(table.get(Ino::ROOT).is_ok());
    }
}
