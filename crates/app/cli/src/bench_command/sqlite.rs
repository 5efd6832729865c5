//! `tidegate bench sqlite`: transactions on SQLite databases, repeated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use bench::sqlite::{
    Journal, KeyOrder, LibraryChoice, Operation, Place, SqliteSpec, StatementStyle, Synchronous,
    TransactionShape, Values,
};
use bench::window::CountCalls;
use bench::{Cache, FilePlacement, Workload};
use clap::Args;

use super::repeat::BenchCommonArguments;
use super::workloads::{RunAs, WorkloadArguments};
use crate::quantity::parse_duration;

/// Arguments of `tidegate bench sqlite`.
#[derive(Args, Debug)]
#[command(
    after_help = "By default: 1,000 inserts into 3 tables in one explicit transaction each, by prepared statements, \
                  with a write-ahead log that is synced at each commit: what an application does that must not lose \
                  what it confirmed. The timed window holds the transactions and the checkpoint at the end; the latency \
                  of a transaction is that of SQLite's calls alone. Any error of SQLite ends the run.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchSqliteArguments {
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// What is done, and how often
    #[command(flatten)]
    pub work: SqliteWorkArguments,
    /// How SQLite does it
    #[command(flatten)]
    pub way: SqliteWayArguments,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// What is done, and how often.
#[derive(Args, Debug)]
pub struct SqliteWorkArguments {
    /// insert, update, delete, or mix:INSERT/UPDATE with these shares in percent, the rest deletes
    #[arg(long, value_name = "WHAT", default_value = "insert")]
    pub operation: Operation,
    /// Transactions of each thread
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub transactions: u64,
    /// End after so long, with the transactions done until then [default: none]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time_limit: Option<Duration>,
    /// Tables of each database, with a statement in each transaction for each [default: 3, with autocommit 1]
    #[arg(long, value_name = "N")]
    pub tables: Option<u32>,
    /// Databases of each thread, joined by ATTACH, with a statement in each transaction for each table of each
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub databases: u32,
    /// Threads, each with databases and a connection of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Think time after each transaction
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_duration)]
    pub interval: Duration,
    /// Whether think time is inside or outside the time that rates are computed from
    #[arg(long, value_name = "PLACE", default_value = "inside")]
    pub interval_counts: Place,
    /// Rows that transactions meet: sequential, random, or original (as Mobibench draws them, with its misses)
    #[arg(long, value_name = "ORDER", default_value = "random")]
    pub keys: KeyOrder,
    /// The 100 bytes of each value: distinct, or constant (which newer SQLite does not always write)
    #[arg(long, value_name = "DATA", default_value = "distinct")]
    pub values: Values,
    /// Leave the databases where they are
    #[arg(long)]
    pub keep_files: bool,
}

/// How SQLite does it.
#[derive(Args, Debug)]
pub struct SqliteWayArguments {
    /// Journal mode: delete, truncate, persist, wal, memory or off
    #[arg(long, value_name = "MODE", default_value = "wal")]
    pub journal: Journal,
    /// How often SQLite waits for the medium: off, normal, full or extra
    #[arg(long, value_name = "LEVEL", default_value = "full")]
    pub synchronous: Synchronous,
    /// prepared statements, or text that is parsed each time
    #[arg(long, value_name = "STYLE", default_value = "prepared")]
    pub statements: StatementStyle,
    /// explicit (BEGIN, a statement for each table, COMMIT) or autocommit (one statement on one table)
    #[arg(long, value_name = "SHAPE", default_value = "explicit")]
    pub transaction: TransactionShape,
    /// Whether the checkpoint that ends a run with a write-ahead log is inside or outside the timed window
    #[arg(long, value_name = "PLACE", default_value = "inside")]
    pub checkpoint: Place,
    /// SQLite library: bundled, system (libsqlite3.so.0), or the path of a shared object
    #[arg(long, value_name = "LIBRARY", default_value = "bundled")]
    pub library: LibraryChoice,
    /// Count system calls by kind, as root or with CAP_PERFMON; makes each call slower
    #[arg(long)]
    pub count_calls: bool,
}

impl WorkloadArguments for BenchSqliteArguments {
    fn common(&self) -> &BenchCommonArguments {
        &self.common
    }

    fn directory(&self) -> Result<&Path> {
        Ok(&self.directory)
    }

    fn workload(&self, _run_as: RunAs) -> Result<Box<dyn Workload>> {
        Ok(Box::new(spec(self)))
    }
}

fn spec(arguments: &BenchSqliteArguments) -> SqliteSpec {
    let (work, way) = (&arguments.work, &arguments.way);
    let usual_tables = match way.transaction {
        TransactionShape::Explicit => 3,
        TransactionShape::Autocommit => 1,
    };
    SqliteSpec {
        directory: arguments.directory.clone(),
        library: way.library.clone(),
        operation: work.operation,
        journal: way.journal,
        synchronous: way.synchronous,
        transactions: work.transactions,
        time_limit_us: work
            .time_limit
            .map(|limit| u64::try_from(limit.as_micros()).unwrap_or(u64::MAX)),
        interval_us: u64::try_from(work.interval.as_micros()).unwrap_or(u64::MAX),
        interval_place: work.interval_counts,
        tables: work.tables.unwrap_or(usual_tables),
        databases: work.databases,
        threads: work.threads,
        style: way.statements,
        shape: way.transaction,
        keys: work.keys,
        values: work.values,
        checkpoint: way.checkpoint,
        count_calls: if way.count_calls {
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
