//! `tidegate emmc detach`: takes attached cards away, also those whose process was killed.
//!
//! Order: nothing may be mounted on it; what the page cache holds is written to the card; the loop device lets go; the FUSE
//! mount goes, and with it the process, which writes the data to its medium and removes minor and description. Where there is no process
//! any more, this command does its part.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use live::Power;
use rustix::mount::UnmountFlags;

use super::attached::{Attached, RUN_FOLDER};
use crate::arguments::UnmountArguments;
use crate::quantity::parse_duration;
use crate::stats_document::ReadError;
use crate::{Finding, mount_table, output, unmount};

/// Arguments of `tidegate emmc detach`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 done, 1 some could not be taken away (--all), 2 could not do it.")]
pub struct DetachArguments {
    /// The device that `attach` printed
    #[arg(
        value_name = "DEVICE",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub device: Option<PathBuf>,
    /// All that are attached
    #[arg(long)]
    pub all: bool,
    /// Take file systems on it out of sight first; what they have not written yet is lost
    #[arg(long)]
    pub force: bool,
    /// How long to wait for the process to write everything out and end
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Folder for what is known of attached cards
    #[arg(long, value_name = "FOLDER", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
}

/// How a card is taken away.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Whether file systems on it are taken out of sight.
    pub force: bool,
    /// How long its process may take.
    pub timeout: Duration,
}

/// Runs the command.
pub fn run(arguments: &DetachArguments) -> Result<Finding> {
    let how = How {
        force: arguments.force,
        timeout: arguments.timeout,
    };
    if let Some(device) = &arguments.device {
        detach(&Attached::find(&arguments.run_folder, device)?, how)?;
        return Ok(Finding::Nothing);
    }
    let mut found = Finding::Nothing;
    for attached in Attached::all(&arguments.run_folder)? {
        if let Err(error) = detach(&attached, how) {
            output::print_error(&output::with_causes(&error));
            found = Finding::Something;
        }
    }
    Ok(found)
}

/// Takes one card away.
pub fn detach(attached: &Attached, how: How) -> Result<()> {
    let device = attached.device();
    let is_dead = matches!(
        attached.document(),
        Err(ReadError::Dead | ReadError::NotOurs { .. })
    );
    // A minor may belong to somebody else by now; this one is ours as long as it is bound to our file, or to nothing.
    let ours = device
        .backing_file()
        .is_none_or(|file| file == attached.card_path());
    if ours && device.exists() {
        release_mounts(attached, how.force || is_dead)?;
        let has_power = attached.power().is_ok_and(|report| report.power == Power::On);
        match device.flush_cache() {
            Err(error) if has_power => return Err(error.into()),
            // Without power, or without its process, there is nothing that could be written to.
            Ok(()) | Err(_) => {}
        }
        device.unbind(&attached.card_path())?;
    }
    if mount_table::find(&attached.mountpoint).is_ok() {
        unmount::run(&UnmountArguments {
            mountpoint: attached.mountpoint.clone(),
            lazy: false,
            timeout: how.timeout,
        })?;
    }
    if is_dead {
        if ours && device.exists() {
            device.remove()?;
        }
        attached.forget();
    }
    Ok(())
}

/// Sees to it that nothing is mounted on the device.
fn release_mounts(attached: &Attached, by_force: bool) -> Result<()> {
    for mount in attached.mounts()?.iter().rev() {
        if !by_force {
            bail!(
                "{} is mounted on {}; unmount it first (or use --force: what it has not written is lost)",
                attached.device().path().display(),
                mount.mountpoint.display()
            );
        }
        rustix::mount::unmount(&mount.mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?;
    }
    Ok(())
}
