//! `tidegate ubi`: formats, inspects, changes and checks UBI devices on raw NAND images.

mod build;
mod check;
pub mod chip;
pub mod dump;
pub mod format;
pub mod info;
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

/// The subcommands of `tidegate ubi`.
#[derive(Debug, Subcommand)]
pub enum UbiCommand {
    /// Format a chip as an empty UBI device, or write a UBI image to it; keeps the erase counters
    Format(FormatArguments),
    /// Show a device and its volumes; read-only
    #[command(visible_alias = "ls")]
    Info(InfoArguments),
    /// Create a volume
    Mkvol(MakeArguments),
    /// Remove a volume and its data
    Rmvol(RemoveArguments),
    /// Rename one or more volumes; two can swap their names
    Rename(RenameArguments),
    /// Resize a volume
    Resize(ResizeArguments),
    /// Replace the whole content of a volume
    Update(UpdateArguments),
    /// Copy a volume to a file; the device is only read
    Dump(DumpArguments),
    /// List all damage, block by block; read-only
    Check(CheckArguments),
    /// Read everything once and move data off blocks with bit-flips
    Scrub(ScrubArguments),
    /// Build an image of volumes for flashing from an .ini file, as ubinize does
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
