//! `tidegate bench`: workloads on any directory, their repetition and their records.

pub mod file;
pub mod metadata;
pub mod postmark;
pub mod progress;
pub mod repeat;

use anyhow::Result;
use clap::Subcommand;

use self::file::BenchFileArguments;
use self::metadata::BenchMetadataArguments;
use self::postmark::BenchPostmarkArguments;
use crate::compare::arguments::{BenchCompareArguments, BenchShowArguments};
use crate::history_command::HistoryArguments;
use crate::{Finding, compare, history_command};

/// What `tidegate bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Read or write files: throughput, operations per second, latency, processor use
    File(BenchFileArguments),
    /// Create, list, look at and remove many small files
    Metadata(BenchMetadataArguments),
    /// Create, read, append to and delete many small files, operation for operation as PostMark 1.51
    Postmark(BenchPostmarkArguments),
    /// Compare directories: every workload on every target, in interleaved rounds, as ratios to a baseline
    Compare(BenchCompareArguments),
    /// List, show, tag, delete and export the runs that were stored
    History(HistoryArguments),
    /// Show the finished records of a comparison again
    Show(BenchShowArguments),
}

/// Runs the command.
pub fn run(command: &BenchCommand) -> Result<Finding> {
    match command {
        BenchCommand::File(arguments) => file::run(arguments),
        BenchCommand::Metadata(arguments) => metadata::run(arguments),
        BenchCommand::Postmark(arguments) => postmark::run(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::History(arguments) => history_command::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}
