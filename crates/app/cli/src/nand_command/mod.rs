//! `tidegate nand`: raw NAND chips, simulated in files or real.

mod create;
mod dump;
mod ecc;
mod fail;
mod info;
mod load;
mod presets;
mod timing;
mod wear;

use std::io::{IsTerminal, stderr};
use std::path::Path;

use anyhow::Result;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

use self::create::CreateArguments;
use self::dump::DumpArguments;
use self::ecc::EccArguments;
use self::fail::FailArguments;
use self::info::InfoArguments;
use self::load::LoadArguments;
use self::presets::PresetsArguments;
use self::timing::TimingArguments;
use self::wear::WearArguments;
use crate::Finding;

/// The subcommands of `tidegate nand`.
#[derive(Debug, Subcommand)]
pub enum NandCommand {
    /// Create an erased chip in a file
    Create(CreateArguments),
    /// Show the geometry and the state of a chip
    Info(InfoArguments),
    /// Show erase, program and read counts of blocks
    Wear(WearArguments),
    /// Write an image to a chip, skipping bad blocks
    Load(LoadArguments),
    /// Read a chip into an image
    Dump(DumpArguments),
    /// Find the ECC layout of a dump with OOB areas, and correct its data
    Ecc(EccArguments),
    /// Make single blocks of a simulated chip fail, or repair them
    Fail(FailArguments),
    /// List the named chips
    Presets(PresetsArguments),
    /// Measure how precisely simulated operations keep their time on this machine
    Timing(TimingArguments),
}

/// Runs the command.
pub fn run(command: &NandCommand) -> Result<Finding> {
    match command {
        NandCommand::Create(arguments) => create::run(arguments),
        NandCommand::Info(arguments) => info::run(arguments),
        NandCommand::Wear(arguments) => wear::run(arguments),
        NandCommand::Load(arguments) => load::run(arguments),
        NandCommand::Dump(arguments) => dump::run(arguments),
        NandCommand::Ecc(arguments) => ecc::run(arguments),
        NandCommand::Fail(arguments) => fail::run(arguments),
        NandCommand::Presets(arguments) => presets::run(arguments),
        NandCommand::Timing(arguments) => timing::run(arguments),
    }
}

/// A progress bar on standard error for `total` bytes, shown only on a terminal.
fn progress_bar(action: &'static str, total: u64) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:<8} [{bar:40}] {percent:>3} %  {bytes}/{total_bytes}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(action)
}

/// Returns true for `-`, standard input or output.
fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}
