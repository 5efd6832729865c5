//! `tidegate ubi`: UBI devices on raw NAND images made, inspected, changed and checked.

mod build;
mod check;
pub mod chip;
pub mod dump;
pub mod format;
mod info;
mod ini;
mod scrub;
pub mod several;
mod update;
pub mod volumes;

pub use self::chip::member_path;

use anyhow::Result;
use clap::Subcommand;

use self::build::BuildArguments;
use self::check::CheckArguments;
use self::dump::DumpArguments;
use self::format::FormatArguments;
use self::info::InfoArguments;
use self::scrub::ScrubArguments;
use self::update::UpdateArguments;
use self::volumes::{MakeArguments, RemoveArguments, RenameArguments, ResizeArguments};
use crate::Finding;

/// What `tidegate ubi` does.
#[derive(Debug, Subcommand)]
pub enum UbiCommand {
    /// Make a chip an empty UBI device, or write a UBI image to it; erase counters are kept
    Format(FormatArguments),
    /// Show a device and its volumes; nothing is written
    Info(InfoArguments),
    /// Make a volume
    Mkvol(MakeArguments),
    /// Remove a volume with all it holds
    Rmvol(RemoveArguments),
    /// Rename volumes, several at once; names may be exchanged
    Rename(RenameArguments),
    /// Change the size of a volume
    Resize(ResizeArguments),
    /// Replace the whole content of a volume
    Update(UpdateArguments),
    /// Write the content of a volume to a file; nothing is written to the device
    Dump(DumpArguments),
    /// List everything that is wrong, block by block; nothing is written
    Check(CheckArguments),
    /// Read everything once, and move data off blocks whose bits flip
    Scrub(ScrubArguments),
    /// Build an image of volumes for flashing, from an .ini file as ubinize takes it
    Build(BuildArguments),
}

/// Runs the command.
pub fn run(command: &UbiCommand) -> Result<Finding> {
    match command {
        UbiCommand::Format(arguments) => format::run(arguments)?,
        UbiCommand::Info(arguments) => info::run(arguments)?,
        UbiCommand::Mkvol(arguments) => volumes::make(arguments)?,
        UbiCommand::Rmvol(arguments) => volumes::remove(arguments)?,
        UbiCommand::Rename(arguments) => volumes::rename(arguments)?,
        UbiCommand::Resize(arguments) => volumes::resize(arguments)?,
        UbiCommand::Update(arguments) => update::run(arguments)?,
        UbiCommand::Dump(arguments) => return dump::run(arguments),
        UbiCommand::Check(arguments) => return check::run(arguments),
        UbiCommand::Scrub(arguments) => return scrub::run(arguments),
        UbiCommand::Build(arguments) => build::run(arguments)?,
    }
    Ok(Finding::Nothing)
}
