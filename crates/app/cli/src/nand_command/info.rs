//! `tidegate nand info`: shows the geometry and the state of a chip.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use media::NandGeometry;
use nand::{Access, FileNand, ImageKind, Pairing, Timing};
use serde_json::{Value, json};

use super::fail::{failing_places, show as show_failing};
use crate::nand_device::{Device, GeometryArguments};
use crate::quantity::show_bytes;
use crate::{Finding, output};

/// Arguments of `tidegate nand info`.
#[derive(Args, Debug)]
pub struct InfoArguments {
    /// A chip in a file, a plain dump, or /dev/mtdN
    pub device: PathBuf,
    #[command(flatten)]
    pub geometry: GeometryArguments,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &InfoArguments) -> Result<Finding> {
    let mut device = Device::open(&arguments.device, Access::ReadOnly, &arguments.geometry)?;
    let mut document = describe(&mut device)?;
    if let Some(chip) = device.simulated().filter(|chip| !chip.has_sidecar()) {
        leave_out_unknown(&mut document, chip, &arguments.geometry);
    }
    output::print_line(&if arguments.json {
        document.to_string()
    } else {
        show(&document)
    })?;
    Ok(Finding::Nothing)
}

/// A geometry as JSON.
pub fn geometry_json(geometry: &NandGeometry) -> Value {
    json!({
        "page_bytes": geometry.page_bytes(),
        "oob_bytes": geometry.oob_bytes(),
        "subpage_bytes": geometry.subpage_bytes(),
        "pages_per_block": geometry.pages_per_block(),
        "block_bytes": geometry.block_bytes(),
        "blocks": geometry.blocks(),
        "total_bytes": geometry.total_bytes().0,
        "bitflip_threshold": geometry.bitflip_threshold(),
    })
}

/// A timing as JSON.
pub fn timing_json(timing: &Timing) -> Value {
    json!({
        "read_page_ns": timing.read_page.0,
        "program_page_ns": timing.program_page.0,
        "erase_block_ns": timing.erase_block.0,
        "transfer_page_ns": timing.transfer_page.0,
    })
}

/// Everything about a device, as JSON.
pub fn describe(device: &mut Device) -> Result<Value> {
    let raw = device.raw();
    let geometry = raw.geometry();
    let mut bad = Vec::new();
    for peb in geometry.pebs() {
        if raw.is_bad(peb)? {
            bad.push(peb.0);
        }
    }
    let mut document = json!({
        "device": &*raw.name(),
        "geometry": geometry_json(&geometry),
        "bad_blocks": bad,
    });
    if let Some(chip) = device.simulated() {
        document["simulated"] = simulated(chip);
    }
    Ok(document)
}

/// Replaces what a plain dump does not tell by null: its side-car would.
fn leave_out_unknown(document: &mut Value, chip: &FileNand, given: &GeometryArguments) {
    let is_given = given.preset.is_some() || given.page.is_some();
    document["geometry_from"] = match is_given {
        true => "options",
        false => "ubi_headers",
    }
    .into();
    let has_oob = chip.image_kind() == ImageKind::DataAndOob;
    if !has_oob {
        // The marks of bad blocks lie in the OOB areas.
        document["bad_blocks"] = Value::Null;
        if given.preset.is_none() && given.oob.is_none() {
            document["geometry"]["oob_bytes"] = Value::Null;
        }
    }
    if given.preset.is_none() && given.ecc_bits.is_none() {
        document["simulated"]["ecc_bits"] = Value::Null;
        document["geometry"]["bitflip_threshold"] = Value::Null;
    }
    if given.preset.is_none() {
        document["simulated"]["timing"] = Value::Null;
    }
    for name in [
        "clock_ns",
        "erases",
        "programs",
        "reads",
        "faults",
        "failing",
        "paired_pages",
        "half_erased_blocks",
    ] {
        document["simulated"][name] = Value::Null;
    }
}

fn simulated(chip: &FileNand) -> Value {
    let faults = chip.faults();
    let good = || chip.blocks().iter().filter(|block| !block.is_bad);
    let erases = || good().map(|block| u64::from(block.erases));
    let count = good().count();
    json!({
        "image_holds_oob": chip.image_kind() == ImageKind::DataAndOob,
        "timing": timing_json(&chip.model().timing),
        "ecc_bits": chip.model().ecc_bits,
        "paired_pages": chip.model().pairing != Pairing::None,
        "failing": failing_places(chip),
        "clock_ns": media::Nand::clock(chip).now().0,
        "programmed_blocks": good().filter(|block| block.programmed_bytes > 0).count(),
        "half_erased_blocks": good().filter(|block| block.is_half_erased).count(),
        "programmed_bytes": good().map(|block| u64::from(block.programmed_bytes)).sum::<u64>(),
        "erases": {
            "total": erases().sum::<u64>(),
            "min": erases().min().unwrap_or(0),
            "max": erases().max().unwrap_or(0),
            "mean_thousandths": erases().sum::<u64>() * 1000 / u64::try_from(count.max(1)).unwrap_or(1),
        },
        "programs": good().map(|block| block.programs).sum::<u64>(),
        "reads": good().map(|block| block.reads).sum::<u64>(),
        "faults": {
            "seed": faults.seed,
            "factory_bad_blocks": faults.factory_bad_blocks,
            "program_failures_ppm": faults.program_failures_ppm,
            "erase_failures_ppm": faults.erase_failures_ppm,
            "endurance": faults.endurance,
            "reads_per_bit_flip": faults.reads_per_bit_flip,
            "time_per_bit_flip_ns": faults.time_per_bit_flip.0,
        },
    })
}

/// The document as text.
pub fn show(document: &Value) -> String {
    let geometry = &document["geometry"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let size = |name: &str| show_bytes(number(&geometry[name]));
    let nanos = |value: &Value| media::Nanos(number(value)).to_string();
    let oob = match geometry["oob_bytes"].as_u64() {
        Some(bytes) => format!(" + {bytes} B OOB"),
        None => String::new(),
    };
    let source = match document["geometry_from"].as_str() {
        Some("ubi_headers") => " (guessed from UBI headers)",
        Some(_) => " (as given)",
        None => "",
    };
    let mut text = format!(
        "device        {}\nsize          {}, {} blocks of {}, {} pages of {}{oob} each{source}\nwrite unit    {}\n",
        document["device"].as_str().unwrap_or(""),
        size("total_bytes"),
        geometry["blocks"],
        size("block_bytes"),
        geometry["pages_per_block"],
        size("page_bytes"),
        size("subpage_bytes"),
    );
    let mut unknown = Vec::new();
    match document["bad_blocks"].as_array() {
        None => unknown.push("bad blocks"),
        Some(bad) => {
            let names: Vec<_> = bad.iter().map(Value::to_string).collect();
            let names = match names.as_slice() {
                [] => String::new(),
                names => format!(": {}", names.join(", ")),
            };
            let _ = write!(text, "bad blocks    {}{names}", bad.len());
        }
    }
    let simulated = &document["simulated"];
    if simulated.is_null() {
        return text;
    }
    let mut line = |is_known: bool, name: &'static str, value: &str| match is_known {
        true => {
            let separator = if text.ends_with('\n') { "" } else { "\n" };
            let _ = write!(text, "{separator}{name:<13} {value}");
        }
        false => unknown.push(name),
    };
    let ecc = &simulated["ecc_bits"];
    line(
        !ecc.is_null(),
        "ecc",
        &format!(
            "{ecc} bits in 512 B, scrub from {}",
            geometry["bitflip_threshold"]
        ),
    );
    let timing = &simulated["timing"];
    let times = [
        "read_page_ns",
        "program_page_ns",
        "erase_block_ns",
        "transfer_page_ns",
    ];
    let [read, program, erase, transfer] = times.map(|name| nanos(&timing[name]));
    line(
        !timing.is_null(),
        "timing",
        &format!("read {read}, program {program}, erase {erase}, transfer {transfer} a page"),
    );
    let programmed = show_bytes(number(&simulated["programmed_bytes"]));
    line(
        true,
        "programmed",
        &format!("{} blocks, {programmed}", simulated["programmed_blocks"]),
    );
    let erases = &simulated["erases"];
    line(
        !erases.is_null(),
        "erases",
        &format!(
            "{} in all, {} to {} a block",
            erases["total"], erases["min"], erases["max"]
        ),
    );
    line(
        !simulated["clock_ns"].is_null(),
        "clock",
        &nanos(&simulated["clock_ns"]),
    );
    if simulated["paired_pages"] == true {
        text.push_str("\ncells         a power cut takes pages in pairs");
    }
    match simulated["failing"].as_array().map(Vec::as_slice) {
        None | Some([]) => {}
        Some(places) => {
            let _ = write!(text, "\n{}", show_failing(places));
        }
    }
    if !unknown.is_empty() {
        let _ = write!(
            text,
            "\nunknown       {}: a plain dump does not tell",
            unknown.join(", ")
        );
    }
    text
}
