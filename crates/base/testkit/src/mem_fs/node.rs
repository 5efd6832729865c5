//! Inodes of [`super::MemFs`].

use std::collections::BTreeMap;

use vfs::{Attr, FileKind, FsError, FsResult, Ino, Privileges, Timestamp};

use super::content::{CHUNK, Content};

/// The file capabilities, which a write by an ordinary user removes.
const CAPABILITY: &[u8] = b"security.capability";

/// Type and content of an inode.
#[derive(Debug)]
pub enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

/// Names of a directory, each with a cookie that never changes: listings stay stable while names are added and removed.
#[derive(Debug)]
pub struct Directory {
    pub parent: Ino,
    pub names: BTreeMap<Vec<u8>, (Ino, u64)>,
    next_cookie: u64,
}

impl Directory {
    /// An empty directory. Cookies 1 and 2 are `.` and `..`.
    pub const fn new(parent: Ino) -> Self {
        Self {
            parent,
            names: BTreeMap::new(),
            next_cookie: 3,
        }
    }

    /// Adds or replaces a name.
    pub fn insert(&mut self, name: &[u8], ino: Ino) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.names.insert(name.to_vec(), (ino, cookie));
    }

    /// The inode of a name.
    pub fn get(&self, name: &[u8]) -> FsResult<Ino> {
        self.names.get(name).map(|(ino, _)| *ino).ok_or(FsError::NotFound)
    }

    /// Names behind `cookie` in the order of their cookies.
    pub fn listing(&self, cookie: u64) -> Vec<(Vec<u8>, Ino, u64)> {
        let mut found: Vec<_> = self
            .names
            .iter()
            .filter(|(_, (_, own))| *own > cookie)
            .map(|(name, (ino, own))| (name.clone(), *ino, *own))
            .collect();
        found.sort_by_key(|(_, _, own)| *own);
        found
    }
}

/// One inode.
#[derive(Debug)]
pub struct Node {
    pub body: Body,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub rdev: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Lookup count.
    pub lookups: u64,
    /// Open handles.
    pub opens: u64,
}

impl Node {
    /// Attributes, as inode `ino`.
    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, chunks) = match &self.body {
            Body::File(content) => (content.size(), content.chunk_count()),
            Body::Directory(directory) => (super::content::to_u64(directory.names.len()), 1),
            Body::Symlink(target) => (super::content::to_u64(target.len()), 0),
            Body::Special => (0, 0),
        };
        Attr {
            shown_ino: ino.0,
            size,
            blocks: chunks * (CHUNK / 512),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: Some(self.btime),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            block_size: 4096,
            attributes: 0,
            attributes_mask: 0,
            is_reported: false,
        }
    }

    /// The file type.
    pub const fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }

    /// The directory, or an error.
    pub const fn directory(&self) -> FsResult<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// The directory for changes, or an error.
    pub const fn directory_mut(&mut self) -> FsResult<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotADirectory),
        }
    }

    /// The content of a file, or an error.
    pub const fn content(&self) -> FsResult<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FsError::IsADirectory),
            _ => Err(FsError::Invalid),
        }
    }

    /// The content of a file for changes, or an error.
    pub const fn content_mut(&mut self) -> FsResult<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FsError::IsADirectory),
            _ => Err(FsError::Invalid),
        }
    }

    /// Sets the times of a change of content.
    pub const fn touch(&mut self, now: Timestamp) {
        self.mtime = now;
        self.ctime = now;
    }

    /// Clears setuid, setgid and file capabilities as `privileges` requires.
    pub fn lose_privileges(&mut self, privileges: Privileges) {
        if self.kind() == FileKind::Directory || !privileges.are_killed() {
            return;
        }
        self.mode = privileges.left_of(self.mode, self.gid);
        self.xattrs.remove(CAPABILITY);
    }
}
