//! Reasons why a series can't be measured.

use std::io;

use bench::BenchError;
use runner::IdentityError;
use thiserror::Error;

/// Error of a series.
#[derive(Debug, Error)]
pub enum SeriesError {
    /// The workload failed.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The directory can't be measured.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A record can't be shown or written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The amount of work makes no sense for a workload.
    #[error("{workload}")]
    Amount {
        /// Name of the workload.
        workload: &'static str,
        /// The reason.
        source: BenchError,
    },
    /// Targets share a label.
    #[error("two targets are called `{0}`")]
    SameLabel(String),
    /// The baseline is not measured.
    #[error("the baseline `{baseline}` is none of the targets {expected}")]
    NoBaseline {
        /// Label of the baseline.
        baseline: String,
        /// The labels, with the one most likely intended.
        expected: String,
    },
    /// A required target is not measured.
    #[error("a requirement names `{label}`, which is none of the targets {expected}")]
    NoTarget {
        /// The label of the requirement.
        label: String,
        /// The labels, with the one most likely intended.
        expected: String,
    },
    /// A required workload is not measured.
    #[error("a requirement names {0}, which is not among the workloads")]
    NoWorkload(&'static str),
}
