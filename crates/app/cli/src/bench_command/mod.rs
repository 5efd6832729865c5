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
    /// One workload.
    #[command(flatten)]
    Workload(WorkloadCommand),
    /// Run a job that comes with the program: file I/O and SQLite as the Mobibench app measures them
    All(BenchAllArguments),
    /// Run a job of one's own: several workloads, one after the other, written down in TOML
    Run(BenchRunArguments),
    /// Check a job file, or show the jobs that come with the program
    Job(BenchJobArguments),
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
        BenchCommand::Workload(workload) => repeat::run(workload.arguments()),
        BenchCommand::All(arguments) => all::run(arguments),
        BenchCommand::Run(arguments) => job::run(arguments),
        BenchCommand::Job(arguments) => job::run_inspection(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::History(arguments) => history_command::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}
