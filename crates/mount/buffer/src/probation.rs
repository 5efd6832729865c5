//! How long writes go through after one has failed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that have to be written through before writes are buffered again; 0 when they are.
///
/// It keeps losses small beside what was kept: between two failures of acknowledged data at least as many bytes were
/// written as the buffer could have lost by either.
#[derive(Debug, Default)]
pub struct Probation(AtomicU64);

impl Probation {
    /// A write failed: `bytes` have to be written through, from here on.
    pub fn start(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// True while writes go through.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// This many bytes were written through.
    pub fn note_success(&self, bytes: u64) {
        let order = Ordering::Relaxed;
        // `Err` says that nothing is left to be proven.
        let _ = self.0.fetch_update(order, order, |left| {
            (left > 0).then(|| left.saturating_sub(bytes))
        });
    }
}
