//! State behind the lock of [`super::MemFs`], and steps shared by several calls.

use std::collections::{BTreeMap, HashMap};

use vfs::{Caller, Entry, FsError, FsResult, Handle, Ino, NewNode, OpenFlags, Timestamp};

use super::content::{CHUNK, Content, to_u64, to_usize};
use super::node::{Body, Directory, Node};

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;

/// An open file or directory.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub ino: Ino,
    pub flags: OpenFlags,
}

/// State of the whole file system.
#[derive(Debug)]
pub struct State {
    nodes: HashMap<Ino, Node>,
    handles: HashMap<Handle, Open>,
    next_ino: u64,
    pub next_handle: u64,
    pub capacity_chunks: u64,
    /// The answer of an open about caches of the file.
    pub vouches_for_caches: bool,
    /// Error of a write beyond the capacity.
    pub full: FsError,
}

impl State {
    /// A file system with an empty root directory.
    pub fn new(capacity_bytes: u64, full: FsError) -> Self {
        let mut state = Self {
            nodes: HashMap::new(),
            handles: HashMap::new(),
            next_ino: Ino::ROOT.0,
            next_handle: 1,
            capacity_chunks: capacity_bytes / CHUNK,
            vouches_for_caches: false,
            full,
        };
        let root = Body::Directory(Directory::new(Ino::ROOT));
        let node = NewNode {
            mode: libc::S_IFDIR | 0o755,
            umask: 0,
            rdev: 0,
        };
        let root = state.add(root, node, 0, 0);
        state.nodes.get_mut(&root).expect("the root was just made").nlink = 2;
        state
    }

    /// The current time of the file system clock.
    pub fn now(&self) -> Timestamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Timestamp {
            seconds: now.tv_sec,
            nanoseconds: u32::try_from(now.tv_nsec).expect("less than a second"),
        }
    }

    pub fn node(&self, ino: Ino) -> FsResult<&Node> {
        self.nodes.get(&ino).ok_or(FsError::Stale)
    }

    pub fn node_mut(&mut self, ino: Ino) -> FsResult<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(FsError::Stale)
    }

    /// Number of data chunks in all files.
    pub fn chunks_used(&self) -> u64 {
        let chunks = |node: &Node| node.content().map_or(0, Content::chunk_count);
        self.nodes.values().map(chunks).sum()
    }

    /// Total number of inodes.
    pub fn node_count(&self) -> u64 {
        to_u64(self.nodes.len())
    }

    /// An open file; `BadHandle` if it is not one of this inode.
    pub fn opened(&self, ino: Ino, handle: Handle) -> FsResult<Open> {
        self.handles
            .get(&handle)
            .copied()
            .filter(|open| open.ino == ino)
            .ok_or(FsError::BadHandle)
    }

    pub fn open(&mut self, ino: Ino, flags: OpenFlags) -> FsResult<Handle> {
        let handle = Handle(self.next_handle);
        self.node_mut(ino)?.opens += 1;
        self.next_handle += 1;
        self.handles.insert(handle, Open { ino, flags });
        Ok(handle)
    }

    pub fn close(&mut self, handle: Handle) {
        if let Some(open) = self.handles.remove(&handle) {
            if let Some(node) = self.nodes.get_mut(&open.ino) {
                node.opens -= 1;
            }
            self.drop_if_unused(open.ino);
        }
    }

    /// Counts a lookup and returns the entry.
    pub fn entry(&mut self, ino: Ino) -> FsResult<Entry> {
        let node = self.node_mut(ino)?;
        node.lookups += 1;
        Ok(Entry {
            ino,
            generation: 0,
            attr: node.attr(ino),
        })
    }

    /// The inode of a name, after checking the name.
    pub fn find(&self, parent: Ino, name: &[u8]) -> FsResult<Ino> {
        let directory = self.node(parent)?.directory()?;
        match name {
            b"." => Ok(parent),
            b".." => Ok(directory.parent),
            _ => {
                check_name(name)?;
                directory.get(name)
            }
        }
    }

    /// Creates an inode without a name, owned as the parent's setgid bit and the caller determine.
    pub fn make(&mut self, caller: &Caller, parent: Ino, body: Body, node: NewNode) -> FsResult<Ino> {
        let above = self.node(parent)?;
        let inherits_group = above.mode & libc::S_ISGID != 0;
        let gid = if inherits_group { above.gid } else { caller.gid };
        let mut mode = node.mode & !(node.umask & 0o777);
        if inherits_group && matches!(body, Body::Directory(_)) {
            mode |= libc::S_ISGID;
        }
        Ok(self.add(body, NewNode { mode, ..node }, caller.uid, gid))
    }

    /// Like [`State::make`], with a name.
    pub fn make_named(
        &mut self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        body: Body,
        node: NewNode,
    ) -> FsResult<Entry> {
        check_name(name)?;
        match self.find(parent, name) {
            Ok(_) => return Err(FsError::Exists),
            Err(FsError::NotFound) => {}
            Err(error) => return Err(error),
        }
        if self.node(parent)?.nlink == 0 {
            return Err(FsError::NotFound);
        }
        let ino = self.make(caller, parent, body, node)?;
        self.add_name(parent, name, ino)?;
        self.entry(ino)
    }

    fn add(&mut self, body: Body, node: NewNode, uid: u32, gid: u32) -> Ino {
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        let now = self.now();
        let node = Node {
            body,
            mode: node.mode,
            uid,
            gid,
            nlink: 0,
            rdev: node.rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            xattrs: BTreeMap::new(),
            lookups: 0,
            opens: 0,
        };
        self.nodes.insert(ino, node);
        ino
    }

    /// Adds the name `name` in `parent` for `ino`, and updates all link counts.
    pub fn add_name(&mut self, parent: Ino, name: &[u8], ino: Ino) -> FsResult<()> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.nlink += 1;
        node.ctime = now;
        let is_directory = match &mut node.body {
            Body::Directory(directory) => {
                directory.parent = parent;
                node.nlink += 1;
                true
            }
            _ => false,
        };
        let above = self.node_mut(parent)?;
        above.directory_mut()?.insert(name, ino);
        above.nlink += u32::from(is_directory);
        above.touch(now);
        Ok(())
    }

    /// Removes a name and updates all link counts; drops the inode if it is unused.
    pub fn remove_name(&mut self, parent: Ino, name: &[u8]) -> FsResult<Ino> {
        let now = self.now();
        let ino = self.node(parent)?.directory()?.get(name)?;
        let node = self.node_mut(ino)?;
        let is_directory = matches!(node.body, Body::Directory(_));
        node.nlink -= if is_directory { 2 } else { 1 };
        node.ctime = now;
        let above = self.node_mut(parent)?;
        above.directory_mut()?.names.remove(name);
        above.nlink -= u32::from(is_directory);
        above.touch(now);
        Ok(ino)
    }

    /// Frees an inode without name, handle and lookups.
    pub fn drop_if_unused(&mut self, ino: Ino) {
        let unused =
            |node: &Node| node.nlink == 0 && node.opens == 0 && node.lookups == 0 && ino != Ino::ROOT;
        if self.nodes.get(&ino).is_some_and(unused) {
            self.nodes.remove(&ino);
        }
    }

    /// True if `ino` is `ancestor` or lies below it.
    pub fn is_below(&self, mut ino: Ino, ancestor: Ino) -> FsResult<bool> {
        while ino != ancestor {
            if ino == Ino::ROOT {
                return Ok(false);
            }
            ino = self.node(ino)?.directory()?.parent;
        }
        Ok(true)
    }

    /// Writes as much of `data` as there is space for.
    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let length = to_u64(data.len());
        let end = offset.checked_add(length).and_then(|end| i64::try_from(end).ok());
        if end.is_none() {
            return Err(FsError::FileTooBig);
        }
        let free = self.capacity_chunks.saturating_sub(self.chunks_used());
        let content = self.node_mut(ino)?.content_mut()?;
        let mut fits = length;
        if content.chunks_missing(offset, length) > free {
            // Whole chunks from the front, as many as there is space for.
            while fits > 0 && content.chunks_missing(offset, fits) > free {
                let end = offset + fits;
                fits = (end - 1) / CHUNK * CHUNK;
                fits = fits.saturating_sub(offset);
            }
            if fits == 0 {
                return Err(self.full);
            }
        }
        content.write(offset, &data[..to_usize(fits)]);
        Ok(to_usize(fits))
    }
}

/// Checks a name to be found or created.
pub const fn check_name(name: &[u8]) -> FsResult<()> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() {
        return Err(FsError::NotFound);
    }
    Ok(())
}
