//! `tidegate emmc`: models an eMMC card, its driver and the block layer in virtual time, and attaches cards to this
//! machine.

mod attach;
mod cut;
mod detach;
mod fit;
mod live_stats;
mod load;
mod paper;
mod presets;
mod run;
mod self_check;
mod setup;

use std::ffi::OsString;

use anyhow::Result;
use clap::Subcommand;

use self::attach::AttachArguments;
use self::cut::CutArguments;
use self::detach::DetachArguments;
use self::fit::FitArguments;
use self::live_stats::LiveStatsArguments;
use self::paper::PaperArguments;
use self::presets::PresetsArguments;
use self::run::RunArguments;
pub use self::setup::card_file;
use crate::Finding;

/// The subcommands of `tidegate emmc`.
#[derive(Debug, Subcommand)]
pub enum EmmcCommand {
    /// Run a load on a card, with a choice of scheduler, packing and translation layer
    Run(Box<RunArguments>),
    /// List the named cards and hosts, with the sources of their numbers
    #[command(alias = "cards")]
    Presets(PresetsArguments),
    /// Reproduce tables 1 to 3 and figures 7 to 15 of the packed-command study, and judge its claims
    Paper(PaperArguments),
    /// Fit the parameters that no source gives to the numbers of the packed-command study
    Fit(FitArguments),
    /// Attach a card to this machine as a block device with the request times of the model
    Attach(Box<AttachArguments>),
    /// Detach cards, including those whose process was killed
    Detach(DetachArguments),
    /// Show the counters of an attached card
    Stats(LiveStatsArguments),
    /// Cut the power of an attached card, or restore it
    Cut(CutArguments),
}

/// Runs the command; `words` are the arguments it was parsed from.
pub fn run(command: &EmmcCommand, words: &[OsString]) -> Result<Finding> {
    match command {
        EmmcCommand::Run(arguments) => run::run(arguments),
        EmmcCommand::Presets(arguments) => presets::run(arguments),
        EmmcCommand::Paper(arguments) => paper::run(arguments),
        EmmcCommand::Fit(arguments) => fit::run(arguments),
        EmmcCommand::Attach(arguments) => attach::run(arguments, words),
        EmmcCommand::Detach(arguments) => detach::run(arguments),
        EmmcCommand::Stats(arguments) => live_stats::run(arguments),
        EmmcCommand::Cut(arguments) => cut::run(arguments),
    }
}
