//! `tidegate bench`: runs workloads on any directory, repeats them and writes their records.

pub mod all;
pub mod app;
pub mod file;
pub mod fio;
pub mod job;
pub mod loops;
pub mod metadata;
pub mod postmark;
pub mod progress;
pub mod repeat;
pub mod sqlite;
pub mod terminal;
pub mod tio;
pub mod uflip;
pub mod workloads;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::all::BenchAllArguments;
use self::fio::FioArguments;
use self::job::{BenchJobArguments, BenchRunArguments};
use self::workloads::WorkloadCommand;
use crate::compare::arguments::{BenchCompareArguments, BenchShowArguments};
use crate::history_command::HistoryArguments;
use crate::{Finding, compare, history_command};

/// Arguments of `tidegate bench`: a subcommand, or a fio job.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct BenchArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// Options for fio jobs.
    #[command(flatten)]
    pub fio: FioArguments,
}

/// Subcommands of `tidegate bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A single workload.
    #[command(flatten)]
    Workload(WorkloadCommand),
    /// Run a built-in job: file I/O and SQLite as measured by the Mobibench app
    All(BenchAllArguments),
    /// Run a job file: several workloads, one after the other, described in TOML
    Run(BenchRunArguments),
    /// Check a job file, or show the built-in jobs
    Job(BenchJobArguments),
    /// Compare directories: run every workload on every target in interleaved rounds, and show ratios to a baseline
    Compare(BenchCompareArguments),
    /// List, show, tag, delete and export stored runs
    History(HistoryArguments),
    /// Show the saved records of a comparison again
    Show(BenchShowArguments),
}

/// Runs the command.
pub fn run(arguments: &BenchArguments) -> Result<Finding> {
    let Some(command) = &arguments.command else {
        return fio::run(&arguments.fio);
    };
    match command {
        BenchCommand::Workload(workload) => repeat::run(workload.arguments()),
        BenchCommand::All(arguments) => all::run(arguments),
        BenchCommand::Run(arguments) => job::run(arguments),
        BenchCommand::Job(arguments) => job::run_inspection(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::History(arguments) => history_command::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}
