//! Finds open files by inode number and by handle. Sharded, because every call uses it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfs::{Handle, Ino, OpenFlags};

use crate::inode::{InodeBuffer, OpenFile};

/// Number of keys that a shard keeps memory for.
const CAPACITY_KEPT: usize = 64;
/// Shards of each map. More than a mount has threads, so that two rarely contend.
const SHARDS: u64 = 16;

type Shard<K, V> = Mutex<HashMap<K, V>>;

/// The open files. No two of its locks are held at once; [`InodeBuffer`]'s lock may be taken within.
#[derive(Debug, Default)]
pub struct Registry {
    /// Each file with its count of open handles, which may be 0: see [`InodeState::outlives_handles`].
    ///
    /// [`InodeState::outlives_handles`]: crate::inode::InodeState::outlives_handles
    inodes: [Shard<Ino, (Arc<InodeBuffer>, usize)>; 16],
    handles: [Shard<Handle, Arc<OpenFile>>; 16],
}

impl Registry {
    /// Registers a handle that the file system below has just opened.
    pub fn opened(&self, ino: Ino, handle: Handle, flags: OpenFlags) -> Arc<InodeBuffer> {
        let inode = {
            let mut shard = shard(&self.inodes, ino.0);
            let (inode, handles) = shard
                .entry(ino)
                .or_insert_with(|| (Arc::new(InodeBuffer::new(ino)), 0));
            *handles += 1;
            Arc::clone(inode)
        };
        let file = Arc::new(OpenFile::new(Arc::clone(&inode), flags));
        shard(&self.handles, handle.0).insert(handle, file);
        inode
    }

    /// Removes a handle, before the file system below may reuse its number. Returns the file if this was its last
    /// handle.
    pub fn released(&self, handle: Handle) -> Option<Arc<InodeBuffer>> {
        let file = remove(&mut shard(&self.handles, handle.0), &handle)?;
        file.inode.lock().lost.released(handle);
        let ino = file.inode.ino;
        let mut shard = shard(&self.inodes, ino.0);
        let (_, handles) = shard.get_mut(&ino)?;
        *handles -= 1;
        if *handles > 0 {
            return None;
        }
        if !file.inode.lock().outlives_handles() {
            remove(&mut shard, &ino);
        }
        Some(Arc::clone(&file.inode))
    }

    /// Called when the kernel forgets the inode. Drops the state kept for a file without open handles.
    pub fn forgotten(&self, ino: Ino) {
        let mut shard = shard(&self.inodes, ino.0);
        if let Some((inode, handles)) = shard.get(&ino) {
            inode.lock().forgotten = true;
            if *handles == 0 {
                remove(&mut shard, &ino);
            }
        }
    }

    /// The file of an inode number, if it is open or state is kept for it.
    pub fn inode(&self, ino: Ino) -> Option<Arc<InodeBuffer>> {
        shard(&self.inodes, ino.0)
            .get(&ino)
            .map(|(inode, _)| Arc::clone(inode))
    }

    /// The open file of a handle.
    pub fn file(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        shard(&self.handles, handle.0).get(&handle).map(Arc::clone)
    }
}

/// Removes a key, and frees memory that a larger number of keys has left.
fn remove<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: &K) -> Option<V> {
    let value = map.remove(key);
    if map.capacity() > CAPACITY_KEPT && map.len() < map.capacity() / 4 {
        map.shrink_to(CAPACITY_KEPT.max(map.len() * 2));
    }
    value
}

fn shard<K, V>(shards: &[Shard<K, V>; 16], key: u64) -> MutexGuard<'_, HashMap<K, V>> {
    let index = usize::try_from(key % SHARDS).expect("a shard number is small");
    shards[index].lock().unwrap_or_else(PoisonError::into_inner)
}
