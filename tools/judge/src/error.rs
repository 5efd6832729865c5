//! Errors of comparisons.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Errors of comparisons.
#[derive(Debug, Error)]
pub enum JudgeError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// Failed operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("`{program}` does not start: {source}; {next_step}")]
    Start {
        /// The command.
        program: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
        /// Suggestion to the user.
        next_step: &'static str,
    },
    /// A program ended with a non-zero exit code.
    #[error("{command}: expected exit code 0, found {found}: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// Exit code or signal.
        found: String,
        /// Last output of the program.
        message: String,
    },
    /// A program's output was not as expected.
    #[error("{command}: expected {expected}, found `{found}`")]
    Answer {
        /// The command line.
        command: String,
        /// Expected output.
        expected: String,
        /// Beginning of the actual output.
        found: String,
    },
    /// A line of the journal is invalid.
    #[error("{}, line {line}: expected a measurement of schema {expected}: {problem}; give another --output", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Expected schema.
        expected: &'static str,
        /// The problem with the line.
        problem: String,
    },
}

impl JudgeError {
    /// Wraps a failed system call on a file.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}
