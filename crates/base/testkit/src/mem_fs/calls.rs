//! The calls of [`MemFs`].

use vfs::{
    Attr, Caller, CopyRange, DirEntry, DirSink, Entry, FallocateMode, FileKind, FileSystem, FsError,
    FsResult, Handle, Ino, NewNode, OpenFlags, Opened, Privileges, RenameFlags, SeekFrom, SetAttr, SetTime,
    StatFs, WriteMode, XattrFlags,
};

use super::MemFs;
use super::content::{CHUNK, Content, to_u64, to_usize};
use super::node::{Body, Directory};
use super::state::{NAME_MAX, State, check_name};

/// Permission bits of a mode, with setuid, setgid and sticky.
const PERMISSIONS: u32 = 0o7777;

impl State {
    fn list(&mut self, ino: Ino, offset: u64, sink: &mut dyn DirSink, with_entries: bool) -> FsResult<()> {
        let directory = self.node(ino)?.directory()?;
        let dots = [(b".".to_vec(), ino, 1), (b"..".to_vec(), directory.parent, 2)];
        let names = directory.listing(offset);
        let dots = dots.into_iter().filter(|(_, _, cookie)| *cookie > offset);
        for (name, ino, cookie) in dots.chain(names) {
            if !sink.fits(name.len()) {
                return Ok(());
            }
            let is_dot = cookie <= 2;
            let kind = self
                .node(ino)
                .map_or(FileKind::Directory, super::node::Node::kind);
            let entry = if with_entries && !is_dot {
                Some(self.entry(ino)?)
            } else {
                None
            };
            let shown = DirEntry {
                name: &name,
                shown_ino: ino.0,
                kind,
                next_offset: cookie,
            };
            sink.push(&shown, entry.as_ref());
        }
        Ok(())
    }

    fn truncate(&mut self, ino: Ino, size: u64, privileges: Privileges) -> FsResult<()> {
        if i64::try_from(size).is_err() {
            return Err(FsError::FileTooBig);
        }
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.content_mut()?.set_size(size);
        node.lose_privileges(privileges);
        node.touch(now);
        Ok(())
    }

    /// Checks the two names before a rename; returns the inode that is replaced, if any.
    fn check_rename(&self, moved: Ino, to: (Ino, &[u8])) -> FsResult<Option<Ino>> {
        let moved_is_directory = self.node(moved)?.directory().is_ok();
        if moved_is_directory && self.is_below(to.0, moved)? {
            return Err(FsError::Invalid);
        }
        let replaced = match self.find(to.0, to.1) {
            Ok(ino) => ino,
            Err(FsError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        match (moved_is_directory, self.node(replaced)?.directory()) {
            (true, Ok(directory)) if !directory.names.is_empty() => Err(FsError::NotEmpty),
            (true, Err(_)) => Err(FsError::NotADirectory),
            (false, Ok(_)) => Err(FsError::IsADirectory),
            _ => Ok(Some(replaced)),
        }
    }

    fn exchange(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> FsResult<()> {
        let (one, other) = (self.find(from.0, from.1)?, self.find(to.0, to.1)?);
        for (moved, target) in [(one, to.0), (other, from.0)] {
            if self.node(moved)?.directory().is_ok() && self.is_below(target, moved)? {
                return Err(FsError::Invalid);
            }
        }
        self.remove_name(from.0, from.1)?;
        self.remove_name(to.0, to.1)?;
        self.add_name(from.0, from.1, other)?;
        self.add_name(to.0, to.1, one)
    }
}

impl FileSystem for MemFs {
    fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let mut state = self.lock();
        let ino = state.find(parent, name)?;
        state.entry(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut state = self.lock();
        if let Ok(node) = state.node_mut(ino) {
            node.lookups = node.lookups.saturating_sub(count);
        }
        state.drop_if_unused(ino);
    }

    fn getattr(&self, ino: Ino, _handle: Option<Handle>) -> FsResult<Attr> {
        Ok(self.lock().node(ino)?.attr(ino))
    }

    fn setattr(&self, ino: Ino, _handle: Option<Handle>, change: &SetAttr) -> FsResult<Attr> {
        let mut state = self.lock();
        if let Some(size) = change.size {
            state.truncate(ino, size, change.privileges)?;
        }
        let now = state.now();
        let node = state.node_mut(ino)?;
        if change.uid.is_some() || change.gid.is_some() {
            node.uid = change.uid.unwrap_or(node.uid);
            node.gid = change.gid.unwrap_or(node.gid);
            node.lose_privileges(change.privileges);
        }
        if let Some(mode) = change.mode {
            node.mode = (node.mode & !PERMISSIONS) | (mode & PERMISSIONS);
        }
        let time = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        node.atime = change.atime.map_or(node.atime, time);
        node.mtime = change.mtime.map_or(node.mtime, time);
        node.ctime = now;
        Ok(node.attr(ino))
    }

    fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.lock().node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid),
        }
    }

    fn mknod(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        let body = match FileKind::of_mode(node.mode) {
            FileKind::Regular => Body::File(Content::default()),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => Body::Special,
            FileKind::Directory => return Err(FsError::NotPermitted),
            FileKind::Symlink | FileKind::Unknown => return Err(FsError::Invalid),
        };
        self.lock().make_named(caller, parent, name, body, node)
    }

    fn mkdir(&self, caller: &Caller, parent: Ino, name: &[u8], node: NewNode) -> FsResult<Entry> {
        let node = NewNode {
            mode: libc::S_IFDIR | (node.mode & PERMISSIONS),
            ..node
        };
        self.lock().make_named(
            caller,
            parent,
            name,
            Body::Directory(Directory::new(parent)),
            node,
        )
    }

    fn symlink(&self, caller: &Caller, parent: Ino, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        let node = NewNode {
            mode: libc::S_IFLNK | 0o777,
            umask: 0,
            rdev: 0,
        };
        self.lock()
            .make_named(caller, parent, name, Body::Symlink(target.to_vec()), node)
    }

    fn unlink(&self, _: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        let mut state = self.lock();
        let ino = state.find(parent, name)?;
        if state.node(ino)?.directory().is_ok() {
            return Err(FsError::IsADirectory);
        }
        state.remove_name(parent, name)?;
        state.drop_if_unused(ino);
        Ok(())
    }

    fn rmdir(&self, _: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        if name == b"." {
            return Err(FsError::Invalid);
        }
        let mut state = self.lock();
        let ino = state.find(parent, name)?;
        if name == b".." || !state.node(ino)?.directory()?.names.is_empty() {
            return Err(FsError::NotEmpty);
        }
        state.remove_name(parent, name)?;
        state.drop_if_unused(ino);
        Ok(())
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        let has = |flag: u32| flags.0 & flag != 0;
        let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE | libc::RENAME_WHITEOUT;
        if has(!known) || (has(libc::RENAME_EXCHANGE) && flags.0 != libc::RENAME_EXCHANGE) {
            return Err(FsError::Invalid);
        }
        check_name(to.1)?;
        let mut state = self.lock();
        let moved = state.find(from.0, from.1)?;
        if has(libc::RENAME_EXCHANGE) {
            return state.exchange(from, to);
        }
        if has(libc::RENAME_NOREPLACE) && state.find(to.0, to.1).is_ok() {
            return Err(FsError::Exists);
        }
        let replaced = state.check_rename(moved, to)?;
        if replaced == Some(moved) {
            return Ok(());
        }
        if let Some(replaced) = replaced {
            state.remove_name(to.0, to.1)?;
            state.drop_if_unused(replaced);
        }
        state.remove_name(from.0, from.1)?;
        state.add_name(to.0, to.1, moved)?;
        if has(libc::RENAME_WHITEOUT) {
            let node = NewNode {
                mode: libc::S_IFCHR,
                umask: 0,
                rdev: 0,
            };
            let whiteout = state.make(caller, from.0, Body::Special, node)?;
            state.add_name(from.0, from.1, whiteout)?;
        }
        Ok(())
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        check_name(name)?;
        let mut state = self.lock();
        if state.node(ino)?.directory().is_ok() {
            return Err(FsError::NotPermitted);
        }
        if state.find(parent, name).is_ok() {
            return Err(FsError::Exists);
        }
        state.add_name(parent, name, ino)?;
        state.entry(ino)
    }

    fn open(&self, ino: Ino, flags: OpenFlags, privileges: Privileges) -> FsResult<Opened> {
        let mut state = self.lock();
        match state.node(ino)?.kind() {
            FileKind::Directory => return Err(FsError::IsADirectory),
            FileKind::Symlink => return Err(FsError::TooManySymlinks),
            _ => {}
        }
        if flags.has(libc::O_TRUNC) {
            state.truncate(ino, 0, privileges)?;
        }
        Ok(Opened {
            handle: state.open(ino, flags)?,
        })
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let mut state = self.lock();
        let node = NewNode {
            mode: libc::S_IFREG | (node.mode & PERMISSIONS),
            ..node
        };
        let entry = match state.find(parent, name) {
            Ok(_) if flags.has(libc::O_EXCL) => return Err(FsError::Exists),
            Ok(_) => return Err(FsError::Stale),
            Err(FsError::NotFound) => {
                state.make_named(caller, parent, name, Body::File(Content::default()), node)?
            }
            Err(error) => return Err(error),
        };
        let handle = state.open(entry.ino, flags)?;
        Ok((entry, Opened { handle }))
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        let mut state = self.lock();
        state.node(parent)?.directory()?;
        let node = NewNode {
            mode: libc::S_IFREG | (node.mode & PERMISSIONS),
            ..node
        };
        let ino = state.make(caller, parent, Body::File(Content::default()), node)?;
        let handle = state.open(ino, flags)?;
        Ok((state.entry(ino)?, Opened { handle }))
    }

    fn cache_still_valid(&self, _: Ino, _: Handle) -> bool {
        self.lock().vouches_for_caches
    }

    fn read(&self, ino: Ino, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let state = self.lock();
        if !state.opened(ino, handle)?.flags.reads() {
            return Err(FsError::BadHandle);
        }
        Ok(state.node(ino)?.content()?.read(offset, out))
    }

    fn write(&self, ino: Ino, handle: Handle, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        let mut state = self.lock();
        if !state.opened(ino, handle)?.flags.writes() {
            return Err(FsError::BadHandle);
        }
        let appends = mode.flags.has(libc::O_APPEND) && !mode.from_page_cache;
        let offset = if appends {
            state.node(ino)?.content()?.size()
        } else {
            offset
        };
        let written = state.write(ino, offset, data)?;
        let now = state.now();
        let node = state.node_mut(ino)?;
        node.lose_privileges(mode.privileges);
        node.touch(now);
        Ok(written)
    }

    fn flush(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.lock().opened(ino, handle).map(|_| ())
    }

    fn fsync(&self, ino: Ino, handle: Handle, _data_only: bool) -> FsResult<()> {
        self.lock().opened(ino, handle).map(|_| ())
    }

    fn release(&self, _ino: Ino, handle: Handle) {
        self.lock().close(handle);
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
        let mut state = self.lock();
        if !state.opened(ino, handle)?.flags.writes() {
            return Err(FsError::BadHandle);
        }
        let end = offset
            .checked_add(length)
            .filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(FsError::FileTooBig)?;
        if length == 0 {
            return Err(FsError::Invalid);
        }
        let now = state.now();
        let node = state.node_mut(ino)?;
        fallocate(node.content_mut()?, mode, offset, length, end)?;
        node.lose_privileges(privileges);
        node.touch(now);
        Ok(())
    }

    fn lseek(&self, ino: Ino, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        let state = self.lock();
        state.opened(ino, handle)?;
        let content = state.node(ino)?.content()?;
        let found = match from {
            SeekFrom::Data(offset) => content.next_data(offset),
            SeekFrom::Hole(offset) => content.next_hole(offset),
        };
        found.ok_or(FsError::NoSuchDevice)
    }

    fn copy_file_range(&self, copy: &CopyRange) -> FsResult<u64> {
        let mut state = self.lock();
        state.opened(copy.source.0, copy.source.1)?;
        state.opened(copy.target.0, copy.target.1)?;
        let overlaps = || copy.source_offset.abs_diff(copy.target_offset) < copy.length && copy.length > 0;
        if copy.source.0 == copy.target.0 && overlaps() {
            return Err(FsError::Invalid);
        }
        let source = state.node(copy.source.0)?.content()?;
        let length = copy.length.min(source.size().saturating_sub(copy.source_offset));
        let mut data = vec![0; to_usize(length)];
        source.read(copy.source_offset, &mut data);
        let written = if data.is_empty() {
            0
        } else {
            state.write(copy.target.0, copy.target_offset, &data)?
        };
        let now = state.now();
        let target = state.node_mut(copy.target.0)?;
        target.lose_privileges(copy.privileges);
        target.touch(now);
        Ok(to_u64(written))
    }

    fn opendir(&self, ino: Ino) -> FsResult<Handle> {
        let mut state = self.lock();
        state.node(ino)?.directory()?;
        state.open(ino, OpenFlags(libc::O_RDONLY | libc::O_DIRECTORY))
    }

    fn readdir(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let mut state = self.lock();
        state.opened(ino, handle)?;
        state.list(ino, offset, sink, false)
    }

    fn readdir_plus(&self, ino: Ino, handle: Handle, offset: u64, sink: &mut dyn DirSink) -> FsResult<()> {
        let mut state = self.lock();
        state.opened(ino, handle)?;
        state.list(ino, offset, sink, true)
    }

    fn fsyncdir(&self, ino: Ino, handle: Handle, _data_only: bool) -> FsResult<()> {
        self.lock().opened(ino, handle).map(|_| ())
    }

    fn releasedir(&self, _ino: Ino, handle: Handle) {
        self.lock().close(handle);
    }

    fn statfs(&self, ino: Ino) -> FsResult<StatFs> {
        let state = self.lock();
        state.node(ino)?;
        let capacity_chunks = match state.full {
            FsError::Quota => (1 << 40) / CHUNK,
            _ => state.capacity_chunks,
        };
        let free = capacity_chunks.saturating_sub(state.chunks_used());
        let chunk = u32::try_from(CHUNK).expect("a chunk is small");
        Ok(StatFs {
            blocks: capacity_chunks,
            blocks_free: free,
            blocks_available: free,
            files: state.node_count() + 1_000_000,
            files_free: 1_000_000,
            block_size: chunk,
            fragment_size: chunk,
            name_max: u32::try_from(NAME_MAX).expect("a name is short"),
        })
    }

    fn sync(&self) -> FsResult<()> {
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
        let mut state = self.lock();
        let now = state.now();
        let node = state.node_mut(ino)?;
        let exists = node.xattrs.contains_key(name);
        match flags.0 {
            libc::XATTR_CREATE if exists => return Err(FsError::Exists),
            libc::XATTR_REPLACE if !exists => return Err(FsError::NoData),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        if clear_setgid {
            node.mode &= !libc::S_ISGID;
        }
        node.ctime = now;
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.lock()
            .node(ino)?
            .xattrs
            .get(name)
            .cloned()
            .ok_or(FsError::NoData)
    }

    fn listxattr(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let state = self.lock();
        let names = state.node(ino)?.xattrs.keys();
        Ok(names.flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let mut state = self.lock();
        let now = state.now();
        let node = state.node_mut(ino)?;
        node.xattrs.remove(name).ok_or(FsError::NoData)?;
        node.ctime = now;
        Ok(())
    }
}

/// Allocates, punches or zeroes a range of a file; `end` is `offset + length`.
fn fallocate(content: &mut Content, mode: FallocateMode, offset: u64, length: u64, end: u64) -> FsResult<()> {
    let keeps_size = mode.0 & libc::FALLOC_FL_KEEP_SIZE != 0;
    let in_chunks = offset.is_multiple_of(CHUNK) && length.is_multiple_of(CHUNK);
    match mode.0 & !libc::FALLOC_FL_KEEP_SIZE {
        0 => content.allocate(offset, length),
        libc::FALLOC_FL_ZERO_RANGE => {
            content.punch(offset, length);
            content.allocate(offset, length);
        }
        libc::FALLOC_FL_PUNCH_HOLE if keeps_size => {
            content.punch(offset, length);
            return Ok(());
        }
        libc::FALLOC_FL_COLLAPSE_RANGE if in_chunks && !keeps_size && end < content.size() => {
            content.collapse(offset, length);
            return Ok(());
        }
        libc::FALLOC_FL_INSERT_RANGE if in_chunks && !keeps_size && offset < content.size() => {
            content.insert(offset, length);
            return Ok(());
        }
        libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE => return Err(FsError::Invalid),
        _ => return Err(FsError::NotSupported),
    }
    if !keeps_size && end > content.size() {
        content.set_size(end);
    }
    Ok(())
}
