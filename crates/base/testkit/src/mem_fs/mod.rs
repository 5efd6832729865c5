//! [`MemFs`]: a whole file system in memory, the model for comparisons.
//!
//! One lock, no cache, no thread: every call is complete when it returns. Times come from the clock that the host's
//! file systems use, which stands still within a tick. It checks no permissions, as the contract says.

mod calls;
pub mod content;
mod node;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};

use state::State;
use vfs::FsError;

/// A file system in memory.
#[derive(Debug)]
pub struct MemFs {
    state: Mutex<State>,
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemFs {
    /// An empty one, with space for 1 TiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(1 << 40)
    }

    /// An empty one that holds `bytes` bytes of file data, in units of 4 KiB.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self {
            state: Mutex::new(State::new(bytes, FsError::NoSpace)),
        }
    }

    /// Sets the number of the next handle.
    #[must_use]
    pub fn with_next_handle(self, number: u64) -> Self {
        self.lock().next_handle = number;
        self
    }

    /// An empty one with space for 1 TiB and a quota of `bytes` bytes of file data, which statfs does not report.
    #[must_use]
    pub fn with_quota(bytes: u64) -> Self {
        Self {
            state: Mutex::new(State::new(bytes, FsError::Quota)),
        }
    }

    /// An empty one that reports caches above as valid at each open, as no file changes behind them.
    #[must_use]
    pub fn with_valid_caches() -> Self {
        let made = Self::new();
        made.lock().vouches_for_caches = true;
        made
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
