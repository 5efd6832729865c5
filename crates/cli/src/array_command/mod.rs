//! `tidegate array`: several flash devices as one.

mod bench;
mod measure;

use anyhow::Result;
use clap::Subcommand;

use self::bench::ArrayBenchArguments;
pub use self::measure::{format_options, limit_ns};
use crate::Finding;

/// What `tidegate array` does.
#[derive(Debug, Subcommand)]
pub enum ArrayCommand {
    /// Measure simulated arrays: throughput by number of devices, cell type, record size and design
    Bench(ArrayBenchArguments),
}

/// Runs the command.
pub fn run(command: &ArrayCommand) -> Result<Finding> {
    match command {
        ArrayCommand::Bench(arguments) => bench::run(arguments),
    }
}
