//! Dispatcher: the only place where a FUSE request becomes a [`FileSystem`] call.
//!
//! It knows no transport: it takes a decoded request ([`Request`], names and data) and returns the reply as bytes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vfs::{
    CopyRange, FallocateMode, FileKind, FileSystem, FsError, FsResult, Handle, Ino, NewNode, OpenFlags,
    Privileges, RenameFlags, SeekFrom, SetAttr, SetTime, Timestamp, XattrFlags,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{
    AttrOut, BatchForgetIn, CopyFileRangeIn, CopyFileRangeOut, EntryOut, FallocateIn, FlushIn, ForgetIn,
    ForgetOne, FsyncIn, GETATTR_FH, GetattrIn, GetxattrIn, GetxattrOut, LinkIn, LseekIn, LseekOut, MkdirIn,
    MknodIn, OpenOut, ReadIn, ReleaseIn, Rename2In, RenameIn, SETXATTR_ACL_KILL_SGID, SetattrIn, SetxattrIn,
    StatxIn, WriteOut, fattr, fopen, opcode,
};
use crate::abi::{FSYNC_FDATASYNC, StatfsOut};
use crate::caching::Caching;
use crate::config::DirectIo;
use crate::counters::Counters;
use crate::error_log::ErrorLog;
use crate::inode_states::InodeStates;
use crate::mount_sync::MountSync;
use crate::reply::{Listing, Trust, attr_out, entry_out, statfs_out, statx_out};
use crate::request::{Request, take_name};
use crate::write::SyncedByKernel;

/// Attribute of the root directory that this crate answers itself.
const STATS_XATTR: &[u8] = b"user.tidegate.stats";
/// The label of SELinux.
const LABEL_XATTR: &[u8] = b"security.selinux";

/// The answer to a request.
pub enum Answer {
    /// Nothing: the request has no reply.
    None,
    /// The bytes in the output buffer, or an error.
    Reply(FsResult<()>),
}

/// Serves requests of one mount; shared by its workers.
pub struct Dispatcher {
    pub file_system: Arc<dyn FileSystem>,
    pub caching: Arc<Caching>,
    pub direct_io: DirectIo,
    /// Refuse OPEN with ENOSYS: the kernel opens files by itself, and its requests have no handles.
    pub opens_by_kernel: bool,
    /// The kernel's writeback cache is on.
    pub writeback: bool,
    /// Changes that the mount options require to be synced at once.
    pub mount_sync: MountSync,
    pub synced_by_kernel: SyncedByKernel,
    /// The kernel has checked the permissions of callers that set attributes by ioctl, see [`crate::ioctl`].
    pub kernel_checks_ioctls: bool,
    pub inodes: InodeStates,
    pub counters: Counters,
    pub errors: ErrorLog,
    /// Invalidates the kernel's cached attributes of an inode.
    pub forget_attributes: Box<dyn Fn(Ino) + Send + Sync>,
    pub stats_document: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// Number of requests being served; at [`Dispatcher::CLOSED`] and above, no further one is admitted.
    pub in_flight: AtomicUsize,
}

/// Guard of a request being served; a panic releases it too.
pub struct InFlight<'a>(&'a Dispatcher);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Dispatcher {
    /// Added to `in_flight` when the session ends.
    pub const CLOSED: usize = 1 << (usize::BITS - 1);

    /// Admits a request, which counts as in flight while the guard lives; `None` if the session accepts no more.
    pub fn enter(&self) -> Option<InFlight<'_>> {
        let before = self.in_flight.fetch_add(1, Ordering::AcqRel);
        let entered = InFlight(self);
        (before < Self::CLOSED).then_some(entered)
    }

    /// Serves READ into `out` (already limited to the transport's capacity) and returns the bytes read.
    pub fn read(&self, request: &Request, out: &mut [u8]) -> FsResult<usize> {
        let result = request.fixed::<ReadIn>().and_then(|args| {
            let wanted = usize_of(args.size).min(out.len());
            let ino = request.ino();
            self.on_file(ino, Handle(args.fh), |handle| {
                self.file_system
                    .read(ino, handle, args.offset, &mut out[..wanted])
            })
        });
        self.counters.operation(opcode::READ, result.is_err());
        match result {
            Ok(bytes) => self.counters.read(bytes),
            Err(error) => self.note_error(request, error),
        }
        result
    }

    /// Serves any other request: `input` holds names and data, the reply is appended to the empty `out`.
    pub fn serve(&self, request: &Request, input: &[u8], out: &mut Vec<u8>) -> Answer {
        let number = request.header.opcode;
        if matches!(number, opcode::FORGET | opcode::BATCH_FORGET) {
            self.forget(request, input);
            self.counters.operation(number, false);
            return Answer::None;
        }
        if number == opcode::INTERRUPT {
            // No file system call is interruptible: the interrupted request is answered when it completes.
            return Answer::None;
        }
        let result = self
            .answer(request, input, out)
            .map_err(|error| self.seen_by_caller(error));
        self.counters.operation(number, result.is_err());
        if let Err(error) = result {
            out.clear();
            self.note_error(request, error);
        }
        Answer::Reply(result)
    }

    fn note_error(&self, request: &Request, error: FsError) {
        let (number, ino) = (request.header.opcode, request.ino());
        // These structures begin with the handle.
        let handle = match number {
            opcode::READ
            | opcode::WRITE
            | opcode::FLUSH
            | opcode::FSYNC
            | opcode::FALLOCATE
            | opcode::LSEEK
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64
                if !self.opens_by_kernel =>
            {
                request.fixed::<u64>().ok().map(Handle)
            }
            _ => None,
        };
        let path = || self.file_system.path_of(ino, handle);
        self.errors.note(opcode::name(number), error, (ino, handle), path);
    }

    /// Turns `EMFILE` into `ENFILE`: not the caller but this process, which serves all callers, has run out of
    /// descriptors.
    fn seen_by_caller(&self, error: FsError) -> FsError {
        if error != FsError::TooManyOpenFiles {
            return error;
        }
        self.counters.descriptor_shortage();
        FsError::TooManyOpenFilesInSystem
    }

    fn answer(&self, request: &Request, input: &[u8], out: &mut Vec<u8>) -> FsResult<()> {
        let fs = &self.file_system;
        let ino = request.ino();
        let mut input = input;
        if self.opens_by_kernel {
            refused_without_opens(request.header.opcode)?;
        }
        match request.header.opcode {
            opcode::GETATTR => {
                let args: GetattrIn = request.fixed()?;
                let handle = self.handle_if(args.getattr_flags & GETATTR_FH != 0, args.fh);
                let attr = fs.getattr(ino, handle)?;
                put(out, &attr_out(&attr, self.trust_in(ino, &attr)));
            }
            opcode::STATX => {
                let args: StatxIn = request.fixed()?;
                let handle = self.handle_if(args.getattr_flags & GETATTR_FH != 0, args.fh);
                let attr = fs.getattr(ino, handle)?;
                put(out, &statx_out(&attr, self.trust_in(ino, &attr)));
            }
            opcode::SETATTR => put(out, &self.setattr(request)?),
            opcode::WRITE => put(out, &self.write(request, input)?),
            opcode::OPEN => self.open(request, out)?,
            opcode::RELEASE => {
                let args: ReleaseIn = request.fixed()?;
                self.release(ino, Handle(args.fh));
            }
            opcode::FLUSH => {
                let args: FlushIn = request.fixed()?;
                fs.flush(ino, Handle(args.fh))?;
            }
            opcode::FSYNC => {
                let args: FsyncIn = request.fixed()?;
                let data_only = args.fsync_flags & FSYNC_FDATASYNC != 0;
                self.on_file(ino, Handle(args.fh), |handle| fs.fsync(ino, handle, data_only))?;
            }
            opcode::CREATE | opcode::TMPFILE => self.create(request, input, out)?,
            opcode::LOOKUP | opcode::MKNOD | opcode::MKDIR | opcode::SYMLINK | opcode::LINK => {
                let entry = match self.entry(request, &mut input) {
                    Err(FsError::NotFound) if request.header.opcode == opcode::LOOKUP => {
                        return self.absent(ino, out);
                    }
                    other => other?,
                };
                if request.header.opcode != opcode::LOOKUP {
                    self.sync_names(ino).inspect_err(|_| fs.forget(entry.ino, 1))?;
                }
                let mut trust = self.trust_in_entry(self.entry_lifetime(ino), &entry);
                if request.header.opcode == opcode::LINK {
                    trust.attr = trust.attr.min(self.trust_in_change(entry.ino, &entry.attr).attr);
                }
                put(out, &entry_out(&entry, trust));
            }
            opcode::UNLINK => {
                fs.unlink(&request.caller(), ino, take_name(&mut input)?)?;
                self.sync_names(ino)?;
            }
            opcode::RMDIR => {
                fs.rmdir(&request.caller(), ino, take_name(&mut input)?)?;
                self.sync_names(ino)?;
            }
            opcode::RENAME | opcode::RENAME2 => self.rename(request, input)?,
            opcode::READLINK => out.extend_from_slice(&fs.readlink(ino)?),
            opcode::OPENDIR => put(out, &self.open_directory(ino)?),
            opcode::READDIR | opcode::READDIRPLUS => self.list(request, out)?,
            opcode::RELEASEDIR => {
                let args: ReleaseIn = request.fixed()?;
                fs.releasedir(ino, Handle(args.fh));
            }
            opcode::FSYNCDIR => {
                let args: FsyncIn = request.fixed()?;
                let data_only = args.fsync_flags & FSYNC_FDATASYNC != 0;
                self.on_directory(ino, Handle(args.fh), |handle| fs.fsyncdir(ino, handle, data_only))?;
            }
            opcode::STATFS => put::<StatfsOut>(out, &statfs_out(&fs.statfs(ino)?)),
            opcode::DESTROY => {}
            opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
                self.xattr(request, input, out)?;
            }
            opcode::FALLOCATE => {
                let args: FallocateIn = request.fixed()?;
                let mode = FallocateMode(args.mode.cast_signed());
                let privileges = privileges_if(lacks_fsetid(request), request);
                fs.fallocate(ino, Handle(args.fh), mode, args.offset, args.length, privileges)?;
                self.privileges_killed(ino, privileges);
            }
            opcode::LSEEK => {
                let args: LseekIn = request.fixed()?;
                let from = match args.whence.cast_signed() {
                    libc::SEEK_DATA => SeekFrom::Data(args.offset),
                    libc::SEEK_HOLE => SeekFrom::Hole(args.offset),
                    _ => return Err(FsError::Invalid),
                };
                put(
                    out,
                    &LseekOut {
                        offset: self.on_file(ino, Handle(args.fh), |handle| fs.lseek(ino, handle, from))?,
                    },
                );
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => self.copy(request, out)?,
            opcode::IOCTL => self.ioctl(request, input, out)?,
            // The kernel handles locks, ACCESS, BMAP and POLL itself once it has received this error.
            _ => return Err(FsError::NoSuchCall),
        }
        Ok(())
    }

    /// Lifetime of `attr`, which is about to be sent.
    fn trust_in(&self, ino: Ino, attr: &vfs::Attr) -> Trust {
        let sharing = self.inodes.tell(ino, attr);
        Trust {
            attr: self.caching.attr(attr, sharing),
            entry: Duration::ZERO,
        }
    }

    /// As [`Dispatcher::trust_in`], for a reply whose attributes the kernel takes over unconditionally.
    fn trust_in_change(&self, ino: Ino, attr: &vfs::Attr) -> Trust {
        let sharing = self.inodes.tell(ino, attr);
        Trust {
            attr: self.caching.attr_of_change(sharing),
            entry: Duration::ZERO,
        }
    }

    /// Lifetime of an entry in a directory whose names have the lifetime `name`.
    fn trust_in_entry(&self, name: Duration, entry: &vfs::Entry) -> Trust {
        Trust {
            entry: self.trust_in_name(name, entry),
            ..self.trust_in(entry.ino, &entry.attr)
        }
    }

    /// As [`Dispatcher::trust_in_entry`], for a file that the request creates and opens.
    pub(crate) fn trust_in_created(&self, name: Duration, entry: &vfs::Entry) -> Trust {
        let sharing = self.inodes.tell(entry.ino, &entry.attr);
        Trust {
            entry: self.trust_in_name(name, entry),
            attr: self.caching.attr_of_created(&entry.attr, sharing),
        }
    }

    fn trust_in_name(&self, name: Duration, entry: &vfs::Entry) -> Duration {
        let is_elsewhere = self.caching.is_told() && !entry.attr.is_reported;
        match is_elsewhere {
            // The root of another mount, for example.
            true => self.caching.timed_entry(),
            false => name,
        }
    }

    /// Lifetime of names in `directory`.
    pub(crate) fn entry_lifetime(&self, directory: Ino) -> Duration {
        self.caching.entry(&*self.file_system, directory)
    }

    /// The reply to a lookup of a name that does not exist.
    fn absent(&self, directory: Ino, out: &mut Vec<u8>) -> FsResult<()> {
        let Some(lifetime) = self.caching.absent(&*self.file_system, directory) else {
            return Err(FsError::NotFound);
        };
        // A zero node number, by default.
        let reply = EntryOut {
            entry_valid: lifetime.as_secs(),
            entry_valid_nsec: lifetime.subsec_nanos(),
            ..EntryOut::default()
        };
        put(out, &reply);
        Ok(())
    }

    /// An extended attribute was set: an ACL changes the mode as well, and all change times.
    fn attributes_changed(&self, ino: Ino) {
        if self.caching.is_told() {
            (self.forget_attributes)(ino);
        }
    }

    fn open_directory(&self, ino: Ino) -> FsResult<OpenOut> {
        if self.caching.lists_without_handles() {
            return Err(FsError::NoSuchCall);
        }
        let handle = self.file_system.opendir(ino)?;
        let open_flags = match self.caching.keeps_listing(&*self.file_system, ino) {
            true => fopen::CACHE_DIR | fopen::KEEP_CACHE,
            false => 0,
        };
        Ok(OpenOut {
            fh: handle.0,
            open_flags,
            backing_id: 0,
        })
    }

    /// Makes a call on an open directory. Without handles it is opened for this call only.
    pub(crate) fn on_directory<T>(
        &self,
        ino: Ino,
        handle: Handle,
        call: impl FnOnce(Handle) -> FsResult<T>,
    ) -> FsResult<T> {
        if !self.caching.lists_without_handles() {
            return call(handle);
        }
        let handle = self.file_system.opendir(ino)?;
        let result = call(handle);
        self.file_system.releasedir(ino, handle);
        result
    }

    /// Makes a call on an open file. Without handles it is opened for this call only.
    pub(crate) fn on_file<T>(
        &self,
        ino: Ino,
        handle: Handle,
        call: impl FnOnce(Handle) -> FsResult<T>,
    ) -> FsResult<T> {
        if !self.opens_by_kernel {
            return call(handle);
        }
        let opened = self
            .file_system
            .open(ino, OpenFlags(libc::O_RDONLY), Privileges::Keep)?;
        let result = call(opened.handle);
        self.file_system.release(ino, opened.handle);
        result
    }

    /// The handle of a request that may have one.
    fn handle_if(&self, has_handle: bool, number: u64) -> Option<Handle> {
        (has_handle && !self.opens_by_kernel).then_some(Handle(number))
    }

    /// Called when the file's content was changed on behalf of a caller whose changes clear setuid and setgid.
    pub(crate) fn privileges_killed(&self, ino: Ino, privileges: Privileges) {
        if privileges.are_killed() && self.inodes.take_told_privileged(ino) {
            (self.forget_attributes)(ino);
        }
    }

    fn forget(&self, request: &Request, input: &[u8]) {
        if request.header.opcode == opcode::FORGET {
            if let Ok(args) = request.fixed::<ForgetIn>() {
                self.forget_one(request.ino(), args.nlookup);
            }
            return;
        }
        let Ok(args) = request.fixed::<BatchForgetIn>() else {
            return;
        };
        let mut rest = input;
        for _ in 0..args.count {
            let Ok((one, tail)) = ForgetOne::read_from_prefix(rest) else {
                return;
            };
            self.forget_one(Ino(one.nodeid), one.nlookup);
            rest = tail;
        }
    }

    fn forget_one(&self, ino: Ino, count: u64) {
        self.file_system.forget(ino, count);
        // Other lookups may be counted, or a concurrent one may have counted the inode again: then the records stay.
        if self.inodes.is_recorded(ino) && self.file_system.getattr(ino, None).is_err() {
            self.inodes.forget(ino);
        }
    }

    fn entry(&self, request: &Request, input: &mut &[u8]) -> FsResult<vfs::Entry> {
        let fs = &self.file_system;
        let caller = request.caller();
        match request.header.opcode {
            opcode::LOOKUP => fs.lookup(request.ino(), take_name(input)?),
            opcode::MKNOD => {
                let args: MknodIn = request.fixed()?;
                let node = NewNode {
                    mode: args.mode,
                    umask: args.umask,
                    rdev: args.rdev,
                };
                fs.mknod(&caller, request.ino(), take_name(input)?, node)
            }
            opcode::MKDIR => {
                let args: MkdirIn = request.fixed()?;
                let node = NewNode {
                    mode: args.mode | libc::S_IFDIR,
                    umask: args.umask,
                    rdev: 0,
                };
                fs.mkdir(&caller, request.ino(), take_name(input)?, node)
            }
            opcode::SYMLINK => {
                let name = take_name(input)?;
                fs.symlink(&caller, request.ino(), name, take_name(input)?)
            }
            opcode::LINK => {
                let args: LinkIn = request.fixed()?;
                fs.link(Ino(args.oldnodeid), request.ino(), take_name(input)?)
            }
            other => unreachable!("{} makes no entry", opcode::name(other)),
        }
    }

    fn setattr(&self, request: &Request) -> FsResult<AttrOut> {
        let args: SetattrIn = request.fixed()?;
        let when = |bit: u32, now: u32, seconds: u64, nanoseconds: u32| {
            (args.valid & bit != 0).then(|| {
                if args.valid & now != 0 {
                    SetTime::Now
                } else {
                    SetTime::At(Timestamp {
                        seconds: seconds.cast_signed(),
                        nanoseconds,
                    })
                }
            })
        };
        let change = SetAttr {
            mode: (args.valid & fattr::MODE != 0).then_some(args.mode),
            uid: (args.valid & fattr::UID != 0).then_some(args.uid),
            gid: (args.valid & fattr::GID != 0).then_some(args.gid),
            size: (args.valid & fattr::SIZE != 0).then_some(args.size),
            atime: when(fattr::ATIME, fattr::ATIME_NOW, args.atime, args.atimensec),
            mtime: when(fattr::MTIME, fattr::MTIME_NOW, args.mtime, args.mtimensec),
            privileges: privileges_if(args.valid & fattr::KILL_SUIDGID != 0, request),
            owner: (args.valid & (fattr::MODE | fattr::UID | fattr::GID) != 0).then(|| request.caller()),
        };
        let handle = (args.valid & fattr::FH != 0).then_some(Handle(args.fh));
        let attr = if args.valid == 0 {
            self.drop_privilege_bits(request)?
        } else {
            match self.file_system.setattr(request.ino(), handle, &change) {
                Err(FsError::NotPermitted) if is_time_of_writeback(args.valid) => {
                    self.file_system.getattr(request.ino(), handle)?
                }
                // The file has neither a name nor an open descriptor, so its times are unobservable, and the kernel
                // only checks for success.
                Err(FsError::Stale) if is_time_of_writeback(args.valid) => return Ok(AttrOut::default()),
                other => self.shown_anew(request.ino(), other)?,
            }
        };
        if change.size.is_some() {
            self.sync_change(request.ino())?;
        }
        Ok(attr_out(&attr, self.trust_in_change(request.ino(), &attr)))
    }

    /// The result of a change that was granted by attributes that the kernel has cached: if they were out of date, it
    /// drops them.
    fn shown_anew<T>(&self, ino: Ino, result: FsResult<T>) -> FsResult<T> {
        if matches!(result, Err(FsError::Stale)) {
            (self.forget_attributes)(ino);
        }
        result
    }

    /// A SETATTR without attributes: under HANDLE_KILLPRIV_V2 the kernel sends it before a write that it does itself
    /// (passthrough) to a file with setuid or setgid. The caller has no `CAP_FSETID`, and the bits must be cleared
    /// before the data is written.
    ///
    /// A `chown` that changes nothing sends the same request, by any user and without a check: it clears the bits of no
    /// other user's file, and of no folder. Writes that are not the kernel's own clear the bits themselves.
    fn drop_privilege_bits(&self, request: &Request) -> FsResult<vfs::Attr> {
        let ino = request.ino();
        let attr = self.file_system.getattr(ino, None)?;
        let privileges = privileges_if(true, request);
        let mode = privileges.left_of(attr.mode, attr.gid);
        let uid = request.header.uid;
        let may_clear = [0, attr.uid].contains(&uid) || self.inodes.may_be_written(ino);
        if mode == attr.mode || attr.kind() != FileKind::Regular || !may_clear {
            return Ok(attr);
        }
        let change = SetAttr {
            mode: Some(mode & 0o7777),
            privileges,
            ..SetAttr::default()
        };
        self.file_system.setattr(ino, None, &change)
    }

    fn rename(&self, request: &Request, input: &[u8]) -> FsResult<()> {
        let (target, flags) = if request.header.opcode == opcode::RENAME2 {
            let args: Rename2In = request.fixed()?;
            (args.newdir, args.flags)
        } else {
            let args: RenameIn = request.fixed()?;
            (args.newdir, 0)
        };
        let mut input = input;
        let from = take_name(&mut input)?;
        let to = take_name(&mut input)?;
        let flags = RenameFlags(flags);
        let (source, target) = (request.ino(), Ino(target));
        self.file_system
            .rename(&request.caller(), (source, from), (target, to), flags)?;
        // In this order a power cut between the two leaves both names rather than none.
        self.sync_names(target)?;
        match source == target {
            true => Ok(()),
            false => self.sync_names(source),
        }
    }

    fn list(&self, request: &Request, out: &mut Vec<u8>) -> FsResult<()> {
        let args: ReadIn = request.fixed()?;
        let with_entries = request.header.opcode == opcode::READDIRPLUS;
        let name = match with_entries {
            true => self.entry_lifetime(request.ino()),
            false => Duration::ZERO,
        };
        let trust = |entry: &vfs::Entry| self.trust_in_entry(name, entry);
        let mut listing = Listing::new(
            out,
            usize_of(args.size),
            if with_entries { Some(&trust) } else { None },
        );
        let (ino, handle) = (request.ino(), Handle(args.fh));
        self.on_directory(ino, handle, |handle| match with_entries {
            true => self
                .file_system
                .readdir_plus(ino, handle, args.offset, &mut listing),
            false => self.file_system.readdir(ino, handle, args.offset, &mut listing),
        })
    }

    fn xattr(&self, request: &Request, input: &[u8], out: &mut Vec<u8>) -> FsResult<()> {
        let (fs, ino) = (&self.file_system, request.ino());
        let mut input = input;
        let value = match request.header.opcode {
            opcode::SETXATTR => {
                let args: SetxattrIn = request.fixed()?;
                let name = take_name(&mut input)?;
                let value = input.get(..usize_of(args.size)).ok_or(FsError::Invalid)?;
                let clear_setgid = args.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0;
                let flags = XattrFlags(args.flags.cast_signed());
                if is_acl(name) {
                    let changed = fs.set_acl(&request.caller(), ino, name, Some(value), flags, clear_setgid);
                    self.shown_anew(ino, changed)?;
                } else {
                    check_unchecked(request, name)?;
                    fs.setxattr(ino, name, value, flags, clear_setgid)?;
                }
                self.attributes_changed(ino);
                return self.sync_change(ino);
            }
            opcode::REMOVEXATTR => {
                let name = take_name(&mut input)?;
                if is_acl(name) {
                    let changed = fs.set_acl(&request.caller(), ino, name, None, XattrFlags(0), false);
                    self.shown_anew(ino, changed)?;
                } else {
                    check_unchecked(request, name)?;
                    fs.removexattr(ino, name)?;
                }
                self.attributes_changed(ino);
                return self.sync_change(ino);
            }
            opcode::GETXATTR => {
                let name = take_name(&mut input)?;
                if ino == Ino::ROOT && name == STATS_XATTR {
                    // The document names the source, its files and the daemon.
                    let own = rustix::process::geteuid().as_raw();
                    if ![0, own].contains(&request.header.uid) {
                        return Err(FsError::AccessDenied);
                    }
                    (self.stats_document)()
                } else {
                    fs.getxattr(ino, name)
                        .map_err(|error| self.without_label(name, error))?
                }
            }
            _ if request.header.uid == 0 => fs.listxattr(ino)?,
            _ => without_trusted(&fs.listxattr(ino)?),
        };
        let args: GetxattrIn = request.fixed()?;
        let bytes = u32::try_from(value.len()).map_err(|_| FsError::OutOfRange)?;
        if args.size == 0 {
            put(
                out,
                &GetxattrOut {
                    size: bytes,
                    padding: 0,
                },
            );
        } else if bytes > args.size {
            return Err(FsError::OutOfRange);
        } else {
            out.extend_from_slice(&value);
        }
        Ok(())
    }

    /// The answer about an attribute that a file does not have.
    ///
    /// The kernel caches no extended attributes, and ls(1) asks for the label of each file until a file system says that
    /// it has none. A kernel without SELinux gives no labels, so that a tree whose root has none is such a file system.
    fn without_label(&self, name: &[u8], error: FsError) -> FsError {
        let unlabelled = error == FsError::NoData
            && name == LABEL_XATTR
            && !Path::new("/sys/fs/selinux").exists()
            && self.file_system.getxattr(Ino::ROOT, name) == Err(FsError::NoData);
        if unlabelled { FsError::NotSupported } else { error }
    }

    fn copy(&self, request: &Request, out: &mut Vec<u8>) -> FsResult<()> {
        let args: CopyFileRangeIn = request.fixed()?;
        if args.flags != 0 {
            return Err(FsError::Invalid);
        }
        let wide = request.header.opcode == opcode::COPY_FILE_RANGE_64;
        // The older reply has a 32-bit count: a longer copy is answered short, and the kernel asks again.
        let length = if wide {
            args.len
        } else {
            args.len.min(u64::from(!0xfff_u32))
        };
        let privileges = privileges_if(lacks_fsetid(request), request);
        let copied = self.file_system.copy_file_range(&CopyRange {
            source: (request.ino(), Handle(args.fh_in)),
            source_offset: args.off_in,
            target: (Ino(args.nodeid_out), Handle(args.fh_out)),
            target_offset: args.off_out,
            length,
            privileges,
        })?;
        self.privileges_killed(Ino(args.nodeid_out), privileges);
        self.sync_change(Ino(args.nodeid_out))?;
        if wide {
            put(out, &CopyFileRangeOut { bytes_copied: copied });
        } else {
            put(
                out,
                &WriteOut {
                    size: u32::try_from(copied).map_err(|_| FsError::Io)?,
                    padding: 0,
                },
            );
        }
        Ok(())
    }
}

/// Requests that do not reach a file system whose files are opened by the kernel: opens, and everything that changes it.
/// The mount is read-only, which a remount may undo.
const fn refused_without_opens(number: u32) -> FsResult<()> {
    match number {
        opcode::OPEN | opcode::FLUSH | opcode::RELEASE => Err(FsError::NoSuchCall),
        opcode::SETATTR
        | opcode::WRITE
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::SYMLINK
        | opcode::LINK
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::SETXATTR
        | opcode::REMOVEXATTR
        | opcode::FALLOCATE
        | opcode::COPY_FILE_RANGE
        | opcode::COPY_FILE_RANGE_64 => Err(FsError::ReadOnly),
        _ => Ok(()),
    }
}

fn is_acl(name: &[u8]) -> bool {
    name.starts_with(b"system.posix_acl_")
}

/// Refuses changes of `system.` attributes other than ACLs. The kernel leaves their checks to the file system, and a
/// file system below sees the rights of this process: `system.advise` of F2FS, `system.nfs4_acl`, `system.dos_attrib`.
fn check_unchecked(request: &Request, name: &[u8]) -> FsResult<()> {
    let own = rustix::process::geteuid().as_raw();
    match name.starts_with(b"system.") && ![0, own].contains(&request.header.uid) {
        true => Err(FsError::NotSupported),
        false => Ok(()),
    }
}

/// Removes `trusted.` names from a list of attributes: only the superuser may see them, and on a local file system the
/// kernel leaves them out.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    let shown = names.split_inclusive(|byte| *byte == 0);
    let shown = shown.filter(|name| !name.starts_with(b"trusted."));
    shown.flatten().copied().collect()
}

/// With the writeback cache the kernel sends the times that it set itself, at fsync and when it drops the inode. No
/// program requested that, so the refusal of a file system (append-only file, file of another user) must not fail an
/// fsync: the times set by the daemon's own writes remain. A `utimensat` that sets only the modification time looks the
/// same.
const fn is_time_of_writeback(valid: u32) -> bool {
    valid & !fattr::FH == fattr::MTIME | fattr::CTIME
}

/// Whether `fallocate` and `copy_file_range` clear setuid, setgid and capability bits. The protocol does not say for
/// these two; a caller other than root is assumed to lack `CAP_FSETID`.
const fn lacks_fsetid(request: &Request) -> bool {
    request.header.uid != 0
}

/// Privileges with the caller's file system group, which the header names.
pub(crate) const fn privileges_if(killed: bool, request: &Request) -> Privileges {
    if killed {
        Privileges::Kill {
            gid: request.header.gid,
        }
    } else {
        Privileges::Keep
    }
}

pub(crate) fn usize_of(value: u32) -> usize {
    usize::try_from(value).expect("usize has at least 32 bits on every target with FUSE")
}

pub(crate) fn put<T: IntoBytes + zerocopy::Immutable>(out: &mut Vec<u8>, value: &T) {
    out.extend_from_slice(value.as_bytes());
}
