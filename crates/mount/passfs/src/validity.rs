//! Decides whether content that a cache above kept from an earlier open still matches the host file.
//!
//! A [`Stamp`] of (mtime, ctime, size) is taken at open, and again when a handle that wrote is flushed, synced or
//! released. The next open compares. The answer is "no" unless it is certainly "yes":
//!
//! - Two changes within one tick of the host's clock carry the same times. A stamp taken less than [`TICK_NS`] after
//!   the file's last change therefore proves nothing, unless the host gives distinct times to changes with a query in
//!   between (Linux 6.13 on ext4, xfs, btrfs and tmpfs).
//! - A store through a shared mapping moves the times only when it makes a clean page dirty. Until that page is written
//!   out, further stores leave no trace, and on a file system in memory they never leave one. A stamp taken while the
//!   file has dirty pages, or on such a file system, proves nothing ([`stores_move_times`]).
//! - A change of the source behind the mount *while* a handle here writes the same file is not detected: the stamp
//!   taken after the handle's write covers both. Close-to-open sharing has this limit everywhere.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Statx, StatxTimestamp};
use rustix::time::ClockId;

/// The coarsest tick of a Linux host's file times is 10 ms (100 Hz); twice that leaves a margin.
const TICK_NS: i128 = 20_000_000;

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
    pub(crate) fn taken(file: impl AsFd, stat: &Statx, fine_times: bool) -> Self {
        let now = rustix::time::clock_gettime(ClockId::Realtime);
        let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let changed = &stat.stx_ctime;
        let changed_ns = i128::from(changed.tv_sec) * 1_000_000_000 + i128::from(changed.tv_nsec);
        let age_ns = now_ns - changed_ns;
        let settled = (fine_times || age_ns > TICK_NS) && stores_move_times(file, age_ns);
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

    /// True if a file stamped `self` then and `current` now certainly has the same content.
    pub(crate) fn vouches_for(&self, current: &Self) -> bool {
        let content = |stamp: &Self| (stamp.mtime, stamp.ctime, stamp.size & !VOUCHES);
        self.size & VOUCHES != 0 && content(self) == content(current)
    }
}

/// Age of a change that is certainly written out, where the host does not tell of dirty pages: twenty times Linux' default.
const WRITTEN_OUT_NS: i128 = 600_000_000_000;

/// True if the next store through a mapping of `file`, which changed `age_ns` ago, moves its times.
fn stores_move_times(file: impl AsFd, age_ns: i128) -> bool {
    /// tmpfs, ramfs, hugetlbfs, and overlayfs, whose files may be on one of them, by their `statfs` magic.
    const IN_MEMORY: [i64; 4] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6, 0x794c_7630];
    let is_written_out = rustix::fs::fstatfs(&file).is_ok_and(|found| !IN_MEMORY.contains(&found.f_type));
    is_written_out && dirty_pages(file).map_or(age_ns > WRITTEN_OUT_NS, |dirty| dirty == 0)
}

/// Number of dirty pages of `file`, by `cachestat(2)` (Linux 6.5); `None` if the host does not tell: it may not have the call, or
/// keep the number from users who may not write to the file.
fn dirty_pages(file: impl AsFd) -> Option<u64> {
    /// Its number on all architectures but alpha; libc has none.
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

/// True if the host gives a change made after a `statx` a distinct time.
pub(crate) fn has_fine_times(source: impl AsFd) -> bool {
    /// ext4, xfs, btrfs, tmpfs by their `statfs` magic.
    const MAGICS: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
    let Ok(found) = rustix::fs::fstatfs(source) else {
        return false;
    };
    MAGICS.contains(&found.f_type) && kernel_version().is_some_and(|version| version >= (6, 13))
}

fn kernel_version() -> Option<(u32, u32)> {
    let uname = rustix::system::uname();
    let mut numbers = uname.release().to_str().ok()?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
