//! `tidegate emmc cut`: cuts the power of an attached card, or restores it.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use live::{Attached, CutKind, Power, PowerOrder, PowerReport, RUN_FOLDER};

use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate emmc cut`.
#[derive(Args, Debug)]
#[command(
    after_help = "A cut loses the unprogrammed content of the card's cache and every unanswered write. From then \
                  on every request fails. Unmount the file systems on the device, then restore the power with \
                  --reattach: the device has the content of its flash."
)]
pub struct CutArguments {
    /// The device that `attach` printed
    #[arg(value_name = "DEVICE")]
    pub device: PathBuf,
    /// Keep the programmed pages of unanswered writes, so that these writes are torn
    #[arg(long)]
    pub torn: bool,
    /// Restore the power; if the card has power, cut it first
    #[arg(long)]
    pub reattach: bool,
    /// Print the losses as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Folder for the descriptions of attached cards
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &CutArguments) -> Result<Finding> {
    let attached = Attached::find(&arguments.run_folder, &arguments.device)?;
    let device = attached.device();
    let is_on = attached.power()?.power == Power::On;
    if !is_on && !arguments.reattach {
        bail!(
            "{}: it has no power; give it back with --reattach",
            device.path().display()
        );
    }
    if arguments.reattach && !device.is_unclaimed()? {
        let mounts = attached.mounts()?;
        let places: Vec<_> = mounts
            .iter()
            .map(|mount| mount.mountpoint.display().to_string())
            .collect();
        bail!(
            "{}: in use ({}); unmount it, then give the power back",
            device.path().display(),
            if places.is_empty() {
                "out of sight".to_owned()
            } else {
                places.join(", ")
            }
        );
    }
    if is_on {
        let kind = if arguments.torn {
            CutKind::Torn
        } else {
            CutKind::Clean
        };
        attached.order_power(PowerOrder::Cut(kind))?;
    }
    if arguments.reattach {
        // Dirty pages of the page cache never reached the card: writing them fails without power, which drops them.
        let _ = device.flush_cache();
        attached.order_power(PowerOrder::On)?;
    }
    let report = attached.power()?;
    let text = match arguments.json {
        true => serde_json::to_string(&report)?,
        false => text(&report),
    };
    output::print_line(&text)?;
    Ok(Finding::Nothing)
}

fn text(report: &PowerReport) -> String {
    let power = match report.power {
        Power::On => "on",
        Power::Off => "off",
    };
    let lost = report.last_cut.map_or_else(String::new, |cut| {
        format!(
            "; {} writes were not answered ({} of them torn), {} of answered writes were lost from the cache",
            cut.unanswered_writes,
            cut.torn_writes,
            show_bytes(cut.answered_bytes_lost)
        )
    });
    format!("power {power}{lost}")
}
