//! Decides whether content that a cache above kept from an earlier open still matches the host file.
//!
//! A [`Stamp`] of (mtime, ctime, size) is taken after each open whose caller asks, and compared with the one before. The
//! answer is "no" unless it is certainly "yes":
//!
//! - Two changes within one tick of the file system's times carry the same times, and times move before the data
//!   does. A stamp taken less than `COMPLETE_NS` (2.1 s) after the file's last change proves nothing. A single call or
//!   page fault of the source that takes longer than that is not detected, nor are calls that change content and no time.
//! - A store through a shared mapping moves the times only when it makes a clean page dirty. Until that page is written
//!   out, further stores leave no trace, and on a file system in memory they never leave one. A stamp proves something only
//!   on a local file system that writes pages out, and while the file has no dirty page ([`changes_move_times`]).
//! - A write through the mount moves the times too, and no stamp is taken after it: it would cover a change of the source
//!   that was made meanwhile. The next open drops what was kept. `fuse` sees to it after a write that failed.
//! - An open that finds a change makes the kernel drop its pages once it sees the reply. Until a handle with that stamp
//!   is released, no other open keeps pages.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Statx, StatxAttributes, StatxTimestamp};
use rustix::time::ClockId;

use crate::magic;

/// State of a file's content by its times and size, in 24 bytes. The default proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    mtime: u64,
    ctime: u64,
    /// Size in bytes, which the host keeps below 2^63, and [`VOUCHES`].
    size: u64,
}

const VOUCHES: u64 = 1 << 63;

impl Stamp {
    /// The stamp of `file` in the state `stat`, taken now.
    pub(crate) fn taken(file: impl AsFd, stat: &Statx) -> Self {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let changed = &stat.stx_ctime;
        let changed_ns = i128::from(changed.tv_sec) * 1_000_000_000 + i128::from(changed.tv_nsec);
        // A clock that is set back can give two changes the same time if times have whole seconds.
        let is_fine = stat.stx_mtime.tv_nsec != 0 || changed.tv_nsec != 0;
        let settled = is_fine && changes_move_times(file, stat, now_ns - changed_ns);
        match (packed(&stat.stx_mtime), packed(changed)) {
            (Some(mtime), Some(ctime)) if settled => Self {
                mtime,
                ctime,
                size: stat.stx_size | VOUCHES,
            },
            (mtime, ctime) => Self {
                mtime: mtime.unwrap_or(u64::MAX),
                ctime: ctime.unwrap_or(u64::MAX),
                size: stat.stx_size & !VOUCHES,
            },
        }
    }

    /// The same state, which proves nothing.
    pub(crate) const fn in_doubt(mut self) -> Self {
        self.size &= !VOUCHES;
        self
    }

    /// True if a file stamped `self` then and `current` now certainly has the same content.
    pub(crate) fn vouches_for(&self, current: &Self) -> bool {
        let content = |stamp: &Self| (stamp.mtime, stamp.ctime, stamp.size & !VOUCHES);
        self.size & current.size & VOUCHES != 0 && content(self) == content(current)
    }
}

/// Age of a change that has been written out, where the number of dirty pages is unknown: twenty times Linux' default.
const WRITTEN_OUT_NS: i128 = 600_000_000_000;
/// Age of a change after which the next one gets another time, and its data is there.
const COMPLETE_NS: i128 = 2_100_000_000;
/// Largest file whose pages are counted at an open.
const COUNTED_BYTES: u64 = 256 << 20;

/// True if the next change of `file`, which is in the state `stat` and changed `age_ns` ago, moves its times, also if it is a
/// store through a mapping.
fn changes_move_times(file: impl AsFd, stat: &Statx, age_ns: i128) -> bool {
    use magic::{BTRFS, EXT4, F2FS, NILFS2, UBIFS, XFS};
    /// Local, with pages that become clean when they are written out, and a change time that nobody can set (FAT and exFAT
    /// derive it from the time of modification).
    const WITH_PAGES: [i64; 6] = [EXT4, XFS, BTRFS, F2FS, NILFS2, UBIFS];
    if age_ns < COMPLETE_NS
        || stat.stx_attributes.contains(StatxAttributes::DAX)
        || !magic::is_on(&file, &WITH_PAGES)
    {
        return false;
    }
    let dirty = (stat.stx_size <= COUNTED_BYTES)
        .then(|| dirty_pages(file))
        .flatten();
    dirty.map_or(age_ns > WRITTEN_OUT_NS, |dirty| dirty == 0)
}

/// Number of dirty pages of `file`, by `cachestat(2)` (Linux 6.5); `None` if the host does not tell: it may not have the call, or
/// keep the number from users who may not write to the file.
fn dirty_pages(file: impl AsFd) -> Option<u64> {
    /// Its number on x86_64, aarch64, arm, riscv and powerpc; libc has none for all of them.
    const CACHESTAT: libc::c_long = 451;
    /// `struct cachestat_range`: offset, and a length of 0 for all of the file.
    const WHOLE: [u64; 2] = [0, 0];
    /// `struct cachestat`.
    #[repr(C)]
    struct Pages {
        cached: u64,
        dirty: u64,
        under_write_out: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let mut pages = MaybeUninit::<Pages>::uninit();
    // SAFETY: the pointers are those of a range and of space for the answer, both of which outlive the call.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_fd().as_raw_fd(),
            WHOLE.as_ptr(),
            pages.as_mut_ptr(),
            0_u32,
        )
    };
    // SAFETY: the call fills the structure if it returns 0.
    (result == 0).then(|| unsafe { pages.assume_init() }.dirty)
}

/// Seconds in the upper 34 bits, nanoseconds below; `None` for times that no host file system stores.
fn packed(time: &StatxTimestamp) -> Option<u64> {
    const SECONDS: i64 = 1 << 33;
    let fits = (-SECONDS..SECONDS).contains(&time.tv_sec);
    fits.then(|| time.tv_sec.cast_unsigned() << 30 | u64::from(time.tv_nsec))
}
