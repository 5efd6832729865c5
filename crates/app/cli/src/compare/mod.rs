//! `tidegate bench compare`: several directories and workloads in interleaved rounds, as ratios to a baseline; or two
//! existing sets of records (`records.rs`).
//!
//! A signal ends the run after the record being measured: the records keep the name `FILE.partial`, and tables are marked as
//! partial.

pub mod arguments;
mod records;
mod show;

use std::path::Path;

use anyhow::{Result, bail};
use programs::stop_on_signals;
use runner::{Runner, Settle, Sinks};
use series::{Amount, Comparison, Target, Targets, WORKLOADS};

use self::arguments::BenchCompareArguments;
use crate::bench_command::common::finding;
use crate::bench_command::progress::ProgressForm;
use crate::bench_command::terminal::Terminal;
use crate::{Finding, output};

pub use self::show::run as run_show;
pub use self::show::write_text;

/// Runs the command.
pub fn run(arguments: &BenchCompareArguments) -> Result<Finding> {
    let Some(comparison) = comparison(arguments)? else {
        let [a, b] = &arguments.sets[..] else {
            bail!("{} sets of records, expected two", arguments.sets.len());
        };
        return records::run(a, b, arguments);
    };
    comparison.check()?;
    let (stop, command) = (stop_on_signals()?, programs::own_arguments());
    let schedule = comparison.schedule();
    let runs = schedule.runs().saturating_mul(comparison.workloads.len());
    let terminal = Terminal::new(ProgressForm::Auto, runs, arguments.json);
    let sinks = Sinks::new(arguments.output.as_deref(), arguments.store.sink())?;
    let mut runner = Runner::new(&terminal, &stop, Settle::Machine, sinks);
    for workload in &comparison.workloads {
        let mut series = Targets {
            workload: *workload,
            comparison: &comparison,
            command: &command,
            progress: &terminal.bar,
            stop: &stop,
        };
        runner.run(&schedule, &mut series)?;
    }
    show(arguments, &comparison, runner)
}

/// The comparison to measure; `None` to compare existing records instead.
fn comparison(arguments: &BenchCompareArguments) -> Result<Option<Comparison>> {
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
    let baseline = arguments.baseline.as_deref();
    Ok(Some(Comparison {
        baseline: baseline
            .unwrap_or_else(|| Comparison::usual_baseline(&targets))
            .to_owned(),
        targets,
        workloads: match arguments.workloads.is_empty() {
            true => WORKLOADS.to_vec(),
            false => arguments.workloads.clone(),
        },
        requirements: arguments.requirements.clone(),
        rounds: arguments.rounds.unwrap_or(Comparison::USUAL_ROUNDS),
        amount: Amount {
            file_bytes: arguments.size.unwrap_or(Comparison::USUAL_FILE_BYTES),
            files: arguments.files.unwrap_or(bench::metadata::USUAL_FILES),
        },
        seed: arguments.seed.unwrap_or(1),
    }))
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

/// Shows and writes the results.
fn show(
    arguments: &BenchCompareArguments,
    comparison: &Comparison,
    mut runner: Runner<'_>,
) -> Result<Finding> {
    let comparisons = report::Comparison::all(runner.records(), &comparison.baseline);
    if !arguments.json {
        output::print_text(&show::tables(&comparisons))?;
    }
    for requirement in &comparison.requirements {
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
