//! [`FaultyFs`]: write errors and held-back writes over any file system, and a record of the writes that
//! came.
//!
//! Faults are set while it runs, through [`Faults`], which outlives the file system. Nothing but
//! [`FileSystem::write`] is changed; a lookup can have something happen before it comes back.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vfs::{
    Attr, Caller, CopyRange, DirSink, Entry, FallocateMode, FileSystem, FsError, FsResult, Handle, Ino,
    IoctlReply, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, StatFs, WriteMode,
    XattrFlags,
};

/// One write that reached the file system below, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// The file.
    pub ino: Ino,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub bytes: usize,
    /// The error it was answered with instead of being made.
    pub injected: Option<FsError>,
}

/// A file system whose writes can be made to fail or to wait.
#[derive(Debug)]
pub struct FaultyFs<F> {
    inner: F,
    faults: Faults,
}

/// Sets faults and shows what came; a clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled at every change of `state`.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    writes: Vec<WriteRecord>,
    /// By number of the write, counted from 0.
    failing_writes: HashMap<usize, FsError>,
    failing_inodes: HashMap<Ino, FsError>,
    failing_all: Option<FsError>,
    gate_closed: bool,
    at_gate: usize,
    /// Inodes with a write in the file system below, to find out that one had two.
    in_flight: HashSet<Ino>,
    overlaps: usize,
    after_lookup: Option<Action>,
}

/// What happens at some point, once.
struct Action(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Action")
    }
}

impl<F: FileSystem> FaultyFs<F> {
    /// Without faults.
    pub fn new(inner: F) -> Self {
        Self {
            inner,
            faults: Faults::default(),
        }
    }

    /// Sets faults.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// The file system below.
    pub const fn inner(&self) -> &F {
        &self.inner
    }
}

impl Faults {
    /// The write with this number, counted from 0 since the start, fails with `error`.
    pub fn fail_write(&self, number: usize, error: FsError) {
        self.lock().failing_writes.insert(number, error);
    }

    /// Every write to `ino` fails with `error`.
    pub fn fail_inode(&self, ino: Ino, error: FsError) {
        self.lock().failing_inodes.insert(ino, error);
    }

    /// Every write fails with `error`.
    pub fn fail_all(&self, error: FsError) {
        self.lock().failing_all = Some(error);
    }

    /// No write fails any more.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.failing_writes.clear();
        state.failing_inodes.clear();
        state.failing_all = None;
    }

    /// Between the next answer to a lookup and its way back this happens.
    pub fn after_lookup(&self, action: impl FnOnce() + Send + 'static) {
        self.lock().after_lookup = Some(Action(Box::new(action)));
    }

    /// Writes wait from here on.
    pub fn close_gate(&self) {
        self.lock().gate_closed = true;
    }

    /// Writes go on.
    pub fn open_gate(&self) {
        self.lock().gate_closed = false;
        self.shared.changed.notify_all();
    }

    /// The writes so far, those at the gate included.
    pub fn writes(&self) -> Vec<WriteRecord> {
        self.lock().writes.clone()
    }

    /// Times that a write to an inode came while another to the same inode was being made.
    pub fn overlaps(&self) -> usize {
        self.lock().overlaps
    }

    /// Waits until `count` writes have come; false after `limit`.
    pub fn wait_for_writes(&self, count: usize, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.writes.len() >= count)
    }

    /// Waits until `count` writes are at the gate; false after `limit`.
    pub fn wait_at_gate(&self, count: usize, limit: Duration) -> bool {
        self.wait_until(limit, |state| state.at_gate >= count)
    }

    fn wait_until(&self, limit: Duration, holds: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        while !holds(&state) {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            state = self
                .shared
                .changed
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a write, waits at the gate, and says which error it is to get.
    fn arrive(&self, ino: Ino, offset: u64, bytes: usize) -> Option<FsError> {
        let mut state = self.lock();
        let number = state.writes.len();
        let by_number = state.failing_writes.get(&number).copied();
        let injected = by_number
            .or(state.failing_inodes.get(&ino).copied())
            .or(state.failing_all);
        state.writes.push(WriteRecord {
            ino,
            offset,
            bytes,
            injected,
        });
        if !state.in_flight.insert(ino) {
            state.overlaps += 1;
        }
        state.at_gate += 1;
        self.shared.changed.notify_all();
        while state.gate_closed {
            state = self
                .shared
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.at_gate -= 1;
        injected
    }

    fn leave(&self, ino: Ino) {
        self.lock().in_flight.remove(&ino);
    }
}

impl<F: FileSystem> FileSystem for FaultyFs<F> {
    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        let injected = self.faults.arrive(ino, offset, data.len());
        let outcome = match injected {
            Some(error) => Err(error),
            None => self.inner.write(ino, handle, offset, data, mode),
        };
        self.faults.leave(ino);
        outcome
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let entry = self.inner.lookup(parent, name);
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
        self.inner.getattr(ino, handle)
    }

    fn setattr(&self, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        self.inner.setattr(ino, handle, change)
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.inner.readlink(ino)
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.inner.mknod(caller, parent, name, node)
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        self.inner.mkdir(caller, parent, name, node)
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        self.inner.symlink(caller, parent, name, target)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.unlink(parent, name)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.rmdir(parent, name)
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
        self.inner.create(caller, parent, name, node, flags)
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
        self.inner.read(ino, handle, offset, out)
    }

    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.inner.flush(ino, handle)
    }

    fn fsync(&self, ino: Ino, handle: Handle, data_only: bool) -> FsResult<()> {
        self.inner.fsync(ino, handle, data_only)
    }

    fn release(&self, ino: Ino, handle: Handle) {
        self.inner.release(ino, handle);
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
        self.inner.copy_file_range(copy)
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
        self.inner.fsyncdir(ino, handle, data_only)
    }

    fn releasedir(&self, ino: Ino, handle: Handle) {
        self.inner.releasedir(ino, handle);
    }

    fn statfs(&self, ino: Ino) -> FsResult<StatFs> {
        self.inner.statfs(ino)
    }

    fn sync(&self) -> FsResult<()> {
        self.inner.sync()
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
