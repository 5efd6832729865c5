//! Depth of a test run: short for each commit, or full, with everything that takes long.
//!
//! `make test-full` sets `TIDEGATE_FULL`. Without it a test uses smaller numbers or is [`left_to_full`] runs.

use crate::needs::{Cause, record};

/// Returns true in a full run.
#[must_use]
pub fn is_full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some()
}

/// Returns true, and records the test as left out, unless this is a full run.
#[must_use]
pub fn left_to_full(why: &str) -> bool {
    let left = !is_full();
    if left {
        record(&Cause::Long, &format!("{why}; TIDEGATE_FULL=1 runs it"));
    }
    left
}
