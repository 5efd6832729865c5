//! `tidegate emmc`: the model of an eMMC card, its driver and the block layer, in virtual time, and cards attached to this machine.

mod attach;
mod attached;
mod cut;
mod detach;
mod live_counters;
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
use self::live_stats::LiveStatsArguments;
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
    /// Attach a card to this machine as a block device whose requests take as long as the model says
    Attach(Box<AttachArguments>),
    /// Take attached cards away, also those whose process was killed
    Detach(DetachArguments),
    /// Show the counters of an attached card
    Stats(LiveStatsArguments),
    /// Cut the power of an attached card, or give it back
    Cut(CutArguments),
}

/// Runs the command; `words` are the arguments it was parsed from.
pub fn run(command: &EmmcCommand, words: &[OsString]) -> Result<Finding> {
    match command {
        EmmcCommand::Run(arguments) => run::run(arguments),
        EmmcCommand::Presets(arguments) => presets::run(arguments),
        EmmcCommand::Paper(arguments) => paper::run(arguments),
        EmmcCommand::Attach(arguments) => attach::run(arguments, words),
        EmmcCommand::Detach(arguments) => detach::run(arguments),
        EmmcCommand::Stats(arguments) => live_stats::run(arguments),
        EmmcCommand::Cut(arguments) => cut::run(arguments),
    }
}
