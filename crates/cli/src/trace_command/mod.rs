//! `tidegate trace`: recorders.

pub mod map;
pub mod syscalls;

use anyhow::Result;
use clap::Subcommand;

use self::map::TraceMapArguments;
use self::syscalls::TraceSyscallsArguments;
use crate::Finding;

/// What `tidegate trace` records.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record the calls that a program and its children make on files, for `tidegate replay`
    Syscalls(TraceSyscallsArguments),
    /// Tell which file or metadata owns the sectors of an image, a device or a mounted file system
    Map(TraceMapArguments),
}

/// Runs the command.
pub fn run(command: &TraceCommand) -> Result<Finding> {
    match command {
        TraceCommand::Syscalls(arguments) => syscalls::run(arguments),
        TraceCommand::Map(arguments) => map::run(arguments),
    }
}
