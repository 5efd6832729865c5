//! [`Buffered`]: the calls of a file system, each with what it must flush first.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use vfs::{
    Attr, Caller, CopyRange, DirSink, Entry, FallocateMode, FileSystem, FsResult, Handle, Ino, IoctlReply,
    NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs, WriteMode, XattrFlags,
};

use crate::central::Moment;
use crate::config::{BufferConfig, BufferConfigError, Flusher};
use crate::engine::Engine;
use crate::entry::byte_count;
use crate::inode::{OpenFile, Told};
use crate::manager;
use crate::slot::Slot;
use crate::stats::{BufferStats, FlushCause, add};

/// File capabilities, which the host drops when the file is written to.
const CAPABILITY: &[u8] = b"security.capability";

/// A file system whose writes are buffered.
///
/// It may start a thread when it is made: a process that forks into the background does so before. Dropping
/// it drains the buffer and ends the thread.
#[derive(Debug)]
pub struct Buffered<F: FileSystem> {
    engine: Arc<Engine<F>>,
    /// Joined on drop; `None` without a manager thread.
    manager: Option<JoinHandle<()>>,
}

impl<F: FileSystem> Buffered<F> {
    /// Puts a buffer over `inner`.
    ///
    /// # Errors
    /// When the configuration makes no sense, or the host gives no memory or thread.
    pub fn new(inner: F, config: BufferConfig) -> Result<Self, BufferConfigError> {
        let config = config.validated()?;
        let engine = Arc::new(Engine::new(inner, config, slots(&config)?));
        let manager = if config.flusher == Flusher::Thread {
            let engine = Arc::clone(&engine);
            let thread = std::thread::Builder::new().name("flush-manager".into());
            Some(
                thread
                    .spawn(move || manager::run(&engine))
                    .map_err(|source| BufferConfigError::Thread { source })?,
            )
        } else {
            None
        };
        Ok(Self { engine, manager })
    }

    /// The file system below. What is buffered is not in it yet.
    pub fn inner(&self) -> &F {
        &self.engine.inner
    }

    /// Writes out everything buffered at the time of the call and waits for it. Errors go to the files'
    /// handles.
    pub fn drain(&self) {
        self.engine.flush_all(FlushCause::Drain);
    }

    /// What the buffer did so far.
    pub fn stats(&self) -> BufferStats {
        let free = byte_count(self.engine.central.lock().free.len());
        BufferStats {
            entries_total: self.engine.entries_total(),
            entries_in_use: self.engine.entries_total() - free,
            degraded: self.engine.is_degraded(),
            manager_rounds: self.engine.central.manager_rounds(),
            ..self.engine.counters.snapshot()
        }
    }

    /// `outcome`, unless this handle has an error of an earlier write to be told of, which goes first.
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

    /// `entry`, which was found after `moment`, with attributes that include what was buffered then. `entry` was
    /// counted, so a failure takes it back.
    fn refreshed(&self, moment: Moment, entry: Entry) -> FsResult<Entry> {
        let engine = &self.engine;
        if moment == Moment::Clean {
            return Ok(entry);
        }
        let inode = engine.registry.inode(entry.ino);
        if let Some(inode) = inode.filter(|inode| !inode.lock().is_clean()) {
            engine.flush_inode(&inode, FlushCause::Other);
        } else if engine.central.holds_since(moment) {
            return Ok(entry);
        }
        match engine.inner.getattr(entry.ino, None) {
            Ok(attr) => Ok(Entry { attr, ..entry }),
            Err(error) => {
                engine.inner.forget(entry.ino, 1);
                Err(error)
            }
        }
    }

    /// A `create` that truncates may meet a file that exists and has data buffered: that data is older.
    fn flush_existing(&self, parent: Ino, name: &[u8], flags: OpenFlags) {
        if self.engine.central.is_clean() || !flags.has(libc::O_TRUNC) || flags.has(libc::O_EXCL) {
            return;
        }
        if let Ok(entry) = self.engine.inner.lookup(parent, name) {
            self.engine.flush_ino(entry.ino, FlushCause::Other);
            self.engine.inner.forget(entry.ino, 1);
        }
    }

    fn flush_before_read(&self, ino: Ino, offset: u64, length: usize) {
        if self.engine.central.is_clean() {
            return;
        }
        let Some(inode) = self.engine.registry.inode(ino) else {
            return;
        };
        // Data that ends at or before the offset changes neither what is read nor where the file ends behind
        // it.
        let buffered_end = inode.lock().extents().map(|extent| extent.end).max();
        if let Some(buffered_end) = buffered_end.filter(|end| *end > offset) {
            let reaches_end = offset.saturating_add(byte_count(length)) >= buffered_end;
            self.engine.flush_inode(
                &inode,
                if reaches_end {
                    FlushCause::EndOfFile
                } else {
                    FlushCause::Read
                },
            );
        }
    }
}

fn slots(config: &BufferConfig) -> Result<Vec<Slot>, BufferConfigError> {
    if config.flusher == Flusher::Off {
        return Ok(Vec::new());
    }
    let memory = |source| BufferConfigError::Memory {
        buffer_bytes: config.buffer_bytes,
        source,
    };
    let entry_bytes =
        usize::try_from(config.entry_bytes).map_err(|_| memory(std::io::ErrorKind::OutOfMemory.into()))?;
    (0..config.buffer_bytes / config.entry_bytes)
        .map(|_| Slot::new(entry_bytes).map_err(memory))
        .collect()
}

impl<F: FileSystem> Drop for Buffered<F> {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.take() {
            self.engine.central.stop_manager();
            // A thread that panicked below left entries behind as one that stopped: they are written next.
            let _ = manager.join();
        }
        self.drain();
    }
}

impl<F: FileSystem> FileSystem for Buffered<F> {
    fn mounted_as(&self, device: u32) {
        self.engine.inner.mounted_as(device);
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let moment = self.engine.central.moment();
        self.refreshed(moment, self.engine.inner.lookup(parent, name)?)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.forget(ino, count);
    }

    fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.getattr(ino, handle)
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.setattr(ino, handle, change)
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

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.engine.inner.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.engine.inner.rmdir(parent, name)
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
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.link(ino, parent, name)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        self.engine.flush_ino(ino, FlushCause::Other);
        let opened = self.engine.inner.open(ino, flags, privileges)?;
        self.engine.registry.opened(ino, opened.handle, flags.writes());
        Ok(opened)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.flush_existing(parent, name, flags);
        let moment = self.engine.central.moment();
        let (entry, opened) = self.engine.inner.create(caller, parent, name, node, flags)?;
        let ino = entry.ino;
        // Without `O_EXCL` it may have found a file with data buffered.
        let entry = self
            .refreshed(moment, entry)
            .inspect_err(|_| self.engine.inner.release(ino, opened.handle))?;
        self.engine.registry.opened(ino, opened.handle, flags.writes());
        Ok((entry, opened))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let (entry, opened) = self.engine.inner.tmpfile(caller, parent, node, flags)?;
        self.engine
            .registry
            .opened(entry.ino, opened.handle, flags.writes());
        Ok((entry, opened))
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        self.flush_before_read(ino, offset, out.len());
        self.engine.inner.read(ino, handle, offset, out)
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
        if self.engine.config.flusher == Flusher::Inline && self.engine.central.is_clean() {
            self.engine.central.give_memory_back();
        }
    }

    fn backing_file(&self, ino: Ino, handle: Handle) -> Option<Arc<OwnedFd>> {
        self.engine.inner.backing_file(ino, handle)
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
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.lseek(ino, handle, from)
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
        self.engine
            .inner
            .ioctl(ino, handle, command, input, output_bytes_max)
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        self.engine.inner.opendir(ino)
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        self.engine.inner.readdir(ino, handle, offset, sink)
    }

    fn readdir_plus(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        // All files: which ones the listing will name is known only inside the call, when it may be too late
        // to write.
        self.engine.flush_all(FlushCause::Other);
        self.engine.inner.readdir_plus(ino, handle, offset, sink)
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
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.setxattr(ino, name, value, flags, clear_setgid)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        // The one attribute that a write takes away; a flush for any other would chop streams for nothing.
        if name == CAPABILITY {
            self.engine.flush_ino(ino, FlushCause::Other);
        }
        self.engine.inner.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.engine.flush_ino(ino, FlushCause::Other);
        self.engine.inner.removexattr(ino, name)
    }
}
