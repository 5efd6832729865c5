//! Counters of a [`crate::PassFs`], for statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counts since the file system was opened; `inodes_held` and `open_handles` are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PassCounters {
    /// Read calls.
    pub reads: u64,
    /// Bytes returned by reads.
    pub read_bytes: u64,
    /// Write calls.
    pub writes: u64,
    /// Bytes accepted by writes.
    pub written_bytes: u64,
    /// `fsync` and `fdatasync` calls.
    pub fsyncs: u64,
    /// Background write-outs started.
    pub write_outs_started: u64,
    /// Writes of long streams that bypassed the host's page cache.
    pub direct_writes: u64,
    /// Times that the host refused such a write; the first refusal disables them for the whole mount.
    pub direct_refusals: u64,
    /// Events of changes on the source's file system.
    pub change_events: u64,
    /// Those that this process caused itself.
    pub change_events_own: u64,
    /// Reports of a change that were repeated, as the answer with the inode was still on its way.
    pub change_reports_repeated: u64,
    /// Times that the host's queue of events overflowed.
    pub change_queue_overflows: u64,
    /// Host inodes known to the caller, including the source itself.
    pub inodes_held: u64,
    /// Open files and directories.
    pub open_handles: u64,
}

impl PassCounters {
    /// Members that can fall; all others only grow.
    pub const LEVELS: &[&str] = &["inodes_held", "open_handles"];
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub fsyncs: AtomicU64,
    pub write_outs_started: AtomicU64,
    pub direct_writes: AtomicU64,
    pub direct_refusals: AtomicU64,
}

impl Tally {
    pub(crate) fn read_done(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(
            u64::try_from(bytes).expect("usize fits in u64"),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn write_done(&self, bytes: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(
            u64::try_from(bytes).expect("usize fits in u64"),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn snapshot(&self, inodes_held: u64, open_handles: u64) -> PassCounters {
        PassCounters {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            fsyncs: self.fsyncs.load(Ordering::Relaxed),
            write_outs_started: self.write_outs_started.load(Ordering::Relaxed),
            direct_writes: self.direct_writes.load(Ordering::Relaxed),
            direct_refusals: self.direct_refusals.load(Ordering::Relaxed),
            change_events: 0,
            change_events_own: 0,
            change_reports_repeated: 0,
            change_queue_overflows: 0,
            inodes_held,
            open_handles,
        }
    }
}
