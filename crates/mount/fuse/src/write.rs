//! WRITE: passes a request's data and mode down, and adapts to the kernel's handling of the reply.
//!
//! The mode is passed down unchanged: the file system is responsible for durability, appending and direct I/O
//! ([`vfs::WriteMode`]). There are three exceptions, all due to the kernel's page cache:
//! - The kernel ignores the count in the reply to a page write-back, so such a write is complete or fails.
//! - With the writeback cache the kernel's pages may end behind the end of file that the file system knows. Data
//!   appended behind them goes to their offset, not to the file system's end of file.
//! - The kernel ends a synchronous write through the page cache with an FSYNC of its own, so the WRITE before it need
//!   not be synced as well: see [`SyncedByKernel`].

use std::collections::HashSet;
use std::sync::{PoisonError, RwLock};

use vfs::{Durability, FsError, FsResult, Handle, OpenFlags, WriteMode};

use crate::abi::{WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut};
use crate::config::DirectIo;
use crate::dispatch::{Dispatcher, privileges_if, usize_of};
use crate::request::Request;

/// Minor protocol version (Linux 6.6) from which each synchronous write through the page cache is followed by FSYNC.
/// Older kernels may do so too; the daemon does not rely on it.
const FSYNC_FOLLOWS_MINOR: u32 = 39;

/// Knows the writes after which the kernel sends FSYNC before its caller continues.
///
/// These are the writes through its page cache. Writes with `O_DIRECT` are uncertain: the kernel sends no FSYNC for
/// asynchronous ones (AIO, `io_uring`), so the daemon syncs each itself; synchronous ones are then synced twice.
#[derive(Debug, Default)]
pub struct SyncedByKernel {
    /// Writes go through the page cache unless their handle is in `direct`.
    is_possible: bool,
    /// Handles whose writes skip the page cache.
    direct: RwLock<HashSet<u64>>,
}

impl SyncedByKernel {
    pub fn new(minor: u32, direct_io: DirectIo) -> Self {
        Self {
            is_possible: minor >= FSYNC_FOLLOWS_MINOR && direct_io == DirectIo::Off,
            direct: RwLock::default(),
        }
    }

    /// Records that the kernel skips its page cache for this handle.
    pub fn opened_direct(&self, Handle(number): Handle) {
        if self.is_possible {
            let mut direct = self.direct.write().unwrap_or_else(PoisonError::into_inner);
            direct.insert(number);
        }
    }

    pub fn released(&self, Handle(number): Handle) {
        if self.is_possible {
            let mut direct = self.direct.write().unwrap_or_else(PoisonError::into_inner);
            direct.remove(&number);
        }
    }

    fn includes(&self, Handle(number): Handle, mode: WriteMode) -> bool {
        let is_direct = || {
            let direct = self.direct.read().unwrap_or_else(PoisonError::into_inner);
            direct.contains(&number)
        };
        self.is_possible && !mode.is_direct() && !is_direct()
    }
}

impl Dispatcher {
    pub(crate) fn write(&self, request: &Request, data: &[u8]) -> FsResult<WriteOut> {
        let args: WriteIn = request.fixed()?;
        let data = data.get(..usize_of(args.size)).ok_or(FsError::Invalid)?;
        let mut mode = WriteMode {
            flags: OpenFlags(args.flags.cast_signed()),
            privileges: privileges_if(args.write_flags & WRITE_KILL_SUIDGID != 0, request),
            from_page_cache: args.write_flags & WRITE_CACHE != 0,
        };
        if self.writeback && mode.appends() && self.ends_before(request, &args)? {
            mode.flags = mode.flags.without(libc::O_APPEND);
        }
        if mode.durability() != Durability::None && self.synced_by_kernel.includes(Handle(args.fh), mode) {
            mode.flags = mode.flags.without(libc::O_SYNC);
        }
        let written = self
            .write_out(request, &args, data, mode)
            .inspect_err(|_| self.inodes.lose_content(request.ino()))?;
        self.counters.write(written);
        self.privileges_killed(request.ino(), mode.privileges);
        Ok(WriteOut {
            size: u32::try_from(written).map_err(|_| FsError::Io)?,
            padding: 0,
        })
    }

    fn ends_before(&self, request: &Request, args: &WriteIn) -> FsResult<bool> {
        let attr = self.file_system.getattr(request.ino(), Some(Handle(args.fh)))?;
        Ok(attr.size < args.offset)
    }

    fn write_out(&self, request: &Request, args: &WriteIn, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        let mut written = 0;
        loop {
            let offset = args
                .offset
                .saturating_add(u64::try_from(written).map_err(|_| FsError::FileTooBig)?);
            let rest = &data[written..];
            let more = self
                .file_system
                .write(request.ino(), Handle(args.fh), offset, rest, mode)?;
            written += more;
            if written >= data.len() || !mode.from_page_cache {
                return Ok(written);
            }
            if more == 0 {
                return Err(FsError::Io);
            }
        }
    }
}
