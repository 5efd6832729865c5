//! `tidegate replay`: a trace of calls, made again on any directory.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use bench::replay::formats::{Format, Ipc, ReadOptions, TraceError, USUAL_CALLS_MAX, format_of, read_trace};
use bench::replay::{DirectIo, ReplayOutcome, ReplaySpec, Speed};
use bench::{Cache, RunIdentity};
use clap::Args;
use results::call_trace::Trace;

use crate::bench_command::repeat::{BenchCommonArguments, Measured, Turn, repeat};
use crate::{Finding, output};

/// Arguments of `tidegate replay`.
#[derive(Args, Debug)]
#[command(
    after_help = "Formats: calls (tidegate trace syscalls), strace (best: strace -f -ttt -T -y -o FILE), mobigen (Mobibench\n\
                  scripts), fio-iolog (fio --write_iolog, version 2 and 3), blkparse (text), biotracer (Nexus 5 traces of\n\
                  SmartphoneIOTraces), pixel-csv (Pixel traces of MobileBlockIOTraces), most, ftrace, block-trace (any of\n\
                  these, or a folder of `tidegate trace`).\n\
                  Paths of the trace are made inside a folder of the replay's own; none leads out of it.\n\
                  Whatever of the trace is left out, or answers otherwise, is counted and printed.\n\
                  Exit codes: 0 done, 1 stopped before its end or calls answered otherwise, 2 could not do it."
)]
pub struct ReplayArguments {
    /// The trace
    pub file: PathBuf,
    /// An existing folder on the file system to measure; a folder of its own is made in it and removed
    pub directory: PathBuf,
    /// calls, strace, mobigen, fio-iolog, blkparse, biotracer, pixel-csv, most, ftrace or block-trace [default: told by
    /// the content]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// asap (each call as soon as it may), real (at the times of the trace), or xN: N times as fast as the trace
    #[arg(long, value_name = "SPEED", default_value = "asap", value_parser = parse_speed)]
    pub speed: Speed,
    /// Page cache when the window begins: cold or as-is
    #[arg(long, value_name = "STATE", default_value = "as-is")]
    pub cache: Cache,
    /// Open everything through the page cache, whatever the trace says
    #[arg(long)]
    pub no_direct: bool,
    /// Replay what were pipes and sockets in a Mobibench script as files, as the original does
    #[arg(long)]
    pub keep_ipc: bool,
    /// Calls to keep in memory, about 80 bytes each; those after them are counted and left out
    #[arg(long, value_name = "N", default_value_t = USUAL_CALLS_MAX)]
    pub max_calls: usize,
    /// Leave the files where they are
    #[arg(long)]
    pub keep_files: bool,
    /// How it is repeated and reported.
    #[command(flatten)]
    pub common: BenchCommonArguments,
}

/// Runs the command.
pub fn run(arguments: &ReplayArguments) -> Result<Finding> {
    let trace = read(arguments)?;
    introduce(&trace);
    repeat(&arguments.common, &arguments.directory, |turn| {
        let outcome = bench::replay::run(&trace, &spec(arguments, turn.seed), turn.bar, turn.stop)?;
        turn.bar.hide();
        report(&outcome, arguments.common.json)?;
        measured(outcome, turn.identity)
    })
}

/// One replay, trace and all, without the repetition: jobs call it for each of their steps.
pub fn measure(arguments: &ReplayArguments, turn: Turn<'_>) -> Result<Measured> {
    let trace = read(arguments)?;
    let mut notes: Vec<String> = trace
        .skipped
        .iter()
        .map(|(reason, count)| format!("left out of {}: {count} x {reason}", arguments.file.display()))
        .collect();
    if !trace.complete {
        notes.push(ENDS_EARLY.to_owned());
    }
    let outcome = bench::replay::run(&trace, &spec(arguments, turn.seed), turn.bar, turn.stop)?;
    let mut measured = measured(outcome, turn.identity)?;
    notes.append(&mut measured.notes);
    Ok(Measured { notes, ..measured })
}

/// What can be said before anything is touched: whether there is a trace, and of a known format.
pub fn check(arguments: &ReplayArguments) -> Result<()> {
    format_of(&arguments.file, arguments.format)?;
    Ok(())
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

fn spec(arguments: &ReplayArguments, seed: u64) -> ReplaySpec {
    ReplaySpec {
        directory: arguments.directory.clone(),
        speed: arguments.speed,
        direct: if arguments.no_direct {
            DirectIo::Never
        } else {
            DirectIo::AsTraced
        },
        cache: arguments.cache,
        seed,
        keep_files: arguments.keep_files,
    }
}

fn measured(outcome: ReplayOutcome, identity: RunIdentity) -> Result<Measured> {
    let mut notes = outcome.differences();
    notes.extend(
        outcome
            .leftover
            .as_ref()
            .map(|reason| format!("files were left behind: {reason}")),
    );
    Ok(Measured {
        record: outcome.into_record(identity)?,
        notes,
    })
}

/// Of a trace that was cut.
const ENDS_EARLY: &str = "the trace ends before what it recorded did";

/// What was read, and what of it will not be replayed.
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
    for (reason, count) in &trace.skipped {
        output::print_error(&format!("left out: {count} x {reason}"));
    }
    if !trace.complete {
        output::print_error(ENDS_EARLY);
    }
}

fn report(outcome: &ReplayOutcome, is_json: bool) -> Result<()> {
    if let Some(kept) = &outcome.kept_directory {
        output::print_error(&format!("files are kept in {}", kept.display()));
    }
    if is_json {
        return Ok(());
    }
    let us = |ns: f64| ns / 1e3;
    let mut text = format!(
        "replay of {} ({}), {}, {} threads for {} of the trace\n",
        outcome.origin,
        outcome.layer.describe(),
        outcome.pace(),
        outcome.threads,
        outcome.traced_threads
    );
    if let Some(summary) = outcome.response().summary() {
        let count = results::nearest_f64(summary.count);
        text.push_str(&format!(
            "  {} calls in {:.3} s (trace: {:.3} s), {:.3} s inside calls, mean response {:.1} us, p99 {:.1} us\n",
            summary.count,
            results::nearest_f64(outcome.elapsed_ns) / 1e9,
            results::nearest_f64(outcome.trace_ns) / 1e9,
            summary.mean_ns * count / 1e9,
            us(summary.mean_ns),
            us(results::nearest_f64(summary.p99_ns)),
        ));
    }
    if let Some(late) = outcome.lateness.summary() {
        text.push_str(&format!(
            "  calls were late by p50 {:.1} us, p99 {:.1} us, at most {:.1} us\n",
            us(results::nearest_f64(late.p50_ns)),
            us(results::nearest_f64(late.p99_ns)),
            us(results::nearest_f64(late.max_ns)),
        ));
    }
    output::print_bytes(text.as_bytes())?;
    Ok(())
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    let wrong = || format!("`{text}` is none of asap, real, or xN with a number above 0, such as x2 or x0.5");
    match text {
        "asap" => Ok(Speed::AsFastAsPossible),
        "real" => Ok(Speed::REAL_TIME),
        _ => {
            let factor: f64 = text
                .strip_prefix('x')
                .and_then(|number| number.parse().ok())
                .ok_or_else(wrong)?;
            if factor.is_finite() && factor > 0.0 {
                Ok(Speed::Scaled(factor))
            } else {
                Err(wrong())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_named_as_in_the_help_text() {
        assert_eq!(parse_speed("asap"), Ok(Speed::AsFastAsPossible));
        assert_eq!(parse_speed("real"), Ok(Speed::Scaled(1.0)));
        assert_eq!(parse_speed("x0.5"), Ok(Speed::Scaled(0.5)));
        for text in ["", "x", "x0", "x-1", "xinf", "2x", "xNaN"] {
            parse_speed(text).expect_err(text);
        }
    }
}
