//! `tidegate trace syscalls`: runs a program and records its calls on files in a trace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::Args;
use programs::stop_on_signals;
use trace::{Ending, RecordSpec, Recorded};

use crate::{Finding, output};

/// Base of a shell's exit code for a program ended by a signal; the signal is added to it.
const KILLED: i32 = 128;

/// Arguments of `tidegate trace syscalls`.
#[derive(Args, Debug)]
#[command(
    after_help = "No privilege is needed. Threads, forks and execs are followed; sockets, pipes and other \
                  descriptors that are no files are left out with a count. Ctrl-C goes to the program too; its \
                  trace is then partial.\n\
                  Exit codes: that of the program (128 + signal when one killed it), 2 when it could not be \
                  recorded."
)]
pub struct TraceSyscallsArguments {
    /// The trace to write
    #[arg(long, short = 'o', value_name = "FILE", default_value = "calls.jsonl")]
    pub output: PathBuf,
    /// Print nothing on success
    #[arg(long, short = 'q')]
    pub quiet: bool,
    /// The program and its arguments, after --
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// Runs the command.
pub fn run(arguments: &TraceSyscallsArguments) -> Result<Finding> {
    let stop: Arc<AtomicBool> = stop_on_signals()?;
    let spec = RecordSpec {
        command: arguments.command.clone(),
        output: arguments.output.clone(),
    };
    let recorded = trace::record(&spec, &stop).context("nothing was recorded")?;
    if !arguments.quiet || !recorded.complete {
        describe(&recorded);
    }
    Ok(match recorded.ending {
        Ending::Exited(0) if recorded.complete => Finding::Nothing,
        Ending::Exited(0) => Finding::Something,
        Ending::Exited(code) => Finding::Code(exit_code(code)),
        Ending::Killed(signal) => Finding::Code(exit_code(KILLED.saturating_add(signal))),
    })
}

/// The kernel passes on the lowest byte of an exit code.
fn exit_code(code: i32) -> u8 {
    u8::try_from(code & 0xFF).expect("one byte is left of it")
}

fn describe(recorded: &Recorded) {
    output::print_error(&format!(
        "{} calls of {} processes and threads in {}",
        recorded.calls,
        recorded.followed,
        recorded.path.display()
    ));
    for (reason, count) in &recorded.skipped {
        output::print_error(&format!("left out: {count} x {reason}"));
    }
    if !recorded.complete {
        output::print_error("stopped before its end; the trace is partial");
    }
}
