//! [`MemFs`]: a whole file system in memory, the model that others are compared with.
//!
//! One lock, no cache, no thread: every call happens at once and in full. Time is a counter (each change is a
//! second after the one before), so that two runs are equal. It checks no permissions, as the contract says.

mod calls;
pub mod content;
mod node;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};

use state::State;

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
    /// An empty one, with room for 1 TiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(1 << 40)
    }

    /// An empty one that holds `bytes` bytes of file data, in units of 4 KiB.
    #[must_use]
    pub fn with_capacity(bytes: u64) -> Self {
        Self {
            state: Mutex::new(State::new(bytes)),
        }
    }

    /// The same, whose next handle has this number.
    #[must_use]
    pub fn with_next_handle(self, number: u64) -> Self {
        self.lock().next_handle = number;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
