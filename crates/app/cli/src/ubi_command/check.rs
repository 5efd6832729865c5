//! `tidegate ubi check`.

use anyhow::Result;
use clap::Args;
use media::Nand;
use nand::Access;
use serde_json::{Value, json};
use ubi::format::VolumeKind;
use ubi::{Anomaly, CheckReport, Holes, MemberState};

use super::chip::{Chip, ChipArguments, bar, truncated};
use crate::Finding;
use crate::output::{Printed, print_line};

/// Arguments of `tidegate ubi check`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 something is, 2 the image can't be read.")]
pub struct CheckArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Print one JSON object per finding, then a summary object
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &CheckArguments) -> Result<Finding> {
    match arguments.chip.members()? {
        Some(chips) => super::several::check(arguments, &chips),
        None => check_one(&arguments.chip, arguments.json),
    }
}

/// Checks a single chip.
pub fn check_one(chip: &ChipArguments, as_json: bool) -> Result<Finding> {
    let (mut chip, missing) = chip.open_image(Access::ReadOnly)?;
    let geometry = chip.geometry();
    let progress = bar(u64::from(geometry.blocks()), "checking");
    let report = ubi::check(&mut chip, ubi::Access::ReadOnly, &mut |_| progress.inc(1))?;
    progress.finish_and_clear();
    let lacking: Vec<String> = missing
        .map(truncated)
        .into_iter()
        .chain(lacks_blocks(&mut chip))
        .collect();
    for finding in &lacking {
        print_line(&match as_json {
            true => json!({ "finding": finding }).to_string(),
            false => finding.clone(),
        })?;
    }
    for anomaly in &report.anomalies {
        let at = geometry.block_start(anomaly.peb).0 + u64::from(anomaly.offset);
        let line = match as_json {
            true => json!({
                "peb": anomaly.peb.0,
                "offset_bytes": anomaly.offset,
                "image_offset_bytes": at,
                "finding": anomaly.kind.to_string(),
            })
            .to_string(),
            false => text(anomaly, at),
        };
        if print_line(&line)? == Printed::Closed {
            break;
        }
    }
    let findings = report.anomalies.len() + lacking.len();
    print_line(&sum(&report, findings, as_json))?;
    match findings == 0 && report.refusal.is_none() {
        true => Ok(Finding::Nothing),
        false => Ok(Finding::Something),
    }
}

fn text(anomaly: &Anomaly, at: u64) -> String {
    format!(
        "{}, byte {} (image byte {at}): {}",
        anomaly.peb, anomaly.offset, anomaly.kind
    )
}

/// The finding that an image has fewer blocks than its volumes reserve: blocks at its end are missing.
fn lacks_blocks(chip: &mut Chip) -> Option<String> {
    let blocks = chip.geometry().blocks();
    let volumes = ubi::volume_table(chip).ok()?;
    let reserved: u64 = volumes
        .iter()
        .flatten()
        .map(|volume| u64::from(volume.reserved_pebs))
        .sum();
    let needed = reserved + u64::from(LAYOUT_BLOCKS);
    (needed > u64::from(blocks)).then(|| {
        format!(
            "truncated: the volumes take at least {needed} blocks and the image has {blocks}; its end is missing"
        )
    })
}

/// Blocks of the volume table, which UBI keeps twice.
const LAYOUT_BLOCKS: u32 = 2;

fn sum(report: &CheckReport, findings: usize, as_json: bool) -> String {
    let refusal = report.refusal.as_ref().map(ToString::to_string);
    let (array_state, array_epoch) = super::info::member_state(report.member_state);
    if as_json {
        return json!({
            "findings": findings,
            "refused": refusal,
            "array_state": array_state,
            "array_epoch": array_epoch,
            "blocks": report.blocks,
            "bad_blocks": report.bad_blocks,
            "used_blocks": report.used_blocks,
            "blocks_that_may_have_held_a_lost_leb": report.may_be_lost,
            "volumes_with_holes": report.holes.iter().map(holes).collect::<Vec<_>>(),
            "volumes_without_checksum": report.unverified.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
        })
        .to_string();
    }
    let found = match findings {
        0 => "nothing wrong".to_owned(),
        1 => "1 finding".to_owned(),
        number => format!("{number} findings"),
    };
    let mut lines = vec![format!(
        "{found} in {} blocks, {} of them used and {} bad",
        report.blocks, report.used_blocks, report.bad_blocks
    )];
    match report.may_be_lost {
        0 => {}
        1 => lines.push("1 block may have held a LEB that is lost".to_owned()),
        number => lines.push(format!("{number} blocks may have held LEBs that are lost")),
    }
    lines.extend(report.holes.iter().map(ToString::to_string));
    if !report.unverified.is_empty() {
        let names = report.unverified.iter();
        let names: Vec<String> = names.map(|(id, name)| format!("{} ({name})", id.0)).collect();
        lines.push(format!(
            "not verified: UBI keeps no checksum of the data of dynamic volumes, here {}; check their content, for example with \
             `tidegate ubifs check`",
            names.join(", ")
        ));
    }
    if report.member_state != MemberState::Unmarked {
        lines.push(report.member_state.to_string());
    }
    lines.extend(refusal.map(|refusal| format!("it can't be attached: {refusal}")));
    lines.join("\n")
}

fn holes(holes: &Holes) -> Value {
    json!({
        "volume": holes.volume.0,
        "name": holes.name,
        "is_static": holes.kind == VolumeKind::Static,
        "lebs": holes.lebs,
        "missing": holes.missing.iter().map(|range| [range.start(), range.end()]).collect::<Vec<_>>(),
    })
}
