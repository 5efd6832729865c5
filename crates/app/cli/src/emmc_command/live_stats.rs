//! `tidegate emmc stats`: shows the counters of an attached card.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use live::{Attached, Card, RUN_FOLDER};
use mounted::{prometheus, text};
use programs::terminal::WidthArguments;
use report::Column;
use serde_json::json;

use crate::quantity::show_bytes;
use crate::stats::LEVELS;
use crate::{Finding, output};

/// Arguments of `tidegate emmc stats`.
#[derive(Args, Debug)]
#[command(
    after_help = "Times are the card's (virtual), which runs `time scale` times as fast as real time; only `up` is real. \
                  `late` is the time by which requests were answered after the model's moment, `path` the \
                  kernel's own time before and after the card, `halts` the reasons for which packs ended (see \
                  `tidegate emmc run --help`)."
)]
pub struct LiveStatsArguments {
    /// The device that `attach` printed [default: list the attached cards]
    #[arg(value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// Print one JSON object with every counter; without DEVICE, one for each card
    #[arg(long, conflicts_with = "prometheus")]
    pub json: bool,
    /// Print metrics in the Prometheus text format
    #[arg(long, requires = "device")]
    pub prometheus: bool,
    /// Folder for the descriptions of attached cards
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_FOLDER)]
    pub run_folder: PathBuf,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Runs the command.
pub fn run(arguments: &LiveStatsArguments) -> Result<Finding> {
    let Some(device) = &arguments.device else {
        return list(arguments);
    };
    let attached = Attached::find(&arguments.run_folder, device)?;
    let document = attached.document()?;
    if arguments.prometheus {
        let page = prometheus::render(&attached.device().path(), &document, LEVELS);
        output::print_text(&page)?;
    } else if arguments.json {
        output::print_line(&serde_json::to_string(&document.backing)?)?;
    } else {
        let device = attached.device().path().display().to_string();
        let title = format!("{device}: {}", described(&attached));
        output::print_text(&text::card(&title, &document))?;
    }
    Ok(Finding::Nothing)
}

fn described(attached: &Attached) -> String {
    let Card {
        card,
        capacity_bytes,
        store,
        time_scale,
    } = &attached.card;
    let size = show_bytes(*capacity_bytes);
    let limit = attached.dirty_limit.map_or_else(String::new, |limit| {
        format!(", at most {} dirty", show_bytes(limit.bytes))
    });
    format!("card {card}, {size}, store {store}{limit}, time scale {time_scale}")
}

/// Prints each attached card.
fn list(arguments: &LiveStatsArguments) -> Result<Finding> {
    let all = Attached::all(&arguments.run_folder)?;
    if arguments.json {
        for attached in all {
            let line = json!({
                "device": attached.device().path(),
                "card": attached.card.card,
                "capacity_bytes": attached.card.capacity_bytes,
                "store": attached.card.store,
                "time_scale": attached.card.time_scale,
                "dirty_limit_bytes": attached.dirty_limit.map(|limit| limit.bytes),
                "answers": attached.document().is_ok(),
            });
            output::print_line(&line.to_string())?;
        }
        return Ok(Finding::Nothing);
    }
    if all.is_empty() {
        output::print_error(&format!(
            "no card is attached in the run folder {}",
            arguments.run_folder.display()
        ));
        return Ok(Finding::Nothing);
    }
    let columns = ["device", "card", "size", "store", "time scale", "process"].map(Column::left);
    let row = |attached: &Attached| {
        let process = attached.document().map_or_else(
            |_| "does not answer".to_owned(),
            |document| document.pid.to_string(),
        );
        vec![
            attached.device().path().display().to_string(),
            attached.card.card.clone(),
            show_bytes(attached.card.capacity_bytes),
            attached.card.store.clone(),
            attached.card.time_scale.to_string(),
            process,
        ]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    output::print_text(&arguments.width.table(&columns, &rows))?;
    Ok(Finding::Nothing)
}
