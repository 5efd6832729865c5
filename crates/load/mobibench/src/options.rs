//! Options of the original, as given: [`crate::plan`] interprets, clamps or rejects the numbers, so that a rejection ends with the
//! line `Err string`, which scripts look for.

use std::ffi::OsString;
use std::path::PathBuf;

use bench::Cache;

/// A command line of the original, with the options that Tidegate adds.
#[derive(Clone, Debug)]
pub struct Options {
    /// `-p`: the folder of the test files.
    pub path: Option<PathBuf>,
    /// `-f`: file size in KiB, divided by the threads.
    pub file_kib: i64,
    /// `-r`: record size in KiB.
    pub record_kib: i64,
    /// `-a`: number of the file test.
    pub access: i64,
    /// `-y`: number of the sync mode.
    pub sync: i64,
    /// `-t`: threads.
    pub threads: i64,
    /// `-d`: number of the SQLite operation, which replaces the file test.
    pub database: Option<i64>,
    /// `-n`: transactions, divided by the threads.
    pub transactions: i64,
    /// `-j`: number of the journal mode.
    pub journal: i64,
    /// `-s`: number of the synchronous mode.
    pub synchronous: i64,
    /// `-i`: wait after each transaction.
    pub interval_ms: i64,
    /// `-g`: MobiGen script to replay, which replaces the other tests.
    pub script: Option<PathBuf>,
    /// `-L`: file for latencies.
    pub latency_file: Option<PathBuf>,
    /// `-k`: file for the operations of each second.
    pub iops_file: Option<PathBuf>,
    /// `-v`: share of random records that repeat others.
    pub overlap_percent: i64,
    /// `-T`: tables per database.
    pub tables: Option<i64>,
    /// `-D`: databases per thread.
    pub databases: i64,
    /// `-R`: whether keys are inserted in random order.
    pub random_keys: bool,
    /// Version of the original.
    pub preset: Preset,
    /// Accounting of the last sync.
    pub final_sync: FinalSync,
    /// State of the page cache at the start.
    pub cache: Cache,
    /// Words that belong to no option.
    pub operands: Vec<OsString>,
}

impl Options {
    /// The defaults of the original.
    pub const DEFAULT: Self = Self {
        path: None,
        file_kib: 1024,
        record_kib: 4,
        access: 0,
        sync: 0,
        threads: 1,
        database: None,
        transactions: 10,
        journal: 1,
        synchronous: 2,
        interval_ms: 0,
        script: None,
        latency_file: None,
        iops_file: None,
        overlap_percent: 0,
        tables: None,
        databases: 1,
        random_keys: false,
        preset: Preset::Head,
        final_sync: FinalSync::Inside,
        cache: Cache::Cold,
        operands: Vec::new(),
    };
}

/// Version of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Version 1.0.4, used by the papers: `-a 0` allocates, one table, each statement commits itself.
    Paper,
    /// Version 1.0.9: `-a 0` overwrites, three tables, BEGIN to COMMIT.
    Head,
}

impl Preset {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "mobibench-2013",
            Self::Head => "mobibench-head",
        }
    }
}

/// Accounting of the last sync of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalSync {
    /// Counted in the time that rates are computed from.
    Inside,
    /// Awaited, but not counted.
    Outside,
}
