//! `tidegate bench`: runs a workload some times, shows how far it is, and prints or writes run records.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use bench::metadata::MetadataSpec;
use bench::{FileSpec, Phase, Progress, RunIdentity, Sharing, WriteTarget};
use indicatif::{ProgressBar, ProgressStyle};
use results::{RecordWriter, RunRecord, counter, median};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::bench_arguments::{
    BenchCommand, BenchCommonArguments, BenchFileArguments, BenchMetadataArguments,
};
use crate::output::{self, Printed};
use crate::{Finding, compare};

/// Runs the command.
pub fn run(command: &BenchCommand) -> Result<Finding> {
    match command {
        BenchCommand::File(arguments) => run_file(arguments),
        BenchCommand::Metadata(arguments) => run_metadata(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::Show(arguments) => compare::run_show(arguments),
    }
}

fn run_file(arguments: &BenchFileArguments) -> Result<Finding> {
    let bar = Bar::new();
    repeat(
        &arguments.common,
        &arguments.directory,
        |round, identity, stop| {
            let outcome = bench::run(&file_spec(arguments, round), &bar, stop);
            bar.hide();
            let outcome = outcome?;
            let mut notes = Vec::new();
            notes.extend(
                outcome
                    .cache
                    .is_warmer_than_asked()
                    .then(|| outcome.cache.describe()),
            );
            notes.extend(
                outcome
                    .leftover
                    .as_ref()
                    .map(|reason| format!("files were left behind: {reason}")),
            );
            if let Some(kept) = &outcome.kept_directory {
                output::print_error(&format!("files are kept in {}", kept.display()));
            }
            Ok((outcome.into_record(identity), notes))
        },
    )
}

fn run_metadata(arguments: &BenchMetadataArguments) -> Result<Finding> {
    let bar = Bar::new();
    repeat(
        &arguments.common,
        &arguments.directory,
        |round, identity, stop| {
            let spec = MetadataSpec {
                directory: arguments.directory.clone(),
                files: arguments.files,
                content_bytes: arguments.content,
                sync_directory: arguments.sync_directory,
                cache: arguments.cache,
                seed: seed_of(&arguments.common, round),
            };
            let outcome = bench::metadata::run(&spec, &bar, stop);
            bar.hide();
            let outcome = outcome?;
            let leftover = outcome
                .leftover
                .as_ref()
                .map(|reason| format!("files were left behind: {reason}"));
            Ok((outcome.into_record(identity), leftover.into_iter().collect()))
        },
    )
}

fn file_spec(arguments: &BenchFileArguments, round: u32) -> FileSpec {
    FileSpec {
        directory: arguments.directory.clone(),
        pattern: arguments.pattern,
        record_bytes: arguments.record,
        file_bytes: arguments.size,
        records_max: None,
        threads: arguments.threads,
        sharing: if arguments.shared {
            Sharing::Shared
        } else {
            Sharing::OneEach
        },
        mode: arguments.mode,
        write_target: if arguments.overwrite {
            WriteTarget::ExistingFile
        } else {
            WriteTarget::NewFile
        },
        fsync_at_end: arguments.fsync_at_end,
        cache: arguments.cache,
        data: arguments.data,
        seed: seed_of(&arguments.common, round),
        keep_files: arguments.keep_files,
    }
}

/// Each round has other contents, as a device that finds known blocks would look too fast.
fn seed_of(common: &BenchCommonArguments, round: u32) -> u64 {
    common.seed.wrapping_add(u64::from(round))
}

/// One run: its record, and what was not as asked.
type Round = (RunRecord, Vec<String>);

fn repeat(
    common: &BenchCommonArguments,
    directory: &Path,
    mut run: impl FnMut(u32, RunIdentity, &AtomicBool) -> Result<Round>,
) -> Result<Finding> {
    let stop = stop_on_signals()?;
    let mut writer = common.output.as_deref().map(RecordWriter::create).transpose()?;
    let mut records = Vec::new();
    let mut finding = Finding::Nothing;
    for round in 0..common.rounds {
        let identity = identity(common, directory, round)?;
        let (record, notes) = run(round, identity, &stop)?;
        for note in &notes {
            output::print_error(note);
            finding = Finding::Something;
        }
        if let Some(writer) = &mut writer {
            writer.write(&record)?;
        }
        if common.json && output::print_line(&serde_json::to_string(&record)?)? == Printed::Closed {
            break;
        }
        if !record.complete {
            output::print_error("stopped before its end; the numbers are partial");
            finding = Finding::Something;
        }
        records.push(record);
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
    Ok(finding)
}

fn identity(common: &BenchCommonArguments, directory: &Path, round: u32) -> Result<RunIdentity> {
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

/// A flag that SIGINT and SIGTERM raise.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("signals can't be caught")?;
    }
    Ok(stop)
}

fn summary(records: &[RunRecord]) -> String {
    let Some(first) = records.first() else {
        return String::new();
    };
    let kind = first
        .target
        .file_system_type
        .as_deref()
        .unwrap_or("unknown file system");
    let mut text = format!(
        "{} ({kind}), {} rounds, medians\n",
        first.target.path,
        records.len()
    );
    text.push_str("  operation        MB/s    operations/s     mean us      p99 us      max us\n");
    for sample in &first.samples {
        let name = &sample.operation;
        let of = |value: &dyn Fn(&results::Sample) -> Option<f64>| {
            let values: Vec<f64> = records
                .iter()
                .filter_map(|record| value(record.sample(name)?))
                .collect();
            median(&values).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        let latency = |pick: fn(&results::LatencySummary) -> f64| {
            of(&|sample| sample.latency.summary().map(|summary| pick(&summary) / 1e3))
        };
        text.push_str(&format!(
            "  {name:<10} {:>10} {:>15} {:>11} {:>11} {:>11}\n",
            of(&results::Sample::mb_per_s),
            of(&results::Sample::operations_per_s),
            latency(|summary| summary.mean_ns),
            latency(|summary| results::nearest_f64(summary.p99_ns)),
            latency(|summary| results::nearest_f64(summary.max_ns)),
        ));
    }
    for (name, label) in [
        (counter::CPU_ACTIVE, "processors active %"),
        (counter::CPU_IOWAIT, "processors waiting for I/O %"),
        (counter::CPU_IDLE, "processors idle %"),
        (counter::CONTEXT_SWITCHES_SYSTEM, "context switches, machine"),
    ] {
        let values: Vec<f64> = records
            .iter()
            .filter_map(|record| record.counters.get(name).copied())
            .collect();
        if let Some(value) = median(&values) {
            text.push_str(&format!("  {label:<30} {value:>12.1}\n"));
        }
    }
    text
}

/// A progress bar on standard error; nothing where that is no terminal.
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar of which nothing is to be seen yet.
    pub fn new() -> Self {
        let style =
            ProgressStyle::with_template("{prefix}{msg:<8} [{bar:40}] {percent:>3} %  {elapsed_precise}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::new(0).with_style(style),
        }
    }

    /// Says before the bar what is being done.
    pub fn title(&self, title: &str) {
        self.bar.set_prefix(format!("{title}  "));
    }

    /// Takes the bar away until the next progress.
    pub fn hide(&self) {
        self.bar.finish_and_clear();
        self.bar.reset();
    }
}

impl Progress for Bar {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        self.bar.set_message(phase.name());
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}
