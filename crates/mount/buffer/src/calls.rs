//! The file system calls, each with the flush it needs first. Queries (attributes, reads, holes) are answered in
//! `query`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::{
    Attr, Bypass, Caller, ChangeListener, CopyRange, DirSink, Entry, FallocateMode, FileSystem, FsError,
    FsResult, Handle, Ino, IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom,
    SetAttr, StatFs, WriteMode, XattrFlags,
};

use crate::buffered::Buffered;
use crate::inode::{InodeBuffer, OpenFile, Told};
use crate::stats::{FlushCause, add};

/// File capabilities, which the host removes when the file is written.
const CAPABILITY: &[u8] = b"security.capability";

impl<F: FileSystem> FileSystem for Buffered<F> {
    fn mounted_as(&self, device: u32) {
        self.engine.inner.mounted_as(device);
    }

    fn report_changes(&self, listener: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        self.engine.inner.report_changes(listener)
    }

    fn reports_names_of(&self, directory: Ino) -> bool {
        self.engine.inner.reports_names_of(directory)
    }

    fn lists_by_offset(&self) -> bool {
        self.engine.inner.lists_by_offset()
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let active = self.engine.central.active();
        self.complete(&active, self.engine.inner.lookup(parent, name)?)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.engine.registry.forgotten(ino);
        self.engine.inner.forget(ino, count);
    }

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.engine.attributes(ino, handle)
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.engine.change_attributes(ino, handle, change)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.engine.inner.readlink(ino)
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.engine.inner.mknod(caller, parent, name, node)
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.engine.inner.mkdir(caller, parent, name, node)
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        self.engine.inner.symlink(caller, parent, name, target)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.engine.inner.unlink(caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.engine.inner.rmdir(caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.engine.inner.rename(caller, from, to, flags)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let active = self.engine.central.active();
        self.complete(&active, self.engine.inner.link(ino, parent, name)?)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        if flags.has(libc::O_TRUNC) {
            self.engine.flush_ino(ino, FlushCause::Other);
        }
        let opened = self.engine.inner.open(ino, flags, privileges)?;
        Ok(self.opened(ino, opened, flags))
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let (entry, opened) = self.engine.inner.create(caller, parent, name, node, flags)?;
        Ok((entry, self.opened(entry.ino, opened, flags)))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let (entry, opened) = self.engine.inner.tmpfile(caller, parent, node, flags)?;
        Ok((entry, self.opened(entry.ino, opened, flags)))
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.engine.read(ino, handle, offset, out)
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        self.engine.write(ino, handle, offset, data, mode)
    }

    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.engine.flush_ino(ino, FlushCause::Close);
        let outcome = self.engine.inner.flush(ino, handle);
        self.with_write_error(handle, outcome, OpenFile::show_error)
    }

    fn fsync(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.engine.flush_ino(ino, FlushCause::Fsync);
        let outcome = self.engine.inner.fsync(ino, handle, data_only);
        self.with_write_error(handle, outcome, OpenFile::take_error)
    }

    fn release(&self, ino: Ino, handle: Handle) {
        if let Some(inode) = self.engine.registry.inode(ino)
            && inode.lock().uses(handle)
        {
            self.engine.flush_inode(&inode, FlushCause::Close);
        }
        let last = self.engine.registry.released(handle);
        if last.is_some_and(|inode| inode.lock().forget_untold()) {
            let counters = &self.engine.counters;
            counters.errors_pending.fetch_sub(1, Ordering::Relaxed);
            add(&counters.errors_unclaimed, 1);
        }
        self.engine.inner.release(ino, handle);
    }

    fn cache_still_valid(&self, ino: Ino, handle: Handle) -> bool {
        // A page cache above may hold data that was lost.
        let file = self.engine.registry.file(handle);
        let must_drop = file.is_some_and(|file| file.inode.lock().lost.must_drop(handle));
        self.engine.inner.cache_still_valid(ino, handle) && !must_drop
    }

    fn backing_file(&self, ino: Ino, handle: Handle) -> Option<Arc<OwnedFd>> {
        let file = self.engine.inner.backing_file(ino, handle)?;
        // The kernel reads the file without sending requests.
        self.engine.flush_ino(ino, FlushCause::Other);
        Some(file)
    }

    fn keeps_data_by_handle(&self, ino: Ino, handle: Handle) -> bool {
        self.engine.inner.keeps_data_by_handle(ino, handle)
    }

    fn is_synchronous(&self, ino: Ino, handle: Handle) -> bool {
        self.engine.inner.is_synchronous(ino, handle)
    }

    fn path_of(&self, ino: Ino, handle: Option<Handle>) -> Option<PathBuf> {
        self.engine.inner.path_of(ino, handle)
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
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine
            .inner
            .fallocate(ino, handle, mode, offset, length, privileges)
    }

    fn lseek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        self.engine.seek(ino, handle, from)
    }

    fn copy_file_range(&self, copy: &CopyRange) -> FsResult<u64> {
        self.engine.flush_ino(copy.source.0, FlushCause::Other);
        self.engine.flush_ino(copy.target.0, FlushCause::Other);
        self.engine.inner.copy_file_range(copy)
    }

    fn ioctl(
        &self,
        ino: Ino,
        handle: Handle,
        command: u32,
        input: &[u8],
        output_bytes_max: usize,
    ) -> FsResult<IoctlReply> {
        self.engine.flush_ino(ino, FlushCause::Other);
        let reply = self
            .engine
            .inner
            .ioctl(ino, handle, command, input, output_bytes_max);
        if let Some(inode) = self.engine.registry.inode(ino) {
            self.note_writer(&inode, handle);
        }
        reply
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.engine.inner.opendir(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.engine.inner.readdir(ino, handle, offset, sink)
    }

    fn readdir_plus(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.engine.list(ino, handle, offset, sink)
    }

    fn fsyncdir(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.engine.inner.fsyncdir(ino, handle, data_only)
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        self.engine.inner.releasedir(ino, handle);
    }

    fn statfs(&self, ino: Ino) -> FsResult<StatFs> {
        self.engine.inner.statfs(ino)
    }

    fn sync(&self) -> FsResult<()> {
        self.drain();
        self.engine.inner.sync()
    }

    fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
        clear_setgid: bool,
    ) -> FsResult<()> {
        self.flush_before_privileges(ino);
        self.engine.inner.setxattr(ino, name, value, flags, clear_setgid)
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
        self.flush_before_privileges(ino);
        self.engine
            .inner
            .set_acl(caller, ino, name, value, flags, clear_setgid)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        // The only attribute that a write removes.
        if name == CAPABILITY && self.engine.kills_privileges(ino) {
            return Err(FsError::NoData);
        }
        self.engine.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let hides_capability = self.engine.kills_privileges(ino);
        let mut names = self.engine.inner.listxattr(ino)?;
        if hides_capability {
            let left = names.split_inclusive(|byte| *byte == 0);
            let left = left.filter(|name| name.strip_suffix(b"\0") != Some(CAPABILITY));
            names = left.flatten().copied().collect();
        }
        Ok(names)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.flush_before_privileges(ino);
        self.engine.inner.removexattr(ino, name)
    }
}

impl<F: FileSystem> Buffered<F> {
    /// Returns `outcome`, unless an error of an earlier write is still unreported on this handle: that error takes
    /// precedence.
    fn with_write_error(
        &self,
        handle: Handle,
        outcome: FsResult<()>,
        told: impl Fn(&OpenFile) -> Option<Told>,
    ) -> FsResult<()> {
        let file = self.engine.registry.file(handle);
        let Some(Told { error, first, fresh }) = file.and_then(|file| told(&file)) else {
            return outcome;
        };
        let counters = &self.engine.counters;
        add(&counters.errors_reported, u64::from(fresh));
        if first {
            counters.errors_pending.fetch_sub(1, Ordering::Relaxed);
        }
        Err(error)
    }

    /// Adds buffered data to the attributes of `entry`, which was found while the files `active` had data buffered. The
    /// lookup of `entry` was counted, so a failure forgets it.
    fn complete(&self, active: &[Arc<InodeBuffer>], entry: Entry) -> FsResult<Entry> {
        let completed = self.engine.complete(active, entry);
        completed.inspect_err(|_| self.engine.inner.forget(entry.ino, 1))
    }

    /// Registers an open file.
    fn opened(&self, ino: Ino, opened: Opened, flags: OpenFlags) -> Opened {
        let inode = self.engine.registry.opened(ino, opened.handle, flags);
        if flags.writes() {
            self.note_writer(&inode, opened.handle);
        }
        opened
    }

    /// Asks the file system below whether it syncs each write, in which case none may be delayed, and whether it keeps data by
    /// handle.
    fn note_writer(&self, inode: &InodeBuffer, handle: Handle) {
        let is_synchronous = self.engine.inner.is_synchronous(inode.ino, handle);
        let by_handle = self.engine.inner.keeps_data_by_handle(inode.ino, handle);
        let mut state = inode.lock();
        (state.is_synchronous, state.by_handle) = (is_synchronous, by_handle);
    }

    /// Flushes buffered writes that clear privileges before `ino` is given some.
    fn flush_before_privileges(&self, ino: Ino) {
        if self.engine.kills_privileges(ino) {
            self.engine.flush_ino(ino, FlushCause::Other);
        }
    }
}
