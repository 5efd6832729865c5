//! The choices of an SQLite workload: library, operation, journal, keys, values and their like.
//!
//! Each has one name, the same on the command line, in records and, where it is a pragma, in SQL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::words::words;

/// Where the library comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryChoice {
    /// The one inside this program.
    Bundled,
    /// `libsqlite3.so.0`, as the system's linker finds it.
    System,
    /// This shared object.
    File(PathBuf),
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Adds rows.
    Insert,
    /// Changes the value of rows.
    Update,
    /// Removes rows.
    Delete,
    /// One of the three, drawn for each transaction; the rest of 100 % deletes.
    Mix {
        /// Share of transactions that insert.
        insert_percent: u8,
        /// Share of transactions that update.
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
    /// True when rows must be there before the run.
    #[must_use]
    pub const fn needs_rows(self) -> bool {
        !matches!(self, Self::Insert)
    }
}

words! {
    /// How a transaction can be undone (`PRAGMA journal_mode`).
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
        /// No journal: nothing can be undone.
        Off = "off",
    }
}

words! {
    /// How often SQLite waits for the medium (`PRAGMA synchronous`).
    #[serde(rename_all = "lowercase")]
    Synchronous {
        /// Never.
        Off = "off",
        /// At the moments that matter most.
        Normal = "normal",
        /// At each commit.
        Full = "full",
        /// At each commit, and of the folder after the journal is removed.
        Extra = "extra",
    }
}

words! {
    /// Inside or outside the timed window.
    #[serde(rename_all = "lowercase")]
    Place {
        /// Part of the time that rates are computed from.
        Inside = "inside",
        /// Not part of it.
        Outside = "outside",
    }
}

words! {
    /// How statements reach the library.
    #[serde(rename_all = "lowercase")]
    StatementStyle {
        /// Prepared once, with values bound: what applications do.
        Prepared = "prepared",
        /// As text, parsed and planned each time: what the original Mobibench does.
        Text = "text",
    }
}

words! {
    /// What a transaction is made of.
    #[serde(rename_all = "lowercase")]
    TransactionShape {
        /// BEGIN, a statement for each table of each database, COMMIT: the original as it is today.
        Explicit = "explicit",
        /// One statement that is its own transaction, on one table with an AUTOINCREMENT key: the paper of 2013.
        Autocommit = "autocommit",
    }
}

words! {
    /// The rows that transactions meet.
    #[serde(rename_all = "lowercase")]
    KeyOrder {
        /// In ascending order.
        Sequential = "sequential",
        /// Shuffled: inserts and deletes meet each key once; updates draw among the rows that exist.
        Random = "random",
        /// As the original draws them after `srand(transaction)`: updates take `rand() % rows + 1` for each table, which
        /// misses now and then, as the keys are 0 to rows - 1; inserts and deletes draw for each database until the key is
        /// a fresh one.
        Original = "original",
    }
}

words! {
    /// What is written.
    #[serde(rename_all = "lowercase")]
    Values {
        /// 100 bytes that are different each time.
        Distinct = "distinct",
        /// The same 100 bytes each time; newer SQLite does not write a row that an update leaves as it was.
        Constant = "constant",
    }
}
