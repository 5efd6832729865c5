//! Errors of fio job files.

use thiserror::Error;

/// The reason why a fio job is rejected. Nothing was touched.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FioError {
    /// A line that is neither section, option nor comment.
    #[error("{file}:{line}: {problem}")]
    Syntax {
        /// The job file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// An option with an invalid value.
    #[error("{file}:{line}: [{section}] {option}: {problem}")]
    Value {
        /// The job file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The section that the option applies to.
        section: String,
        /// The option with its value.
        option: String,
        /// The expected value.
        problem: String,
    },
    /// An option that affects the measurement and has no counterpart here.
    #[error("{file}:{line}: [{section}] {option} is not supported: it needs {needed}")]
    Unsupported {
        /// The job file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// The section that the option applies to.
        section: String,
        /// The option with its value.
        option: String,
        /// The missing feature.
        needed: String,
    },
    /// The file has no job.
    #[error("{file}: no section beside [global]: there is nothing to run")]
    Empty {
        /// The job file.
        file: String,
    },
}
