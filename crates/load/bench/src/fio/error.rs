//! Why a fio job can't be taken.

use thiserror::Error;

/// Why a fio job can't be taken. Nothing was touched.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FioError {
    /// A line that is neither section, option nor comment.
    #[error("{file}:{line}: {problem}")]
    Syntax {
        /// The job file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// An option whose value can't be read.
    #[error("{file}:{line}: [{section}] {option}: {problem}")]
    Value {
        /// The job file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The section it counts for.
        section: String,
        /// The option with its value.
        option: String,
        /// What was expected.
        problem: String,
    },
    /// An option that changes what is measured, and that there is nothing for here.
    #[error("{file}:{line}: [{section}] {option} is not supported: it needs {needed}")]
    Unsupported {
        /// The job file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// The section it counts for.
        section: String,
        /// The option with its value.
        option: String,
        /// What would be needed.
        needed: String,
    },
    /// The file has no job.
    #[error("{file}: no section beside [global]: there is nothing to run")]
    Empty {
        /// The job file.
        file: String,
    },
}
