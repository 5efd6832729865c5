//! Probation: the period in which writes go through after one has failed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes to write through before writes are buffered again; 0 outside probation.
///
/// It keeps losses small in proportion: between two failures of acknowledged data at least as many bytes were written
/// as the buffer could have lost by either.
#[derive(Debug, Default)]
pub struct Probation(AtomicU64);

impl Probation {
    /// Starts probation after a failed write: `bytes` have to be written through.
    pub fn start(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// True while writes go through.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Counts bytes that were written through.
    pub fn note_success(&self, bytes: u64) {
        let order = Ordering::Relaxed;
        // `Err` means that probation is over.
        let _ = self.0.fetch_update(order, order, |left| {
            (left > 0).then(|| left.saturating_sub(bytes))
        });
    }
}
