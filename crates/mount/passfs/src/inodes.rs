//! The inode table: from [`Ino`] to a referenced host inode, and from the host's (device, inode) pair back to the
//! `Ino`.
//!
//! Each entry references its inode by a host file handle or an `O_PATH` descriptor, see [`crate::anchor`]. While a
//! descriptor is open a local file system on a block device can't reuse the inode's number, so the pair identifies the file; on
//! other hosts see [`Anchor::is_outdated`]. A handle contains the host's generation and distinguishes files that had one number in
//! turn. The table is sharded by that pair; both directions of one entry are in one shard, so each operation takes one short
//! lock and never makes a system call under it.
//!
//! An `Ino` consists of a count and the shard, and is never reused: a forgotten one is answered with
//! [`FsError::Stale`]. [`Ino::ROOT`] is kept beside the shards and never removed. The table's memory shrinks with the
//! number of inodes.

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use rustix::fs::OFlags;
use vfs::{FileKind, FsError, FsResult, Ino};

use crate::anchor::{Anchor, HostHandle, PathFd};
use crate::attributes::HostKey;
use crate::handles::capacity_to_keep;
use crate::validity::Stamp;
use crate::watch::Watch;

const SHARD_BITS: u32 = 4;
const SHARDS: u8 = 1 << SHARD_BITS;
/// The first number after [`Ino::ROOT`].
const FIRST: u64 = 2;

/// A call on the inode found no file, and the caller's kernel was told that it is stale.
const TOLD_STALE: u8 = 1;
/// A lookup led to it since then.
const FOUND_AGAIN: u8 = 2;

/// A host inode that the caller knows. Ten thousand are common, so each is kept small: 120 bytes of heap with its
/// reference counts.
#[derive(Debug)]
pub(crate) struct Inode {
    anchor: Anchor,
    key: HostKey,
    pub kind: FileKind,
    /// [`TOLD_STALE`], [`FOUND_AGAIN`], or 0: see [`Inode::answered`].
    missing: AtomicU8,
    /// [`Ino::ROOT`] until it enters the table.
    ino: Ino,
    /// Lookup count; changed under the shard's lock.
    lookups: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// State of the content when this file system last recorded it; see [`crate::validity`].
    stamp: Stamp,
    opened: Option<Box<OpenFiles>>,
}

/// Open files of an inode that is referenced by handle. Calls on the inode use the last one that lives.
#[derive(Debug, Default)]
struct OpenFiles {
    files: Vec<Weak<OwnedFd>>,
    writers: u32,
}

impl Inode {
    pub(crate) fn new(anchor: Anchor, key: HostKey, kind: FileKind) -> Self {
        Self {
            anchor,
            key,
            kind,
            missing: AtomicU8::new(0),
            ino: Ino::ROOT,
            lookups: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    pub(crate) const fn key(&self) -> HostKey {
        self.key
    }

    fn count(&self) {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        if self.missing.load(Ordering::Relaxed) == TOLD_STALE {
            self.missing.store(FOUND_AGAIN, Ordering::Relaxed);
        }
    }

    /// The outcome of a call on this inode, for the caller's kernel. A server that goes by paths has no file any more at the path
    /// by which it knows the inode, which may have other names: when told that the inode is stale, the kernel looks the name up
    /// again. If that leads here once more, there is none. A directory has one name.
    pub(crate) fn answered<T>(&self, outcome: FsResult<T>) -> FsResult<T> {
        let missing = self.missing.load(Ordering::Relaxed);
        let is_missing = matches!(outcome, Err(FsError::NotFound)) && self.kind != FileKind::Directory;
        if !is_missing {
            if missing != 0 {
                self.missing.store(0, Ordering::Relaxed);
            }
            return outcome;
        }
        if missing == FOUND_AGAIN {
            return outcome;
        }
        self.missing.store(TOLD_STALE, Ordering::Relaxed);
        Err(FsError::Stale)
    }

    /// True if content that the kernel kept before an open with this stamp still matches. Otherwise the kernel drops it
    /// when it sees the reply to that open, and until [`Self::confirm`] no other open may trust the stamp.
    pub(crate) fn keeps_content(&self, stamp: Stamp) -> bool {
        let mut state = self.state();
        let keeps = state.stamp.vouches_for(&stamp);
        state.stamp = if keeps { stamp } else { stamp.in_doubt() };
        keeps
    }

    /// The kernel has seen the reply to the open with this stamp.
    pub(crate) fn confirm(&self, stamp: Stamp) {
        let mut state = self.state();
        if state.stamp == stamp.in_doubt() {
            state.stamp = stamp;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under an inode's lock")
    }

    /// A descriptor for calls for which `O_PATH` is enough: the referencing one, that of an open file, or one opened by
    /// handle, in this order. Stale if the inode is referenced by handle, has no open file here, and is gone.
    pub(crate) fn fd(&self) -> FsResult<PathFd<'_>> {
        match &self.anchor {
            Anchor::Descriptor(fd) => Ok(PathFd::Held(fd.as_fd())),
            Anchor::Handle(handle, mount) => match self.any_open() {
                Some(open) => Ok(PathFd::Shared(open)),
                None => handle.open_path(mount.as_fd()).map(PathFd::Opened),
            },
        }
    }

    /// Opens an inode that is referenced by handle; `None` if a descriptor leads to it.
    pub(crate) fn open_by_handle(&self, flags: OFlags) -> Option<FsResult<OwnedFd>> {
        match &self.anchor {
            Anchor::Handle(handle, mount) if self.any_open().is_none() => {
                Some(handle.open(mount.as_fd(), flags))
            }
            Anchor::Handle(..) | Anchor::Descriptor(_) => None,
        }
    }

    /// Registers an open file: while it is open the inode needs no name. The first writer pauses the reports of `watch`.
    pub(crate) fn opened_as(&self, file: &Arc<OwnedFd>, watch: Option<&Watch>) {
        if self.anchor.handle().is_some() {
            let mut state = self.state();
            let opened = state.opened.get_or_insert_default();
            opened.files.push(Arc::downgrade(file));
            if let Some(watch) = watch {
                opened.writers += 1;
                if opened.writers == 1 {
                    // Under the lock, so that the last close of an earlier writer can't come in between.
                    watch.opened_for_writing(file.as_fd());
                }
            }
        }
    }

    /// Reverses [`Inode::opened_as`].
    pub(crate) fn closed(&self, file: &Arc<OwnedFd>, watch: Option<&Watch>) {
        let mut state = self.state();
        let Some(opened) = &mut state.opened else { return };
        if let Some(watch) = watch {
            opened.writers = opened.writers.saturating_sub(1);
            if opened.writers == 0 {
                watch.closed_for_writing(file.as_fd());
            }
        }
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

/// An inode with its number, after its lookup was counted.
#[derive(Debug)]
pub(crate) struct Interned {
    pub ino: Ino,
    pub inode: Arc<Inode>,
}

#[derive(Debug)]
pub(crate) struct InodeTable {
    root: Arc<Inode>,
    /// The device of a local file system, on which a descriptor keeps the number of its inode.
    numbers_kept_on: Option<u32>,
    shards: Vec<Mutex<Shard>>,
}

/// The inodes by number and by key; one whose key another file has taken over is only in the first.
#[derive(Debug, Default)]
struct Shard {
    numbers: HashSet<ByNumber>,
    keys: HashSet<ByKey>,
    /// Number of inodes added so far, from which the next one's number is built.
    taken_in: u64,
}

/// An inode hashed by its number.
#[derive(Debug)]
struct ByNumber(Arc<Inode>);

impl Borrow<Ino> for ByNumber {
    fn borrow(&self) -> &Ino {
        &self.0.ino
    }
}

impl Hash for ByNumber {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.ino.hash(hasher);
    }
}

impl PartialEq for ByNumber {
    fn eq(&self, other: &Self) -> bool {
        self.0.ino == other.0.ino
    }
}

impl Eq for ByNumber {}

/// An inode hashed by its key.
#[derive(Debug)]
struct ByKey(Arc<Inode>);

impl Borrow<HostKey> for ByKey {
    fn borrow(&self) -> &HostKey {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.key.hash(hasher);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl InodeTable {
    pub(crate) fn new(root: Inode, numbers_kept_on: Option<u32>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            root: Arc::new(root),
            numbers_kept_on,
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
        let shard = self.lock(shard_of_number(ino));
        let found = shard.numbers.get(&ino).ok_or(FsError::Stale)?;
        Ok(Arc::clone(&found.0))
    }

    /// Counts one more lookup of the host inode that `candidate` references. The candidate enters the table if its
    /// inode is not in it yet, and is dropped otherwise. `handle` is the inode's handle if the candidate is referenced
    /// by a descriptor and entries may be referenced by handle: an entry whose number the host has reused for another
    /// file is replaced and becomes stale.
    pub(crate) fn intern(&self, candidate: Inode, handle: Option<&HostHandle>) -> Interned {
        let key = candidate.key();
        if key == self.root.key() {
            return Interned {
                ino: Ino::ROOT,
                inode: Arc::clone(&self.root),
            };
        }
        let index = shard_of_key(key);
        let outdated = self.outdated(key, || match handle {
            Some(handle) => Some(Cow::Borrowed(handle)),
            None => candidate.anchor.handle_now(),
        });
        // Declared before the guard: an unneeded candidate is closed after the lock is released.
        let mut candidate = candidate;
        let mut shard = self.lock(index);
        let own = candidate.anchor.handle();
        let known = shard.keys.get(&key).map(|known| Arc::clone(&known.0));
        let inode = match known.filter(|known| !is(known, &outdated) && known.anchor.is_of(handle.or(own))) {
            Some(known) => known,
            None => {
                candidate.ino = Ino(FIRST + (shard.taken_in << SHARD_BITS | u64::from(index)));
                let inode = Arc::new(candidate);
                shard.taken_in += 1;
                shard.numbers.insert(ByNumber(Arc::clone(&inode)));
                shard.keys.replace(ByKey(Arc::clone(&inode)));
                inode
            }
        };
        inode.count();
        drop(shard);
        Interned {
            ino: inode.ino,
            inode,
        }
    }

    /// The known inode with this key, if the one with the handle `found` is another one.
    fn outdated<'a>(
        &self,
        key: HostKey,
        found: impl FnOnce() -> Option<Cow<'a, HostHandle>>,
    ) -> Option<Arc<Inode>> {
        if self.numbers_kept_on == Some(key.device) {
            return None;
        }
        let known = {
            let shard = self.lock(shard_of_key(key));
            Arc::clone(&shard.keys.get(&key)?.0)
        };
        let is_outdated =
            known.anchor.handle().is_none() && known.anchor.is_outdated(key.inode, found().as_deref());
        is_outdated.then_some(known)
    }

    /// The number of a known inode.
    pub(crate) fn number_of(&self, key: HostKey) -> Option<Ino> {
        if key == self.root.key() {
            return Some(Ino::ROOT);
        }
        self.lock(shard_of_key(key))
            .keys
            .get(&key)
            .map(|known| known.0.ino)
    }

    /// The numbers of all known inodes.
    pub(crate) fn numbers(&self) -> Vec<Ino> {
        let mut numbers = vec![Ino::ROOT];
        for shard in 0..SHARDS {
            numbers.extend(self.lock(shard).numbers.iter().map(|known| known.0.ino));
        }
        numbers
    }

    /// Counts one more lookup of the known inode that was found by this handle, if it is referenced by a descriptor.
    pub(crate) fn count_held(&self, key: HostKey, found: Option<&HostHandle>) -> Option<Ino> {
        if key == self.root.key() {
            return Some(Ino::ROOT);
        }
        let outdated = self.outdated(key, || found.map(Cow::Borrowed));
        let shard = self.lock(shard_of_key(key));
        let known = &shard.keys.get(&key)?.0;
        if known.anchor.handle().is_some() || is(known, &outdated) {
            return None;
        }
        known.count();
        Some(known.ino)
    }

    /// Counts one more lookup of a known inode; stale if it was forgotten meanwhile.
    pub(crate) fn count_again(&self, ino: Ino) -> FsResult<()> {
        if ino == Ino::ROOT {
            return Ok(());
        }
        let shard = self.lock(shard_of_number(ino));
        shard.numbers.get(&ino).ok_or(FsError::Stale)?.0.count();
        Ok(())
    }

    /// Subtracts `count` lookups; the last one closes the descriptor unless an open handle still needs it.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        if ino == Ino::ROOT {
            return;
        }
        let mut shard = self.lock(shard_of_number(ino));
        let Some(known) = shard.numbers.get(&ino) else {
            return;
        };
        let left = known.0.lookups.load(Ordering::Relaxed).saturating_sub(count);
        known.0.lookups.store(left, Ordering::Relaxed);
        if left > 0 {
            return;
        }
        let dropped = shard.remove(ino);
        drop(shard);
        // Close the descriptor here, outside the lock.
        drop(dropped);
    }

    /// Number of inodes in the table, including the root.
    pub(crate) fn held(&self) -> u64 {
        let lengths = (0..SHARDS).map(|shard| self.lock(shard).numbers.len());
        u64::try_from(lengths.sum::<usize>() + 1).expect("usize fits in u64")
    }

    fn lock(&self, shard: u8) -> MutexGuard<'_, Shard> {
        self.shards[usize::from(shard)]
            .lock()
            .expect("no panic under a shard's lock")
    }
}

impl Shard {
    fn remove(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let inode = self.numbers.take(&ino)?.0;
        // Another file may have taken over its key.
        if self.keys.get(&inode.key).is_some_and(|known| known.0.ino == ino) {
            self.keys.remove(&inode.key);
        }
        if let Some(capacity) = capacity_to_keep(self.numbers.len(), self.numbers.capacity()) {
            self.numbers.shrink_to(capacity);
        }
        if let Some(capacity) = capacity_to_keep(self.keys.len(), self.keys.capacity()) {
            self.keys.shrink_to(capacity);
        }
        Some(inode)
    }
}

fn is(inode: &Arc<Inode>, other: &Option<Arc<Inode>>) -> bool {
    other.as_ref().is_some_and(|other| Arc::ptr_eq(inode, other))
}

fn shard_of_number(ino: Ino) -> u8 {
    let low = ino.0.wrapping_sub(FIRST) & u64::from(SHARDS - 1);
    u8::try_from(low).expect("four bits fit in eight")
}

fn shard_of_key(key: HostKey) -> u8 {
    let mixed = (key.inode ^ u64::from(key.device).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u8::try_from(mixed >> (64 - SHARD_BITS)).expect("four bits fit in eight")
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
        InodeTable::new(inode(1), None)
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
    fn a_forgotten_number_is_stale_after_its_file_was_found_again() {
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
        let distinct: HashSet<_> = numbers.iter().collect();
        assert_eq!(distinct.len(), numbers.len());
        for (number, ino) in (10..500).zip(&numbers) {
            assert_eq!({ table.get(*ino).unwrap().key().inode }, number);
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
        assert!(size_of::<Inode>() <= 104, "{}", size_of::<Inode>());
        assert!(size_of::<ByNumber>() + size_of::<ByKey>() <= 16);
    }

    /// The number of inodes that a search through a large tree finds, in rounds between which the kernel forgets them.
    #[test]
    fn two_million_inodes_that_were_known_and_forgotten_leave_no_memory() {
        const EACH: u64 = 100_000;
        let rounds = if testkit::is_full() { 20 } else { 2 };
        let table = table();
        let mount = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let mount = Arc::new(mount);
        let handle = |number: u64| Anchor::of_bytes_on(&mount, 1, &number.to_ne_bytes());
        let held_before = table.held();
        let ((), taken) = testkit::heap::taken_by(|| {
            for round in 0..rounds {
                let numbers = (0..EACH).map(|number| {
                    let inode = 10 + round * EACH + number;
                    let key = HostKey { device: 1, inode };
                    table
                        .intern(Inode::new(handle(inode), key, FileKind::Regular), None)
                        .ino
                });
                let numbers: Vec<_> = numbers.collect();
                numbers.iter().for_each(|ino| table.forget(*ino, 1));
            }
        });
        assert_eq!(table.held(), held_before);
        let for_each = taken.peak_bytes / EACH;
        assert!(for_each < 220, "{for_each} bytes for each known inode");
        assert!(taken.kept_bytes < 64 << 10, "{} bytes are left", taken.kept_bytes);
    }
}
