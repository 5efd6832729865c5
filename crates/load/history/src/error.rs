//! Why a history could not be read or written.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

use crate::store::RunId;

/// Why a history could not be read or written.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The folder of the file cannot be made.
    #[error("{}: cannot make the folder for the history: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file is something else.
    #[error("{}: expected a history of tidegate, found {found}; name another file with --history", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        found: String,
    },
    /// The file was written by a later version.
    #[error("{}: history of schema {found}, this version knows up to {supported}; use the version that wrote it", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Last schema known.
        supported: i64,
    },
    /// The file is damaged.
    #[error("{}: the history is damaged ({source}); move it away to start another one, or restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// SQLite's answer.
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
        /// The decoder's answer.
        #[source]
        source: serde_json::Error,
    },
    /// A record cannot be expressed in JSON.
    #[error("run `{label}` cannot be written as JSON: {source}")]
    Encode {
        /// Label of the record.
        label: String,
        /// The encoder's answer.
        #[source]
        source: serde_json::Error,
    },
    /// There is no such run.
    #[error("{}: there is no run {run}; `tidegate bench history list` shows them", path.display())]
    NoSuchRun {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        run: RunId,
    },
    /// A tag that could be taken for an id, or is empty.
    #[error("`{tag}` is no tag: a tag has letters, is at most 64 characters long, and has no blanks")]
    BadTag {
        /// What was asked for.
        tag: String,
    },
    /// Another program holds the file for too long.
    #[error("{}: another program is writing to the history and does not finish", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Anything else that SQLite says.
    #[error("{}: cannot {operation} the history: {source}", path.display())]
    Sqlite {
        /// What was tried (`open`, `read`, `write`).
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// SQLite's answer.
        #[source]
        source: rusqlite::Error,
    },
}

impl HistoryError {
    /// Sorts out what SQLite says.
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
