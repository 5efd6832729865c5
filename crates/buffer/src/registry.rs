//! Finds the open files: by inode number and by handle. Sharded, because every call passes here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vfs::{Handle, Ino};

use crate::inode::{InodeBuffer, OpenFile};

/// Shards of each map. More than the threads that a mount has, so that two rarely meet.
const SHARDS: u64 = 16;

type Shard<K, V> = Mutex<HashMap<K, V>>;

/// The open files. Its locks are taken alone, except that [`InodeBuffer`]'s may be taken within.
#[derive(Debug, Default)]
pub struct Registry {
    /// Each file with its count of open handles.
    inodes: [Shard<Ino, (Arc<InodeBuffer>, usize)>; 16],
    handles: [Shard<Handle, Arc<OpenFile>>; 16],
}

impl Registry {
    /// Registers a handle that the file system below has just opened.
    pub fn opened(&self, ino: Ino, handle: Handle, writable: bool) {
        let inode = {
            let mut shard = shard(&self.inodes, ino.0);
            let (inode, handles) = shard
                .entry(ino)
                .or_insert_with(|| (Arc::new(InodeBuffer::new(ino)), 0));
            *handles += 1;
            Arc::clone(inode)
        };
        let file = Arc::new(OpenFile::new(inode, writable));
        shard(&self.handles, handle.0).insert(handle, file);
    }

    /// Takes a handle off, before the file system below may give its number to another. Returns the file when
    /// this was its last handle.
    pub fn released(&self, handle: Handle) -> Option<Arc<InodeBuffer>> {
        let file = shard(&self.handles, handle.0).remove(&handle)?;
        let ino = file.inode.ino;
        let mut shard = shard(&self.inodes, ino.0);
        let (_, handles) = shard.get_mut(&ino)?;
        *handles -= 1;
        if *handles > 0 {
            return None;
        }
        shard.remove(&ino).map(|(inode, _)| inode)
    }

    /// The file of a number, when it is open.
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

fn shard<K, V>(shards: &[Shard<K, V>; 16], key: u64) -> MutexGuard<'_, HashMap<K, V>> {
    let index = usize::try_from(key % SHARDS).expect("a shard number is small");
    shards[index].lock().unwrap_or_else(PoisonError::into_inner)
}
