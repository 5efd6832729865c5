//! `tidegate trace`: traces are taken, watched, read and turned into others.
//!
//! What asks a trace in SQL needs the feature `sql` (a default one): it is most of the program's size.

#[cfg(feature = "sql")]
pub mod analysis;
#[cfg(feature = "sql")]
pub mod apps;
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

use anyhow::Result;
use clap::Subcommand;

#[cfg(feature = "sql")]
use self::analysis::compare::TraceCompareArguments;
#[cfg(feature = "sql")]
use self::analysis::query::TraceQueryArguments;
#[cfg(feature = "sql")]
use self::analysis::report::TraceReportArguments;
#[cfg(feature = "sql")]
use self::apps::TraceAppsArguments;
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
    /// Analyse block traces: a page, text or JSON with sizes, locality, owners, latencies, hot and short-lived files
    #[cfg(feature = "sql")]
    Report(TraceReportArguments),
    /// Ask block traces in SQL, or run one of the named analyses
    #[cfg(feature = "sql")]
    Query(TraceQueryArguments),
    /// Set the analyses of two block traces beside each other
    #[cfg(feature = "sql")]
    Compare(TraceCompareArguments),
    /// Run applications on file systems made for it, traced, and draw figure 4 and table 3 of the bFUSE paper
    #[cfg(feature = "sql")]
    Apps(TraceAppsArguments),
    /// Tell which file or metadata owns the sectors of an image, a device or a mounted file system
    Map(TraceMapArguments),
    /// Turn a trace of block requests into another format
    Convert(TraceConvertArguments),
    /// Tell what a trace of block requests is of, how large it is and what it cannot tell
    Info(TraceInfoArguments),
}

/// Runs the command.
pub fn run(command: &TraceCommand) -> Result<Finding> {
    match command {
        TraceCommand::Record(arguments) => record::run(arguments),
        TraceCommand::Top(arguments) => top::run(arguments),
        TraceCommand::Syscalls(arguments) => syscalls::run(arguments),
        #[cfg(feature = "sql")]
        TraceCommand::Report(arguments) => analysis::report::run(arguments),
        #[cfg(feature = "sql")]
        TraceCommand::Query(arguments) => analysis::query::run(arguments),
        #[cfg(feature = "sql")]
        TraceCommand::Compare(arguments) => analysis::compare::run(arguments),
        #[cfg(feature = "sql")]
        TraceCommand::Apps(arguments) => apps::run(arguments),
        TraceCommand::Map(arguments) => map::run(arguments),
        TraceCommand::Convert(arguments) => convert::run(arguments),
        TraceCommand::Info(arguments) => info::run(arguments),
    }
}
