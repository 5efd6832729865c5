//! Options of the original Mobibench, parsed as in the original: single letters, values separate or attached, bundled
//! letters, and the last of several wins.
//!
//! Numbers are kept as given: `plan.rs` interprets, clamps or rejects them, so that a rejection ends with the line
//! `Err string`, which scripts look for.

use std::ffi::OsString;
use std::path::PathBuf;

use bench::Cache;
use clap::{Args, ValueEnum};

/// Arguments of `tidegate mobibench`, and of this program when called through a link named `mobibench`.
#[derive(Args, Clone, Debug)]
#[command(
    args_override_self = true,
    after_help = "The files (test.dat0 ..., test.db0_0 ...) stay where they are for the next run, as with the \
                  original.\n\
                  Exit codes: 0 done, 1 done but stopped before its end or not as cold as a test that reads must \
                  be, 2 could not do it. The last line is `Err string : ...`."
)]
pub struct MobibenchArguments {
    /// Put the test files into this directory; it is created if missing, but not its parents [default: ./mobibench]
    #[arg(short = 'p', value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Set the file size in KiB, divided by the threads
    #[arg(
        short = 'f',
        value_name = "KIB",
        default_value_t = 1024,
        allow_negative_numbers = true
    )]
    pub file_kib: i64,
    /// Set the record size in KiB
    #[arg(
        short = 'r',
        value_name = "KIB",
        default_value_t = 4,
        allow_negative_numbers = true
    )]
    pub record_kib: i64,
    /// Run this file test: 0 write, 1 random write, 2 read, 3 random read, 4 append
    #[arg(
        short = 'a',
        value_name = "ACCESS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub access: i64,
    /// Sync writes by: 0 nothing, 1 O_SYNC, 2 fsync, 3 O_DIRECT, 4 O_SYNC and O_DIRECT, 5 mmap, 6 mmap and MS_ASYNC,
    /// 7 mmap and MS_SYNC, 8 fdatasync, 9 fbarrier, 10 fdatabarrier (both need a BarrierFS kernel)
    #[arg(
        short = 'y',
        value_name = "SYNC",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub sync: i64,
    /// Run this number of threads, each with its own file or databases; clamped to 1 to 100
    #[arg(
        short = 't',
        value_name = "THREADS",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub threads: i64,
    /// Test SQLite instead of files: 0 insert, 1 update, 2 delete
    #[arg(short = 'd', value_name = "OPERATION", allow_negative_numbers = true)]
    pub database: Option<i64>,
    /// Set the number of transactions, divided by the threads
    #[arg(
        short = 'n',
        value_name = "TRANSACTIONS",
        default_value_t = 10,
        allow_negative_numbers = true
    )]
    pub transactions: i64,
    /// Set the SQLite journal mode: 0 DELETE, 1 TRUNCATE, 2 PERSIST, 3 WAL, 4 MEMORY, 5 OFF
    #[arg(
        short = 'j',
        value_name = "JOURNAL",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub journal: i64,
    /// Set the SQLite synchronous mode: 0 OFF, 1 NORMAL, 2 FULL, 3 EXTRA
    #[arg(
        short = 's',
        value_name = "SYNCHRONOUS",
        default_value_t = 2,
        allow_negative_numbers = true
    )]
    pub synchronous: i64,
    /// Wait MS milliseconds after each transaction, inside the timed window; at most 10000
    #[arg(
        short = 'i',
        value_name = "MS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub interval_ms: i64,
    /// Replay this MobiGen script in the directory mobigen_temp of the path, which must exist
    #[arg(short = 'g', value_name = "SCRIPT")]
    pub script: Option<PathBuf>,
    /// Show no progress
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Append the latency of each operation to this file, in microseconds, after the run
    #[arg(short = 'L', value_name = "FILE")]
    pub latency_file: Option<PathBuf>,
    /// Append the operations of each second to this file, after the run
    #[arg(short = 'k', value_name = "FILE")]
    pub iops_file: Option<PathBuf>,
    /// Set the share of random records that repeat others, 0 to 99 percent
    #[arg(
        short = 'v',
        value_name = "PERCENT",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub overlap_percent: i64,
    /// Use this number of tables in each database, clamped to 1 to 20 [default: 3, with the preset mobibench-2013 1]
    #[arg(short = 'T', value_name = "TABLES", allow_negative_numbers = true)]
    pub tables: Option<i64>,
    /// Use this number of databases per thread, joined in one transaction; clamped to 1 to 20
    #[arg(
        short = 'D',
        value_name = "DATABASES",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub databases: i64,
    /// Insert keys in random order; the value is ignored
    #[arg(short = 'R', value_name = "ANY")]
    pub random_keys: Option<OsString>,
    /// Follow this version of the original
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        env = "MOBIBENCH_PRESET",
        default_value_t
    )]
    pub preset: Preset,
    /// Count the last fsync or msync in the time that rates are computed from (inside, as in the original) or not
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub final_sync: FinalSync,
    /// Set the page cache state at the start: cold as in the original, warm or as-is
    #[arg(long, value_name = "STATE", default_value = "cold")]
    pub cache: Cache,
    /// Print the run record as JSON instead of the original's lines
    #[arg(long)]
    pub json: bool,
    /// Words that belong to no option: ignored with a message (the original ignores them silently)
    #[arg(value_name = "WORD", hide = true)]
    pub operands: Vec<OsString>,
}

/// Version of the original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Follow version 1.0.4, used by the papers: `-a 0` allocates, one table, each statement commits itself
    #[value(name = "mobibench-2013", alias = "2013")]
    Paper,
    /// Follow version 1.0.9: `-a 0` overwrites, three tables, BEGIN to COMMIT
    #[default]
    #[value(name = "mobibench-head", alias = "head")]
    Head,
}

impl Preset {
    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "mobibench-2013",
            Self::Head => "mobibench-head",
        }
    }
}

/// Accounting of the last sync of each file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FinalSync {
    /// Count it in the time that rates are computed from
    #[default]
    Inside,
    /// Wait for it, but do not count it
    Outside,
}
