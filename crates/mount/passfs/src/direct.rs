//! Writes long streams with `O_DIRECT`, bypassing the host's page cache.
//!
//! A handle that has written enough contiguous bytes ([`crate::PassConfig::stream_direct_after_bytes`]) writes large
//! aligned pieces through a second descriptor with `O_DIRECT`: without a copy into the page cache, and with the medium
//! busy from then on instead of at fsync. Unaligned data goes through the page cache as before; the host keeps both
//! paths coherent, by writing back and dropping the cached pages of the range first. Reads never use this path, nor do files on
//! FUSE, whose server may keep data by descriptor, or files of BTRFS with checksums.
//!
//! A direct write that extends the file returns when the medium has taken it, and the host's file systems make one at a
//! time. So the device has a queue of one write and is idle between two. A fast device needs little time for that, and
//! the page cache's copy costs more; a flash card loses 10 % to 15 %, since it receives a request while it programs the
//! one before. Writes below [`crate::PassConfig::stream_direct_rate_min`] are slow. After [`SLOW_MAX`] slow ones in a row
//! the streams of the mount go through the page cache for [`CACHED_BYTES`], with write-out started every
//! [`crate::PassConfig::write_out_bytes`], which keeps several entries under way; then direct writes are tried again.
//! Durable writes wait for the medium on either path and stay direct.
//!
//! It does not promise durability, which takes the same flags of a write, or the same fsync, as through the page cache.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, IFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use vfs::{Durability, FsResult, WriteMode};

use crate::PassFs;
use crate::handles::OpenFile;
use crate::identity::errno;
use crate::magic;
use crate::write::flags_of;

/// Smaller pieces are not worth waiting for the medium for each.
const PIECE_BYTES_MIN: usize = 1 << 20;
/// Blocks are never smaller than pages: writes of partial blocks are serialized by the host. Also the default for a
/// host that does not report its alignment.
const BLOCK_BYTES: u32 = 4096;

/// Consecutive slow direct writes after which streams are cached. The first ones of a stream wait for the write-out of
/// the pages before them, and other programs delay single ones.
const SLOW_MAX: u32 = 4;
/// Bytes of streams that are cached before direct writes are tried again, which costs a card 0.4 % of its time.
const CACHED_BYTES: u64 = 256 << 20;

/// Chooses between direct and cached writes by the rate of the direct ones. Relaxed: a lost update delays the choice.
#[derive(Debug, Default)]
pub(crate) struct DirectRate {
    /// Consecutive direct writes that were slow.
    slow_count: AtomicU32,
    /// Bytes that are still to be cached.
    cached_left: AtomicU64,
}

impl DirectRate {
    /// True if a write of a stream may be direct; otherwise counts its `bytes` as cached.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        let order = Ordering::Relaxed;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let taken = self.cached_left.fetch_update(order, order, |left| {
            (left > 0).then(|| left.saturating_sub(bytes))
        });
        taken.is_err()
    }

    /// Notes a direct write of `bytes` that took `elapsed`; `rate_min` is in bytes per second.
    fn note(&self, bytes: usize, elapsed: Duration, rate_min: u64) {
        let order = Ordering::Relaxed;
        if !is_below(rate_min, bytes, elapsed) {
            self.slow_count.store(0, order);
        } else if self.slow_count.fetch_add(1, order) + 1 >= SLOW_MAX {
            self.slow_count.store(0, order);
            self.cached_left.store(CACHED_BYTES, order);
        }
    }
}

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
        let open_direct = || {
            // The server may also open another file by the path of this one.
            if open.is_on_fuse || is_checksummed(&open.file) {
                return None;
            }
            match self.reopen(&open.inode, OFlags::WRONLY | OFlags::DIRECT) {
                Ok(fd) => DirectFile::of(fd),
                Err(error) => {
                    if error == vfs::FsError::Invalid {
                        self.refuse_direct();
                    }
                    None
                }
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
        let started = Instant::now();
        match self.write_direct(direct, advanced(offset, written)?, &rest[..pieces.body], mode) {
            Ok(bytes) => {
                written += bytes;
                if mode.durability() == Durability::None {
                    self.direct_rate
                        .note(bytes, started.elapsed(), self.config.stream_direct_rate_min);
                }
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

/// True for a file of BTRFS with checksums: its kernel makes a direct write through the page cache and then waits for the medium (since
/// Linux 6.15), so that nothing else is under way. False for one without (`chattr +C`).
fn is_checksummed(file: &OwnedFd) -> bool {
    let has_none = || rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::NOCOW));
    magic::is_on(file, &[magic::BTRFS]) && !has_none()
}

/// True if `bytes` in `elapsed` is less than `rate` bytes per second.
fn is_below(rate: u64, bytes: usize, elapsed: Duration) -> bool {
    let bytes = u128::try_from(bytes).expect("usize fits in 128 bits");
    bytes * Duration::from_secs(1).as_nanos() < u128::from(rate) * elapsed.as_nanos()
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
    fn streams_are_cached_for_a_while_after_slow_direct_writes_in_a_row() {
        let rate = DirectRate::default();
        let note = |slow: bool| rate.note(2 * MIB, Duration::from_secs(u64::from(slow)), 4 << 20);
        for _ in 0..3 {
            [true, true, true, false].into_iter().for_each(note);
            assert!(rate.admits(MIB), "single slow writes don't matter");
        }
        for _ in 0..2 {
            (1..SLOW_MAX).for_each(|_| note(true));
            assert!(rate.admits(MIB));
            note(true);
            let cached = (0..1000).take_while(|_| !rate.admits(2 * MIB)).count();
            assert_eq!(u64::try_from(cached * 2 * MIB).unwrap(), CACHED_BYTES);
        }
    }

    #[test]
    fn a_rate_is_below_the_limit_if_the_bytes_took_longer() {
        let second = Duration::from_secs(1);
        assert!(is_below(1000, 999, second) && !is_below(1000, 1000, second));
        assert!(is_below(u64::MAX, MIB, Duration::from_nanos(1)) && !is_below(0, 0, second));
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
