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
    /// A native trace cannot be written.
    #[cfg(feature = "native")]
    #[error(transparent)]
    Native(#[from] NativeWriteError),
}

impl WriteError {
    /// Whether the last item alone was refused, and others may follow.
    #[must_use]
    pub const fn is_unfit(&self) -> bool {
        match self {
            Self::Io { .. } => false,
            #[cfg(feature = "native")]
            Self::Native(error) => matches!(error, NativeWriteError::OutOfRange { .. }),
        }
    }
}
