//! Errors of reading and writing traces. They name file and place, so the command adds only its own name.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::import::SkippedPlace;

#[cfg(feature = "native")]
use crate::native::{NativeReadError, NativeWriteError};

/// Error of reading a trace.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A malformed line.
    #[error("{}, line {line}: expected {expected}, found `{found}`; {hint}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Expected content.
        expected: String,
        /// Beginning of the line.
        found: String,
        /// The user's next step.
        hint: String,
    },
    /// A malformed binary record.
    #[error("{}, byte {offset}: expected {expected}, found {found}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Offset of the record in bytes.
        offset: u64,
        /// Expected content.
        expected: String,
        /// Actual content.
        found: String,
    },
    /// Records were found, and none of them could be read.
    #[error("{}: none of {count} records could be read; the first is at {place}: expected {expected}, found `{found}`; \
             is it of another format (--from)?", path.display())]
    NothingRead {
        /// The file.
        path: PathBuf,
        /// Number of records.
        count: u64,
        /// Place of the first.
        place: SkippedPlace,
        /// Expected content.
        expected: String,
        /// Actual content.
        found: String,
    },
    /// The file has no known format.
    #[error("{}: no known format of traces: expected a native trace or one of {}, found {found}; \
             name the format with --from", path.display(), known_formats())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// Actual content.
        found: String,
    },
    /// A native trace cannot be read.
    #[cfg(feature = "native")]
    #[error(transparent)]
    Native(#[from] NativeReadError),
}

/// Error of writing a trace.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An item cannot be expressed in JSON.
    #[error("an item cannot be written as JSON: {source}")]
    Json {
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// A native trace cannot be written.
    #[cfg(feature = "native")]
    #[error(transparent)]
    Native(#[from] NativeWriteError),
}

/// Error of copying a trace from a source to a sink.
#[derive(Debug, Error)]
pub enum CarryError {
    /// The source failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The sink failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl WriteError {
    /// Whether only the last item was refused, so that others may follow.
    #[must_use]
    pub const fn is_unfit(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Json { .. } => false,
            #[cfg(feature = "native")]
            Self::Native(error) => matches!(error, NativeWriteError::OutOfRange { .. }),
        }
    }
}

fn known_formats() -> String {
    let foreign = crate::import::Format::WORDS.iter().map(|(_, word, _)| *word);
    foreign
        .filter(|word| *word != "native")
        .collect::<Vec<_>>()
        .join(", ")
}
