//! `tidegate emmc detach`: detaches cards, including those whose process was killed.
//!
//! Order: check that nothing is mounted on the device, flush the page cache to the card, unbind the loop device, unmount
//! FUSE; this ends the process, which syncs the data to its medium and removes minor and description. If the process is
//! dead, this command removes them. One that does not answer counts as dead with `--force`: the kernel ends its
//! connection first, so that every request to the card fails, and with it the waits of all who use the card.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use live::{Attached, Power, RUN_FOLDER};
use mounted::unmount;
use rustix::mount::UnmountFlags;

use crate::quantity::parse_duration;
use crate::stats_document::ReadError;
use crate::{Finding, mount_table, output};

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
    /// Detach all cards
    #[arg(long)]
    pub all: bool,
    /// Detach mounted file systems lazily first, and do without a process that does not answer; unwritten data is lost
    #[arg(long)]
    pub force: bool,
    /// Maximum time for the process to write all data and end
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Folder for the descriptions of attached cards
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
}

/// Options of a detach.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Detach mounted file systems lazily, and end the connection of a process that does not answer.
    pub force: bool,
    /// Maximum time for the process to end.
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

/// Detaches one card.
pub fn detach(attached: &Attached, how: How) -> Result<()> {
    let device = attached.device();
    let is_dead = match attached.document() {
        Err(ReadError::Silent { .. }) if how.force => {
            attached.abort();
            true
        }
        Err(error @ ReadError::Silent { .. }) => bail!(
            "{error}; `{} --force` ends its connection: data that the card has not taken yet is lost",
            attached.detach_command()
        ),
        answer => matches!(answer, Err(ReadError::Dead | ReadError::NotOurs { .. })),
    };
    // Another device may have taken the minor; it is still ours if it is bound to our file, or unbound.
    let ours = device
        .backing_file()
        .is_none_or(|file| file == attached.card_path());
    if ours && device.exists() {
        release_mounts(attached, how.force || is_dead)?;
        let has_power = attached.power().is_ok_and(|report| report.power == Power::On);
        // After an attempt that found it open, the kernel has unbound it at its last close.
        let flushed = match device.is_bound_to(&attached.card_path()) {
            true => device.flush_cache(),
            false => Ok(()),
        };
        match flushed {
            Err(error) if has_power => return Err(error.into()),
            // Without power or without its process, the card can't be written.
            Ok(()) | Err(_) => {}
        }
        attached.release()?;
    }
    if mount_table::find(&attached.mountpoint).is_ok() {
        let unmounting = unmount::How {
            lazy: false,
            timeout: how.timeout,
        };
        unmount::unmount(&attached.mountpoint, unmounting, &output::print_error)?;
    }
    if is_dead {
        if ours && device.exists() {
            device.remove()?;
        }
        attached.forget();
    }
    Ok(())
}

/// Fails if a file system is mounted on the device; with `by_force`, unmounts it lazily.
fn release_mounts(attached: &Attached, by_force: bool) -> Result<()> {
    for mount in attached.mounts()?.iter().rev() {
        if !by_force {
            bail!(
                "{} is mounted on {}; unmount it first (or use --force: its unwritten data is lost)",
                attached.device().path().display(),
                mount.mountpoint.display()
            );
        }
        rustix::mount::unmount(&mount.mountpoint, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?;
    }
    Ok(())
}
