//! What all workloads share: their arguments, the rounds, what is printed and written.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use bench::RunIdentity;
use clap::Args;
use programs::stop_on_signals;
use results::{Noise, RecordWriter, RunRecord};

use super::progress::{Bar, ProgressForm};
use super::summary;
use crate::Finding;
use crate::history_command::log::{HistoryLog, StoreArguments};
use crate::output::{self, Printed};

/// Arguments that all benchmarks share.
#[derive(Args, Debug)]
pub struct BenchCommonArguments {
    /// How often to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Runs before these that are not kept: they warm up device, caches and allocator
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub warmup: u32,
    /// Decides random orders and contents: the same seed gives the same run
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Name of this configuration in the records
    #[arg(long, value_name = "NAME", default_value = "run")]
    pub label: String,
    /// Print one run record in JSON on each line instead of a summary
    #[arg(long)]
    pub json: bool,
    /// Also write the run records to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How progress is shown on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub progress: ProgressForm,
    /// Where the run is stored.
    #[command(flatten)]
    pub store: StoreArguments,
}

/// One turn of a repetition: what a workload needs beside its own arguments.
pub struct Turn<'run> {
    /// Each round has other contents, as a device that finds known blocks would look too fast.
    pub seed: u64,
    /// What the record says beside the outcome.
    pub identity: RunIdentity,
    /// Shows how far it is.
    pub bar: &'run Bar,
    /// Raised by a signal.
    pub stop: &'run AtomicBool,
}

/// One run: its record, and what was not as asked.
pub struct Measured {
    /// The record.
    pub record: RunRecord,
    /// Each is printed, and makes exit code 1.
    pub notes: Vec<String>,
}

/// Runs a workload as often as asked, prints and writes its records.
pub fn repeat(
    common: &BenchCommonArguments,
    directory: &Path,
    mut run: impl FnMut(Turn<'_>) -> Result<Measured>,
) -> Result<Finding> {
    run_all(common, directory, summary::table, |turn| {
        Ok((run(turn)?, String::new()))
    })
}

/// The same for a workload that has a table of its own: it is printed after each round, and the summary repeats nothing
/// of it.
pub fn repeat_described(
    common: &BenchCommonArguments,
    directory: &Path,
    run: impl FnMut(Turn<'_>) -> Result<(Measured, String)>,
) -> Result<Finding> {
    run_all(common, directory, summary::of_rounds, run)
}

fn run_all(
    common: &BenchCommonArguments,
    directory: &Path,
    summary: fn(&[RunRecord]) -> String,
    mut run: impl FnMut(Turn<'_>) -> Result<(Measured, String)>,
) -> Result<Finding> {
    let stop = stop_on_signals()?;
    let turns = common.warmup.saturating_add(common.rounds);
    let bar = Bar::new(common.progress, usize::try_from(turns).unwrap_or(usize::MAX));
    let mut writer = common.output.as_deref().map(RecordWriter::create).transpose()?;
    let mut log = HistoryLog::new(&common.store);
    let mut records = Vec::new();
    let mut finding = Finding::Nothing;
    for turn in 0..turns {
        let kept = turn.checked_sub(common.warmup);
        let round = kept.unwrap_or_else(|| common.rounds.saturating_add(turn));
        bar.begin(&match kept {
            None => format!("warm-up {} of {}", turn + 1, common.warmup),
            Some(_) if common.rounds == 1 => String::new(),
            Some(round) => format!("round {} of {}", round + 1, common.rounds),
        });
        let measured = run(Turn {
            seed: common.seed.wrapping_add(u64::from(round)),
            identity: identity(common, directory, round)?,
            bar: &bar,
            stop: &stop,
        });
        bar.end();
        let (Measured { record, notes }, described) = measured?;
        if kept.is_some() && !common.json {
            output::print_bytes(described.as_bytes())?;
        }
        for note in &notes {
            output::print_error(note);
            finding = Finding::Something;
        }
        if kept.is_some() {
            if let Some(writer) = &mut writer {
                writer.write(&record)?;
            }
            log.store(&record);
            if common.json && output::print_line(&serde_json::to_string(&record)?)? == Printed::Closed {
                break;
            }
        }
        if !record.complete {
            output::print_error("stopped before its end; the numbers are partial");
            finding = Finding::Something;
        }
        if kept.is_some() {
            records.push(record);
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if let Some(writer) = writer {
        writer.finish()?;
    }
    if !common.json {
        output::print_bytes(summary(&records).as_bytes())?;
    }
    for noise in Noise::of(&records) {
        output::print_error(&format!("too noisy to tell small differences: {noise}"));
    }
    Ok(finding)
}

/// What a record of a round says beside its outcome.
pub fn identity(common: &BenchCommonArguments, directory: &Path, round: u32) -> Result<RunIdentity> {
    Ok(RunIdentity {
        command: command_line(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        label: common.label.clone(),
        round,
        host: bench::environment::host(),
        target: bench::environment::target(directory)
            .with_context(|| format!("{} can't be used", directory.display()))?,
    })
}

/// The words that this program was called with; what is not UTF-8 is written with replacement characters.
pub fn command_line() -> Vec<String> {
    std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
