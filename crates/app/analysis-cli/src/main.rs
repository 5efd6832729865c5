//! The program `tidegate-analysis`: analyses of block traces in SQL. `tidegate trace report`, `query`, `compare` and
//! `apps` run it. It is a separate program because DataFusion takes as long to build as all other code, and makes up
//! most of the size.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod apps;
mod ceiling;
mod compare;
mod foreign;
mod query;
mod report;
mod scratch;
mod traces;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use programs::analysis_arguments::AnalysisCommand;
use programs::command_line;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ceiling::Ceiling;
use crate::scratch::Scratch;

#[global_allocator]
static MEMORY: Ceiling = Ceiling::new();

/// Analyse block traces in SQL; also as `tidegate trace report`, `query`, `compare` and `apps`.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-analysis",
    bin_name = "tidegate trace",
    version,
    max_term_width = 100,
    propagate_version = true
)]
struct Arguments {
    /// The command.
    #[command(subcommand)]
    command: AnalysisCommand,
}

/// Three files of each trace stay open, and a folder may have many.
fn allow_descriptors() {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    // A call that lacks one tells it.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn main() -> ExitCode {
    allow_descriptors();
    let words: Vec<OsString> = std::env::args_os().collect();
    let arguments: Arguments = command_line::parse_or_refuse(Arguments::command(), &words);
    // `apps` ends its programs and disks itself.
    let ends_itself = matches!(arguments.command, AnalysisCommand::Apps(_));
    let scratch = Scratch::make(!ends_itself);
    let code = programs::exit_code(match &arguments.command {
        AnalysisCommand::Report(arguments) => report::run(arguments),
        AnalysisCommand::Query(arguments) => query::run(arguments),
        AnalysisCommand::Compare(arguments) => compare::run(arguments),
        AnalysisCommand::Apps(arguments) => apps::run(arguments),
    });
    drop(scratch);
    code
}
