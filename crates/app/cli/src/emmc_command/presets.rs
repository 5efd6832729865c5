//! `tidegate emmc presets`: lists the named cards and hosts.

use anyhow::{Result, bail};
use clap::Args;
use emmc::card::CardFile;
use emmc::host::HostFile;
use programs::terminal::WidthArguments;
use report::Column;
use results::words::expected;
use serde_json::json;

use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate emmc presets`.
#[derive(Args, Debug)]
pub struct PresetsArguments {
    /// Print the TOML file of this card or host: all numbers with their sources, to copy for --card or --host
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Runs the command.
pub fn run(arguments: &PresetsArguments) -> Result<Finding> {
    let cards = CardFile::preset_names()
        .map(CardFile::preset)
        .collect::<Result<Vec<_>, _>>()?;
    let hosts = HostFile::preset_names()
        .map(HostFile::preset)
        .collect::<Result<Vec<_>, _>>()?;
    let wanted = |name: &str| arguments.name.as_deref().is_none_or(|wanted| wanted == name);
    let cards: Vec<_> = cards.into_iter().filter(|card| wanted(&card.name)).collect();
    let hosts: Vec<_> = hosts.into_iter().filter(|host| wanted(&host.name)).collect();
    if let Some(name) = arguments.name.as_deref()
        && cards.is_empty()
        && hosts.is_empty()
    {
        let known: Vec<_> = CardFile::preset_names().chain(HostFile::preset_names()).collect();
        bail!(
            "there is no card or host called {name:?}; known are: {}",
            expected(name, &known)
        );
    }
    if arguments.json {
        output::print_line(&json!({ "cards": cards, "hosts": hosts }).to_string())?;
        return Ok(Finding::Nothing);
    }
    if let Some(name) = arguments.name.as_deref() {
        let text = CardFile::preset_text(name).or_else(|| HostFile::preset_text(name));
        output::print_line(text.unwrap_or_default().trim_end())?;
        return Ok(Finding::Nothing);
    }
    let columns = [
        Column::left("card"),
        Column::left("cells").optional(3),
        Column::right("size"),
        Column::right("banks").optional(5),
        Column::right("page").optional(4),
        Column::left("translation").optional(2),
        Column::left("description").clipped(),
    ];
    let rows: Vec<Vec<String>> = cards.iter().map(card_row).collect();
    let mut text = arguments.width.table(&columns, &rows);
    let columns = [
        Column::left("host"),
        Column::right("MB/s of the bus"),
        Column::left("description").clipped(),
    ];
    let rows: Vec<Vec<String>> = hosts
        .iter()
        .map(|host| {
            let rate = 512_000_000 / host.sector_ps().max(1);
            vec![host.name.clone(), rate.to_string(), host.description.clone()]
        })
        .collect();
    text += "\n";
    text += &arguments.width.table(&columns, &rows);
    output::print_line(text.trim_end())?;
    Ok(Finding::Nothing)
}

fn card_row(card: &CardFile) -> Vec<String> {
    vec![
        card.name.clone(),
        card.flash.cell.to_string(),
        show_bytes(card.flash.capacity_bytes),
        card.flash.banks.to_string(),
        show_bytes(u64::from(card.flash.page_bytes)),
        card.translation.kind.word().to_owned(),
        card.description.clone(),
    ]
}
