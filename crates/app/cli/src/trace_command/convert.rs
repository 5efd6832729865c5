//! `tidegate trace convert`: converts a trace of block requests to another format.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::export::ForeignFormat;
use formats::{CarryError, TraceSource, WriteError, Written, carry};
use programs::stop_on_signals;
use serde_json::json;
use trace::destination::{self, To};

use super::input::{InputArguments, describe_skipped, skipped_json};
use crate::{Finding, output};

/// Arguments of `tidegate trace convert`.
#[derive(Args, Debug)]
#[command(
    after_help = "The header of a native trace lists the data that the source lacks (tidegate trace info).\n\
                  Exit codes: 0 done, 1 done, but lines were left out or it was stopped, 2 could not do it."
)]
pub struct TraceConvertArguments {
    #[command(flatten)]
    pub input: InputArguments,
    /// Output: a folder NAME.trace, a file, or - for standard output
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Format of OUT, if its extension does not say (.trace, .blkparse, .po, .iolog, .pftrace, .jsonl)
    #[arg(long, value_name = "FORMAT", value_parser = to_parser())]
    pub to: Option<To>,
    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Print nothing on success
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

fn to_parser() -> impl TypedValueParser<Value = To> {
    let native = PossibleValue::new(To::NATIVE_WORD).help("folder of Parquet tables");
    let foreign = ForeignFormat::WORDS.map(|(_, word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(std::iter::once(native).chain(foreign)).try_map(|word| word.parse::<To>())
}

/// Runs the command.
pub fn run(arguments: &TraceConvertArguments) -> Result<Finding> {
    let to = wanted_format(arguments)?;
    let is_stdout = arguments.output.as_os_str() == "-";
    // A device or a FIFO is written to, not replaced.
    let is_kept = |found: Metadata| found.is_file() || found.is_dir();
    let is_there = !is_stdout && fs::metadata(&arguments.output).is_ok_and(is_kept);
    if is_there && to != To::Native && !arguments.force {
        bail!(
            "{} exists already; choose another name, or replace it with --force",
            arguments.output.display()
        );
    }
    let stop = stop_on_signals()?;
    let mut source = arguments.input.open()?;
    let sink = destination::create(
        &arguments.output,
        to,
        source.header(),
        destination::existing(arguments.force),
    )?;
    let mut bar = arguments.input.bar();
    let mut stopped = false;
    let carried = carry(&mut *source, sink, |position| {
        bar.step(position);
        stopped = stop.load(Ordering::Relaxed);
        if stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bar.clear();
    let written = match carried {
        Err(CarryError::Write(WriteError::Io { source, .. }))
            if is_stdout && source.kind() == ErrorKind::BrokenPipe =>
        {
            return Ok(Finding::Nothing);
        }
        carried => carried?,
    };
    let skipped = source.skipped().cloned().unwrap_or_default();
    tell(arguments, to, &*source, &written, stopped)?;
    let is_whole = skipped.count == 0 && !stopped;
    Ok(if is_whole {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

fn wanted_format(arguments: &TraceConvertArguments) -> Result<To> {
    let output = &arguments.output;
    let Some(to) = arguments.to.or_else(|| To::by_name(output)) else {
        bail!(
            "{}: the name does not tell the format; expected NAME.trace, .blkparse, .po, .iolog, .pftrace or .jsonl, \
             or the format by --to",
            output.display()
        );
    };
    if to == To::Native && output.as_os_str() == "-" {
        bail!("a native trace is a folder and can't go to standard output; choose another --to");
    }
    Ok(to)
}

fn tell(
    arguments: &TraceConvertArguments,
    to: To,
    source: &dyn TraceSource,
    written: &Written,
    stopped: bool,
) -> Result<()> {
    let skipped = source.skipped().cloned().unwrap_or_default();
    if arguments.json {
        let document = json!({
            "output": arguments.output,
            "format": to.word(),
            "requests": written.requests,
            "events": written.events,
            "left_out": written.left_out,
            "skipped_lines": skipped_json(&skipped),
            "limitations": source.header().limitations,
            "complete": !stopped && source.header().complete,
        });
        // Standard output may hold the trace itself.
        if arguments.output.as_os_str() == "-" {
            output::print_error(&document.to_string());
        } else {
            output::print_line(&document.to_string())?;
        }
        return Ok(());
    }
    describe_skipped(&skipped);
    if stopped {
        output::print_error("stopped before its end; the trace is partial");
    }
    if arguments.quiet {
        return Ok(());
    }
    output::print_error(&format!(
        "{} requests and {} events in {}",
        written.requests,
        written.events,
        arguments.output.display()
    ));
    for (what, count) in &written.left_out {
        output::print_error(&format!("left out: {count} x {what}"));
    }
    for limitation in &source.header().limitations {
        output::print_error(&format!(
            "missing in the source: {}: {}",
            limitation.what, limitation.why
        ));
    }
    Ok(())
}
