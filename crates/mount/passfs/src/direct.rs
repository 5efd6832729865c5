//! Writes long streams with `O_DIRECT`, bypassing the host's page cache.
//!
//! A handle that has written enough contiguous bytes ([`crate::PassConfig::stream_direct_after_bytes`]) writes large
//! aligned pieces through a second descriptor with `O_DIRECT`: without a copy into the page cache, and with the medium
//! busy from then on instead of at fsync. Unaligned data goes through the page cache as before; the host keeps both
//! paths coherent, by writing back and dropping the cached pages of the range first. Reads never use this path.
//!
//! It does not promise durability, which takes the same flags of a write, or the same fsync, as through the page cache.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use vfs::{FsResult, WriteMode};

use crate::PassFs;
use crate::handles::OpenFile;
use crate::identity::errno;
use crate::write::flags_of;

/// Smaller pieces are not worth waiting for the medium for each.
const PIECE_BYTES_MIN: usize = 1 << 20;
/// Blocks are never smaller than pages: writes of partial blocks are serialized by the host. Also the default for a
/// host that does not report its alignment.
const BLOCK_BYTES: u32 = 4096;

/// A descriptor with `O_DIRECT` and the alignment that it requires of each write.
#[derive(Debug)]
pub(crate) struct DirectFile {
    fd: OwnedFd,
    memory_bytes: usize,
    offset_bytes: usize,
}

/// A write in three pieces: `head` and the rest after `body` go through the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pieces {
    head: usize,
    body: usize,
}

impl DirectFile {
    /// `None` if the host supports no direct I/O for this file.
    fn of(fd: OwnedFd) -> Option<Self> {
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
        let (memory, offset) = if told {
            (stat.stx_dio_mem_align, stat.stx_dio_offset_align)
        } else {
            (BLOCK_BYTES, BLOCK_BYTES)
        };
        let usable = memory.is_power_of_two() && offset.is_power_of_two();
        usable.then_some(Self {
            fd,
            memory_bytes: usize::try_from(memory).ok()?,
            offset_bytes: usize::try_from(offset.max(BLOCK_BYTES)).ok()?,
        })
    }

    /// Splits `data` for `offset`; `None` if no piece is large and aligned enough.
    fn cut(&self, offset: u64, data: &[u8]) -> Option<Pieces> {
        let block = u64::try_from(self.offset_bytes).ok()?;
        let head = usize::try_from(offset.next_multiple_of(block) - offset).ok()?;
        let rest = data.get(head..)?;
        let body = rest.len() - rest.len() % self.offset_bytes;
        let aligned = rest.as_ptr().addr().is_multiple_of(self.memory_bytes);
        (aligned && body >= PIECE_BYTES_MIN).then_some(Pieces { head, body })
    }
}

impl PassFs {
    /// Writes all of `data`, directly where possible. Fails, or returns a short count, as a write through the page
    /// cache does.
    ///
    /// Appended data is written in one piece or goes through the page cache: another appender's data could come between
    /// two pieces.
    pub(crate) fn write_stream(
        &self,
        open: &OpenFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> FsResult<usize> {
        if let Some(direct) = self.direct_file(open)
            && let Some(pieces) = direct.cut(offset, data)
            && (pieces.body == data.len() || !mode.appends())
        {
            return self.write_pieces(open, direct, offset, data, pieces, mode);
        }
        self.write_cached(open, offset, data, mode)
    }

    /// The handle's descriptor with `O_DIRECT`, opened by the first stream that is long enough.
    fn direct_file<'a>(&self, open: &'a OpenFile) -> Option<&'a DirectFile> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open_direct = || match self.reopen(&open.inode, OFlags::WRONLY | OFlags::DIRECT) {
            Ok(fd) => DirectFile::of(fd),
            Err(error) => {
                if error == vfs::FsError::Invalid {
                    self.refuse_direct();
                }
                None
            }
        };
        open.direct.get_or_init(open_direct).as_ref()
    }

    fn refuse_direct(&self) {
        self.direct_refused.store(true, Ordering::Relaxed);
        self.tally.direct_refusals.fetch_add(1, Ordering::Relaxed);
    }

    fn write_pieces(
        &self,
        open: &OpenFile,
        direct: &DirectFile,
        offset: u64,
        data: &[u8],
        pieces: Pieces,
        mode: WriteMode,
    ) -> FsResult<usize> {
        let (head, rest) = data.split_at(pieces.head);
        let mut written = self.write_cached(open, offset, head, mode)?;
        if written < head.len() {
            return Ok(written);
        }
        match self.write_direct(direct, advanced(offset, written)?, &rest[..pieces.body], mode) {
            Ok(bytes) => {
                written += bytes;
                let mut run = open.run.lock().expect("no panic under a run's lock");
                run.start = advanced(offset, written)?;
            }
            // The end of file has moved since the offset was chosen, to an offset that the host can't write directly.
            Err(Errno::INVAL) if mode.appends() => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP) => self.refuse_direct(),
            Err(error) if written == 0 => return Err(errno(error)),
            Err(_) => return Ok(written),
        }
        // The page cache takes the tail and the rest of a short direct write, or fails for the same reason.
        match self.write_cached(open, advanced(offset, written)?, &data[written..], mode) {
            Ok(bytes) => Ok(written + bytes),
            Err(error) if written == 0 => Err(error),
            Err(_) => Ok(written),
        }
    }

    /// One direct write; interrupted ones are repeated.
    fn write_direct(
        &self,
        direct: &DirectFile,
        offset: u64,
        data: &[u8],
        mode: WriteMode,
    ) -> Result<usize, Errno> {
        let pieces = [IoSlice::new(data)];
        let bytes =
            rustix::io::retry_on_intr(|| rustix::io::pwritev2(&direct.fd, &pieces, offset, flags_of(mode)))?;
        self.tally.direct_writes.fetch_add(1, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// The offset `bytes` further on.
pub(crate) fn advanced(offset: u64, bytes: usize) -> FsResult<u64> {
    let bytes = u64::try_from(bytes).map_err(|_| vfs::FsError::FileTooBig)?;
    offset.checked_add(bytes).ok_or(vfs::FsError::FileTooBig)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn direct(memory_bytes: usize) -> DirectFile {
        let fd = rustix::fs::open("/", OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        DirectFile {
            fd,
            memory_bytes,
            offset_bytes: 4096,
        }
    }

    /// `length` bytes at an address that is `beside` bytes past a multiple of 4096.
    fn memory(room: &mut Vec<u8>, length: usize, beside: usize) -> &[u8] {
        room.resize(length + 8192, 0);
        let start = room.as_ptr().addr().next_multiple_of(4096) - room.as_ptr().addr() + beside;
        &room[start..start + length]
    }

    #[test]
    fn an_aligned_write_is_one_piece() {
        let mut room = Vec::new();
        let pieces = direct(4096).cut(8192, memory(&mut room, 2 * MIB, 0));
        assert_eq!(
            pieces,
            Some(Pieces {
                head: 0,
                body: 2 * MIB
            })
        );
    }

    #[test]
    fn head_and_tail_that_are_not_aligned_are_cut_off() {
        let mut room = Vec::new();
        let data = memory(&mut room, 2 * MIB, 96);
        let pieces = direct(4096).cut(4096 + 96, data);
        let body = 2 * MIB - 4096;
        assert_eq!(pieces, Some(Pieces { head: 4000, body }));
    }

    #[test]
    fn memory_that_the_host_can_not_take_goes_through_the_page_cache() {
        let mut room = Vec::new();
        let data = memory(&mut room, 2 * MIB, 96);
        assert_eq!(direct(512).cut(0, data), None);
        assert!(direct(4).cut(0, data).is_some());
    }

    #[test]
    fn a_piece_is_a_mebibyte_at_least() {
        let mut room = Vec::new();
        let data = memory(&mut room, MIB, 0);
        assert!(direct(4096).cut(0, data).is_some());
        assert_eq!(direct(4096).cut(0, &data[..MIB - 1]), None);
        assert_eq!(direct(4).cut(4095, data), None);
    }
}
