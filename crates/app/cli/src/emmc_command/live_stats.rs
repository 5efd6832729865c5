//! `tidegate emmc stats`: shows the counters of an attached card.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::attached::{Attached, RUN_FOLDER};
use crate::{Finding, output, stats_prometheus};

/// Arguments of `tidegate emmc stats`.
#[derive(Args, Debug)]
pub struct LiveStatsArguments {
    /// The device that `attach` printed; without it, print one line of JSON for each attached card
    #[arg(value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// Print metrics in the Prometheus text format
    #[arg(long, requires = "device")]
    pub prometheus: bool,
    /// Folder for the descriptions of attached cards
    #[arg(long, value_name = "FOLDER", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &LiveStatsArguments) -> Result<Finding> {
    let Some(device) = &arguments.device else {
        for attached in Attached::all(&arguments.run_folder)? {
            let answers = attached.document().is_ok();
            let line = serde_json::json!({
                "device": attached.device().path(),
                "card": attached.card,
                "capacity_bytes": attached.capacity_bytes,
                "store": attached.store,
                "answers": answers,
            });
            output::print_line(&line.to_string())?;
        }
        return Ok(Finding::Nothing);
    };
    let attached = Attached::find(&arguments.run_folder, device)?;
    let document = attached.document()?;
    if arguments.prometheus {
        let page = stats_prometheus::render(&attached.device().path(), &document);
        output::print_text(&page)?;
    } else {
        output::print_line(&serde_json::to_string(&document.backing)?)?;
    }
    Ok(Finding::Nothing)
}
