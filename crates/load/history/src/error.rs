//! Errors of reading and writing a history.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::store::RunId;

/// Errors of reading and writing a history.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The directory of the file cannot be created.
    #[error("{}: cannot make the folder for the history: {source}", path.display())]
    Folder {
        /// The directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The file is not a history.
    #[error("{}: expected a history of tidegate, found {found}; name another file with --history", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Actual type of the file.
        found: String,
    },
    /// The file has a later schema.
    #[error("{}: history of schema {found}, this version knows up to {supported}; use the version that wrote it", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Latest supported schema.
        supported: i64,
    },
    /// The file is damaged.
    #[error("{}: the history is damaged ({source}); move it away to start another one, or restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        #[source]
        source: rusqlite::Error,
    },
    /// A stored record cannot be read.
    #[error("{}, run {run}: a record in it can't be read: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The run.
        run: RunId,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// A record cannot be expressed in JSON.
    #[error("run `{label}` cannot be written as JSON: {source}")]
    Encode {
        /// Label of the record.
        label: String,
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The run does not exist.
    #[error("{}: there is no run {run}; `tidegate bench history list` shows them", path.display())]
    NoSuchRun {
        /// The file.
        path: PathBuf,
        /// The requested run.
        run: RunId,
    },
    /// The tag could be mistaken for an id, or is empty.
    #[error("`{tag}` is no tag: a tag has letters, is at most 64 characters long, and has no blanks")]
    BadTag {
        /// The requested tag.
        tag: String,
    },
    /// Another program keeps the file locked for too long.
    #[error("{}: another program is writing to the history and does not finish", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Any other SQLite error.
    #[error("{}: cannot {operation} the history: {source}", path.display())]
    Sqlite {
        /// Failed operation (`open`, `read`, `write`).
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        #[source]
        source: rusqlite::Error,
    },
}

impl HistoryError {
    /// Classifies an SQLite error.
    pub(crate) fn of(operation: &'static str, path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::Foreign {
                path,
                found: "a file that is no SQLite database".to_owned(),
            },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path },
            _ => Self::Sqlite {
                operation,
                path,
                source,
            },
        }
    }
}
