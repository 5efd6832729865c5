//! `tidegate bench compare`: several directories, several workloads, interleaved rounds, ratios to a baseline; or two
//! sets of records that were measured before (`records.rs`).
//!
//! Within a workload each round runs every target once, and the first target of a round is the second of the one before:
//! what changes on the machine meanwhile changes for all of them. Everything is synced between two runs. It mounts
//! nothing: what is compared is whatever is mounted at the directories given.
//!
//! A target that fails in a workload is left out of the rest of that workload, and named. A signal ends the run after
//! the record that was being measured: the records keep the name `FILE.partial`, and tables say that they are partial.

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
use runner::{Measured, Runner, Schedule, Series, Settle, Sinks, Turn};

use self::arguments::BenchCompareArguments;
use self::workload::{Amount, Workload};
use crate::bench_command::progress::ProgressForm;
use crate::bench_command::repeat::{finding, measured};
use crate::bench_command::terminal::{Terminal, identity};
use crate::{Finding, output};

pub use self::show::run as run_show;
pub use self::show::write_text;

/// A directory that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables and records.
    pub label: String,
    /// Where to work.
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
    if let [a, b] = &arguments.sets[..] {
        return records::run(a, b, arguments);
    }
    let workloads = workloads(arguments);
    check(arguments, &workloads)?;
    let stop = stop_on_signals()?;
    let schedule = Schedule::interleaved(arguments.rounds, arguments.targets.len());
    let terminal = Terminal::new(
        ProgressForm::Auto,
        schedule.runs() * workloads.len(),
        arguments.json,
    );
    let sinks = Sinks::new(arguments.output.as_deref(), arguments.store.sink())?;
    let mut runner = Runner::new(&terminal, &stop, Settle::Machine, sinks);
    for workload in workloads {
        let mut series = Targets {
            workload,
            arguments,
            terminal: &terminal,
            stop: &stop,
        };
        runner.run(&schedule, &mut series)?;
    }
    show(arguments, runner)
}

fn workloads(arguments: &BenchCompareArguments) -> Vec<Workload> {
    if arguments.workloads.is_empty() {
        Workload::value_variants().to_vec()
    } else {
        arguments.workloads.clone()
    }
}

/// Everything that can be wrong before anything is touched.
fn check(arguments: &BenchCompareArguments, workloads: &[Workload]) -> Result<()> {
    let labels: Vec<&str> = arguments
        .targets
        .iter()
        .map(|target| target.label.as_str())
        .collect();
    for (index, label) in labels.iter().enumerate() {
        if labels[..index].contains(label) {
            bail!("two targets are called `{label}`");
        }
    }
    if !labels.contains(&arguments.baseline.as_str()) {
        bail!(
            "the baseline `{}` is none of the targets {}",
            arguments.baseline,
            labels.join(", ")
        );
    }
    for requirement in &arguments.requirements {
        if !labels.contains(&requirement.label.as_str()) {
            bail!(
                "a requirement names `{}`, which is none of the targets {}",
                requirement.label,
                labels.join(", ")
            );
        }
        if !workloads.contains(&requirement.workload) {
            bail!(
                "a requirement names {}, which is not among the workloads",
                requirement.workload.name()
            );
        }
    }
    for workload in workloads {
        let described = workload.of(Path::new("."), amount(arguments));
        described.check().with_context(|| workload.name())?;
    }
    for target in &arguments.targets {
        identity(&target.label, &target.directory, 0)?;
    }
    Ok(())
}

const fn amount(arguments: &BenchCompareArguments) -> Amount {
    Amount {
        file_bytes: arguments.size,
        files: arguments.files,
    }
}

/// One workload on every target.
struct Targets<'run> {
    workload: Workload,
    arguments: &'run BenchCompareArguments,
    terminal: &'run Terminal,
    stop: &'run AtomicBool,
}

impl Series for Targets<'_> {
    type Error = anyhow::Error;

    fn title(&self, turn: Turn) -> String {
        let label = &self.arguments.targets[turn.side].label;
        format!("{} {label}, round {}", self.workload.name(), turn.round + 1)
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>> {
        let target = &self.arguments.targets[turn.side];
        let identity = identity(&target.label, &target.directory, turn.round)?;
        let workload = self.workload.of(&target.directory, amount(self.arguments));
        // Each round has other contents, as a device that finds known blocks would look too fast.
        let seed = self.arguments.seed.wrapping_add(u64::from(turn.round));
        let mut outcome = workload.run(seed, &self.terminal.bar, self.stop)?;
        outcome.workload["name"] = self.workload.name().into();
        for note in &mut outcome.notes {
            *note = format!("{} {}: {note}", self.workload.name(), target.label);
        }
        Ok(vec![measured(outcome, identity)])
    }

    fn failed(&mut self, turn: Turn, error: anyhow::Error) -> Result<String> {
        let label = &self.arguments.targets[turn.side].label;
        let reason = output::with_causes(&error);
        Ok(format!(
            "{label} is left out of {}: {reason}",
            self.workload.name()
        ))
    }
}

/// Shows and writes what was measured.
fn show(arguments: &BenchCompareArguments, mut runner: Runner<'_>) -> Result<Finding> {
    let comparisons = Comparison::all(runner.records(), &arguments.baseline);
    if !arguments.json {
        output::print_bytes(show::tables(&comparisons).as_bytes())?;
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
