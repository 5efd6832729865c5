//! The choices of an SQLite workload: library, operation, journal, keys, values and others.
//!
//! Each has one name, the same on the command line, in records and, for a pragma, in SQL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::words::words;

/// The source of the library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryChoice {
    /// The library bundled with this program.
    Bundled,
    /// `libsqlite3.so.0`, as found by the system's linker.
    System,
    /// This shared object.
    File(PathBuf),
}

/// The operation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Inserts rows.
    Insert,
    /// Updates the value of rows.
    Update,
    /// Deletes rows.
    Delete,
    /// A random mix of the three, drawn per transaction; the rest of 100 % deletes.
    Mix {
        /// Percentage of insert transactions.
        insert_percent: u8,
        /// Percentage of update transactions.
        update_percent: u8,
    },
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert => formatter.pad("insert"),
            Self::Update => formatter.pad("update"),
            Self::Delete => formatter.pad("delete"),
            Self::Mix {
                insert_percent,
                update_percent,
            } => write!(formatter, "mix:{insert_percent}/{update_percent}"),
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "`{text}` is none of insert, update, delete, mix:INSERT/UPDATE (percentages, the rest deletes; \
                 for example mix:50/30)"
            )
        };
        match text {
            "insert" => Ok(Self::Insert),
            "update" => Ok(Self::Update),
            "delete" => Ok(Self::Delete),
            _ => {
                let shares = text
                    .strip_prefix("mix:")
                    .and_then(|shares| shares.split_once('/'));
                let (insert, update) = shares.ok_or_else(wrong)?;
                match (insert.parse(), update.parse()) {
                    (Ok(insert_percent @ 0..=100), Ok(update_percent @ 0..=100)) => Ok(Self::Mix {
                        insert_percent,
                        update_percent,
                    }),
                    _ => Err(wrong()),
                }
            }
        }
    }
}

impl FromStr for LibraryChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "bundled" => Ok(Self::Bundled),
            "system" => Ok(Self::System),
            path if path.contains('/') => Ok(Self::File(PathBuf::from(path))),
            _ => Err(format!(
                "`{text}` is none of bundled, system, or a path of a shared object (with a slash)"
            )),
        }
    }
}

impl Operation {
    /// True if rows must exist before the run.
    #[must_use]
    pub const fn needs_rows(self) -> bool {
        !matches!(self, Self::Insert)
    }
}

words! {
    /// Rollback journal mode (`PRAGMA journal_mode`).
    #[serde(rename_all = "lowercase")]
    Journal {
        /// A journal file, removed at commit.
        Delete = "delete",
        /// A journal file, truncated at commit.
        Truncate = "truncate",
        /// A journal file whose header is cleared at commit.
        Persist = "persist",
        /// A write-ahead log.
        Wal = "wal",
        /// A journal in memory: a crash corrupts the database.
        Memory = "memory",
        /// No journal: no rollback.
        Off = "off",
    }
}

words! {
    /// Frequency of SQLite's syncs to the medium (`PRAGMA synchronous`).
    #[serde(rename_all = "lowercase")]
    Synchronous {
        /// Never.
        Off = "off",
        /// At the most critical moments.
        Normal = "normal",
        /// At each commit.
        Full = "full",
        /// At each commit, and of the directory after the journal is removed.
        Extra = "extra",
    }
}

words! {
    /// Inside or outside the timed window.
    #[serde(rename_all = "lowercase")]
    Place {
        /// Part of the time on which rates are based.
        Inside = "inside",
        /// Not part of it.
        Outside = "outside",
    }
}

words! {
    /// How statements are passed to the library.
    #[serde(rename_all = "lowercase")]
    StatementStyle {
        /// Prepared once, with bound values, as applications do.
        Prepared = "prepared",
        /// As text, parsed and planned each time, as the original Mobibench does.
        Text = "text",
    }
}

words! {
    /// The structure of a transaction.
    #[serde(rename_all = "lowercase")]
    TransactionShape {
        /// BEGIN, a statement for each table of each database, COMMIT: the current version of the original.
        Explicit = "explicit",
        /// One statement that is its own transaction, on one table with an AUTOINCREMENT key: the paper of 2013.
        Autocommit = "autocommit",
    }
}

words! {
    /// The keys that transactions access.
    #[serde(rename_all = "lowercase")]
    KeyOrder {
        /// In ascending order.
        Sequential = "sequential",
        /// Shuffled: inserts and deletes access each key once; updates draw among the existing rows.
        Random = "random",
        /// As drawn by the original after `srand(transaction)`: updates use `rand() % rows + 1` for each table, which
        /// occasionally misses, because the keys are 0 to rows - 1; inserts and deletes draw for each database until
        /// the key is unused.
        Original = "original",
    }
}

words! {
    /// The written values.
    #[serde(rename_all = "lowercase")]
    Values {
        /// 100 bytes, different each time.
        Distinct = "distinct",
        /// The same 100 bytes each time; newer SQLite versions do not write a row that an update leaves unchanged.
        Constant = "constant",
    }
}
