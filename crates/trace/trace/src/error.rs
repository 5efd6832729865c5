//! Errors of recording a program.

use std::io;

use results::call_trace::CallTraceError;
use thiserror::Error;

/// Error of recording a program.
#[derive(Debug, Error)]
pub enum RecordError {
    /// No program was named.
    #[error("no command to record")]
    NoCommand,
    /// An argument contains a zero byte.
    #[error("argument {place} of the command holds a zero byte")]
    Argument {
        /// Position, counted from 0.
        place: usize,
    },
    /// The program could not be started.
    #[error("{command}: cannot be started: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused an operation that recording needs.
    #[error("{operation} failed: {source}; recording needs ptrace and seccomp, which a container may forbid")]
    Refused {
        /// The system call.
        operation: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] CallTraceError),
}
