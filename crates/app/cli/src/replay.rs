//! `tidegate replay`: replays a call trace on any directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bench::replay::{DirectIo, Replay, ReplaySpec, Speed};
use bench::{Cache, Workload};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::calls::{Format, Ipc, ReadOptions, TraceError, USUAL_CALLS_MAX, format_of, read_trace, words};
use results::call_trace::Trace;

use crate::bench_command::common::BenchCommonArguments;
use crate::bench_command::workloads::{RunAs, WorkloadArguments, common_and_directory};
use crate::inspect::{TRACES, not_understood};
use crate::output;

/// Arguments of `tidegate replay`.
#[derive(Args, Debug)]
#[command(
    after_help = "Paths of the trace are made inside a folder of the replay's own; none leads out of it. \
                  Omitted calls, and calls that answer otherwise, are counted and printed.
\
                  Exit codes: 0 done, 1 stopped before its end or calls answered otherwise, 2 could not do it."
)]
pub struct ReplayArguments {
    /// Replay this trace
    pub file: PathBuf,
    /// Measure the file system of this existing directory; a subdirectory is created in it and removed
    pub directory: PathBuf,
    /// Read the trace in this format [default: detected from the content]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser())]
    pub format: Option<Format>,
    /// Replay at this speed: asap (each call as soon as its dependencies allow), real (at the recorded times), or xN
    /// (N times as fast as recorded)
    #[arg(long, value_name = "SPEED", default_value = "asap")]
    pub speed: Speed,
    /// Set the page cache state at the start of the timed window: cold or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// Open all files without O_DIRECT, whatever the trace says
    #[arg(long)]
    pub no_direct: bool,
    /// Replay the pipes and sockets of a Mobibench script as files, like the original
    #[arg(long)]
    pub keep_ipc: bool,
    /// Keep up to N calls in memory, about 80 bytes each; later ones are counted and dropped
    #[arg(long, value_name = "N", default_value_t = USUAL_CALLS_MAX)]
    pub max_calls: usize,
    /// Keep the files after the run
    #[arg(long)]
    pub keep_files: bool,
    /// Repetition and reporting.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    let words = words().map(|(_, word, description)| PossibleValue::new(word).help(description));
    PossibleValuesParser::new(words).try_map(|word| word.parse::<Format>())
}

impl WorkloadArguments for ReplayArguments {
    common_and_directory!();

    fn workload(&self, run_as: RunAs) -> Result<Box<dyn Workload>> {
        let trace = read(self).map_err(|error| no_trace(&self.file, error))?;
        let trace_notes = match run_as {
            RunAs::Command => {
                introduce(&trace);
                Vec::new()
            }
            RunAs::Step => notes(&trace, &format!("left out of {}", self.file.display())),
        };
        let spec = spec(self);
        Ok(Box::new(Replay {
            trace,
            trace_notes,
            spec,
        }))
    }

    /// Checks that the trace exists and has a known format.
    fn check(&self) -> Result<()> {
        format_of(&self.file, self.format).map_err(|error| no_trace(&self.file, error))?;
        Ok(())
    }
}

fn read(arguments: &ReplayArguments) -> Result<Trace, TraceError> {
    let ipc = if arguments.keep_ipc {
        Ipc::AsFiles
    } else {
        Ipc::LeaveOut
    };
    let calls_max = arguments.max_calls;
    read_trace(&arguments.file, arguments.format, ReadOptions { calls_max, ipc })
}

/// The error about a trace: the kind of a file that is none.
fn no_trace(path: &Path, error: TraceError) -> anyhow::Error {
    not_understood(path, "a trace", &TRACES, error.into())
}

fn spec(arguments: &ReplayArguments) -> ReplaySpec {
    ReplaySpec {
        directory: arguments.directory.clone(),
        speed: arguments.speed,
        direct: if arguments.no_direct {
            DirectIo::Never
        } else {
            DirectIo::AsTraced
        },
        cache: arguments.cache,
        seed: arguments.common.seed,
        keep_files: arguments.keep_files,
    }
}

/// Prints a summary of the trace, and the items that will not be replayed.
fn introduce(trace: &Trace) {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &trace.calls {
        *kinds.entry(call.action.kind()).or_default() += 1;
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    output::print_error(&format!(
        "{}: {} calls ({}); layer: {}",
        trace.origin,
        trace.calls.len(),
        kinds.join(", "),
        trace.layer.describe()
    ));
    for note in notes(trace, "left out") {
        output::print_error(&note);
    }
}

/// Notes on parts of the recorded program that the trace does not have.
fn notes(trace: &Trace, left_out: &str) -> Vec<String> {
    let skipped = trace.skipped.iter();
    let mut notes: Vec<String> = skipped
        .map(|(reason, count)| format!("{left_out}: {count} x {reason}"))
        .collect();
    if !trace.complete {
        notes.push("the trace ends before the recorded program did".to_owned());
    }
    notes
}
