//! How far a run is, for whoever shows it.

/// Part of a run. Amounts are bytes for file workloads and files for metadata workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are made; not timed.
    Prepare,
    /// Caches are emptied or filled; not timed.
    Cache,
    /// The timed window of a file workload.
    Measure,
    /// What was written is read back and compared; not timed.
    Verify,
    /// Files are created; timed.
    Create,
    /// The directory is read; timed.
    List,
    /// Each file is looked at; timed.
    Stat,
    /// Files are removed; timed.
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

/// Is told how far a run is: about ten times a second, never from a thread that is being timed in a file workload.
pub trait Progress: Sync {
    /// `done` of `total` bytes (or files) of `phase` are done.
    fn advance(&self, phase: Phase, done: u64, total: u64);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _phase: Phase, _done: u64, _total: u64) {}
}
