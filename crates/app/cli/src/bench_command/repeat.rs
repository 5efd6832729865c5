//! Repeated runs of one workload: common arguments, rounds and output.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use bench::{Progress, TextForm, Workload};
use clap::Args;
use programs::stop_on_signals;
use report::rounds;
use results::Noise;
use runner::{Measured, Runner, Schedule, Series, Settle, Sinks, Turn, identity};
use series::{SeriesError, measured};

use super::progress::ProgressForm;
use super::terminal::Terminal;
use super::workloads::{RunAs, WorkloadArguments};
use crate::Finding;
use crate::history_command::log::StoreArguments;
use crate::output;

/// Arguments shared by all benchmarks.
#[derive(Args, Debug)]
pub struct BenchCommonArguments {
    /// Run N rounds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Run N warm-up rounds first and discard them: they warm up device, caches and allocator
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub warmup: u32,
    /// Seed random orders and contents: the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Name this configuration in the records
    #[arg(long, value_name = "NAME", default_value = "run")]
    pub label: String,
    /// Print one run record per line as JSON instead of a summary
    #[arg(long)]
    pub json: bool,
    /// Also write the run records to this file, as JSON lines
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show progress on standard error in this form
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub progress: ProgressForm,
    /// Storage of the run in the history.
    #[command(flatten)]
    pub store: StoreArguments,
}

impl BenchCommonArguments {
    /// Destinations of the records.
    pub fn sinks(&self) -> Result<Sinks> {
        Ok(Sinks::new(self.output.as_deref(), self.store.sink())?)
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
pub fn run(arguments: &dyn WorkloadArguments) -> Result<Finding> {
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

/// The exit status: any note is a finding, which gives exit code 1.
pub const fn finding(notes: &[String]) -> Finding {
    if notes.is_empty() {
        Finding::Nothing
    } else {
        Finding::Something
    }
}
