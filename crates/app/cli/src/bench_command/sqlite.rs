//! `tidegate bench sqlite`: repeated runs of transactions on SQLite databases.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use bench::sqlite::{
    Journal, KeyOrder, LibraryChoice, Operation, Place, SqliteSpec, StatementStyle, Synchronous,
    TransactionShape, Values,
};
use bench::window::CountCalls;
use bench::{Cache, FilePlacement, Workload};
use clap::Args;

use super::common::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::quantity::parse_duration;

/// Arguments of `tidegate bench sqlite`.
#[derive(Args, Debug)]
#[command(
    after_help = "Default: 1,000 inserts into 3 tables, each in one explicit transaction by prepared statements, \
                  with a write-ahead log that is synced at each commit, as an application with durable commits \
                  does. The timed window holds the transactions and the checkpoint at the end; the latency of a \
                  transaction covers only SQLite's calls. Any error of SQLite ends the run.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchSqliteArguments {
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Kind and number of transactions.
    #[command(flatten)]
    pub work: SqliteWorkArguments,
    /// Configuration of SQLite.
    #[command(flatten)]
    pub io: SqliteIoArguments,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Kind and number of transactions.
#[derive(Args, Debug)]
pub struct SqliteWorkArguments {
    /// Set the operation: insert, update, delete, or mix:INSERT/UPDATE with these shares in percent, the rest deletes
    #[arg(long, value_name = "WHAT", default_value = "insert")]
    pub operation: Operation,
    /// Run N transactions in each thread
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub transactions: u64,
    /// Stop after this time, with the transactions completed until then [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time_limit: Option<Duration>,
    /// Use N tables in each database; each transaction has a statement for each [default: 3, with autocommit 1]
    #[arg(long, value_name = "N")]
    pub tables: Option<u32>,
    /// Use N databases per thread, joined by ATTACH; each transaction has a statement for each table of each database
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub databases: u32,
    /// Run N threads, each with its own databases and connection
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Pause after each transaction
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    pub interval: Duration,
    /// Count pauses inside or outside the time that rates are computed from
    #[arg(long, value_name = "PLACE", default_value = "inside")]
    pub interval_counts: Place,
    /// Choose rows in this order: sequential, random, or original (as Mobibench draws them, including misses)
    #[arg(long, value_name = "ORDER", default_value = "random")]
    pub keys: KeyOrder,
    /// Fill the 100 bytes of each value: distinct, or constant (newer SQLite versions skip some writes of equal
    /// values)
    #[arg(long, value_name = "DATA", default_value = "distinct")]
    pub values: Values,
    /// Keep the databases after the run
    #[arg(long)]
    pub keep_files: bool,
}

/// Configuration of SQLite.
#[derive(Args, Debug)]
pub struct SqliteIoArguments {
    /// Set the journal mode: delete, truncate, persist, wal, memory or off
    #[arg(long, value_name = "MODE", default_value = "wal")]
    pub journal: Journal,
    /// Set SQLite's synchronous level: off, normal, full or extra
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub synchronous: Synchronous,
    /// Run statements as prepared statements, or as text that is parsed each time
    #[arg(long, value_name = "STYLE", default_value = "prepared")]
    pub statements: StatementStyle,
    /// Set the transaction shape: explicit (BEGIN, a statement per table, COMMIT) or autocommit (one statement, one
    /// table)
    #[arg(long, value_name = "SHAPE", default_value = "explicit")]
    pub transaction: TransactionShape,
    /// Count the final checkpoint of a write-ahead log inside or outside the timed window
    #[arg(long, value_name = "PLACE", default_value = "inside")]
    pub checkpoint: Place,
    /// Use this SQLite library: bundled, system (libsqlite3.so.0), or the path of a shared object
    #[arg(long, value_name = "LIBRARY", default_value = "bundled")]
    pub library: LibraryChoice,
    /// Count system calls by kind, which slows down each call; needs root or CAP_PERFMON
    #[arg(long)]
    pub count_calls: bool,
}

impl WorkloadArguments for BenchSqliteArguments {
    common_and_directory!();

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)))
    }
}

fn spec(arguments: &BenchSqliteArguments) -> SqliteSpec {
    let (work, io) = (&arguments.work, &arguments.io);
    let usual_tables = match io.transaction {
        TransactionShape::Explicit => 3,
        TransactionShape::Autocommit => 1,
    };
    SqliteSpec {
        directory: arguments.directory.clone(),
        library: io.library.clone(),
        operation: work.operation,
        journal: io.journal,
        synchronous: io.synchronous,
        transactions: work.transactions,
        time_limit_us: work
            .time_limit
            .map(|limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX)),
        interval_us: u64::try_from(work.interval.as_micros()).unwrap_or(u64::MAX),
        interval_place: work.interval_counts,
        tables: work.tables.unwrap_or(usual_tables),
        databases: work.databases,
        threads: work.threads,
        style: io.statements,
        shape: io.transaction,
        keys: work.keys,
        values: work.values,
        checkpoint: io.checkpoint,
        count_calls: if io.count_calls {
            CountCalls::Yes
        } else {
            CountCalls::No
        },
        seed: arguments.common.seed,
        keep_files: work.keep_files,
        files: FilePlacement::OwnDirectory,
        cache: Cache::AsIs,
    }
}
