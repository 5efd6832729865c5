//! The specification of an SQLite workload, and the checks that need no library.

mod choices;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::placement::FilePlacement;
use crate::spec::Cache;
use crate::window::CountCalls;

pub use self::choices::{
    Journal, KeyOrder, LibraryChoice, Operation, Place, StatementStyle, Synchronous, TransactionShape, Values,
};

/// A larger number of threads is taken for a typing error.
const THREADS_MAX: u32 = 1024;
/// A larger number of tables is taken for a typing error.
const TABLES_MAX: u32 = 1000;
/// SQLite attaches at most 125 databases, and no more than 10 unless it was built for more.
const DATABASES_MAX: u32 = 126;
/// Keys are 64-bit signed numbers; this leaves enough for those that a mix inserts.
const TRANSACTIONS_MAX: u64 = 1 << 40;

/// Fewest rows of a table for updates or deletes.
pub const ROWS_MIN: u64 = 296;
/// Page size of every database.
pub const PAGE_BYTES: u32 = 4096;
/// Length of each value.
pub const VALUE_BYTES: usize = 100;

/// An SQLite workload. There is no `Default`: every choice changes the meaning of the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqliteSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// The library that runs the statements.
    pub library: LibraryChoice,
    /// The operation of a transaction.
    pub operation: Operation,
    /// `PRAGMA journal_mode`.
    pub journal: Journal,
    /// `PRAGMA synchronous`.
    pub synchronous: Synchronous,
    /// Transactions per thread.
    pub transactions: u64,
    /// Each thread ends after this time with the transactions completed so far; the run still counts as complete.
    #[serde(default)]
    pub time_limit_us: Option<u64>,
    /// Think time after each transaction; never part of a transaction's latency.
    pub interval_us: u64,
    /// Whether the timed window, and therefore the rate, includes the think time.
    pub interval_place: Place,
    /// Tables per database; a transaction has one statement for each.
    pub tables: u32,
    /// Databases per thread, joined by ATTACH; a transaction has one statement for each table of each.
    pub databases: u32,
    /// Threads, each with its own databases and connection.
    pub threads: u32,
    /// How statements are passed to the library.
    pub style: StatementStyle,
    /// The structure of a transaction.
    pub shape: TransactionShape,
    /// The keys that transactions access, and their order.
    pub keys: KeyOrder,
    /// The written values.
    pub values: Values,
    /// Whether the timed window includes the checkpoint at the end of a run in WAL mode.
    pub checkpoint: Place,
    /// Whether system calls are counted, which slows them down.
    pub count_calls: CountCalls,
    /// Seed of random orders and contents: the same seed gives the same run.
    pub seed: u64,
    /// Keeps the databases and reports their location.
    pub keep_files: bool,
    /// Whether the databases are private to the run or persist under names: prefix, thread, `_`, database.
    #[serde(default)]
    pub files: FilePlacement,
    /// With `Cold`, the machine's caches are dropped before the window; SQLite's own cache keeps its content.
    #[serde(default = "as_is")]
    pub cache: Cache,
}

/// Older records do not mention caches, which were left as they were.
const fn as_is() -> Cache {
    Cache::AsIs
}

impl SqliteSpec {
    /// Checks everything that needs no library and no system call.
    ///
    /// # Errors
    /// [`BenchError::Spec`] with the field, and the expected and found values.
    pub fn validate(&self) -> Result<(), BenchError> {
        let within = |field, value: u64, max: u64| {
            if (1..=max).contains(&value) {
                return Ok(());
            }
            Err(BenchError::spec(field, format!("{value}, expected 1 to {max}")))
        };
        within("threads", u64::from(self.threads), u64::from(THREADS_MAX))?;
        within("tables", u64::from(self.tables), u64::from(TABLES_MAX))?;
        within("databases", u64::from(self.databases), u64::from(DATABASES_MAX))?;
        within("transactions", self.transactions, TRANSACTIONS_MAX)?;
        if self.shape == TransactionShape::Autocommit && (self.tables, self.databases) != (1, 1) {
            let problem = format!(
                "an autocommit transaction is one statement on one table, found {} tables in {} databases",
                self.tables, self.databases
            );
            return Err(BenchError::spec("transaction", problem));
        }
        if let Operation::Mix {
            insert_percent,
            update_percent,
        } = self.operation
        {
            let sum = u32::from(insert_percent) + u32::from(update_percent);
            if sum > 100 {
                let problem =
                    format!("{insert_percent} % inserts and {update_percent} % updates are {sum} %");
                return Err(BenchError::spec(
                    "operation",
                    problem + ", expected at most 100 %",
                ));
            }
        }
        if self.keys == KeyOrder::Original && matches!(self.operation, Operation::Mix { .. }) {
            let problem = "the original has no mix of operations; expected sequential or random";
            return Err(BenchError::spec("keys", problem));
        }
        Ok(())
    }

    /// Rows of each table before the run.
    #[must_use]
    pub fn rows_before(&self) -> u64 {
        if self.operation.needs_rows() {
            self.transactions.max(ROWS_MIN)
        } else {
            0
        }
    }

    /// Statements per transaction, without BEGIN and COMMIT.
    #[must_use]
    pub fn statements(&self) -> u64 {
        u64::from(self.tables) * u64::from(self.databases)
    }

    /// Approximate space that the run needs: rows with their share of pages, and journals.
    #[must_use]
    pub(crate) fn space_bytes(&self) -> u64 {
        const ROW_BYTES: u64 = 160;
        // A write-ahead log restarts after 1000 pages, unless a transaction is larger.
        const JOURNAL_BYTES_MAX: u64 = 1100 * 4096;
        let rows = self.rows_before().saturating_add(self.transactions);
        let tables = u64::from(self.tables);
        let pages = self.transactions.saturating_mul(tables).saturating_mul(3);
        let journal = pages.saturating_mul(u64::from(PAGE_BYTES)).min(JOURNAL_BYTES_MAX);
        rows.saturating_mul(tables)
            .saturating_mul(ROW_BYTES)
            .saturating_add(tables * 2 * u64::from(PAGE_BYTES))
            .saturating_add(journal)
            .saturating_mul(u64::from(self.databases))
            .saturating_mul(u64::from(self.threads))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn spec() -> SqliteSpec {
        SqliteSpec {
            directory: PathBuf::from("/nowhere"),
            library: LibraryChoice::Bundled,
            operation: Operation::Insert,
            journal: Journal::Wal,
            synchronous: Synchronous::Full,
            transactions: 10,
            time_limit_us: None,
            interval_us: 0,
            interval_place: Place::Inside,
            tables: 3,
            databases: 1,
            threads: 1,
            style: StatementStyle::Prepared,
            shape: TransactionShape::Explicit,
            keys: KeyOrder::Sequential,
            values: Values::Distinct,
            checkpoint: Place::Inside,
            count_calls: CountCalls::No,
            seed: 1,
            keep_files: false,
            files: FilePlacement::OwnDirectory,
            cache: Cache::AsIs,
        }
    }

    #[test]
    fn words_are_the_same_on_the_command_line_in_records_and_in_sql() {
        for journal in Journal::ALL {
            assert_eq!(journal.name().to_uppercase().parse(), Ok(*journal));
            assert_eq!(serde_json::to_value(journal).unwrap(), journal.name());
        }
        for synchronous in Synchronous::ALL {
            assert_eq!(synchronous.name().parse(), Ok(*synchronous));
        }
        let message = "wall".parse::<Journal>().unwrap_err();
        assert!(message.contains("none of delete, truncate"), "{message}");
    }

    #[test]
    fn operations_and_libraries_are_read_as_they_are_shown() {
        for text in ["insert", "update", "delete", "mix:50/30"] {
            assert_eq!(text.parse::<Operation>().unwrap().to_string(), text);
        }
        for text in ["mix", "mix:50", "mix:50/130", "mix:a/b", "select"] {
            text.parse::<Operation>().expect_err(text);
        }
        assert_eq!("system".parse(), Ok(LibraryChoice::System));
        assert_eq!("./a.so".parse(), Ok(LibraryChoice::File(PathBuf::from("./a.so"))));
        "sqlite".parse::<LibraryChoice>().unwrap_err();
    }

    #[test]
    fn contradictions_name_the_field() {
        let refused = |change: fn(&mut SqliteSpec)| {
            let mut spec = spec();
            change(&mut spec);
            match spec.validate() {
                Err(BenchError::Spec { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        spec().validate().unwrap();
        assert_eq!(refused(|spec| spec.threads = 10_000_000), "threads");
        assert_eq!(refused(|spec| spec.threads = 0), "threads");
        assert_eq!(refused(|spec| spec.tables = 0), "tables");
        assert_eq!(refused(|spec| spec.databases = 127), "databases");
        assert_eq!(refused(|spec| spec.transactions = 0), "transactions");
        assert_eq!(
            refused(|spec| spec.shape = TransactionShape::Autocommit),
            "transaction"
        );
        let mix = Operation::Mix {
            insert_percent: 60,
            update_percent: 41,
        };
        assert_eq!(
            refused(|spec| spec.operation = Operation::Mix {
                insert_percent: 60,
                update_percent: 41
            }),
            "operation"
        );
        let mut original = spec();
        (original.operation, original.keys) = (mix, KeyOrder::Original);
        original.validate().unwrap_err();
    }

    #[test]
    fn an_absurd_workload_needs_absurd_space_and_does_not_overflow() {
        let mut huge = spec();
        (huge.transactions, huge.threads, huge.databases, huge.tables) = (TRANSACTIONS_MAX, 1024, 126, 1000);
        huge.validate().unwrap();
        assert_eq!(huge.space_bytes(), u64::MAX);
    }
}
