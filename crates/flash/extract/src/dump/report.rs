//! The report of `tidegate unpack`: one JSON object, and its text.

use image::{Area, BareVolume, Correction, Finding, Partition, Severity};
use media::quantity;
use results::shown;
use serde_json::{Value, json};

use crate::losses::Tell;

/// A finding as a line, without the name of its volume.
pub fn line(finding: &Finding) -> String {
    match finding.at {
        Some(at) => format!("byte {at:#x}: {}", finding.what),
        None => finding.what.to_string(),
    }
}

/// Tells a finding about `place`. Returns the number of losses.
pub fn tell(tell: Tell, place: &[u8], finding: &Finding) -> u64 {
    let place = match place.is_empty() {
        true => String::new(),
        false => format!("{}: ", shown::name(place)),
    };
    let line = line(finding);
    match finding.severity() {
        Severity::Loss => tell(&format!("{place}{line}")),
        Severity::Note => tell(&format!("note: {place}{line}")),
    }
    u64::from(finding.severity() == Severity::Loss)
}

/// A finding.
pub fn finding(finding: &Finding) -> Value {
    json!({
        "kind": finding.what.kind(),
        "is_loss": finding.severity() == Severity::Loss,
        "offset": finding.at,
        "text": finding.what.to_string(),
    })
}

/// An area between partitions.
pub fn area(area: &Area) -> Value {
    json!({
        "offset": area.offset,
        "bytes": area.bytes,
        "content": if area.is_erased { "erased" } else { "other" },
    })
}

/// A UBI partition.
pub fn partition(partition: &Partition, folder: &str, volumes: Vec<Value>) -> Value {
    let (shape, counts) = (&partition.shape, &partition.counts);
    let findings: Vec<Value> = partition.findings.iter().map(finding).collect();
    json!({
        "kind": "ubi",
        "folder": folder,
        "image_sequence": partition.image_sequence,
        "offset": partition.offset,
        "bytes": partition.bytes,
        "page_bytes": shape.page_bytes,
        "oob_bytes": shape.oob_bytes,
        "block_bytes": shape.block_bytes,
        "vid_header_offset": shape.vid_header_offset,
        "data_offset": shape.data_offset,
        "blocks": {
            "used": counts.used,
            "free": counts.free,
            "erased": counts.erased,
            "damaged": counts.damaged,
            "other": counts.other,
        },
        "ecc": partition.ecc.as_ref().map(ecc),
        "volumes": volumes,
        "findings": findings,
    })
}

/// The ECC of a partition.
fn ecc(correction: &Correction) -> Value {
    let found = &correction.found;
    json!({
        "layout": found.layout.to_string(),
        "family": found.family,
        "strength": found.layout.code.strength(),
        "sampled_steps": found.steps,
        "clean_steps": found.clean,
        "corrected_bits": correction.corrected_bits,
        "corrected_pages": correction.corrected_pages,
        "failed_steps": correction.failed_steps,
    })
}

/// A UBIFS without UBI.
pub fn bare(bare: &BareVolume, folder: &str) -> Value {
    json!({
        "kind": "ubifs",
        "folder": folder,
        "offset": bare.offset,
        "bytes": bare.bytes,
        "leb_bytes": bare.superblock.leb_bytes,
        "lebs": bare.superblock.lebs,
        "missing_bytes": bare.missing_bytes,
    })
}

/// The report for people.
pub fn as_text(report: &Value) -> String {
    let mut lines = Vec::new();
    for part in report["parts"].as_array().into_iter().flatten() {
        let number = |key: &str| part[key].as_u64().unwrap_or(0);
        if part["kind"] == "ubifs" {
            lines.push(format!(
                "UBIFS at byte {:#x}: {} LEBs of {}{}",
                number("offset"),
                number("lebs"),
                quantity::show_bytes(number("leb_bytes")),
                written(part)
            ));
            continue;
        }
        let oob = match number("oob_bytes") {
            0 => String::new(),
            oob => format!(
                ", pages of {} and {oob} bytes of OOB",
                quantity::show_bytes(number("page_bytes"))
            ),
        };
        let blocks: u64 = part["blocks"]
            .as_object()
            .into_iter()
            .flat_map(|counts| counts.values())
            .filter_map(Value::as_u64)
            .sum();
        lines.push(format!(
            "UBI {} at byte {:#x}: {blocks} blocks of {}{oob}",
            number("image_sequence"),
            number("offset"),
            quantity::show_bytes(number("block_bytes")),
        ));
        let ecc = &part["ecc"];
        if let Some(layout) = ecc["layout"].as_str() {
            lines.push(format!(
                "  ECC {layout}: {} bits corrected in {} pages, {} steps failed",
                ecc["corrected_bits"], ecc["corrected_pages"], ecc["failed_steps"]
            ));
        }
        for volume in part["volumes"].as_array().into_iter().flatten() {
            let text = |key: &str| volume[key].as_str().unwrap_or_default();
            lines.push(format!(
                "  {} ({}, {}){}",
                shown::name(text("name").as_bytes()),
                text("kind"),
                text("content"),
                written(volume)
            ));
        }
    }
    lines.join("\n")
}

/// The output of a volume.
fn written(volume: &Value) -> String {
    // That of a part is its size in the dump.
    let bytes = volume["content_bytes"]
        .as_u64()
        .or_else(|| volume["bytes"].as_u64());
    let bytes = bytes.unwrap_or(0);
    let (is_empty, bytes) = (bytes == 0, quantity::about_bytes(bytes));
    let content = match volume["files"].as_u64() {
        Some(files) => format!("{files} files, {bytes}"),
        None => bytes,
    };
    let guesses = volume["guesses"].as_array().map_or(0, Vec::len);
    let all = volume["losses"].as_u64().unwrap_or(0);
    let losses = all.saturating_sub(u64::try_from(guesses).unwrap_or(0));
    let mut losses = match losses {
        0 => String::new(),
        losses => format!(", {losses} losses"),
    };
    if guesses > 0 {
        losses += &format!(", {guesses} guesses");
    }
    if let Some(files) = volume["deleted"]["files"].as_u64() {
        losses += &format!(", {files} deleted files");
    }
    match volume["output"].as_str() {
        Some(output) => format!(": {content}{losses} to {}", shown::name(output.as_bytes())),
        None if is_empty => losses,
        None => format!(": {content}{losses}"),
    }
}
