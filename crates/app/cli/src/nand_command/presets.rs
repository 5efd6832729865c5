//! `tidegate nand presets`: lists the named chips.

use anyhow::Result;
use clap::Args;
use nand::Preset;
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
}

/// Runs the command.
pub fn run(arguments: &PresetsArguments) -> Result<Finding> {
    if arguments.json {
        let presets: Vec<Value> = Preset::ALL.into_iter().map(document).collect();
        output::print_line(&json!({ "presets": presets }).to_string())?;
        return Ok(Finding::Nothing);
    }
    let mut lines = vec![format!(
        "{:<11} {:>6} {:>5} {:>8} {:>6} {:>7} {:>8} {:>8} {:>8} {:>9}  {}",
        "name", "page", "oob", "sub-page", "pages", "blocks", "tR", "tPROG", "tBERS", "transfer", "source"
    )];
    for preset in Preset::ALL {
        let model = preset.model();
        let (geometry, timing) = (model.geometry, model.timing);
        lines.push(format!(
            "{:<11} {:>6} {:>5} {:>8} {:>6} {:>7} {:>8} {:>8} {:>8} {:>9}  {}",
            preset.name(),
            show_bytes(u64::from(geometry.page_bytes())),
            geometry.oob_bytes(),
            geometry.subpage_bytes(),
            geometry.pages_per_block(),
            geometry.blocks(),
            timing.read_page.to_string(),
            timing.program_page.to_string(),
            timing.erase_block.to_string(),
            timing.transfer_page.to_string(),
            preset.description()
        ));
    }
    output::print_line(&lines.join("\n"))?;
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
