//! What goes wrong when traces are read and written. The command adds nothing but its name: file and place are here.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[cfg(feature = "native")]
use crate::native::{NativeReadError, NativeWriteError};

/// Why a trace could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A line is not what it must be.
    #[error("{}, line {line}: expected {expected}, found `{found}`; {hint}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What should be there.
        expected: String,
        /// Beginning of the line.
        found: String,
        /// What to do.
        hint: String,
    },
    /// A binary record is not what it must be.
    #[error("{}, byte {offset}: expected {expected}, found {found}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// No format fits.
    #[error("{}: no known format of traces: expected a native trace or one of {}, found {found}; \
             name the format with --from", path.display(), known_formats())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// A native trace cannot be read.
    #[cfg(feature = "native")]
    #[error(transparent)]
    Native(#[from] NativeReadError),
}

/// Why a trace could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// An item cannot be expressed in JSON.
    #[error("an item cannot be written as JSON: {source}")]
    Json {
        /// The encoder's answer.
        #[source]
        source: serde_json::Error,
    },
    /// A native trace cannot be written.
    #[cfg(feature = "native")]
    #[error(transparent)]
    Native(#[from] NativeWriteError),
}

/// Why a trace could not be carried from one place to another.
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
    /// Whether the last item alone was refused, and others may follow.
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
