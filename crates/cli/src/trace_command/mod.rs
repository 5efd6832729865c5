//! `tidegate trace`: recorders.

pub mod syscalls;

use anyhow::Result;
use clap::Subcommand;

use self::syscalls::TraceSyscallsArguments;
use crate::Finding;

/// What `tidegate trace` records.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the calls that a program and its children make on files, for `tidegate replay`
    Syscalls(TraceSyscallsArguments),
}

/// Runs the command.
pub fn run(command: &TraceCommand) -> Result<Finding> {
    match command {
        TraceCommand::Syscalls(arguments) => syscalls::run(arguments),
    }
}
