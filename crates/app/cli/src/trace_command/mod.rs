//! `tidegate trace`: records, watches, reads and converts traces.
//!
//! Another program, `tidegate-analysis`, runs the analyses in SQL.

mod capture_arguments;
pub mod convert;
pub mod info;
pub mod input;
pub mod map;
pub mod record;
pub mod syscalls;
pub mod top;
mod top_screen;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Subcommand;
use formats::{BadLines, ReadError, ReadOptions};
use programs::analysis_arguments::AnalysisCommand;
use programs::parts;

use self::convert::TraceConvertArguments;
use self::info::TraceInfoArguments;
use self::map::TraceMapArguments;
use self::record::TraceRecordArguments;
use self::syscalls::TraceSyscallsArguments;
use self::top::TraceTopArguments;
use crate::Finding;

/// The subcommands of `tidegate trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record block requests of a device, with the file and process of each
    Record(TraceRecordArguments),
    /// Show live for which processes and files a device works, with rates and latencies
    Top(TraceTopArguments),
    /// Record the calls of a program and its children on files, for `tidegate replay`
    Syscalls(TraceSyscallsArguments),
    /// The commands of `tidegate-analysis`.
    #[command(flatten)]
    Analysis(AnalysisCommand),
    /// Show the file or metadata that owns sectors of an image, a device or a mounted file system
    Map(TraceMapArguments),
    /// Convert a trace of block requests to another format
    Convert(TraceConvertArguments),
    /// Describe a trace of block requests: its source, its size and the data that it lacks
    Info(TraceInfoArguments),
}

/// Runs the command.
pub fn run(command: &TraceCommand, words: &[OsString]) -> Result<Finding> {
    match command {
        TraceCommand::Record(arguments) => record::run(arguments),
        TraceCommand::Top(arguments) => top::run(arguments),
        TraceCommand::Syscalls(arguments) => syscalls::run(arguments),
        TraceCommand::Analysis(command) => analyse(command, words),
        TraceCommand::Map(arguments) => map::run(arguments),
        TraceCommand::Convert(arguments) => convert::run(arguments),
        TraceCommand::Info(arguments) => info::run(arguments),
    }
}

/// The traces that an analysis reads, and perhaps its query.
fn inputs(command: &AnalysisCommand) -> Vec<&Path> {
    match command {
        AnalysisCommand::Report(arguments) => arguments.traces.iter().map(PathBuf::as_path).collect(),
        AnalysisCommand::Query(arguments) => arguments.words.iter().map(PathBuf::as_path).collect(),
        AnalysisCommand::Compare(arguments) => vec![&arguments.first, &arguments.second],
        AnalysisCommand::Apps(_) => Vec::new(),
    }
}

/// Names the kind of a file that is no trace. Other errors are left to the analysis, which reads pipes only once.
fn refuse_other_kinds(path: &Path) -> Result<()> {
    let options = ReadOptions {
        format: None,
        bad_lines: BadLines::Skip,
    };
    match path.is_file().then(|| formats::open(path, options)) {
        Some(Err(error @ ReadError::UnknownFormat { .. })) => Err(input::explained(path, error)),
        _ => Ok(()),
    }
}

/// Replaces this process with the analysis program, with the same arguments.
fn analyse(command: &AnalysisCommand, words: &[OsString]) -> Result<Finding> {
    inputs(command).into_iter().try_for_each(refuse_other_kinds)?;
    parts::ANALYSIS.execute("trace", words)
}
