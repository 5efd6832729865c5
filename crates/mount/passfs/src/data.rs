//! Open files: content, space and durability.

use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use vfs::{
    CopyRange, Durability, FallocateMode, FileKind, FsError, FsResult, Handle, OpenFlags, Opened, Privileges,
    SeekFrom,
};

use crate::PassFs;
use crate::attributes::stat;
use crate::direct::advanced;
use crate::handles::Open;
use crate::identity::{errno, with_privileges};
use crate::inodes::Inode;
use crate::nodes::host_flags;
use crate::validity::Stamp;

/// Largest number of bytes that the host moves in one call (`MAX_RW_COUNT`).
const COPY_BYTES_MAX: usize = 0x7fff_f000;

impl PassFs {
    pub(crate) fn open_file(
        &self,
        inode: &Arc<Inode>,
        flags: OpenFlags,
        privileges: Privileges,
    ) -> FsResult<Opened> {
        let truncates = flags.has(libc::O_TRUNC);
        if truncates || flags.writes() {
            self.check_writable()?;
        }
        self.admit_open(inode, flags)?;
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(FsError::IsADirectory),
            FileKind::Symlink => return Err(FsError::TooManySymlinks),
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => return Err(FsError::NotSupported),
        }
        let mut wanted = host_flags(flags) - OFlags::NOFOLLOW;
        if self.opens_noatime {
            wanted |= OFlags::NOATIME;
        }
        wanted.set(OFlags::TRUNC, truncates);
        let changed = if truncates { privileges } else { Privileges::Keep };
        let open = |wanted| with_privileges(changed, || self.reopen_as_permitted(inode, wanted))?;
        let (file, append_only) = match open(wanted) {
            Err(FsError::NotPermitted) if flags.writes() && flags.has(libc::O_APPEND) => {
                (open(wanted | OFlags::APPEND)?, true)
            }
            other => (other?, false),
        };
        self.descriptors.opened(&file);
        let mut open = self.new_open_file(file, Arc::clone(inode), flags)?;
        open.append_only = append_only;
        let handle = self.handles.insert(Open::File(Arc::new(open)));
        Ok(Opened { handle })
    }

    pub(crate) fn content_is_kept(&self, handle: Handle) -> FsResult<bool> {
        let open = self.handles.file(handle)?;
        let stamp = Stamp::taken(&open.file, &stat(&open.file)?);
        Ok(open.inode.keeps_content(*open.stamp.get_or_init(|| stamp)))
    }

    /// Opens the file, dropping the optional flags that the host refuses: `O_NOATIME`, and read access to a file to be
    /// written.
    fn reopen_as_permitted(&self, inode: &Inode, flags: OFlags) -> FsResult<OwnedFd> {
        let mut flags = flags;
        let mut opened = self.reopen(inode, flags);
        if opened.as_ref().err() == Some(&FsError::NotPermitted) && flags.contains(OFlags::NOATIME) {
            flags.remove(OFlags::NOATIME);
            opened = self.reopen(inode, flags);
        }
        if opened.as_ref().err() == Some(&FsError::AccessDenied) && flags.contains(OFlags::RDWR) {
            opened = self.reopen(inode, (flags - OFlags::RDWR) | OFlags::WRONLY);
        }
        opened
    }

    pub(crate) fn read_at(&self, handle: Handle, offset: u64, out: &mut [u8]) -> FsResult<usize> {
        let open = self.handles.file(handle)?;
        let mut filled = 0;
        while filled < out.len() {
            match rustix::io::pread(&open.file, &mut out[filled..], advanced(offset, filled)?) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(Errno::INTR) => {}
                // Even part of the way: a short count would mean end of file.
                Err(error) => return Err(errno(error)),
            }
        }
        self.tally.read_done(filled);
        Ok(filled)
    }

    pub(crate) fn flush_file(&self, handle: Handle) -> FsResult<()> {
        let open = self.handles.file(handle)?;
        // Whether this handle wrote is irrelevant: layers above may pass data of one handle down by another, and under
        // passthrough the caller's kernel writes without notice.
        if !open.writes {
            return Ok(());
        }
        open.each_descriptor(close_a_duplicate)
    }

    pub(crate) fn sync_file(&self, handle: Handle, data_only: bool) -> FsResult<()> {
        let open = self.handles.file(handle)?;
        self.tally.fsyncs.fetch_add(1, Ordering::Relaxed);
        // No stamp here: querying a file's times makes the host give its next change a distinct time (multigrain
        // timestamps), so that each of a series of fsyncs would have to commit the inode.
        open.each_descriptor(|file| sync(file, data_only))
    }

    pub(crate) fn sync_directory(&self, handle: Handle, data_only: bool) -> FsResult<()> {
        let open = self.handles.directory(handle)?;
        self.tally.fsyncs.fetch_add(1, Ordering::Relaxed);
        sync(&open.fd, data_only)
    }

    pub(crate) fn release_file(&self, handle: Handle) {
        if let Some(Open::File(open)) = self.handles.remove(handle) {
            // The kernel has seen the reply to this open, and dropped what was kept before it.
            if let Some(stamp) = open.stamp.get() {
                open.inode.confirm(*stamp);
            }
        }
    }

    pub(crate) fn allocate(
        &self,
        handle: Handle,
        mode: FallocateMode,
        offset: u64,
        length: u64,
        privileges: Privileges,
    ) -> FsResult<()> {
        self.check_writable()?;
        let open = self.handles.file(handle)?;
        let mode = FallocateFlags::from_bits_retain(mode.0.cast_unsigned());
        let allocate = || rustix::fs::fallocate(&open.file, mode, offset, length);
        with_privileges(privileges, || rustix::io::retry_on_intr(allocate))?.map_err(errno)?;
        make_durable(&open.file, open.durability)
    }

    pub(crate) fn seek_file(&self, handle: Handle, from: SeekFrom) -> FsResult<u64> {
        let open = self.handles.file(handle)?;
        let from = match from {
            SeekFrom::Data(offset) => rustix::fs::SeekFrom::Data(offset),
            SeekFrom::Hole(offset) => rustix::fs::SeekFrom::Hole(offset),
        };
        // This moves the descriptor's own position, which is unused.
        rustix::fs::seek(&open.file, from).map_err(errno)
    }

    pub(crate) fn copy(&self, copy: &CopyRange) -> FsResult<u64> {
        self.check_writable()?;
        let source = self.handles.file(copy.source.1)?;
        let target = self.handles.file(copy.target.1)?;
        let length = usize::try_from(copy.length).map_or(COPY_BYTES_MAX, |length| length.min(COPY_BYTES_MAX));
        let (mut from, mut to) = (copy.source_offset, copy.target_offset);
        let copied = with_privileges(copy.privileges, || {
            rustix::fs::copy_file_range(&source.file, Some(&mut from), &target.file, Some(&mut to), length)
        })?
        .map_err(errno)?;
        make_durable(&target.file, target.durability)?;
        Ok(u64::try_from(copied).expect("usize fits in u64"))
    }
}

/// Makes a preceding change durable. A file that the host can't sync (`EINVAL`) has no medium.
pub(crate) fn make_durable(file: &OwnedFd, durability: Durability) -> FsResult<()> {
    let synced = match durability {
        Durability::None => return Ok(()),
        Durability::Data => sync(file, true),
        Durability::All => sync(file, false),
    };
    match synced {
        Err(FsError::Invalid) => Ok(()),
        other => other,
    }
}

fn sync(file: &OwnedFd, data_only: bool) -> FsResult<()> {
    if data_only {
        rustix::fs::fdatasync(file)
    } else {
        rustix::fs::fsync(file)
    }
    .map_err(errno)
}

/// Closes a duplicate of `file`: hosts that write back at close (NFS and other FUSE mounts) report their errors to each
/// such `close(2)`.
fn close_a_duplicate(file: &OwnedFd) -> FsResult<()> {
    let duplicate = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(errno)?;
    // SAFETY: the descriptor was made above and `into_raw_fd` took it from its only owner.
    match unsafe { libc::close(duplicate.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(FsError::from(std::io::Error::last_os_error())),
    }
}
