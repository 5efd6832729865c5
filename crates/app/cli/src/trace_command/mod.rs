//! `tidegate trace`: traces are taken, watched, read and turned into others.
//!
//! Another program, `tidegate-analysis`, runs the analyses in SQL.

mod capture_arguments;
pub mod convert;
pub mod destination;
pub mod info;
pub mod input;
pub mod map;
pub mod record;
mod record_file;
pub mod syscalls;
pub mod top;
mod top_screen;
mod utc;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use programs::analysis_arguments::AnalysisCommand;
use programs::program_beside;

use self::convert::TraceConvertArguments;
use self::info::TraceInfoArguments;
use self::map::TraceMapArguments;
use self::record::TraceRecordArguments;
use self::syscalls::TraceSyscallsArguments;
use self::top::TraceTopArguments;
use crate::Finding;

/// What `tidegate trace` does.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record block requests of a device, with the file and the process behind each
    Record(TraceRecordArguments),
    /// Show live which processes and files a device works for, how much and how fast
    Top(TraceTopArguments),
    /// Record the calls that a program and its children make on files, for `tidegate replay`
    Syscalls(TraceSyscallsArguments),
    /// The commands of `tidegate-analysis`.
    #[command(flatten)]
    Analysis(AnalysisCommand),
    /// Tell which file or metadata owns the sectors of an image, a device or a mounted file system
    Map(TraceMapArguments),
    /// Turn a trace of block requests into another format
    Convert(TraceConvertArguments),
    /// Tell what a trace of block requests is of, how large it is and what it cannot tell
    Info(TraceInfoArguments),
}

/// Runs the command.
pub fn run(command: &TraceCommand, words: &[OsString]) -> Result<Finding> {
    match command {
        TraceCommand::Record(arguments) => record::run(arguments),
        TraceCommand::Top(arguments) => top::run(arguments),
        TraceCommand::Syscalls(arguments) => syscalls::run(arguments),
        TraceCommand::Analysis(_) => analyse(words),
        TraceCommand::Map(arguments) => map::run(arguments),
        TraceCommand::Convert(arguments) => convert::run(arguments),
        TraceCommand::Info(arguments) => info::run(arguments),
    }
}

/// The program that analyses traces.
const ANALYSIS: &str = "tidegate-analysis";

/// Becomes the program that analyses traces, with the same words.
fn analyse(words: &[OsString]) -> Result<Finding> {
    let program = program_beside(ANALYSIS)?;
    let words = words.iter().skip_while(|word| *word != "trace").skip(1);
    let error = Command::new(&program).args(words).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "{ANALYSIS} is not installed: it is found neither beside tidegate nor by the search path. It comes with \
             `make install`, or `cargo build --release -p analysis-cli` and a copy of target/release/{ANALYSIS}"
        );
    }
    Err(error).with_context(|| format!("{} can't be run", program.display()))
}
