//! A read-write UBIFS as a [`vfs::FileSystem`].
//!
//! Changes are serialized; reads run in parallel between them. A completed write is in the journal, whose last write
//! unit may still be buffered: `fsync` flushes it, `sync` also commits. Unsynced operations that later writes have
//! not pushed out of the buffer may be lost in a power cut, each as a whole (a large write: block by block);
//! [`MountedWriter::work`] flushes them in the background.
//!
//! A failed write, or a panic, makes the file system read-only: the call that encountered it fails with `EIO`; later
//! changes fail with `EROFS`, syncs with `EIO`, and so does closing a file with data that is not on the medium. Reads
//! continue. [`MountedWriter::statistics`] has the first error. A read error only fails the call that encountered it.
//! Partial effects of that call stay: blocks already written and setuid bits already cleared by a write, the size if
//! several attributes were set.
//!
//! An inode that was returned by a lookup or is open is pinned: it outlives its last link until it is forgotten and
//! closed.
//!
//! Sequential reads use read-ahead, as on a read-only mount.
//!
//! Not a page cache (the kernel has one). Does not check permissions (the kernel does), except for immutable and
//! append-only files, whose flags the kernel does not know.
//!
//! Lock order: `writer`, then an open directory's lock, then those of the handle tables.

mod changes;
mod files;
mod flags;
mod listing;
mod names;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use vfs::{
    Attr, Bypass, Caller, ChangeListener, DirSink, Entry, FileSystem, FsError, FsResult, Handle, Ino,
    IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs, WriteMode,
    XattrFlags,
};

use self::files::OpenFile;
use self::listing::ListedDirectory;
use super::handles::Handles;
use super::read_ahead::{ContentVersions, Windows};
use super::reading::{Reading, number};
use super::{LossListener, MountedOptions, attributes};
use crate::file_system::UbifsError;
use crate::format::{INODE_DIRSYNC, INODE_SYNC, InodeNumber};
use crate::mkfs::Time;
use crate::write::{SpaceUser, WriteError, Writer, WriterStatistics};

/// Returns the current time.
pub type Clock = Box<dyn Fn() -> Time + Send + Sync>;

/// A UBIFS mounted read-write.
pub struct MountedWriter {
    writer: RwLock<Writer>,
    files: Handles<OpenFile>,
    directories: Handles<ListedDirectory>,
    /// Version counter of all names; changed only under `writer`.
    names_changed: AtomicU64,
    /// Changed only under `writer`.
    versions: ContentVersions,
    windows: Windows,
    listener: LossListener,
    clock: Clock,
}

impl MountedWriter {
    /// Wraps a writer for mounting.
    #[must_use]
    pub fn new(writer: Writer, listener: LossListener, clock: Clock) -> Self {
        Self {
            writer: RwLock::new(writer),
            files: Handles::default(),
            directories: Handles::default(),
            names_changed: AtomicU64::new(0),
            versions: ContentVersions::new(),
            windows: Windows::new(MountedOptions::standard().read_ahead_bytes),
            listener,
            clock,
        }
    }

    /// Replaces the default options.
    #[must_use]
    pub fn with_options(self, options: MountedOptions) -> Self {
        Self {
            windows: Windows::new(options.read_ahead_bytes),
            ..self
        }
    }

    /// Counters and state of the writer.
    #[must_use]
    pub fn statistics(&self) -> WriterStatistics {
        self.writer().statistics()
    }

    /// Background work: flushes buffered nodes, and commits a journal that is more than half full.
    pub fn work(&self) -> Result<(), WriteError> {
        self.writer_mut().work()
    }

    /// Deletes orphans, commits, and marks the file system as cleanly unmounted. All later calls fail.
    pub fn close(&self) -> Result<(), WriteError> {
        self.writer_mut().close()
    }

    fn writer(&self) -> RwLockReadGuard<'_, Writer> {
        if self.writer.is_poisoned() {
            drop(self.writer_mut());
        }
        self.writer.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a panic in the middle of a change, stops the writer; reads continue.
    fn writer_mut(&self) -> RwLockWriteGuard<'_, Writer> {
        self.writer.write().unwrap_or_else(|poisoned| {
            let mut writer = poisoned.into_inner();
            writer.stop("a thread panicked in the middle of a change; this is a defect of the program");
            self.writer.clear_poison();
            writer
        })
    }

    const fn reading<'a>(&'a self, writer: &'a Writer) -> Reading<'a> {
        Reading {
            ubifs: writer.read(),
            listener: &self.listener,
        }
    }

    /// Maps an error to its errno and reports losses to the listener.
    fn fail(&self, error: &WriteError) -> FsError {
        if let WriteError::Read(UbifsError::Damaged { finding, .. }) = error {
            (self.listener)(finding);
        }
        attributes::errno_of_write(error)
    }

    /// Like [`Self::fail`], for a sync: a read-only file system means that data was not written.
    fn fail_sync(&self, error: &WriteError) -> FsError {
        match self.fail(error) {
            FsError::ReadOnly => FsError::Io,
            other => other,
        }
    }

    /// Runs a change.
    fn change<T>(&self, call: impl FnOnce(&mut Writer, Time) -> FsResult<T>) -> FsResult<T> {
        let mut writer = self.writer_mut();
        writer.act_for(SpaceUser::Privileged);
        call(&mut writer, (self.clock)())
    }

    /// Runs a change of names, then syncs if one of the directories demands it (chattr +D, +S).
    fn change_names<T>(
        &self,
        directories: &[Ino],
        call: impl FnOnce(&mut Writer, Time) -> FsResult<T>,
    ) -> FsResult<T> {
        self.change(|writer, now| {
            self.names_changed.fetch_add(1, Ordering::Relaxed);
            let called = call(writer, now)?;
            for directory in directories {
                self.sync_where_flagged(writer, *directory, INODE_SYNC | INODE_DIRSYNC)?;
            }
            Ok(called)
        })
    }

    /// Syncs after a change if the inode has one of these flags.
    fn sync_where_flagged(&self, writer: &mut Writer, ino: Ino, flags: u32) -> FsResult<()> {
        if self.reading(writer).inode(ino)?.flags & flags == 0 {
            return Ok(());
        }
        writer.fsync().map_err(|error| self.fail_sync(&error))
    }

    /// Returns the entry of an inode and pins it until it is forgotten.
    fn hand_out(&self, writer: &Writer, number: InodeNumber) -> FsResult<Entry> {
        let reading = self.reading(writer);
        let entry = reading.entry(&reading.inode(Ino(number.0.into()))?)?;
        writer.hold(number);
        Ok(entry)
    }

    fn let_go(&self, number: InodeNumber, times: u64) {
        let is_unknown = self.writer().let_go(number, times);
        if is_unknown {
            // There is no caller to report an error to: the inode stays an orphan, which the next mount deletes.
            let _ = self.writer_mut().bury(number);
        }
    }
}

impl FileSystem for MountedWriter {
    /// This program alone has the volume.
    fn report_changes(&self, _: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        Ok(Bypass::Never)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        // Keeps the lock until the inode is pinned, so that it can't be deleted in between.
        let writer = self.writer();
        let entry = self.reading(&writer).lookup(parent, name)?;
        writer.hold(number(entry.ino)?);
        Ok(entry)
    }

    fn forget(&self, ino: Ino, count: u64) {
        if let Ok(number) = number(ino) {
            self.let_go(number, count);
        }
    }

    fn getattr(&self, ino: Ino, _: Option<Handle>) -> FsResult<Attr> {
        let writer = self.writer();
        let reading = self.reading(&writer);
        reading.attr(&reading.inode(ino)?)
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.set_attributes(ino, handle, change)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.reading(&self.writer()).read_link(ino)
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.make_node(caller, parent, name, node)
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.make_directory(caller, parent, name, node)
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        self.make_link(caller, parent, name, target)
    }

    fn unlink(&self, _: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_file(parent, name)
    }

    fn rmdir(&self, _: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_directory(parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.move_name(caller, from, to, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.give_name(ino, parent, name)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        self.open_file(ino, flags, privileges)
    }

    fn cache_still_valid(&self, _: Ino, _: Handle) -> bool {
        // Only requests of the kernel change the file.
        true
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.create_file(caller, parent, name, node, flags)
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.create_unnamed(caller, parent, node, flags)
    }

    fn read(&self, _: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.read_file(handle, offset, out)
    }

    fn write(&self, _: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        self.write_file(handle, offset, data, mode)
    }

    fn flush(&self, ino: Ino, _: Handle) -> FsResult<()> {
        let writer = self.writer();
        match writer.failure().is_some() && writer.is_unsynced(number(ino)?) {
            // The data will never be durable, and this may be the last call that can report it.
            true => Err(FsError::Io),
            false => Ok(()),
        }
    }

    fn fsync(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        self.sync_buffers()
    }

    fn release(&self, _: Ino, handle: Handle) {
        if let Some(file) = self.files.remove(handle) {
            self.let_go(file.number, 1);
        }
    }

    fn lseek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        self.files.get(handle)?;
        let writer = self.writer();
        let reading = self.reading(&writer);
        reading.seek(&reading.inode(ino)?, from)
    }

    fn is_synchronous(&self, ino: Ino, _: Handle) -> bool {
        let found = self.reading(&self.writer()).inode(ino);
        found.is_ok_and(|inode| inode.flags & INODE_SYNC != 0)
    }

    fn ioctl(
        &self,
        ino: Ino,
        _: Handle,
        command: u32,
        input: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        if let Some(flags) = attributes::flags_to_set(command, input) {
            return self.set_flags(ino, flags?);
        }
        let inode = self.reading(&self.writer()).inode(ino)?;
        attributes::ioctl(&inode, command, output_bytes_max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.open_directory(ino)
    }

    fn readdir(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list(handle, offset, sink)
    }

    fn readdir_plus(&self, _: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.list_with_entries(handle, offset, sink)
    }

    fn fsyncdir(&self, _: Ino, _: Handle, _: bool) -> FsResult<()> {
        self.sync_buffers()
    }

    fn releasedir(&self, _: Ino, handle: Handle) {
        if let Some(directory) = self.directories.remove(handle) {
            self.let_go(directory.number, 1);
        }
    }

    fn statfs(&self, _: Ino) -> FsResult<StatFs> {
        let writer = self.writer();
        Ok(attributes::statfs(
            writer.read().superblock(),
            writer.free_bytes(),
        ))
    }

    fn sync(&self) -> FsResult<()> {
        let mut writer = self.writer_mut();
        // If the commit fails, the journal still has everything.
        let committed = writer.commit();
        let synced = committed.and(writer.fsync());
        synced.map_err(|error| self.fail_sync(&error))
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags, _: bool) -> FsResult<()> {
        self.set_xattr(ino, name, value, flags)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.reading(&self.writer()).xattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.reading(&self.writer()).xattr_list(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_xattr(ino, name)
    }
}
