//! `tidegate nand presets`: lists the named chips.

use anyhow::Result;
use clap::Args;
use nand::Preset;
use programs::terminal::WidthArguments;
use report::Column;
use serde_json::{Value, json};

use super::info::{geometry_json, timing_json};
use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate nand presets`.
#[derive(Args, Debug)]
pub struct PresetsArguments {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Runs the command.
pub fn run(arguments: &PresetsArguments) -> Result<Finding> {
    if arguments.json {
        let presets: Vec<Value> = Preset::ALL.into_iter().map(document).collect();
        output::print_line(&json!({ "presets": presets }).to_string())?;
        return Ok(Finding::Nothing);
    }
    let columns = [
        Column::left("name"),
        Column::right("page"),
        Column::right("oob"),
        Column::right("sub-page").optional(3),
        Column::right("pages"),
        Column::right("blocks"),
        Column::right("tR").optional(1),
        Column::right("tPROG").optional(1),
        Column::right("tBERS").optional(1),
        Column::right("transfer").optional(2),
        Column::left("source").clipped(),
    ];
    let row = |preset: Preset| {
        let model = preset.model();
        let (geometry, timing) = (model.geometry, model.timing);
        vec![
            preset.name().to_owned(),
            show_bytes(u64::from(geometry.page_bytes())),
            geometry.oob_bytes().to_string(),
            geometry.subpage_bytes().to_string(),
            geometry.pages_per_block().to_string(),
            geometry.blocks().to_string(),
            timing.read_page.to_string(),
            timing.program_page.to_string(),
            timing.erase_block.to_string(),
            timing.transfer_page.to_string(),
            preset.description().to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = Preset::ALL.into_iter().map(row).collect();
    output::print_text(&arguments.width.table(&columns, &rows))?;
    Ok(Finding::Nothing)
}

fn document(preset: Preset) -> Value {
    let model = preset.model();
    json!({
        "name": preset.name(),
        "description": preset.description(),
        "geometry": geometry_json(&model.geometry),
        "timing": timing_json(&model.timing),
        "ecc_bits": model.ecc_bits,
    })
}
