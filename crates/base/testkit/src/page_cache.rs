//! Pages of a file in the host's page cache, by `cachestat(2)`.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Pages of a file: `struct cachestat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedPages {
    /// All that are cached.
    pub cached: u64,
    /// Those with changes.
    pub dirty: u64,
    /// Those that are being written out.
    pub under_write_out: u64,
    evicted: u64,
    recently_evicted: u64,
}

impl CachedPages {
    /// The pages of `file`; `None` if the kernel does not tell (older than 6.5).
    #[must_use]
    pub fn of(file: &File) -> Option<Self> {
        const SYS_CACHESTAT: libc::c_long = 451;
        // `struct cachestat_range`: from the start, to the end.
        let range = [0_u64; 2];
        let mut found = Self::default();
        // SAFETY: both structures are laid out as the kernel's and outlive the call.
        let result =
            unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), &raw mut found, 0) };
        (result == 0).then_some(found)
    }

    /// Those that are not on the medium yet.
    #[must_use]
    pub const fn not_written(&self) -> u64 {
        self.dirty + self.under_write_out
    }
}
