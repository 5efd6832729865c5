//! Runs a job: all steps in order, in each round, with one progress display.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use bench::TextForm;
use clap::Args;
use jobs::table::{STEP_FIELD, table};
use jobs::{Job, Vocabulary};
use programs::stop_on_signals;
use results::RunRecord;
use runner::{Measured, Order, Runner, Schedule, Series, Settle, Turn};
use serde_json::json;
use series::measured;

use super::steps::{PlannedStep, groups, planned, run_group};
use crate::Finding;
use crate::bench_command::common::{BenchCommonArguments, finding};
use crate::bench_command::fio::write_json;
use crate::bench_command::terminal::{Terminal, identity};
use crate::output;

/// Selection of steps, and reporting.
#[derive(Args, Debug)]
pub struct JobRunArguments {
    /// Run only steps of these kinds, separated by commas: file, sqlite ...
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run only these steps, separated by commas
    #[arg(long, value_name = "STEP,...", value_delimiter = ',')]
    pub steps: Vec<String>,
    /// Write the results to this file in the layout of fio's JSON; - is standard output, with no other output there
    #[arg(long, value_name = "FILE|-", value_hint = clap::ValueHint::FilePath)]
    pub fio_json: Option<PathBuf>,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Runs the selected steps, all of them in each round.
pub fn run_job(
    job: Job,
    vocabulary: &Vocabulary,
    directory: &Path,
    arguments: &JobRunArguments,
) -> Result<Finding> {
    let job = job.select(&arguments.only, &arguments.steps)?;
    let steps = planned(&job, directory, vocabulary)?;
    run_steps(&job, &steps, directory, arguments, arguments.common.seed)
}

/// Runs validated steps.
pub fn run_steps(
    job: &Job,
    steps: &[PlannedStep],
    directory: &Path,
    arguments: &JobRunArguments,
    seed: u64,
) -> Result<Finding> {
    let common = &arguments.common;
    let for_fio_alone = arguments.fio_json.as_deref() == Some(Path::new("-"));
    if for_fio_alone && common.json {
        bail!("--json and --fio-json - both want standard output; give --fio-json a file");
    }
    let stop = stop_on_signals()?;
    let groups: Vec<&[PlannedStep]> = groups(steps).collect();
    let schedule = Schedule {
        warmup: common.warmup,
        rounds: common.rounds,
        sides: groups.len(),
        order: Order::Fixed,
    };
    let terminal = Terminal::new(common.progress, schedule.runs(), common.json);
    let mut series = JobSeries {
        job,
        groups,
        directory,
        common,
        seed,
        terminal: &terminal,
        stop: &stop,
        curves: Vec::new(),
    };
    let settle = Settle::FileSystem(directory.to_owned());
    let mut runner = Runner::new(&terminal, &stop, settle, common.sinks()?);
    let outcome = runner.run(&schedule, &mut series);
    let ran = runner.finish()?;
    if let Some(target) = &arguments.fio_json {
        write_json(target, &ran.records)?;
    }
    if !common.json && !for_fio_alone && !ran.records.is_empty() {
        output::print_text(&heading(job, &ran.records))?;
        output::print_text(&table(&ran.records))?;
        output::print_text(&series.curves.concat())?;
    }
    outcome.map(|()| finding(&ran.notes))
}

/// The steps of a job as a series; concurrent steps form one side.
struct JobSeries<'run> {
    job: &'run Job,
    groups: Vec<&'run [PlannedStep]>,
    directory: &'run Path,
    common: &'run BenchCommonArguments,
    seed: u64,
    terminal: &'run Terminal,
    stop: &'run AtomicBool,
    /// Tables of steps whose results do not fit into one line.
    curves: Vec<String>,
}

impl Series for JobSeries<'_> {
    type Error = anyhow::Error;

    fn title(&self, turn: Turn) -> String {
        names(self.groups[turn.side]).join(", ")
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>> {
        let group = self.groups[turn.side];
        let seed = self.seed.wrapping_add(u64::from(turn.round));
        let identity = identity(&self.common.label, self.directory, turn.round)?;
        let outcomes = run_group(group, seed, &self.terminal.bar, self.stop)
            .with_context(|| format!("step `{}`", names(group).join("`, `")))?;
        let mut all = Vec::new();
        for (planned, mut outcome) in group.iter().zip(outcomes) {
            let name = &planned.step.name;
            let text = std::mem::take(&mut outcome.text);
            if turn.is_kept && outcome.text_form == TextForm::Curve {
                self.curves.push(format!("\n{name}: {text}"));
            }
            outcome.workload[STEP_FIELD] = json!(name);
            outcome.workload["job"] = json!(self.job.name);
            if group.len() > 1 {
                outcome.workload["at_the_same_time"] = json!(names(group));
            }
            for note in &mut outcome.notes {
                *note = format!("step `{name}`: {note}");
            }
            all.push(measured(outcome, identity.clone()));
        }
        Ok(all)
    }
}

fn names(group: &[PlannedStep]) -> Vec<&str> {
    group.iter().map(|planned| planned.step.name.as_str()).collect()
}

fn heading(job: &Job, records: &[RunRecord]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    let kind = first
        .target
        .file_system_type
        .as_deref()
        .unwrap_or("unknown file system");
    let rounds = records.iter().map(|record| record.round).max().unwrap_or(0) + 1;
    let rounds = if rounds == 1 {
        ", one round: no interval (--rounds 6 gives one)".to_owned()
    } else {
        format!(", {rounds} rounds, medians")
    };
    format!("{} on {} ({kind}){rounds}\n", job.name, first.target.path)
}
