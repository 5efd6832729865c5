//! Writes: where the data goes, and what is on the medium when the call returns.
//!
//! Data goes to its offset or, where the mode appends, to the end that the host's file has at that moment
//! (`RWF_APPEND`, one step under the host's own lock: no two appended writes overlap). Durability is asked for together
//! with the data (`RWF_DSYNC`, `RWF_SYNC`), so an error of the medium is the error of that write. A host that refuses
//! flags of writes gets a descriptor with `O_APPEND`, and a sync after the write.
//!
//! It is not: a place where errors are kept. What the host tells later it tells by fsync and close.

use std::io::IoSlice;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use vfs::{Durability, FsError, FsResult, Handle, WriteMode};

use crate::PassFs;
use crate::attributes::stat;
use crate::data::make_durable;
use crate::direct::advanced;
use crate::handles::OpenFile;
use crate::identity::{errno, with_privileges};

impl PassFs {
    pub(crate) fn write_at(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let open = self.handles.file(handle)?;
        open.wrote.store(true, Ordering::Release);
        let written = with_privileges(mode.privileges, || {
            if open.append_only {
                self.write_append_only(&open, offset, data, mode)
            } else if self.is_stream(&open, offset) {
                self.write_stream(&open, offset, data, mode)
            } else {
                self.write_cached(&open, offset, data, mode)
            }
        })??;
        self.tally.write_done(written);
        self.count_contiguous(&open, offset, written);
        Ok(written)
    }

    /// Writes to a file that can only grow, at its end. A page cache above writes whole pages back, which begin with what
    /// the file has already; pages that come before those in front of them fail, as there is no place for them yet.
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

    /// Writes all of `data` through the page cache. A short count is what a failure part of the way left, with the
    /// durability that `mode` asks for; the caller's next write meets the failure.
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
        let pieces = [IoSlice::new(data)];
        match rustix::io::retry_on_intr(|| rustix::io::pwritev2(&open.file, &pieces, offset, flags)) {
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.write_once_without_flags(open, offset, data, mode)
            }
            result => result.map_err(errno),
        }
    }

    /// As [`Self::write_once`], on a host that knows no flags of writes.
    fn write_once_without_flags(
        &self,
        open: &OpenFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        let appending;
        let file = if mode.appends() {
            appending = self.reopen(&open.inode, OFlags::WRONLY | OFlags::APPEND)?;
            &appending
        } else {
            &*open.file
        };
        let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(file, data, offset)).map_err(errno)?;
        make_durable(file, mode.durability())?;
        Ok(written)
    }

    /// True once a write at `offset` goes on where enough contiguous bytes end.
    fn is_stream(&self, open: &OpenFile, offset: u64) -> bool {
        let Some(threshold_bytes) = self.config.stream_direct_after_bytes else {
            return false;
        };
        let run = open.run.lock().expect("no panic under a run's lock");
        run.contiguous_before(offset) >= threshold_bytes
    }

    /// Starts writing to the medium once enough has come together. Errors are the file's own and come back at fsync.
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
