//! Writes: the offset of the data, and its durability when the call returns.
//!
//! Data goes to its offset or, if the mode appends, to the current end of the host's file (`RWF_APPEND`, one step under
//! the host's own lock: no two appended writes overlap). Durability is requested together with the data (`RWF_DSYNC`,
//! `RWF_SYNC`), so an error of the medium is the error of that write. A host that refuses flags of writes gets a
//! descriptor with `O_APPEND`, and a sync after the write. So does a host with a server (FUSE, NFS): its kernel would take
//! the end of file that it remembers, and only the server's own descriptor, opened with `O_APPEND`, leads to the real one.
//!
//! Errors are not kept here: the host reports later ones by fsync and close.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use vfs::{Durability, FsError, FsResult, Handle, OpenFlags, WriteMode};

use crate::PassFs;
use crate::attributes::stat;
use crate::data::make_durable;
use crate::direct::advanced;
use crate::handles::OpenFile;
use crate::identity::{errno, with_privileges};
use crate::inodes::Inode;
use crate::magic;

impl PassFs {
    pub(crate) fn write_at(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let open = self.handles.file(handle)?;
        let written = with_privileges(mode.privileges, || {
            if open.append_only {
                self.write_append_only(&open, offset, data, mode)
            } else if self.is_direct_stream(&open, offset, data, mode) {
                self.write_stream(&open, offset, data, mode)
            } else {
                self.write_cached(&open, offset, data, mode)
            }
        });
        let written = written.flatten()?;
        self.tally.write_done(written);
        self.count_contiguous(&open, offset, written);
        Ok(written)
    }

    /// Writes to a file that can only grow, at its end. A page cache above writes back whole pages, which begin with
    /// data that the file already has; a page beyond the end of file fails, as the pages before it have not been
    /// written yet.
    fn write_append_only(
        &self,
        open: &OpenFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let _one_at_a_time = self.appending.lock().expect("no panic under this lock");
        if !mode.from_page_cache {
            return self.write_cached(open, offset, data, mode);
        }
        let size = stat(&open.file)?.stx_size;
        let known = size.checked_sub(offset).ok_or(FsError::Io)?;
        let known = usize::try_from(known).map_or(data.len(), |known| known.min(data.len()));
        let written = self.write_cached(open, size, &data[known..], mode)?;
        Ok(known + written)
    }

    /// Writes all of `data` through the page cache. A short count means a failure part of the way; the bytes written
    /// have the durability that `mode` requires, and the caller's next write gets the error.
    pub(crate) fn write_cached(
        &self,
        open: &OpenFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let mut written = 0;
        while written < data.len() {
            match self.write_once(open, advanced(offset, written)?, &data[written..], mode) {
                Ok(0) => break,
                Ok(bytes) => written += bytes,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    fn write_once(&self, open: &OpenFile, offset: u64, data: &[u8], mode: WriteMode) -> FsResult<usize> {
        let flags = flags_of(mode);
        if flags.is_empty() {
            return rustix::io::retry_on_intr(|| rustix::io::pwrite(&open.file, data, offset)).map_err(errno);
        }
        let file = match mode.appends() && self.has_server(&open.inode) {
            true => self.appending_if_permitted(open)?,
            false => &open.file,
        };
        let pieces = [IoSlice::new(data)];
        match rustix::io::retry_on_intr(|| rustix::io::pwritev2(file, &pieces, offset, flags)) {
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.write_once_without_flags(open, offset, data, mode)
            }
            result => result.map_err(errno),
        }
    }

    /// Like [`Self::write_once`], for a host that knows no flags of writes.
    fn write_once_without_flags(
        &self,
        open: &OpenFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let file = match mode.appends() {
            true => self.appending(open)?,
            false => &open.file,
        };
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, data, offset)).map_err(errno)?;
        make_durable(file, mode.durability())?;
        Ok(written)
    }

    /// True if the end of the file is a server's to know.
    fn has_server(&self, inode: &Inode) -> bool {
        !self.anchors.is_local(inode.key().device)
    }

    /// The descriptor with `O_APPEND` of an open file.
    fn appending<'a>(&self, open: &'a OpenFile) -> FsResult<&'a OwnedFd> {
        if let Some(file) = open.appending.get() {
            return Ok(file);
        }
        self.descriptors.admit_file(&self.proc_fd, 1)?;
        let file = self.reopen(&open.inode, OFlags::WRONLY | OFlags::APPEND)?;
        self.descriptors.opened(&file);
        Ok(open.appending.get_or_init(|| file))
    }

    /// The descriptor with `O_APPEND`, or the open one: the daemon of an ordinary user may not be able to open the file again, and a
    /// server may allow one writer, whose end is the file's.
    fn appending_if_permitted<'a>(&self, open: &'a OpenFile) -> FsResult<&'a OwnedFd> {
        match self.appending(open) {
            Err(FsError::AccessDenied | FsError::NotPermitted | FsError::Busy | FsError::TextBusy) => {
                Ok(&open.file)
            }
            appending => appending,
        }
    }

    /// Like [`OpenFile::new`]. A file with a server that is opened to append to is opened for that at once: behind a server that
    /// goes by paths its path may lead to another file later.
    pub(crate) fn new_open_file(
        &self,
        file: OwnedFd,
        inode: Arc<Inode>,
        flags: OpenFlags,
    ) -> FsResult<OpenFile> {
        let root = self.inodes.root().key();
        let mut open = OpenFile::new(file, inode, flags, self.watch.get());
        open.is_on_fuse = match open.inode.key().device == root.device {
            true => self.source_is_on_fuse,
            false => magic::may_be_on(&open.file, magic::FUSE),
        };
        if self.descriptors_of_open(&open.inode, flags) > 1 {
            self.appending_if_permitted(&open)?;
        }
        Ok(open)
    }

    /// Fails if the descriptors of an open would use the reserve. A new file may be asked for by its folder.
    pub(crate) fn admit_open(&self, inode: &Inode, flags: OpenFlags) -> FsResult<()> {
        self.descriptors
            .admit_file(&self.proc_fd, self.descriptors_of_open(inode, flags))
    }

    /// Number of descriptors that [`Self::new_open_file`] takes.
    fn descriptors_of_open(&self, inode: &Inode, flags: OpenFlags) -> u64 {
        let appends = flags.writes() && flags.has(libc::O_APPEND);
        match appends && self.has_server(inode) {
            true => 2,
            false => 1,
        }
    }

    /// True if a write at `offset` continues a long enough run of contiguous bytes, and may be direct.
    fn is_direct_stream(&self, open: &OpenFile, offset: u64, data: &[u8], mode: WriteMode) -> bool {
        let Some(threshold_bytes) = self.config.stream_direct_after_bytes else {
            return false;
        };
        if mode.appends() && self.has_server(&open.inode) {
            return false;
        }
        let run = *open.run.lock().expect("no panic under a run's lock");
        run.contiguous_before(offset) >= threshold_bytes
            && (mode.durability() != Durability::None || self.direct_rate.admits(data.len()))
    }

    /// Starts writing to the medium once the run is long enough. Errors belong to the file and are reported at fsync.
    fn count_contiguous(&self, open: &OpenFile, offset: u64, written: usize) {
        let wanted = (self.config.write_out_bytes, self.config.stream_direct_after_bytes);
        if wanted == (None, None) {
            return;
        }
        let Ok(length) = u64::try_from(written) else {
            return;
        };
        let threshold_bytes = self.config.write_out_bytes.unwrap_or(u64::MAX);
        let mut run = open.run.lock().expect("no panic under a run's lock");
        let Some((start, length)) = run.extend(offset, length, threshold_bytes) else {
            return;
        };
        drop(run);
        let (Ok(start), Ok(length)) = (i64::try_from(start), i64::try_from(length)) else {
            return;
        };
        let fd = open.file.as_raw_fd();
        // SAFETY: no pointers; `fd` is held by `open` over the call.
        unsafe { libc::sync_file_range(fd, start, length, libc::SYNC_FILE_RANGE_WRITE) };
        self.tally.write_outs_started.fetch_add(1, Ordering::Relaxed);
    }
}

/// The flags of `pwritev2` for a write of this mode.
pub(crate) fn flags_of(mode: WriteMode) -> ReadWriteFlags {
    let mut flags = match mode.durability() {
        Durability::None => ReadWriteFlags::empty(),
        Durability::Data => ReadWriteFlags::DSYNC,
        Durability::All => ReadWriteFlags::SYNC,
    };
    flags.set(ReadWriteFlags::APPEND, mode.appends());
    flags
}
