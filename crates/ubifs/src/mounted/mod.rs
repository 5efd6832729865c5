//! A UBIFS as a [`vfs::FileSystem`]: what a mount shows. Read-only.
//!
//! Inodes are addressed by their numbers on the medium, and nothing is kept of them between two calls: `forget` has nothing to
//! do. An open file holds its inode, and what its read-ahead has at hand; an open directory holds its names.
//!
//! Damage: a file with a damaged block gives `EIO` where that block is, and nowhere else. A directory with damaged entries lists
//! the others, and ends in `EIO`. Each loss goes to the listener as well, with its place on the medium.
//!
//! It is not: aware of FUSE, or a cache of contents beyond read-ahead; the kernel has its page cache.

mod attributes;
mod directory;
mod read_ahead;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use vfs::{
    Attr, Caller, DirSink, Entry, FileSystem, FsError, FsResult, Handle, Ino, IoctlReply, NewNode, OpenFlags,
    Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs, WriteMode, XattrFlags,
};

use self::directory::OpenDirectory;
use self::read_ahead::{ReadAhead, Windows};
use crate::content::SeekTarget;
use crate::file_system::{Ubifs, UbifsError};
use crate::finding::Finding;
use crate::format::{EntryKind, INODE_ENCRYPTED, Inode, InodeNumber};

/// Hears of what is lost, when somebody came across it.
pub type LossListener = Box<dyn Fn(&Finding) + Send + Sync>;

/// How a UBIFS is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedOptions {
    /// What is read ahead of a program that reads a file from front to back, bytes at most; 0 for nothing.
    pub read_ahead_bytes: u64,
}

impl MountedOptions {
    /// 1 MiB is read ahead.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            read_ahead_bytes: 1 << 20,
        }
    }
}

/// A UBIFS that is mounted.
pub struct MountedUbifs {
    ubifs: Arc<Ubifs>,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    windows: Windows,
    listener: LossListener,
}

struct OpenFile {
    inode: Inode,
    read_ahead: ReadAhead,
}

impl MountedUbifs {
    /// Makes it one that can be mounted.
    #[must_use]
    pub fn new(ubifs: Arc<Ubifs>, options: MountedOptions, listener: LossListener) -> Self {
        Self {
            ubifs,
            files: Handles::default(),
            directories: Handles::default(),
            windows: Windows::new(options.read_ahead_bytes),
            listener,
        }
    }

    /// The file system below.
    #[must_use]
    pub const fn ubifs(&self) -> &Arc<Ubifs> {
        &self.ubifs
    }

    /// The errno table of this file system, and the place where losses are told.
    fn fail(&self, error: &UbifsError) -> FsError {
        if let UbifsError::Damaged { finding, .. } = error {
            (self.listener)(finding);
        }
        attributes::errno(error)
    }

    fn inode(&self, ino: Ino) -> FsResult<Inode> {
        let number = u32::try_from(ino.0).map_err(|_| FsError::Stale)?;
        self.ubifs
            .inode(InodeNumber(number))
            .map_err(|error| self.fail(&error))
    }

    fn attr(&self, inode: &Inode) -> FsResult<Attr> {
        let mut lost = Vec::new();
        let blocks = match inode.kind() {
            // A mode that is none would be refused by the kernel as well.
            None => return Err(FsError::Io),
            Some(EntryKind::File) if inode.size_bytes > 0 => {
                let blocks = self.ubifs.blocks_lossy(inode.key.inode_number(), &mut lost);
                u64::try_from(blocks.len()).unwrap_or(u64::MAX)
            }
            Some(_) => 0,
        };
        lost.iter().for_each(|finding| (self.listener)(finding));
        let mut attr = attributes::attr(inode, blocks);
        if inode.kind() == Some(EntryKind::Symlink) && inode.flags & INODE_ENCRYPTED != 0 {
            let target = self.ubifs.read_link(inode).ok();
            attr.size = target.map_or(attr.size, |target| {
                u64::try_from(target.len()).unwrap_or(u64::MAX)
            });
        }
        Ok(attr)
    }

    fn entry(&self, inode: &Inode) -> FsResult<Entry> {
        Ok(Entry {
            ino: Ino(inode.key.inode_number().0.into()),
            generation: 0,
            attr: self.attr(inode)?,
        })
    }

    fn file(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        self.files.get(handle)
    }
}

/// What is open.
struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            next: AtomicU64::new(1),
            open: RwLock::default(),
        }
    }
}

impl<T> Handles<T> {
    fn add(&self, value: T) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed));
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(value));
        handle
    }

    fn get(&self, handle: Handle) -> FsResult<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or(FsError::BadHandle)
    }

    fn remove(&self, handle: Handle) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&handle);
    }
}

impl FileSystem for MountedUbifs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let number = u32::try_from(parent.0).map_err(|_| FsError::Stale)?;
        let found = self.ubifs.lookup(InodeNumber(number), name);
        let found = found.map_err(|error| self.fail(&error))?;
        match self.ubifs.inode(found.inode) {
            Ok(inode) => self.entry(&inode),
            Err(error) => Err(attributes::behind_a_name(self.fail(&error))),
        }
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        match handle.map(|handle| self.file(handle)) {
            Some(Ok(file)) => self.attr(&file.inode),
            // The handle of a directory, or none.
            Some(Err(_)) | None => self.attr(&self.inode(ino)?),
        }
    }

    fn setattr(&self, _: Ino, _: Option<Handle>, _: &SetAttr) -> FsResult<Attr> {
        Err(FsError::ReadOnly)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        self.ubifs.read_link(&inode).map_err(|error| self.fail(&error))
    }

    fn mknod(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    fn mkdir(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    fn symlink(&self, _: &Caller, _: Ino, _: &[u8], _: &[u8]) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    fn unlink(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn rmdir(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn rename(&self, _: &Caller, _: (Ino, &[u8]), _: (Ino, &[u8]), _: RenameFlags) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> FsResult<Entry> {
        Err(FsError::ReadOnly)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, _: Privileges) -> FsResult<Opened> {
        if flags.writes() || flags.has(libc::O_TRUNC) {
            return Err(FsError::ReadOnly);
        }
        let inode = self.inode(ino)?;
        let handle = self.files.add(OpenFile {
            inode,
            read_ahead: ReadAhead::default(),
        });
        Ok(Opened {
            handle,
            // Nothing ever changes.
            cache_still_valid: true,
        })
    }

    fn create(&self, _: &Caller, _: Ino, _: &[u8], _: NewNode, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        Err(FsError::ReadOnly)
    }

    fn tmpfile(&self, _: &Caller, _: Ino, _: NewNode, _: OpenFlags) -> FsResult<(Entry, Opened)> {
        Err(FsError::ReadOnly)
    }

    fn read(&self, _: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let file = self.file(handle)?;
        file.read_ahead
            .read(&self.windows, &self.ubifs, &file.inode, offset, out)
            .map_err(|error| self.fail(&error))
    }

    fn write(&self, _: Ino, _: Handle, _: u64, _: &[u8], _: WriteMode) -> FsResult<usize> {
        Err(FsError::ReadOnly)
    }

    fn flush(&self, _: Ino, _: Handle) -> FsResult<()> {
        Ok(())
    }

    fn fsync(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn release(&self, _: Ino, handle: Handle) {
        self.files.remove(handle);
    }

    fn fallocate(
        &self,
        _: Ino,
        _: Handle,
        _: vfs::FallocateMode,
        _: u64,
        _: u64,
        _: Privileges,
    ) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn lseek(&self, _: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        let file = self.file(handle)?;
        let (offset, target) = match from {
            SeekFrom::Data(offset) => (offset, SeekTarget::Data),
            SeekFrom::Hole(offset) => (offset, SeekTarget::Hole),
        };
        let size = file.inode.size_bytes;
        if offset >= size {
            return Err(FsError::NoSuchDevice);
        }
        let found = self.ubifs.seek(&file.inode, offset, target);
        match (found.map_err(|error| self.fail(&error))?, target) {
            (Some(found), _) => Ok(found),
            // Behind the end of each file there is a hole.
            (None, SeekTarget::Hole) => Ok(size),
            (None, SeekTarget::Data) => Err(FsError::NoSuchDevice),
        }
    }

    fn ioctl(
        &self,
        ino: Ino,
        _: Handle,
        command: u32,
        _: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        attributes::ioctl(&self.inode(ino)?, command, output_bytes_max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        let inode = self.inode(ino)?;
        if inode.kind() != Some(EntryKind::Directory) {
            return Err(FsError::NotADirectory);
        }
        let mut lost = Vec::new();
        let names = self
            .ubifs
            .read_directory_lossy(inode.key.inode_number(), &mut lost);
        lost.iter().for_each(|finding| (self.listener)(finding));
        Ok(self.directories.add(OpenDirectory::new(
            inode.key.inode_number(),
            names,
            !lost.is_empty(),
        )))
    }

    fn readdir(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.directories
            .get(handle)?
            .list(offset, sink, &mut |_| Vec::new())
    }

    fn readdir_plus(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let directory = self.directories.get(handle)?;
        directory.list(offset, sink, &mut |numbers| {
            let inodes = self.ubifs.inodes(numbers);
            inodes
                .iter()
                .map(|inode| match inode {
                    Ok(inode) => self.entry(inode).ok(),
                    Err(error) => {
                        self.fail(error);
                        None
                    }
                })
                .collect()
        })
    }

    fn fsyncdir(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn releasedir(&self, _: Ino, handle: Handle) {
        self.directories.remove(handle);
    }

    fn statfs(&self, _: Ino) -> FsResult<StatFs> {
        Ok(attributes::statfs(self.ubifs.superblock(), self.ubifs.master()))
    }

    fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrFlags, _: bool) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let number = u32::try_from(ino.0).map_err(|_| FsError::Stale)?;
        match self.ubifs.xattr(InodeNumber(number), name) {
            Ok(value) => Ok(value),
            Err(UbifsError::NoName { .. }) => Err(FsError::NoData),
            Err(error) => Err(attributes::behind_a_name(self.fail(&error))),
        }
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let inode = self.inode(ino)?;
        let names = self.ubifs.xattr_names(inode.key.inode_number());
        let mut list = Vec::new();
        for name in names.map_err(|error| self.fail(&error))? {
            if attributes::is_shown(&name) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }
}
