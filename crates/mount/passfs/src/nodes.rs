//! Names: lookup, creation, removal and renaming.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use vfs::{
    Caller, DirSink, Entry, FileKind, FsError, FsResult, Handle, Ino, NewNode, OpenFlags, Opened, RenameFlags,
};

use crate::anchor::{Found, HostHandle};
use crate::attributes::{HostKey, host_rdev, kind_of, stat, stat_at_in_memory, stat_in_memory};
use crate::directory::HostName;
use crate::handles::{Open, OpenDirectory};
use crate::identity::errno;
use crate::inodes::{Inode, Interned};
use crate::sticky::Moves;
use crate::{ITSELF, PassFs, proc_path};

/// Maximum depth of a directory below the source for which `..` is found.
const DEPTH_MAX: usize = 4096;

/// Birth times come from a clock that lags by a tick, and are compared by the second.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

impl PassFs {
    /// The permission bits of a mode for the host. Under an id map every new file belongs to the daemon: its creator
    /// may not give it that user's or group's rights.
    fn permissions(&self, mode: u32) -> Mode {
        let kept = match self.config.id_map {
            Some(_) => 0o777,
            None => 0o7777,
        };
        Mode::from_bits_retain(mode & kept)
    }

    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let directory = self.inodes.get(parent)?;
        match name {
            b"." => self.entry_of(parent, directory.fd()?),
            b".." if parent == Ino::ROOT => self.entry_of(parent, directory.fd()?),
            b".." => self.find_parent(&directory),
            _ => self.find_in(directory.fd()?.as_fd(), name),
        }
    }

    /// Finds a plain name in an open directory: two system calls for a file that is referenced by handle.
    fn find_in(&self, directory: BorrowedFd<'_>, name: &[u8]) -> FsResult<Entry> {
        if self.anchors.always_by_handle()
            && let Some(entry) = self.find_without_descriptor(directory, name)?
        {
            return Ok(entry);
        }
        let fd = open_path(directory, name)?;
        let stat = self.stat_found(&fd)?;
        let key = HostKey::of(&stat);
        if !self.anchors.has_handles(key.device)
            && let Err(error) = self.descriptors.admit_held(&fd)
        {
            // An inode that is already referenced needs no further descriptor.
            let found = Found::of(fd.as_fd()).map(|found| found.handle);
            let known = self.inodes.count_held(key, found.as_ref());
            return known.map(|ino| self.entry_as(ino, &stat)).ok_or(error);
        }
        Ok(self.entry(fd, &stat).0)
    }

    /// Attributes of a file that a lookup has found, which may be the root of another mount, even of the mount that
    /// this file system serves. A request to that one would wait for this process itself.
    fn stat_found(&self, fd: &OwnedFd) -> FsResult<Statx> {
        let known = stat_in_memory(fd)?;
        let device = HostKey::of(&known).device;
        if device == self.own_device.load(Ordering::Relaxed) {
            return Err(FsError::TooManySymlinks);
        }
        if self.anchors.is_local(device) {
            return Ok(known);
        }
        stat(fd)
    }

    /// Finds a name without opening it; `None` if it needs a descriptor.
    ///
    /// Between two calls the name may change to another file, and that may have the number of one that was removed. The
    /// kernel would check the attributes of one and open the other, so both must belong to one inode. Either the inode
    /// was born before its handle was requested and has the handle's number afterwards, or its handle is still the same
    /// then.
    fn find_without_descriptor(&self, directory: BorrowedFd<'_>, name: &[u8]) -> FsResult<Option<Entry>> {
        let started = SystemTime::now();
        let Some(found) = Found::named(directory, name)? else {
            return Ok(None);
        };
        let stat = stat_at_in_memory(directory, name)?;
        let (key, kind) = (HostKey::of(&stat), kind_of(&stat));
        if !self.anchors.is_local(key.device) {
            return Ok(None);
        }
        if kind == FileKind::Directory {
            return match self.inodes.count_held(key, Some(&found.handle)) {
                Some(known) => self.entry_of_counted(known).map(Some),
                None => Ok(None),
            };
        }
        let is_number_s = found.handle.inode_number() == Some(key.inode);
        let is_same = || {
            let again = Found::named(directory, name)?;
            FsResult::Ok(again.is_some_and(|again| again.handle == found.handle))
        };
        if !is_number_s || !was_born_before(&stat, started) && !is_same()? {
            return Ok(None);
        }
        let Some(anchor) = self.anchors.of_found(found, key, kind) else {
            return Ok(None);
        };
        Ok(Some(self.intern(Inode::new(anchor, key, kind), None, &stat).0))
    }

    /// The parent of a directory, unless the directory was moved out of the source behind the mount.
    fn find_parent(&self, directory: &Inode) -> FsResult<Entry> {
        let found = open_parent(directory.fd()?.as_fd())?;
        let found_stat = self.stat_found(&found)?;
        let root = self.inodes.root().key();
        let mut key = HostKey::of(&found_stat);
        let mut above: Option<OwnedFd> = None;
        for _ in 0..DEPTH_MAX {
            if key == root {
                return Ok(self.entry(found, &found_stat).0);
            }
            let next = open_parent(above.as_ref().unwrap_or(&found).as_fd())?;
            let next_key = HostKey::of(&self.stat_found(&next)?);
            if next_key == key {
                break;
            }
            (key, above) = (next_key, Some(next));
        }
        Err(FsError::Stale)
    }

    /// Counts one more lookup of the inode behind `fd`.
    fn entry(&self, fd: OwnedFd, stat: &Statx) -> (Entry, Arc<Inode>) {
        let (key, kind) = (HostKey::of(stat), kind_of(stat));
        let found = self.anchors.handle_of(fd.as_fd(), key.device);
        let anchor = self.anchors.anchor(fd, kind, found.as_ref());
        let handle = found.as_ref().map(|found| &found.handle);
        self.intern(Inode::new(anchor, key, kind), handle, stat)
    }

    fn intern(&self, candidate: Inode, handle: Option<&HostHandle>, stat: &Statx) -> (Entry, Arc<Inode>) {
        let Interned { ino, inode } = self.inodes.intern(candidate, handle);
        (self.entry_as(ino, stat), inode)
    }

    /// Numbers are never reused, so they need no generation.
    fn entry_as(&self, ino: Ino, stat: &Statx) -> Entry {
        Entry {
            ino,
            generation: 0,
            attr: self.attr(stat),
        }
    }

    /// The entry of an inode whose lookup was already counted.
    fn entry_of_counted(&self, ino: Ino) -> FsResult<Entry> {
        let stat = self.inodes.get(ino).and_then(|inode| stat_in_memory(inode.fd()?));
        let stat = stat.inspect_err(|_| self.inodes.forget(ino, 1))?;
        Ok(self.entry_as(ino, &stat))
    }

    /// Counts one more lookup of a known inode.
    fn entry_of(&self, ino: Ino, fd: impl AsFd) -> FsResult<Entry> {
        let stat = stat(fd)?;
        self.inodes.count_again(ino)?;
        Ok(self.entry_as(ino, &stat))
    }

    pub(crate) fn make_node(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
    ) -> FsResult<Entry> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        let kind = match FileKind::of_mode(node.mode) {
            FileKind::Unknown => FileKind::Regular,
            kind => kind,
        };
        let kind = FileType::from_raw_mode(kind.mode_bits());
        let (fd, mode, rdev) = (directory.fd()?, self.permissions(node.mode), host_rdev(node.rdev));
        self.making_file(caller, node, fd.as_fd(), || {
            rustix::fs::mknodat(&fd, name, kind, mode, rdev)
        })?
        .map_err(errno)?;
        self.find_in(fd.as_fd(), name)
    }

    pub(crate) fn make_directory(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
    ) -> FsResult<Entry> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        let (fd, mode) = (directory.fd()?, self.permissions(node.mode));
        self.acting_as(caller, node.umask, || rustix::fs::mkdirat(&fd, name, mode))?
            .map_err(errno)?;
        self.find_in(fd.as_fd(), name)
    }

    pub(crate) fn make_symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Entry> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        let fd = directory.fd()?;
        self.acting_as(caller, 0, || rustix::fs::symlinkat(target, &fd, name))?
            .map_err(errno)?;
        self.find_in(fd.as_fd(), name)
    }

    pub(crate) fn remove(&self, caller: &Caller, parent: Ino, name: &[u8], flags: AtFlags) -> FsResult<()> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        let fd = directory.fd()?;
        self.taking_away(caller, &[(fd.as_fd(), name)], Moves::Within, || {
            rustix::fs::unlinkat(&fd, name, flags)
        })
    }

    pub(crate) fn move_name(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.check_writable()?;
        let source = self.inodes.get(from.0)?;
        let target = self.inodes.get(to.0)?;
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.0);
        let (source, target) = (source.fd()?, target.fd()?);
        let rename = || rustix::fs::renameat_with(&source, from.1, &target, to.1, flags);
        let places = [(source.as_fd(), from.1), (target.as_fd(), to.1)];
        let moves = match from.0 == to.0 {
            true => Moves::Within,
            false => Moves::Between,
        };
        self.taking_away(caller, &places, moves, || {
            if flags.contains(rustix::fs::RenameFlags::WHITEOUT) {
                let renamed = self.acting_as(caller, 0, rename);
                return renamed.unwrap_or_else(|error| Err(Errno::from_raw_os_error(error.errno())));
            }
            rename()
        })
    }

    pub(crate) fn add_name(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.check_writable()?;
        let inode = self.inodes.get(ino)?;
        let directory = self.inodes.get(parent)?;
        let (itself, by_descriptor) = ITSELF;
        let fd = inode.fd()?;
        let mut linked = rustix::fs::linkat(&fd, itself, directory.fd()?, name, by_descriptor);
        // The host's errors for a daemon without CAP_DAC_READ_SEARCH.
        if matches!(linked, Err(Errno::NOENT | Errno::PERM)) {
            let path = proc_path(fd.as_fd());
            linked = rustix::fs::linkat(
                rustix::fs::CWD,
                path,
                directory.fd()?,
                name,
                AtFlags::SYMLINK_FOLLOW,
            );
        }
        linked.map_err(errno)?;
        self.entry_of(ino, &fd)
    }

    /// Creates the file. An existing one is not opened: see [`vfs::FileSystem::create`].
    pub(crate) fn make_file(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        self.admit_open(&directory, flags)?;
        let fd = directory.fd()?;
        let new = host_flags(flags) | OFlags::CREATE | OFlags::EXCL;
        let made = || open_new(fd.as_fd(), name, new, self.permissions(node.mode));
        match self.making_file(caller, node, fd.as_fd(), made)? {
            Ok(file) => self.opened_new(file, flags),
            Err(Errno::EXIST) if !flags.has(libc::O_EXCL) => Err(FsError::Stale),
            Err(error) => Err(errno(error)),
        }
    }

    pub(crate) fn make_unnamed(
        &self,
        caller: &Caller,
        parent: Ino,
        node: NewNode,
        flags: OpenFlags,
    ) -> FsResult<(Entry, Opened)> {
        self.check_writable()?;
        let directory = self.inodes.get(parent)?;
        self.admit_open(&directory, flags)?;
        let fd = directory.fd()?;
        let mut new = host_flags(flags) | OFlags::TMPFILE;
        // Here O_EXCL means that the file never gets a name.
        new.set(OFlags::EXCL, flags.has(libc::O_EXCL));
        let made = || open_new(fd.as_fd(), b".", new, self.permissions(node.mode));
        let file = self.making_file(caller, node, fd.as_fd(), made)?.map_err(errno)?;
        self.opened_new(file, flags)
    }

    /// Entry and handle of a file that was just created. If the inode is referenced by a descriptor, it gets a separate
    /// one, since the file must not stay open for writing after its handle is released: an executable in that state
    /// can't be run.
    fn opened_new(&self, file: OwnedFd, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.descriptors.opened(&file);
        let stat = stat(&file)?;
        let (key, kind) = (HostKey::of(&stat), kind_of(&stat));
        let (entry, inode) = match self.anchors.of_fd(file.as_fd(), key, kind) {
            Some(anchor) => self.intern(Inode::new(anchor, key, kind), None, &stat),
            None => {
                let name = rustix::path::DecInt::from_fd(&file);
                let only_path = OFlags::PATH | OFlags::CLOEXEC;
                let path =
                    rustix::fs::openat(&self.proc_fd, name, only_path, Mode::empty()).map_err(errno)?;
                self.entry(path, &stat)
            }
        };
        let open = self.new_open_file(file, inode, flags);
        let open = open.inspect_err(|_| self.inodes.forget(entry.ino, 1))?;
        let handle = self.handles.insert(Open::File(Arc::new(open)));
        Ok((entry, Opened { handle }))
    }

    pub(crate) fn open_directory(&self, ino: Ino) -> FsResult<Handle> {
        let inode = self.inodes.get(ino)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(inode.fd()?, ".", flags, Mode::empty()).map_err(errno)?;
        self.descriptors.admit_held(&fd)?;
        let open = OpenDirectory {
            fd,
            inode,
            stream: Default::default(),
        };
        Ok(self.handles.insert(Open::Directory(Arc::new(open))))
    }

    pub(crate) fn list(
        &self,
        handle: Handle,
        offset: u64,
        sink: &mut dyn DirSink,
        with_entries: bool,
    ) -> FsResult<()> {
        let directory = self.handles.directory(handle)?;
        let mut stream = directory
            .stream
            .lock()
            .expect("no panic while a directory is listed");
        stream.seek(&directory.fd, offset)?;
        while let Some(found) = stream.peek(&directory.fd)? {
            if !sink.fits(found.name.len()) {
                break;
            }
            self.push_name(&directory, &found, sink, with_entries);
            stream.advance()?;
        }
        Ok(())
    }

    fn push_name(
        &self,
        directory: &OpenDirectory,
        found: &HostName<'_>,
        sink: &mut dyn DirSink,
        with_entry: bool,
    ) {
        let plain = found.name != b"." && found.name != b"..";
        let entry = (with_entry && plain)
            .then(|| self.find_in(directory.fd.as_fd(), found.name))
            .and_then(Result::ok);
        let listed_ino = || self.devices.shown_ino(directory.inode.key().device, found.inode);
        let name = vfs::DirEntry {
            name: found.name,
            shown_ino: entry
                .as_ref()
                .map_or_else(listed_ino, |entry| entry.attr.shown_ino),
            kind: entry.as_ref().map_or(found.kind, |entry| entry.attr.kind()),
            next_offset: found.next_offset,
        };
        sink.push(&name, entry.as_ref());
    }
}

/// True if the inode was born before `moment`. False if the host does not report birth times.
fn was_born_before(stat: &Statx, moment: SystemTime) -> bool {
    let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    let born = u64::try_from(stat.stx_btime.tv_sec).map(Duration::from_secs);
    is_told && born.is_ok_and(|born| UNIX_EPOCH + born + CLOCK_TOLERANCE < moment)
}

/// Opens the parent directory. In a private clone of the mount, a directory that left the source has none.
fn open_parent(directory: BorrowedFd<'_>) -> FsResult<OwnedFd> {
    open_path(directory, b"..").map_err(|error| match error {
        FsError::NotFound => FsError::Stale,
        error => error,
    })
}

fn open_path(directory: BorrowedFd<'_>, name: &[u8]) -> FsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty()).map_err(errno)
}

/// Opens a new file, without `O_NOATIME` if the host refuses it.
fn open_new(directory: BorrowedFd<'_>, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let noatime = flags.contains(OFlags::NOATIME);
    match rustix::fs::openat(directory, name, flags, mode) {
        Err(Errno::PERM) if noatime => rustix::fs::openat(directory, name, flags - OFlags::NOATIME, mode),
        other => other,
    }
}

/// The flags that reach the host; see the crate's description for the others.
pub(crate) fn host_flags(flags: OpenFlags) -> OFlags {
    let access = if flags.writes() {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    let mut host = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    host.set(OFlags::NOATIME, flags.has(libc::O_NOATIME));
    host
}
