//! A host directory as a [`vfs::FileSystem`].
//!
//! It translates each call of the contract into as few host system calls as possible, with the host's semantics. It is
//! not a buffer (see the crate `buffer`), a kernel protocol (see `fuse`) or a permission check (the caller's kernel
//! made it by mode and ACL).
//!
//! # References to names and files
//! Each inode that the caller knows is referenced by a host file handle or an `O_PATH` descriptor ([`inodes`]); no file
//! is ever addressed by a path from the root, so a rename in the source behind the mount can't redirect a call. Names
//! are resolved one component at a time without following symbolic links. Submounts inside the source are entered;
//! their inode numbers are shown with a device number mixed in ([`attributes`]).
//!
//! Root's daemon serves the source from its own clone of the mount ([`access_times`]): file systems mounted below the
//! source later are not visible. An ordinary user's daemon sees them, except the mount that it serves itself, which it
//! never enters: names that lead there are answered with [`vfs::FsError::TooManySymlinks`], without a request to that
//! mount, which would block for ever.
//!
//! Root's daemon references files by handle ([`anchor`]): a file removed behind the mount frees its space at once, and
//! calls on it are answered with [`vfs::FsError::Stale`]. An ordinary user's daemon references them by descriptor. That
//! needs a high limit: [`PassFs::open`] raises `RLIMIT_NOFILE` of the process as far as it may ([`descriptors`]). If
//! descriptors run short all the same, opening files fails with [`vfs::FsError::TooManyOpenFiles`], and once the
//! reserve is used other calls do too, until files are closed or inodes forgotten.
//!
//! # Opening files
//! A file is opened by handle, or through `/proc/self/fd`, which therefore must be mounted. The caller's flags are
//! handled as follows:
//! - `O_APPEND` is dropped: the mode of each write says whether it appends ([`vfs::WriteMode::appends`]), since pages
//!   from a cache above, which have fixed offsets, arrive through the same descriptors. It is kept for append-only
//!   files (`chattr +a`), which the host does not open for writing without it, and on hosts with a server appended data has a
//!   descriptor of its own that has it ([`write`]).
//! - `O_DIRECT` is dropped: the alignment of the caller's buffers is unknown here. Layers above write through. Long
//!   streams may bypass the host's page cache all the same ([`direct`]).
//! - `O_SYNC` and `O_DSYNC` are dropped for the same reason as `O_APPEND`: the mode of each write says what must be on
//!   the medium when it returns ([`vfs::WriteMode::durability`]), and is passed to the host with the data. Allocations
//!   and copies are synced afterwards.
//! - `O_NOATIME` is dropped if the host refuses it.
//! - `O_WRONLY` becomes `O_RDWR` if the host permits, since a page cache above must read to fill partial pages.
//!
//! # Ownership and rights
//! Creating calls run with the caller's file system ids and umask on the worker thread ([`identity`]). An ordinary
//! user's daemon creates everything as that user. With an [`IdMap`] everything belongs to the daemon, attributes show
//! the mapped ids, and `chmod` and `chown` succeed without effect, as in Android's sdcard service. Only an inode's
//! content, size, times and attributes `user.*` can then be changed: ACLs are neither shown nor set, other attributes
//! and the flags of chattr(1) are not set; setuid, setgid and capabilities are cleared when the content changes, and
//! files are not created with them.
//!
//! A call never has more rights than the kernel has checked on the inode that it reaches: [`PassFs`] does not open an
//! existing file when asked to create one, returns the attributes of the very inode that a name led to, and in sticky
//! directories, and when a directory is moved into another one, the host checks again ([`sticky`]).
//!
//! Changes of content clear setuid, setgid and file capabilities if the caller has no `CAP_FSETID`; for that the worker
//! thread drops its own during the call.
//!
//! # Limits
//! - [`vfs::FileSystem::sync`] reaches the file system of the source, but not submounts in it.
//! - A fork after [`PassFs::open`] is not supported: the open `/proc/self/fd` belongs to the process that opened it.
//! - A root daemon keeps `CAP_SYS_RESOURCE`: the host's quotas and reserved blocks don't limit its writes.
//! - Root's daemon reports a file as stale if it has no name and is not open here, even if the caller still holds an
//!   `O_PATH` descriptor of it.
//! - Special files are shown but never opened; the caller's kernel does that itself.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access_times;
mod anchor;
mod attributes;
mod counters;
mod data;
mod descriptors;
mod direct;
mod directory;
mod file_system;
mod handles;
mod identity;
mod inodes;
mod ioctl;
mod magic;
mod mounts;
mod nodes;
mod owner;
mod process;
mod setattr;
mod sticky;
mod validity;
mod watch;
mod write;
mod xattr;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use thiserror::Error;
use vfs::{Attr, Bypass, Caller, ChangeListener, FsError, FsResult, Ino, NewNode};

pub use access_times::{AccessTimeRule, AccessTimes};
pub use counters::PassCounters;
pub use magic::has_server;

use crate::access_times::OwnMount;
use crate::anchor::{Anchor, Anchors};
use crate::attributes::{Devices, HostKey};
use crate::counters::Tally;
use crate::descriptors::Descriptors;
use crate::direct::DirectRate;
use crate::handles::HandleTable;
use crate::identity::Creator;
use crate::inodes::{Inode, InodeTable};
use crate::process::Process;
use crate::watch::group::{self, Group};
use crate::watch::{Watch, WatchTally};

/// Options of a host directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassConfig {
    /// Shows these ids, and masks permissions, instead of the host's, as Android's sdcard service does.
    pub id_map: Option<IdMap>,
    /// Answers each changing call with [`FsError::ReadOnly`].
    pub read_only: bool,
    /// Starts writing to the medium, without waiting, each time a handle has written this many contiguous bytes.
    pub write_out_bytes: Option<u64>,
    /// Writes large aligned pieces with `O_DIRECT` once a handle has written this many contiguous bytes; no effect if
    /// the host refuses `O_DIRECT`.
    pub stream_direct_after_bytes: Option<u64>,
    /// Rate of direct writes, in bytes per second, below which streams return to the page cache: see `direct`. 0 keeps
    /// every stream direct.
    pub stream_direct_rate_min: u64,
    /// Offers each open file to the kernel for passthrough ([`vfs::FileSystem::backing_file`]).
    pub offer_backing: bool,
    /// Access time updates by the host.
    pub access_times: AccessTimes,
}

/// Owner, group and permissions to show for every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// Owner shown.
    pub uid: u32,
    /// Group shown.
    pub gid: u32,
    /// Permission bits hidden.
    pub umask: u32,
}

/// Errors of opening a host directory.
#[derive(Debug, Error)]
pub enum PassFsError {
    /// The source can't be opened.
    #[error("{}: can't be opened as a directory: {cause}", path.display())]
    Source {
        /// The requested directory.
        path: PathBuf,
        /// The host's error.
        cause: FsError,
    },
    /// `/proc/self/fd` can't be opened.
    #[error("/proc/self/fd can't be opened: {cause}; mount /proc, files are reopened through it")]
    NoProc {
        /// The host's error.
        cause: FsError,
    },
}

/// A host directory as a file system; see the crate's description.
#[derive(Debug)]
pub struct PassFs {
    config: PassConfig,
    inodes: Arc<InodeTable>,
    handles: HandleTable,
    descriptors: Descriptors,
    devices: Devices,
    tally: Tally,
    /// `/proc/self/fd`, to reopen an inode.
    proc_fd: OwnedFd,
    /// The source opened for reading: `syncfs` does not accept an `O_PATH` descriptor.
    source: Arc<OwnedFd>,
    anchors: Anchors,
    /// Files are opened with `O_NOATIME` if the host permits it.
    opens_noatime: bool,
    has_own_tree: bool,
    source_is_on_fuse: bool,
    /// The device of this file system's own mount, never to be entered; [`NO_DEVICE`] before the mount.
    own_device: AtomicU32,
    /// The source on the users' mount: keeps that mount busy, so that an unmount fails.
    _in_sight: OwnedFd,
    /// The host refused `O_DIRECT`.
    direct_refused: AtomicBool,
    direct_rate: DirectRate,
    /// Held while one write to an append-only file runs.
    appending: Mutex<()>,
    /// The watch of the source, once changes are reported.
    watch: OnceLock<Arc<Watch>>,
    watch_tally: Arc<WatchTally>,
    /// See [`vfs::FileSystem::lists_by_offset`].
    lists_by_offset: AtomicBool,
    path: PathBuf,
}

/// Maximum number of descriptors for inodes, even if the process may have more: each pins an inode in the host's
/// memory.
const INODES_MAX: u64 = 1 << 20;
/// Initial size of the descriptor table: in a multi-threaded process each doubling later waits for every processor.
const DESCRIPTORS_EXPECTED: i32 = 1 << 14;

impl PassFs {
    /// Opens the directory `source`, and raises the process's limit of open files.
    ///
    /// # Errors
    /// If `source` is not a readable directory, or `/proc` is not mounted.
    pub fn open(source: &Path, config: PassConfig) -> Result<Self, PassFsError> {
        let failed = |cause| PassFsError::Source {
            path: source.to_owned(),
            cause,
        };
        let no_proc = |error| PassFsError::NoProc {
            cause: identity::errno(error),
        };
        let descriptors = Descriptors::raise();

        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc_fd =
            rustix::fs::open("/proc/self/fd", directory | OFlags::PATH, Mode::empty()).map_err(no_proc)?;
        let in_sight = rustix::fs::open(source, directory | OFlags::PATH, Mode::empty())
            .map_err(|error| failed(identity::errno(error)))?;
        let own_mount = OwnMount::of(source, config.access_times);
        let tree = own_mount.as_ref().map_or(&in_sight, |mount| &mount.fd);
        let opened = rustix::fs::openat(tree, ".", directory | OFlags::RDONLY, Mode::empty())
            .map_err(|error| failed(identity::errno(error)))?;
        let root = rustix::fs::openat(&opened, ".", directory | OFlags::PATH, Mode::empty())
            .map_err(|error| failed(identity::errno(error)))?;
        let stat = attributes::stat(&root).map_err(failed)?;
        let key = HostKey::of(&stat);
        let source_fd = Arc::new(opened);
        let anchors = Anchors::new(
            Arc::clone(&source_fd),
            key.device,
            descriptors.max.min(INODES_MAX),
        );
        let keeps_numbers = anchors.is_local(key.device) && !key.is_on_anonymous_device();
        if !anchors.always_by_handle() {
            // Only to grow the table. If this fails, it grows on demand.
            drop(rustix::io::fcntl_dupfd_cloexec(&root, DESCRIPTORS_EXPECTED));
        }
        Ok(Self {
            devices: Devices::new(key.device),
            inodes: Arc::new(InodeTable::new(
                Inode::new(Anchor::Descriptor(root), key, attributes::kind_of(&stat)),
                keeps_numbers.then_some(key.device),
            )),
            watch: OnceLock::new(),
            watch_tally: Arc::default(),
            lists_by_offset: AtomicBool::new(false),
            path: source.to_owned(),
            handles: HandleTable::new(),
            descriptors,
            tally: Tally::default(),
            proc_fd,
            anchors,
            opens_noatime: !own_mount.as_ref().is_some_and(|mount| mount.keeps_times)
                && config.access_times.rule == Some(AccessTimeRule::Never),
            has_own_tree: own_mount.is_some(),
            source_is_on_fuse: magic::may_be_on(&source_fd, magic::FUSE),
            own_device: AtomicU32::new(NO_DEVICE),
            _in_sight: in_sight,
            config,
            direct_refused: AtomicBool::new(false),
            direct_rate: DirectRate::default(),
            appending: Mutex::new(()),
            source: source_fd,
        })
    }

    /// Counters and current numbers of inodes and handles.
    #[must_use]
    pub fn counters(&self) -> PassCounters {
        let mut counters = self.tally.snapshot(self.inodes.held(), self.handles.held());
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        counters.change_events = count(&self.watch_tally.events);
        counters.change_events_own = count(&self.watch_tally.own);
        counters.change_reports_repeated = count(&self.watch_tally.repeated);
        counters.change_queue_overflows = count(&self.watch_tally.overflows);
        counters
    }

    /// True if the source is served from a private clone of its mount, in which later mounts do not appear. Without it,
    /// a mount on a directory inside the source would lead back into itself.
    #[must_use]
    pub fn has_own_tree(&self) -> bool {
        self.has_own_tree
    }

    /// Starts the watch. The error is a reason for people.
    fn watch(&self, listener: Arc<dyn ChangeListener>) -> Result<Bypass, String> {
        let root = self.inodes.root().key();
        if !self.anchors.always_by_handle() {
            return Err("it needs root, and a local file system with lasting file handles".to_owned());
        }
        let found = anchor::Found::of(self.source.as_fd());
        if found.and_then(|found| found.handle.inode_number()) != Some(root.inode) {
            return Err("the file handles of the source's file system are of an unknown kind".to_owned());
        }
        if let Some(reason) = group::ignores_case(self.source.as_fd(), root.device) {
            return Err(reason);
        }
        let group = Group::watching(self.source.as_fd())?;
        let (table, tally) = (Arc::clone(&self.inodes), Arc::clone(&self.watch_tally));
        let (watch, keep) = Watch::start(group, table, tally, listener, root.device)?;
        if self.watch.set(Arc::new(watch)).is_err() {
            return Err("the source is watched already".to_owned());
        }
        self.devices.report_own();
        let is_whole = self.has_own_tree && !mounts::are_below(&self.path);
        let by_offset = is_whole && mounts::offsets_last(self.source.as_fd());
        self.lists_by_offset.store(by_offset, Ordering::Relaxed);
        Ok(Bypass::Reported(Box::new(keep)))
    }

    fn attr(&self, stat: &rustix::fs::Statx) -> Attr {
        attributes::attr_of(stat, &self.devices, self.config.id_map.as_ref())
    }

    fn check_writable(&self) -> FsResult<()> {
        if self.config.read_only {
            Err(FsError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Runs a creating call on behalf of `caller`.
    fn acting_as<T>(
        &self,
        caller: &Caller,
        umask: u32,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> FsResult<Result<T, Errno>> {
        let ids = self.config.id_map.is_none().then_some((caller.uid, caller.gid));
        identity::acting_as(
            Creator {
                ids,
                umask,
                checked_groups: None,
            },
            call,
        )
    }

    /// Creates a file of the mode of `node` in `folder` on behalf of `caller`.
    ///
    /// In a setgid folder the file gets the folder's group. Only its members may make an executable with setgid then;
    /// the kernel above has checked that by attributes of the folder that may be out of date, if at all. The host checks
    /// again.
    fn making_file<T>(
        &self,
        caller: &Caller,
        node: NewNode,
        folder: BorrowedFd<'_>,
        call: impl FnOnce() -> Result<T, Errno>,
    ) -> FsResult<Result<T, Errno>> {
        const EXECUTABLE_OF_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
        let asks = node.mode & EXECUTABLE_OF_GROUP == EXECUTABLE_OF_GROUP;
        if !asks || caller.uid == 0 || self.config.id_map.is_some() {
            return self.acting_as(caller, node.umask, call);
        }
        let process = Process::of(caller);
        let found = attributes::stat(folder)?;
        let is_able = process.as_ref().is_some_and(|process| {
            process.capabilities.contains(CapabilitySet::FSETID)
                && process.has_power_over((found.stx_uid, found.stx_gid))
        });
        let groups = process.as_ref().map_or(&[][..], |process| &process.groups);
        let creator = Creator {
            ids: Some((caller.uid, caller.gid)),
            umask: node.umask,
            checked_groups: (!is_able).then_some(groups),
        };
        identity::acting_as(creator, call)
    }

    /// The outcome of a call on the inode `ino` as [`Inode::answered`].
    fn answered<T>(&self, ino: Ino, call: impl FnOnce(&Arc<Inode>) -> FsResult<T>) -> FsResult<T> {
        let inode = self.inodes.get(ino)?;
        inode.answered(call(&inode))
    }

    /// Opens the inode again, for data.
    fn reopen(&self, inode: &Inode, flags: OFlags) -> FsResult<OwnedFd> {
        if let Some(opened) = inode.open_by_handle(flags) {
            return opened;
        }
        let fd = inode.fd()?;
        let name = rustix::path::DecInt::from_fd(&fd);
        rustix::fs::openat(&self.proc_fd, name, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(identity::errno)
    }
}

/// A number that no file system has.
const NO_DEVICE: u32 = 0;

/// The path to the inode behind `fd`, for calls that take no descriptor.
fn proc_path(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Arguments of a call on the descriptor itself: an empty path.
const ITSELF: (&str, AtFlags) = ("", AtFlags::EMPTY_PATH);

#[cfg(test)]
#[global_allocator]
static COUNTING: testkit::heap::CountingAllocator = testkit::heap::CountingAllocator;
