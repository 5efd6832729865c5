//! `tidegate bench`: workloads on any directory, their repetition and their records.

pub mod all;
pub mod app;
pub mod file;
pub mod fio;
pub mod job;
pub mod metadata;
pub mod postmark;
pub mod progress;
pub mod repeat;
pub mod sqlite;
pub mod summary;
pub mod tio;
pub mod uflip;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::all::BenchAllArguments;
use self::app::BenchAppArguments;
use self::file::BenchFileArguments;
use self::fio::FioArguments;
use self::job::{BenchJobArguments, BenchRunArguments};
use self::metadata::BenchMetadataArguments;
use self::postmark::BenchPostmarkArguments;
use self::sqlite::BenchSqliteArguments;
use self::tio::BenchTioArguments;
use self::uflip::BenchUflipArguments;
use crate::compare::arguments::{BenchCompareArguments, BenchShowArguments};
use crate::history_command::HistoryArguments;
use crate::replay::ReplayArguments;
use crate::{Finding, compare, history_command, replay};

/// Arguments of `tidegate bench`: a subcommand, or a fio job.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct BenchArguments {
    /// What to measure.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// fio jobs.
    #[command(flatten)]
    pub fio: FioArguments,
}

/// What `tidegate bench` measures.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Read or write files: throughput, operations per second, latency, processor use
    File(BenchFileArguments),
    /// Create, list, look at and remove many small files
    Metadata(BenchMetadataArguments),
    /// Create, read, append to and delete many small files, operation for operation as PostMark 1.51
    Postmark(BenchPostmarkArguments),
    /// Insert, update and delete rows in SQLite databases, transaction by transaction
    Sqlite(BenchSqliteArguments),
    /// Run a job that comes with the program: file I/O and SQLite as the Mobibench app measures them
    All(BenchAllArguments),
    /// Run a job of one's own: several workloads, one after the other, written down in TOML
    Run(BenchRunArguments),
    /// Check a job file, or show the jobs that come with the program
    Job(BenchJobArguments),
    /// Run the load of a phone's application, generated from what was published about it
    App(BenchAppArguments),
    /// Write and read files sequentially and at random in four phases, as tiobench
    Tio(BenchTioArguments),
    /// Find out what a flash device is like inside: pages, alignment, locality, and six more micro-benchmarks
    Uflip(BenchUflipArguments),
    /// Replay a trace of calls, as `tidegate replay`
    Replay(ReplayArguments),
    /// Compare directories: every workload on every target, in interleaved rounds, as ratios to a baseline
    Compare(BenchCompareArguments),
    /// List, show, tag, delete and export the runs that were stored
    History(HistoryArguments),
    /// Show the finished records of a comparison again
    Show(BenchShowArguments),
}

/// Runs the command.
pub fn run(arguments: &BenchArguments) -> Result<Finding> {
    let Some(command) = &arguments.command else {
        return fio::run(&arguments.fio);
    };
    match command {
        BenchCommand::File(arguments) => file::run(arguments),
        BenchCommand::Metadata(arguments) => metadata::run(arguments),
        BenchCommand::Postmark(arguments) => postmark::run(arguments),
        BenchCommand::Sqlite(arguments) => sqlite::run(arguments),
        BenchCommand::All(arguments) => all::run(arguments),
        BenchCommand::Run(arguments) => job::run(arguments),
        BenchCommand::Job(arguments) => job::run_inspection(arguments),
        BenchCommand::App(arguments) => app::run(arguments),
        BenchCommand::Tio(arguments) => tio::run(arguments),
        BenchCommand::Uflip(arguments) => uflip::run(arguments),
        BenchCommand::Replay(arguments) => replay::run(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::History(arguments) => history_command::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}
