//! Why a program could not be recorded.

use std::io;

use results::call_trace::CallTraceError;
use thiserror::Error;

/// Why a program could not be recorded.
#[derive(Debug, Error)]
pub enum RecordError {
    /// No program was named.
    #[error("no command to record")]
    NoCommand,
    /// An argument holds a byte that no argument can have.
    #[error("argument {place} of the command holds a zero byte")]
    Argument {
        /// Place, counted from 0.
        place: usize,
    },
    /// The program could not be started.
    #[error("{command}: cannot be started: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The kernel refused something that recording needs.
    #[error("{operation} failed: {source}; recording needs ptrace and seccomp, which a container may forbid")]
    Refused {
        /// Which call.
        operation: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Write(#[from] CallTraceError),
}
