//! `tidegate trace record`: records block requests of a device live, with the file and process of each.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use programs::stop_on_signals;
use trace::block::{CaptureSpec, CommandOutput, ItemOrder};
use trace::recording::RecordFile;

use super::capture_arguments::CaptureArguments;
use crate::quantity::parse_duration;
use crate::{Finding, output};

/// Arguments of `tidegate trace record`.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs root, or CAP_BPF and CAP_PERFMON. The trace ends with the command, after --duration, or \
                  at Ctrl-C, once the requests in flight are done. A trace that is stopped earlier is kept and \
                  marked (tidegate trace info). Write the trace to another device than the traced one: the \
                  tracer's own requests are left out, but they load the device.\n\
                  Exit codes: that of the command if it failed (128 + N: ended by signal N), otherwise 0 done, 1 \
                  records were lost or it was stopped early, 2 nothing could be traced, or the trace could not \
                  be completed (NAME.partial keeps its beginning)."
)]
pub struct TraceRecordArguments {
    /// The devices to trace.
    #[command(flatten)]
    pub capture: CaptureArguments,
    /// Output: a folder NAME.trace, a file of another tool by extension (.jsonl, .blkparse, .po, .iolog, .pftrace), or -
    /// for JSON lines on standard output [default: device and time, as in sda-20260131-235900.trace]
    #[arg(long, short = 'o', value_name = "NAME")]
    pub output: Option<PathBuf>,
    /// Replace an existing trace
    #[arg(long)]
    pub force: bool,
    /// Stop after this time (10s, 2m)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Don't count system calls; saves about 0.1 us per call of every process
    #[arg(long)]
    pub no_calls: bool,
    /// Don't trace the commands that eMMC and SD drivers send
    #[arg(long)]
    pub no_driver: bool,
    /// Write all dirty data to the devices before the end
    #[arg(long)]
    pub sync: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// A program to run and trace until it ends, after --
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &TraceRecordArguments) -> Result<Finding> {
    let stop = stop_on_signals()?;
    let spec = CaptureSpec {
        targets: arguments.capture.targets(),
        method: arguments.capture.method.into(),
        ring_bytes: arguments.capture.ring,
        count_calls: !arguments.no_calls,
        driver_commands: !arguments.no_driver,
        command: arguments.command.clone(),
        command_output: match arguments.output.as_deref().map(Path::as_os_str) {
            Some(output) if output == "-" => CommandOutput::StandardError,
            _ => CommandOutput::Inherited,
        },
        duration: arguments.duration,
        sync_at_end: arguments.sync,
        order: ItemOrder::ByTime,
        host: Some(runner::environment::host()),
        source: programs::own_arguments().join(" "),
    };
    let mut file = RecordFile::new(
        arguments.output.as_deref(),
        arguments.force,
        &stop,
        output::print_error,
    )?;
    let captured = match trace::block::capture(&spec, &stop, &mut file) {
        Ok(captured) => captured,
        Err(error) => return Err(unfinished(arguments.capture.explain(error), &file)),
    };
    let summary = file.finish(&captured)?;
    if !arguments.json {
        for line in summary.lines(&captured) {
            output::print_error(&line);
        }
    } else if file.is_stdout() {
        output::print_error(&serde_json::to_string(&summary)?);
    } else {
        output::print_line(&serde_json::to_string_pretty(&summary)?)?;
    }
    let finding = if captured.header.lost_records > 0 || !captured.header.complete {
        Finding::Something
    } else {
        Finding::Nothing
    };
    // A command that the tracer stopped has no exit code of its own.
    let status = captured.command_status.filter(|_| captured.header.complete);
    Ok(status.and_then(failure).unwrap_or(finding))
}

/// The exit code of a command that failed, as a shell reports it: its own, or 128 and the number of the signal that
/// ended it.
fn failure(status: ExitStatus) -> Option<Finding> {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => signal.saturating_add(128),
        (None, None) => 1,
    };
    (code != 0).then(|| {
        output::print_error(&format!("the command ended with {status}"));
        Finding::Code(u8::try_from(code).unwrap_or(u8::MAX))
    })
}

/// Adds the state of the trace file to an error.
fn unfinished(error: anyhow::Error, file: &RecordFile) -> anyhow::Error {
    match file.begun() {
        None => error.context("nothing was traced"),
        Some(path) => error.context(format!(
            "the trace ends early; its beginning is in {}",
            outfile::partial_name(path).display()
        )),
    }
}
