//! A read-only UBIFS as a [`vfs::FileSystem`].
//!
//! Inode numbers are those on the medium, and no state is kept per inode between calls, so that `forget` does
//! nothing. An open file keeps its inode and its read-ahead window, an open directory its entries.
//!
//! Damage: reads of a damaged block fail with `EIO`; other blocks of the file stay readable. A directory with damaged
//! entries lists the others and then fails with `EIO`. Each loss is also reported to the listener, with its location
//! on the medium.
//!
//! Not aware of FUSE. No cache of contents except read-ahead: the kernel has its page cache.

mod attributes;
mod directory;
mod handles;
mod read_ahead;
mod reading;
mod writable;

use std::sync::{Arc, OnceLock};

use vfs::{
    Attr, Bypass, Caller, ChangeListener, DirSink, Entry, FileKind, FileSystem, FsError, FsResult, Handle,
    Ino, IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs,
    WriteMode, XattrFlags,
};

use self::directory::OpenDirectory;
use self::handles::Handles;
use self::read_ahead::{ReadAhead, Windows};
use self::reading::Reading;
use crate::file_system::Ubifs;
use crate::finding::Finding;
use crate::format::Inode;

pub use writable::{Clock, MountedWriter};

/// Called for each loss that an operation encounters.
pub type LossListener = Box<dyn Fn(&Finding) + Send + Sync>;

/// Mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedOptions {
    /// Maximum read-ahead on sequential reads, bytes; 0 turns it off.
    pub read_ahead_bytes: u64,
}

impl MountedOptions {
    /// Default options: 1 MiB of read-ahead.
    #[must_use]
    pub const fn standard() -> Self {
        Self {
            read_ahead_bytes: 1 << 20,
        }
    }
}

/// An open directory.
struct ListedDirectory {
    ino: Ino,
    /// Read by the first listing.
    names: OnceLock<OpenDirectory>,
}

/// A UBIFS mounted read-only.
pub struct MountedUbifs {
    ubifs: Arc<Ubifs>,
    files: Handles<OpenFile>,
    directories: Handles<ListedDirectory>,
    windows: Windows,
    listener: LossListener,
}

struct OpenFile {
    inode: Inode,
    read_ahead: ReadAhead,
}

impl MountedUbifs {
    /// Wraps a file system for mounting.
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

    fn reading(&self) -> Reading<'_> {
        Reading {
            ubifs: &self.ubifs,
            listener: &self.listener,
        }
    }

    fn names_of<'a>(&self, directory: &'a ListedDirectory) -> FsResult<&'a OpenDirectory> {
        if let Some(names) = directory.names.get() {
            return Ok(names);
        }
        let (number, names, is_whole) = self.reading().names(directory.ino)?;
        Ok(directory
            .names
            .get_or_init(|| OpenDirectory::new(number, names, !is_whole)))
    }

    fn file(&self, handle: Handle) -> FsResult<Arc<OpenFile>> {
        self.files.get(handle)
    }
}

impl FileSystem for MountedUbifs {
    /// Nothing ever changes.
    fn report_changes(&self, _: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        Ok(Bypass::Never)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.reading().lookup(parent, name)
    }

    fn forget(&self, _: Ino, _: u64) {}

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        match handle.map(|handle| self.file(handle)) {
            Some(Ok(file)) => self.reading().attr(&file.inode),
            // A directory handle, or none.
            Some(Err(_)) | None => self.reading().attr(&self.reading().inode(ino)?),
        }
    }

    fn setattr(&self, _: Ino, _: Option<Handle>, _: &SetAttr) -> FsResult<Attr> {
        Err(FsError::ReadOnly)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.reading().read_link(ino)
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

    fn unlink(&self, _: &Caller, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn rmdir(&self, _: &Caller, _: Ino, _: &[u8]) -> FsResult<()> {
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
        let inode = self.reading().inode(ino)?;
        let handle = self.files.add(OpenFile {
            inode,
            read_ahead: ReadAhead::default(),
        });
        Ok(Opened { handle })
    }

    fn cache_still_valid(&self, _: Ino, _: Handle) -> bool {
        // The file system never changes.
        true
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
            .read(&self.windows, &self.ubifs, (&file.inode, 0), offset, out)
            .map_err(|error| self.reading().fail(&error))
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
        self.reading().seek(&file.inode, from)
    }

    fn ioctl(
        &self,
        ino: Ino,
        _: Handle,
        command: u32,
        _: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        attributes::ioctl(&self.reading().inode(ino)?, command, output_bytes_max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        // Names are read when they are listed: a kernel that keeps listings only opens the directory.
        let attr = self.reading().attr(&self.reading().inode(ino)?)?;
        if attr.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        Ok(self.directories.add(ListedDirectory {
            ino,
            names: OnceLock::new(),
        }))
    }

    fn readdir(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let directory = self.directories.get(handle)?;
        self.names_of(&directory)?.list(offset, sink, &mut |_| Vec::new())
    }

    fn readdir_plus(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let directory = self.directories.get(handle)?;
        self.names_of(&directory)?
            .list(offset, sink, &mut |names| self.reading().entries(names))
    }

    fn fsyncdir(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn releasedir(&self, _: Ino, handle: Handle) {
        self.directories.remove(handle);
    }

    fn statfs(&self, _: Ino) -> FsResult<StatFs> {
        // As of the last commit: changes in the journal are not counted.
        let master = self.ubifs.master();
        let free_bytes = master.free_bytes.saturating_add(master.dirty_bytes);
        Ok(attributes::statfs(self.ubifs.superblock(), free_bytes))
    }

    fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    fn setxattr(&self, _: Ino, _: &[u8], _: &[u8], _: XattrFlags, _: bool) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.reading().xattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.reading().xattr_list(ino)
    }

    fn removexattr(&self, _: Ino, _: &[u8]) -> FsResult<()> {
        Err(FsError::ReadOnly)
    }
}
