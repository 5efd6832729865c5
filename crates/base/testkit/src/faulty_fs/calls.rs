//! The calls of [`FaultyFs`]: each is forwarded, unless a fault strikes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vfs::{
    Attr, Bypass, Caller, ChangeListener, CopyRange, DirSink, Entry, FallocateMode, FileSystem, FsResult,
    Handle, Ino, IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs,
    WriteMode, XattrFlags,
};

use super::{Action, Call, FaultyFs};

impl<F: FileSystem> FaultyFs<F> {
    /// Returns `entry`, and records its inode for a sync of everything.
    fn known(&self, entry: FsResult<Entry>) -> FsResult<Entry> {
        if self.models_power_cuts
            && let Ok(entry) = &entry
        {
            self.faults.durable().know(entry.ino);
        }
        entry
    }

    fn check(&self, call: Call, ino: Ino) -> FsResult<()> {
        self.faults.wait();
        self.faults.strike(call, Some(ino)).map_or(Ok(()), Err)
    }
}

impl<F: FileSystem> FileSystem for FaultyFs<F> {
    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        self.faults.wait();
        let outcome = match self.faults.arrive(ino, offset, data.len(), mode) {
            Some(error) => Err(error),
            None => self.make_write(ino, handle, offset, data, mode),
        };
        self.faults.leave(ino);
        outcome
    }

    fn report_changes(&self, listener: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        self.inner.report_changes(listener)
    }

    fn reports_names_of(&self, directory: Ino) -> bool {
        self.inner.reports_names_of(directory)
    }

    fn lists_by_offset(&self) -> bool {
        self.inner.lists_by_offset()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.faults.wait();
        let entry = self.known(self.inner.lookup(parent, name));
        let action = self.faults.lock().after_lookup.take();
        if let Some(Action(action)) = action {
            action();
        }
        entry
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.inner.forget(ino, count);
    }

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.faults.lock().getattrs += 1;
        self.check(Call::Getattr, ino)?;
        self.inner.getattr(ino, handle)
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.inner.setattr(ino, handle, change)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.readlink(ino)
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.known(self.inner.mknod(caller, parent, name, node))
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.known(self.inner.mkdir(caller, parent, name, node))
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        self.inner.symlink(caller, parent, name, target)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.unlink(caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.rmdir(caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.inner.rename(caller, from, to, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.inner.link(ino, parent, name)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        self.faults.wait();
        self.inner.open(ino, flags, privileges)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.faults.wait();
        let (entry, opened) = self.inner.create(caller, parent, name, node, flags)?;
        Ok((self.known(Ok(entry))?, opened))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.inner.tmpfile(caller, parent, node, flags)
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.check(Call::Read, ino)?;
        self.inner.read(ino, handle, offset, out)
    }

    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.check(Call::Flush, ino)?;
        self.inner.flush(ino, handle)
    }

    fn fsync(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.make_sync(ino, || self.inner.fsync(ino, handle, data_only))
    }

    fn release(&self, ino: Ino, handle: Handle) {
        self.inner.release(ino, handle);
    }

    fn cache_still_valid(&self, ino: Ino, handle: Handle) -> bool {
        self.inner.cache_still_valid(ino, handle)
    }

    fn backing_file(&self, ino: Ino, handle: Handle) -> Option<Arc<OwnedFd>> {
        self.inner.backing_file(ino, handle)
    }

    fn fallocate(
        &self,
        ino: Ino,
        handle: Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        privileges: Privileges,
    ) -> FsResult<()> {
        self.inner
            .fallocate(ino, handle, mode, offset, length, privileges)
    }

    fn lseek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        self.inner.lseek(ino, handle, from)
    }

    fn copy_file_range(&self, copy: &CopyRange) -> FsResult<u64> {
        self.check(Call::Read, copy.source.0)?;
        self.check(Call::Write, copy.target.0)?;
        self.inner.copy_file_range(copy)
    }

    fn keeps_data_by_handle(&self, ino: Ino, handle: Handle) -> bool {
        self.faults.lock().keeps_by_handle || self.inner.keeps_data_by_handle(ino, handle)
    }

    fn is_synchronous(&self, ino: Ino, handle: Handle) -> bool {
        self.inner.is_synchronous(ino, handle)
    }

    fn ioctl(
        &self,
        ino: Ino,
        handle: Handle,
        command: u32,
        input: &[u8],
        max: usize,
    ) -> FsResult<IoctlReply> {
        self.inner.ioctl(ino, handle, command, input, max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.inner.opendir(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.inner.readdir(ino, handle, offset, sink)
    }

    fn readdir_plus(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.inner.readdir_plus(ino, handle, offset, sink)
    }

    fn fsyncdir(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.make_sync(ino, || self.inner.fsyncdir(ino, handle, data_only))?;
        if self.models_power_cuts {
            self.faults.durable().take_names(&self.inner, ino);
        }
        Ok(())
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        self.inner.releasedir(ino, handle);
    }

    fn statfs(&self, ino: Ino) -> FsResult<StatFs> {
        self.inner.statfs(ino)
    }

    fn sync(&self) -> FsResult<()> {
        self.make_sync(Ino::ROOT, || self.inner.sync())?;
        if self.models_power_cuts {
            self.faults.durable().take_all(&self.inner);
        }
        Ok(())
    }

    fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.inner.setxattr(ino, name, value, flags, clear_setgid)
    }

    fn set_acl(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.inner.set_acl(caller, ino, name, value, flags, clear_setgid)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.removexattr(ino, name)
    }
}
