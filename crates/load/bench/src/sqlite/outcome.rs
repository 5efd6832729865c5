//! The outcome of an SQLite workload, and its run record.

use std::path::PathBuf;

use results::{ImpossibleLatency, Sample, TimedWindow, nearest_f64};

use super::library::LibraryInfo;
use super::plan::Kind;
use super::spec::{SqliteSpec, VALUE_BYTES};
use super::worker::place_of;
use crate::file_outcome::OperationOutcome;
use crate::latencies::LatencyCounter;
use crate::processor::WorkerUse;
use crate::window::WindowOutcome;
use crate::workload::{Measurement, Outcome, TextForm};

/// Names of this workload's counters; the unit is the last word.
pub mod counter {
    /// Writes by SQLite to its files.
    pub const FILE_WRITES: &str = "sqlite_file_writes_count";
    /// Bytes of those writes.
    pub const FILE_WRITTEN: &str = "sqlite_file_written_bytes";
    /// Statements that changed no row because the key did not exist.
    pub const UNCHANGED_STATEMENTS: &str = "sqlite_unchanged_statements_count";
    /// All statements, without BEGIN and COMMIT.
    pub const STATEMENTS: &str = "sqlite_statements_count";
    /// Think time of all threads together.
    pub const THINK: &str = "sqlite_think_ns";
    /// Rows found in all tables after the run, equal to the expected number.
    pub const ROWS: &str = "sqlite_rows_count";
}

/// The outcome of an SQLite workload.
#[derive(Clone, Debug, PartialEq)]
pub struct SqliteOutcome {
    /// The workload.
    pub spec: SqliteSpec,
    /// The library used.
    pub library: LibraryInfo,
    /// False if the run was stopped: everything below is partial.
    pub complete: bool,
    /// Start of the timed window (wall clock).
    pub started_unix_ns: u64,
    /// Insert transactions; bytes are those of values.
    pub insert: OperationOutcome,
    /// Update transactions.
    pub update: OperationOutcome,
    /// Delete transactions.
    pub delete: OperationOutcome,
    /// File syncs by SQLite, including those of the checkpoint if it is inside the window.
    pub sync: OperationOutcome,
    /// Statements that changed no row.
    pub unchanged_statements: u64,
    /// Writes by SQLite to its files.
    pub file_writes: u64,
    /// Bytes of those writes.
    pub file_written_bytes: u64,
    /// From the first worker's start to the last worker's last transaction.
    pub operation_ns: u64,
    /// From then until the last checkpoint completed, if it is inside the window.
    pub checkpoint_ns: u64,
    /// Think time of all threads together, inside the window or not.
    pub think_ns: u64,
    /// Rows found in all tables after the run.
    pub rows: u64,
    /// The system's counters.
    pub window: WindowOutcome,
    /// Processor use of all workers together.
    pub workers: Option<WorkerUse>,
    /// True if the machine's caches were dropped before the window; requested with [`crate::Cache::Cold`], and
    /// requires root.
    pub caches_were_dropped: bool,
    /// The directory of the databases, if they were kept.
    pub kept_directory: Option<PathBuf>,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

impl SqliteOutcome {
    /// The timed window: transactions, think time and checkpoint as far as they are inside it.
    #[must_use]
    pub const fn elapsed_ns(&self) -> u64 {
        self.operation_ns.saturating_add(self.checkpoint_ns)
    }

    /// Number of transactions of all kinds.
    #[must_use]
    pub const fn transactions(&self) -> u64 {
        self.insert.count + self.update.count + self.delete.count
    }

    /// Transactions per second; `None` if no time passed or no transaction completed.
    #[must_use]
    pub fn transactions_per_s(&self) -> Option<f64> {
        let (done, elapsed_ns) = (self.transactions(), self.elapsed_ns());
        (done > 0 && elapsed_ns > 0).then(|| nearest_f64(done) * 1e9 / nearest_f64(elapsed_ns))
    }

    /// The transactions of one kind.
    #[must_use]
    pub const fn kind(&self, kind: Kind) -> &OperationOutcome {
        match kind {
            Kind::Insert => &self.insert,
            Kind::Update => &self.update,
            Kind::Delete => &self.delete,
        }
    }

    /// One sample per kind of transaction, and one for syncs.
    pub(super) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let window = TimedWindow {
            sync_ns: self.checkpoint_ns,
            ..TimedWindow::of(self.elapsed_ns())
        };
        let transactions = Kind::ALL.iter().map(|kind| (kind.name(), self.kind(*kind)));
        let kinds = transactions.chain([("sync", &self.sync)]);
        let done = kinds.filter(|(_, done)| done.count > 0);
        done.map(|(name, done)| done.sample(name, window)).collect()
    }

    /// Adds a worker's transactions.
    pub(super) fn add_kinds(&mut self, kinds: &[LatencyCounter; 3]) {
        let value_bytes = u64::try_from(VALUE_BYTES).unwrap_or(u64::MAX);
        let written = self.spec.statements().saturating_mul(value_bytes);
        self.insert.merge(&kinds[place_of(Kind::Insert)].outcome(written));
        self.update.merge(&kinds[place_of(Kind::Update)].outcome(written));
        self.delete.merge(&kinds[place_of(Kind::Delete)].outcome(0));
    }
}

impl Measurement for SqliteOutcome {
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("sqlite", &self.spec, &self.spec.directory);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        outcome.add_window(&self.window, self.workers);
        for (name, value) in [
            (counter::FILE_WRITES, self.file_writes),
            (counter::FILE_WRITTEN, self.file_written_bytes),
            (counter::UNCHANGED_STATEMENTS, self.unchanged_statements),
            (counter::STATEMENTS, self.transactions() * self.spec.statements()),
            (counter::THINK, self.think_ns),
            (counter::ROWS, self.rows),
        ] {
            outcome.count(name, value);
        }
        outcome.fact("caches_were_dropped", self.caches_were_dropped);
        outcome.fact("sqlite", &self.library);
        outcome.leftover(self.leftover.as_ref());
        let absent = self
            .window
            .absent
            .iter()
            .find(|absent| absent.what == "system calls");
        let not_counted = absent.map(|absent| format!("system calls were not counted: {}", absent.reason));
        outcome.notes.extend(not_counted);
        outcome.text = self.describe();
        outcome.text_form = TextForm::Table;
        outcome.kept_directory = self.kept_directory;
        Ok(outcome)
    }
}
