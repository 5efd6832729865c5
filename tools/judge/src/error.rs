//! Why a comparison could not be made.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a comparison could not be made.
#[derive(Debug, Error)]
pub enum JudgeError {
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
    /// A program could not be started.
    #[error("`{program}` does not start: {source}; {next_step}")]
    Start {
        /// The program.
        program: String,
        /// The system's answer.
        #[source]
        source: io::Error,
        /// What the user can do.
        next_step: &'static str,
    },
    /// A program ended with another exit code than 0.
    #[error("{command}: expected exit code 0, found {found}: {message}")]
    Failed {
        /// The command line.
        command: String,
        /// Exit code, or the signal.
        found: String,
        /// What it said last.
        message: String,
    },
    /// A program did not say what was expected.
    #[error("{command}: expected {expected}, found `{found}`")]
    Answer {
        /// The command line.
        command: String,
        /// What was expected.
        expected: String,
        /// Beginning of what it printed.
        found: String,
    },
    /// A line of the measurements can't be read.
    #[error("{}, line {line}: expected a measurement of schema {expected}: {problem}; give another --output", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// The schema.
        expected: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl JudgeError {
    /// A failed system call on a file.
    pub fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}
