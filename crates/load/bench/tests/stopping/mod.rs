//! Ends a run early, as a signal does.

use std::sync::atomic::{AtomicBool, Ordering};

use bench::{Phase, Progress};

/// Raises the stop flag when the measurement begins.
pub struct StopWhenMeasuring<'flag>(pub &'flag AtomicBool);

impl Progress for StopWhenMeasuring<'_> {
    fn advance(&self, phase: Phase, _done: u64, _total: u64) {
        if phase == Phase::Measure {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
