//! `tidegate trace convert`: a trace of block requests in another format.

use std::io::{ErrorKind, stdout};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use formats::export::{self, ForeignFormat, Target};
use formats::native::{self, Existing, NativeWriter, TraceId};
use formats::{Carry, CarryError, TraceSink, TraceSource, WriteError, Written, carry};
use serde_json::json;

use super::input::{InputArguments, describe_skipped, skipped_json};
use crate::bench_command::repeat::stop_on_signals;
use crate::{Finding, output};

/// Arguments of `tidegate trace convert`.
#[derive(Args, Debug)]
#[command(
    after_help = "What the source cannot tell stands in the header of a native trace (tidegate trace info).\n\
                  Exit codes: 0 done, 1 done, but lines were left out or it was stopped, 2 could not do it."
)]
pub struct TraceConvertArguments {
    #[command(flatten)]
    pub input: InputArguments,
    /// What is written: a folder NAME.trace, a file, or - for standard output
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Format of OUT, where the end of its name does not tell (.trace, .blkparse, .po, .iolog, .pftrace, .jsonl)
    #[arg(long, value_name = "FORMAT", value_parser = to_parser())]
    pub to: Option<To>,
    /// Replace OUT where there is one
    #[arg(long)]
    pub force: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Say nothing when all went well
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Native,
    Foreign(ForeignFormat),
}

impl To {
    const NATIVE_WORD: &'static str = "native";

    fn word(self) -> &'static str {
        match self {
            Self::Native => Self::NATIVE_WORD,
            Self::Foreign(format) => format.word(),
        }
    }
}

fn to_parser() -> impl TypedValueParser<Value = To> {
    let native = PossibleValue::new(To::NATIVE_WORD).help("folder of Parquet tables");
    let foreign = ForeignFormat::WORDS.map(|(_, word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(std::iter::once(native).chain(foreign)).try_map(|word| {
        if word == To::NATIVE_WORD {
            Ok(To::Native)
        } else {
            word.parse::<ForeignFormat>().map(To::Foreign)
        }
    })
}

/// Runs the command.
pub fn run(arguments: &TraceConvertArguments) -> Result<Finding> {
    let to = wanted_format(arguments)?;
    let is_stdout = arguments.output.as_os_str() == "-";
    if !is_stdout && to != To::Native && arguments.output.exists() && !arguments.force {
        bail!(
            "{} exists already; choose another name, or replace it with --force",
            arguments.output.display()
        );
    }
    let stop = stop_on_signals()?;
    let mut source = arguments.input.open()?;
    let sink = sink(arguments, to, &*source)?;
    let mut bar = arguments.input.bar();
    let mut stopped = false;
    let carried = carry(&mut *source, sink, |position| {
        bar.step(position);
        stopped = stop.load(Ordering::Relaxed);
        if stopped { Carry::Stop } else { Carry::On }
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
    let by_name = || {
        if output
            .extension()
            .is_some_and(|extension| extension == native::EXTENSION)
        {
            return Some(To::Native);
        }
        ForeignFormat::by_extension(output).map(To::Foreign)
    };
    let Some(to) = arguments.to.or_else(by_name) else {
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

fn sink(arguments: &TraceConvertArguments, to: To, source: &dyn TraceSource) -> Result<Box<dyn TraceSink>> {
    let output = &arguments.output;
    Ok(match to {
        To::Native => {
            let existing = if arguments.force {
                Existing::Replace
            } else {
                Existing::Refuse
            };
            Box::new(NativeWriter::create(
                output,
                trace_id(output),
                source.header(),
                existing,
            )?)
        }
        To::Foreign(format) if output.as_os_str() == "-" => {
            let target = Target::Stream(Box::new(stdout()), PathBuf::from("standard output"));
            export::create(target, format)?
        }
        To::Foreign(format) => export::create(Target::File(output.clone()), format)?,
    })
}

fn trace_id(output: &Path) -> TraceId {
    let name = output.file_stem().unwrap_or_default().to_string_lossy();
    let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TraceId::new(&name, made.as_nanos(), std::process::id())
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
        // Standard output is the trace's when that is written there.
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
            "not told by the source: {}: {}",
            limitation.what, limitation.why
        ));
    }
    Ok(())
}
