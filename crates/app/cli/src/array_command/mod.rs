//! `tidegate array`: combines several flash devices into one.

mod adopt;
mod bench;
mod rebuild;

use anyhow::Result;
use clap::Subcommand;

use self::adopt::AdoptArguments;
use self::bench::ArrayBenchArguments;
use self::rebuild::RebuildArguments;
use crate::Finding;

/// Subcommands of `tidegate array`.
#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Measure simulated arrays: throughput by number of devices, cell type, record size and design
    Bench(ArrayBenchArguments),
    /// Take back members that an array refuses; data that does not match the other members is lost
    Adopt(AdoptArguments),
    /// Rebuild a member from the others and their parity
    Rebuild(RebuildArguments),
}

/// Runs the command.
pub fn run(command: &ArrayCommand) -> Result<Finding> {
    match command {
        ArrayCommand::Bench(arguments) => bench::run(arguments),
        ArrayCommand::Adopt(arguments) => adopt::run(arguments),
        ArrayCommand::Rebuild(arguments) => rebuild::run(arguments),
    }
}
