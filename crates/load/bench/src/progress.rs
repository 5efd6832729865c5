//! Progress of a run, for display.

/// A phase of a run. Amounts are bytes for file workloads and files for metadata workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Creates the files; not timed.
    Prepare,
    /// Drops or fills the caches; not timed.
    Cache,
    /// The timed window of a file workload.
    Measure,
    /// Reads back and compares the written data; not timed.
    Verify,
    /// Creates files; timed.
    Create,
    /// Reads the directory; timed.
    List,
    /// Calls `stat` on each file; timed.
    Stat,
    /// Removes files; timed.
    Remove,
}

impl Phase {
    /// One lower-case word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Cache => "cache",
            Self::Measure => "measure",
            Self::Verify => "verify",
            Self::Create => "create",
            Self::List => "list",
            Self::Stat => "stat",
            Self::Remove => "remove",
        }
    }
}

/// Receives progress reports: about ten times a second, never from a thread that is being timed in a file workload.
pub trait Progress: Sync {
    /// Reports that `done` of `total` bytes (or files) of `phase` are done.
    fn advance(&self, phase: Phase, done: u64, total: u64);
}

/// Ignores progress reports.
#[derive(Clone, Copy, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _phase: Phase, _done: u64, _total: u64) {}
}
