//! `tidegate bench`: runs workloads on any directory, repeats them and writes their records.

pub mod all;
pub mod app;
pub mod common;
pub mod file;
pub mod fio;
pub mod job;
pub mod loops;
pub mod metadata;
pub mod postmark;
pub mod progress;
pub mod sqlite;
pub mod terminal;
pub mod tio;
pub mod uflip;
pub mod workloads;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use bench::{Progress, TextForm, Workload};
use clap::{Args, Subcommand};
use programs::stop_on_signals;
use report::rounds;
use results::Noise;
use runner::{Measured, Runner, Schedule, Series, Settle, Turn, identity};
use series::{SeriesError, measured};

use self::all::BenchAllArguments;
use self::common::finding;
use self::fio::FioArguments;
use self::job::{BenchJobArguments, BenchRunArguments};
use self::terminal::Terminal;
use self::workloads::{RunAs, WorkloadArguments, WorkloadCommand};
use crate::compare::arguments::{BenchCompareArguments, BenchShowArguments};
use crate::history_command::HistoryArguments;
use crate::{Finding, compare, history_command, output};

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
        BenchCommand::Workload(workload) => run_workload(workload.arguments()),
        BenchCommand::All(arguments) => all::run(arguments),
        BenchCommand::Run(arguments) => job::run(arguments),
        BenchCommand::Job(arguments) => job::run_inspection(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::History(arguments) => history_command::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}

/// One workload as a series of rounds.
struct Repeated<'run> {
    /// The workload.
    workload: &'run dyn Workload,
    /// Command line of the program, for the records.
    command: &'run [String],
    /// Name of the configuration in the records.
    label: &'run str,
    /// Number of rounds.
    rounds: u32,
    /// Seed of the first round.
    seed: u64,
    /// The directory or device that is measured.
    directory: &'run Path,
    /// Receives the reports of the workload.
    progress: &'run dyn Progress,
    /// Ends a run early when it is raised.
    stop: &'run AtomicBool,
    /// Form of the table of the last run.
    form: TextForm,
}

impl Series for Repeated<'_> {
    type Error = SeriesError;

    fn title(&self, turn: Turn) -> String {
        match turn.is_kept {
            false => "warm-up".to_owned(),
            true if self.rounds == 1 => String::new(),
            true => format!("round {}", turn.round + 1),
        }
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, SeriesError> {
        let seed = self.seed.wrapping_add(u64::from(turn.round));
        let identity = identity(self.command.to_vec(), self.label, self.directory, turn.round)?;
        let outcome = self.workload.run(seed, self.progress, self.stop)?;
        self.form = outcome.text_form;
        Ok(vec![measured(outcome, identity)])
    }
}

/// Runs a workload for the requested rounds; prints and writes its records.
pub fn run_workload(arguments: &dyn WorkloadArguments) -> Result<Finding> {
    if let Some(shown) = arguments.show()? {
        return Ok(shown);
    }
    let (common, directory) = (arguments.common(), arguments.directory()?);
    let workload = arguments.workload(RunAs::Command)?;
    workload.check()?;
    let stop = stop_on_signals()?;
    let schedule = Schedule::repeated(common.warmup, common.rounds);
    let terminal = Terminal::new(common.progress, schedule.runs(), common.json);
    let mut repeated = Repeated {
        workload: workload.as_ref(),
        command: &programs::own_arguments(),
        label: &common.label,
        rounds: common.rounds,
        seed: common.seed,
        directory,
        progress: &terminal.bar,
        stop: &stop,
        form: TextForm::Beside,
    };
    let settle = Settle::FileSystem(directory.to_owned());
    let mut runner = Runner::new(&terminal, &stop, settle, common.sinks()?);
    let outcome = runner.run(&schedule, &mut repeated);
    let ran = runner.finish()?;
    if !common.json {
        let text = match repeated.form {
            TextForm::Beside => rounds::table(&ran.records),
            TextForm::Table | TextForm::Curve => rounds::summary(&ran.records),
        };
        output::print_text(&text)?;
    }
    for noise in Noise::of(&ran.records) {
        output::print_error(&format!("too noisy to tell small differences: {noise}"));
    }
    outcome?;
    Ok(finding(&ran.notes))
}
