//! `tidegate emmc`: the model of an eMMC card, its driver and the block layer, in virtual time.

mod load;
mod paper;
mod presets;
mod run;
mod setup;

use anyhow::Result;
use clap::Subcommand;

use self::paper::PaperArguments;
use self::presets::PresetsArguments;
use self::run::RunArguments;
use crate::Finding;

/// What `tidegate emmc` does.
#[derive(Debug, Subcommand)]
pub enum EmmcCommand {
    /// Run a load on a card, with a scheduler, packing and a translation layer of choice
    Run(Box<RunArguments>),
    /// List the cards and hosts that have a name, with the sources of their numbers
    Presets(PresetsArguments),
    /// Draw tables 1 to 3 and figures 7 to 15 of the packed-command study again, beside the paper's
    Paper(PaperArguments),
}

/// Runs the command.
pub fn run(command: &EmmcCommand) -> Result<Finding> {
    match command {
        EmmcCommand::Run(arguments) => run::run(arguments),
        EmmcCommand::Presets(arguments) => presets::run(arguments),
        EmmcCommand::Paper(arguments) => paper::run(arguments),
    }
}
