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

/// A host inode that the caller knows. Ten thousand are common, so each is kept small: 112 bytes of heap with its counts.
#[derive(Debug)]
pub(crate) struct Inode {
    anchor: Anchor,
    inode: u64,
    device: u32,
    pub kind: FileKind,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// State of the content when this file system last vouched for it; see [`crate::validity`].
    stamp: Stamp,
    opened: Option<Box<OpenFiles>>,
}

/// Open files of an inode that is held by handle. The last that lives is used for calls on the inode.
#[derive(Debug, Default)]
struct OpenFiles {
    files: Vec<Weak<OwnedFd>>,
}

impl Inode {
    pub(crate) fn new(anchor: Anchor, key: HostKey, kind: FileKind) -> Self {
        Self {
            anchor,
            inode: key.inode,
            device: key.device,
            kind,
            state: Mutex::default(),
        }
    }

    pub(crate) const fn key(&self) -> HostKey {
        HostKey {
            device: self.device,
            inode: self.inode,
        }
    }

    /// Records the state of the content, and answers the one recorded before.
    pub(crate) fn replace_stamp(&self, stamp: Stamp) -> Stamp {
        std::mem::replace(&mut self.state().stamp, stamp)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under an inode's lock")
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
        if self.anchor.handle().is_some() {
            let mut state = self.state();
            let opened = state.opened.get_or_insert_default();
            opened.files.push(Arc::downgrade(file));
        }
    }

    /// Reverses [`Inode::opened_as`].
    pub(crate) fn closed(&self, file: &Arc<OwnedFd>) {
        let mut state = self.state();
        let Some(opened) = &mut state.opened else { return };
        let own = Arc::as_ptr(file);
        opened.files.retain(|open| open.as_ptr() != own);
        if opened.files.is_empty() {
            state.opened = None;
        }
    }

    fn any_open(&self) -> Option<Arc<OwnedFd>> {
        let state = self.state();
        state.opened.as_ref()?.files.iter().rev().find_map(Weak::upgrade)
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

/// Inodes by number, and the numbers by key: `chains` holds the first slot of each chain of slots whose keys have a hash
/// in common. Slots come in blocks of [`BLOCK_SLOTS`], so that none lies idle for growth.
#[derive(Debug, Default)]
struct Shard {
    blocks: Vec<Box<[Slot]>>,
    chains: Vec<u32>,
    /// Head of the chain of free slots.
    free: u32,
    live: usize,
}

/// `next` leads on in the chain of the inode's key, or of free slots. Slots are counted from 1 in chains; 0 is the end.
#[derive(Debug, Default)]
struct Slot {
    inode: Option<Arc<Inode>>,
    lookups: u64,
    generation: u32,
    next: u32,
}

const BLOCK_SLOTS: usize = 32;

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
            .and_then(|slot| slot.inode.clone())
            .ok_or(FsError::Stale)
    }

    /// Counts one more entry of the host inode that `candidate` holds; the candidate itself enters the table when there
    /// is none of it yet, and is given up otherwise. `handle` is the inode's handle where the candidate is held by a
    /// descriptor and entries may be held by handle: an entry whose number the host gave to another file since is
    /// replaced, and is stale.
    pub(crate) fn intern(&self, candidate: Inode, handle: Option<&HostHandle>) -> Interned {
        let key = candidate.key();
        if key == self.root.key() {
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
        slot.lookups += 1;
        let inode = slot.inode.as_ref().expect("slot_for answers a live slot");
        Interned {
            ino: place.ino(),
            generation: u64::from(place.generation),
            inode: Arc::clone(inode),
        }
    }

    /// Counts one more entry of a known inode that is held by a descriptor: its number can't have been reused.
    pub(crate) fn count_held(&self, key: HostKey) -> Option<(Ino, u64)> {
        if key == self.root.key() {
            return Some((Ino::ROOT, 0));
        }
        let shard_index = shard_of(key);
        let mut shard = self.lock(shard_index);
        let index = shard.find(key)?;
        let slot = shard.slot(index);
        let inode = slot.inode.as_ref().expect("a key leads to a live slot");
        if inode.anchor.handle().is_some() {
            return None;
        }
        slot.lookups += 1;
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
        let dropped = shard.remove(place.slot);
        drop(shard);
        // The descriptor is closed here, outside the lock.
        drop(dropped);
    }

    /// Inodes held, the root included.
    pub(crate) fn held(&self) -> u64 {
        let lengths = (0..self.shards.len()).map(|index| self.lock(index).live);
        u64::try_from(lengths.sum::<usize>() + 1).expect("usize fits in u64")
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].lock().expect("no panic under a shard's lock")
    }
}

impl Shard {
    fn slot(&mut self, index: u32) -> &mut Slot {
        let index = usize::try_from(index).expect("u32 fits in usize");
        &mut self.blocks[index / BLOCK_SLOTS][index % BLOCK_SLOTS]
    }

    fn live(&mut self, place: Place) -> Option<&mut Slot> {
        let index = usize::try_from(place.slot).ok()?;
        let slot = self
            .blocks
            .get_mut(index / BLOCK_SLOTS)?
            .get_mut(index % BLOCK_SLOTS)?;
        let same = slot.generation & generation_mask() == place.generation & generation_mask();
        (same && slot.inode.is_some()).then_some(slot)
    }

    /// The slot of the inode with this key.
    fn find(&mut self, key: HostKey) -> Option<u32> {
        let mut next = *self.chains.get(self.chain_of(key)?)?;
        while let Some(index) = next.checked_sub(1) {
            let slot = self.slot(index);
            if slot.inode.as_ref().is_some_and(|inode| inode.key() == key) {
                return Some(index);
            }
            next = slot.next;
        }
        None
    }

    fn slot_for(&mut self, key: HostKey, handle: Option<&HostHandle>, candidate: &mut Option<Inode>) -> u32 {
        let known = self.find(key);
        if let Some(index) = known {
            let known = self
                .slot(index)
                .inode
                .as_ref()
                .expect("a key leads to a live slot");
            let own = candidate.as_ref().and_then(|inode| inode.anchor.handle());
            if known.anchor.is_of(handle.or(own)) {
                return index;
            }
            self.unlink(key, index);
        }
        let index = self.take_free();
        let inode = candidate.take().expect("taken once, here");
        self.slot(index).inode = Some(Arc::new(inode));
        self.slot(index).lookups = 0;
        self.live += 1;
        self.link(key, index);
        index
    }

    /// Frees a slot.
    fn remove(&mut self, index: u32) -> Option<Arc<Inode>> {
        let inode = self.slot(index).inode.clone()?;
        // No longer in its chain where another file has taken its key over.
        self.unlink(inode.key(), index);
        let free = self.free;
        let slot = self.slot(index);
        slot.inode = None;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = free;
        self.free = index + 1;
        self.live -= 1;
        Some(inode)
    }

    fn take_free(&mut self) -> u32 {
        if self.free == 0 {
            let first = self.blocks.len() * BLOCK_SLOTS;
            self.blocks
                .push((0..BLOCK_SLOTS).map(|_| Slot::default()).collect());
            for index in (first..first + BLOCK_SLOTS).rev() {
                let index = u32::try_from(index).expect("memory runs out long before 2^32 inodes");
                self.slot(index).next = self.free;
                self.free = index + 1;
            }
        }
        let index = self.free - 1;
        self.free = self.slot(index).next;
        index
    }

    /// Puts a live slot at the head of its chain; longer chains than one slot on average become twice as many.
    fn link(&mut self, key: HostKey, index: u32) {
        if self.live > self.chains.len() {
            let twice = (self.chains.len() * 2).max(BLOCK_SLOTS);
            let linked: Vec<u32> = std::mem::take(&mut self.chains);
            self.chains = vec![0; twice];
            for mut next in linked {
                while let Some(index) = next.checked_sub(1) {
                    next = self.slot(index).next;
                    let key = self.slot(index).inode.as_ref().map(|inode| inode.key());
                    self.link_first(key.expect("a chain has live slots only"), index);
                }
            }
        }
        self.link_first(key, index);
    }

    fn link_first(&mut self, key: HostKey, index: u32) {
        let chain = self.chain_of(key).expect("made before the first slot is linked");
        let first = std::mem::replace(&mut self.chains[chain], index + 1);
        self.slot(index).next = first;
    }

    fn unlink(&mut self, key: HostKey, index: u32) {
        let Some(chain) = self.chain_of(key) else { return };
        let after = self.slot(index).next;
        let mut next = self.chains[chain];
        if next == index + 1 {
            self.chains[chain] = after;
            return;
        }
        while let Some(before) = next.checked_sub(1) {
            next = self.slot(before).next;
            if next == index + 1 {
                self.slot(before).next = after;
                return;
            }
        }
    }

    fn chain_of(&self, key: HostKey) -> Option<usize> {
        let hash = usize::try_from(hash_of(key) & u64::from(u32::MAX)).expect("32 bits fit in usize");
        hash.checked_rem(self.chains.len())
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
    usize::try_from(hash_of(key) >> (64 - SHARD_BITS)).expect("four bits fit in usize")
}

/// The top bits choose the shard, the lower half the chain in it.
fn hash_of(key: HostKey) -> u64 {
    let mixed = (key.inode ^ u64::from(key.device).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed & (u64::MAX >> SHARD_BITS)) >> 32
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
            assert_eq!(table.get(*ino).unwrap().key().inode, number);
        }
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let table = table();
        table.forget(Ino::ROOT, 1_000);
        assert!(table.get(Ino::ROOT).is_ok());
    }

    #[test]
    fn numbers_are_found_again_while_others_come_and_go() {
        let table = table();
        let intern = |number| table.intern(inode(number), None).ino;
        let kept: Vec<_> = (10..300).map(|number| (number, intern(number))).collect();
        for round in 0..3 {
            let passing: Vec<_> = (1_000..1_200).map(intern).collect();
            passing.iter().for_each(|ino| table.forget(*ino, 1));
            for (number, ino) in &kept {
                assert_eq!(intern(*number), *ino, "round {round}");
                table.forget(*ino, 1);
            }
        }
        assert_eq!(table.held(), 291);
        kept.iter().for_each(|(_, ino)| table.forget(*ino, 1));
        assert_eq!(table.held(), 1);
    }

    #[test]
    fn a_file_that_took_over_a_number_replaces_the_one_before() {
        let table = table();
        let held_by = |handle: u8| {
            let anchor = Anchor::of_bytes(1, &[handle; 8]);
            let key = HostKey { device: 1, inode: 5 };
            table.intern(Inode::new(anchor, key, FileKind::Regular), None).ino
        };
        let first = held_by(1);
        let second = held_by(2);
        assert_ne!(first, second);
        assert_eq!(held_by(2), second);
        table.forget(first, 1);
        assert_eq!(held_by(2), second, "the one before leaves without the one after");
        assert_eq!(table.held(), 2);
    }

    #[test]
    fn an_inode_is_small() {
        assert!(size_of::<Inode>() <= 88, "{}", size_of::<Inode>());
        assert!(size_of::<Slot>() <= 24, "{}", size_of::<Slot>());
    }
}
