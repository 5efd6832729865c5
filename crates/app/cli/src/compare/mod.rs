//! `tidegate bench compare`: several directories and workloads in interleaved rounds, as ratios to a baseline; or two
//! existing sets of records (`records.rs`).
//!
//! Within a workload each round runs every target once, in an order that rotates by one each round, so that changes
//! of the machine over time affect all targets alike. Everything is synced between two runs. The command mounts
//! nothing: it compares whatever is mounted at the given directories.
//!
//! A target that fails in a workload is excluded from the rest of that workload, and reported. A signal ends the run
//! after the record being measured: the records keep the name `FILE.partial`, and tables are marked as partial.

pub mod arguments;
mod records;
pub mod requirement;
mod show;
pub mod workload;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use programs::stop_on_signals;
use report::Comparison;
use results::words::expected;
use runner::{Measured, Runner, Schedule, Series, Settle, Sinks, Turn};

use self::arguments::BenchCompareArguments;
use self::workload::{Amount, Workload};
use crate::bench_command::progress::ProgressForm;
use crate::bench_command::repeat::{finding, measured};
use crate::bench_command::terminal::{Terminal, identity};
use crate::{Finding, output};

pub use self::show::run as run_show;
pub use self::show::write_text;

/// Default number of rounds.
const USUAL_ROUNDS: u32 = 5;

/// Default size of sequential files.
const USUAL_FILE_BYTES: u64 = 512 << 20;

/// A directory to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name in tables and records.
    pub label: String,
    /// The directory.
    pub directory: PathBuf,
}

impl Target {
    /// Parses `LABEL=DIRECTORY`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((label, directory))
                if !label.is_empty() && !label.contains([':', '>', '<']) && !directory.is_empty() =>
            {
                Ok(Self {
                    label: label.to_owned(),
                    directory: directory.into(),
                })
            }
            _ => Err(format!(
                "`{text}` is no target; write LABEL=DIRECTORY, for example native=/data"
            )),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &BenchCompareArguments) -> Result<Finding> {
    let Some(plan) = Plan::of(arguments)? else {
        let [a, b] = &arguments.sets[..] else {
            bail!("{} sets of records, expected two", arguments.sets.len());
        };
        return records::run(a, b, arguments);
    };
    plan.check(arguments)?;
    let stop = stop_on_signals()?;
    let schedule = Schedule::interleaved(plan.rounds, plan.targets.len());
    let runs = schedule.runs().saturating_mul(plan.workloads.len());
    let terminal = Terminal::new(ProgressForm::Auto, runs, arguments.json);
    let sinks = Sinks::new(arguments.output.as_deref(), arguments.store.sink())?;
    let mut runner = Runner::new(&terminal, &stop, Settle::Machine, sinks);
    for workload in &plan.workloads {
        let mut series = Targets {
            workload: *workload,
            plan: &plan,
            terminal: &terminal,
            stop: &stop,
        };
        runner.run(&schedule, &mut series)?;
    }
    show(arguments, &plan, runner)
}

/// Targets, workloads and amounts of a comparison.
struct Plan {
    targets: Vec<Target>,
    baseline: String,
    workloads: Vec<Workload>,
    rounds: u32,
    amount: Amount,
    seed: u64,
}

impl Plan {
    /// Builds the plan; `None` to compare existing records instead.
    fn of(arguments: &BenchCompareArguments) -> Result<Option<Self>> {
        let folders = arguments
            .sets
            .iter()
            .filter(|set| Path::new(set).is_dir())
            .count();
        if folders > 0 && folders < arguments.sets.len() {
            bail!(
                "some of {} are folders and some are not",
                arguments.sets.join(", ")
            );
        }
        if folders == 0 && !arguments.sets.is_empty() {
            if let Some(option) = measuring_option(arguments) {
                bail!("{option} is about measuring and cannot be used with sets of records");
            }
            return Ok(None);
        }
        let named = |set: &String| Target {
            label: set.clone(),
            directory: set.into(),
        };
        let targets: Vec<Target> = match folders {
            0 => arguments.targets.clone(),
            _ => arguments.sets.iter().map(named).collect(),
        };
        let usual = targets.iter().find(|target| target.label == "native");
        let usual = usual.or(targets.first()).map(|target| target.label.as_str());
        let baseline = arguments.baseline.as_deref().or(usual).unwrap_or("native");
        Ok(Some(Self {
            baseline: baseline.to_owned(),
            targets,
            workloads: match arguments.workloads.is_empty() {
                true => Workload::value_variants().to_vec(),
                false => arguments.workloads.clone(),
            },
            rounds: arguments.rounds.unwrap_or(USUAL_ROUNDS),
            amount: Amount {
                file_bytes: arguments.size.unwrap_or(USUAL_FILE_BYTES),
                files: arguments.files.unwrap_or(bench::metadata::USUAL_FILES),
            },
            seed: arguments.seed.unwrap_or(1),
        }))
    }

    /// Validates everything before anything is touched.
    fn check(&self, arguments: &BenchCompareArguments) -> Result<()> {
        let labels: Vec<&str> = self.targets.iter().map(|target| target.label.as_str()).collect();
        for (index, label) in labels.iter().enumerate() {
            if labels[..index].contains(label) {
                bail!("two targets are called `{label}`");
            }
        }
        if !labels.contains(&self.baseline.as_str()) {
            let (baseline, labels) = (&self.baseline, expected(&self.baseline, &labels));
            bail!("the baseline `{baseline}` is none of the targets {labels}");
        }
        for requirement in &arguments.requirements {
            if !labels.contains(&requirement.label.as_str()) {
                let (label, labels) = (&requirement.label, expected(&requirement.label, &labels));
                bail!("a requirement names `{label}`, which is none of the targets {labels}");
            }
            if !self.workloads.contains(&requirement.workload) {
                let name = requirement.workload.name();
                bail!("a requirement names {name}, which is not among the workloads");
            }
        }
        for workload in &self.workloads {
            let described = workload.of(Path::new("."), self.amount);
            described.check().with_context(|| workload.name())?;
        }
        for target in &self.targets {
            identity(&target.label, &target.directory, 0)?;
        }
        Ok(())
    }
}

/// The first given option that applies only to measuring, if any.
fn measuring_option(arguments: &BenchCompareArguments) -> Option<&'static str> {
    let given = [
        ("--workload", !arguments.workloads.is_empty()),
        ("--rounds", arguments.rounds.is_some()),
        ("--size", arguments.size.is_some()),
        ("--files", arguments.files.is_some()),
        ("--seed", arguments.seed.is_some()),
        ("--baseline", arguments.baseline.is_some()),
        ("--require", !arguments.requirements.is_empty()),
        ("--output", arguments.output.is_some()),
    ];
    given
        .into_iter()
        .find(|(_, is_given)| *is_given)
        .map(|(name, _)| name)
}

/// One workload on every target, as a series.
struct Targets<'run> {
    workload: Workload,
    plan: &'run Plan,
    terminal: &'run Terminal,
    stop: &'run AtomicBool,
}

impl Series for Targets<'_> {
    type Error = anyhow::Error;

    fn title(&self, turn: Turn) -> String {
        let label = &self.plan.targets[turn.side].label;
        format!("{} {label}, round {}", self.workload.name(), turn.round + 1)
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>> {
        let target = &self.plan.targets[turn.side];
        let identity = identity(&target.label, &target.directory, turn.round)?;
        let workload = self.workload.of(&target.directory, self.plan.amount);
        // Contents differ between rounds, because a device that recognises known blocks would look too fast.
        let seed = self.plan.seed.wrapping_add(u64::from(turn.round));
        let mut outcome = workload.run(seed, &self.terminal.bar, self.stop)?;
        outcome.workload["name"] = self.workload.name().into();
        for note in &mut outcome.notes {
            *note = format!("{} {}: {note}", self.workload.name(), target.label);
        }
        Ok(vec![measured(outcome, identity)])
    }

    fn failed(&mut self, turn: Turn, error: anyhow::Error) -> Result<String> {
        let label = &self.plan.targets[turn.side].label;
        let reason = output::with_causes(&error);
        Ok(format!(
            "{label} is left out of {}: {reason}",
            self.workload.name()
        ))
    }
}

/// Shows and writes the results.
fn show(arguments: &BenchCompareArguments, plan: &Plan, mut runner: Runner<'_>) -> Result<Finding> {
    let comparisons = Comparison::all(runner.records(), &plan.baseline);
    if !arguments.json {
        output::print_text(&show::tables(&comparisons))?;
    }
    for requirement in &arguments.requirements {
        if let Some(violation) = requirement.violation(&comparisons) {
            runner.note(violation);
        }
    }
    let ran = runner.finish()?;
    if let Some(path) = &arguments.markdown {
        write_text(path, &report::comparison::markdown(&comparisons, &ran.records))?;
    }
    let found = finding(&ran.notes);
    if let Some(path) = &arguments.report {
        show::write_html(path, comparisons, ran.records, ran.notes)?;
        output::print_error(&format!("report: {}", path.display()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_label_and_a_directory() {
        let target = Target::parse("native=/data/a=b").unwrap();
        assert_eq!(
            (target.label.as_str(), target.directory),
            ("native", "/data/a=b".into())
        );
        for text in ["", "native", "=/data", "native=", "a:b=/data"] {
            Target::parse(text).expect_err(text);
        }
    }
}
