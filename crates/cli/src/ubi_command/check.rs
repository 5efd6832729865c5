//! `tidegate ubi check`.

use anyhow::Result;
use clap::Args;
use media::Nand;
use nand::Access;
use serde_json::json;
use ubi::{Anomaly, CheckReport};

use super::chip::{ChipArguments, bar};
use crate::Finding;
use crate::output::{Printed, print_line};

/// Arguments of `tidegate ubi check`.
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 nothing is wrong, 1 something is, 2 the image can't be read.")]
pub struct CheckArguments {
    /// The chip
    #[command(flatten)]
    pub chip: ChipArguments,
    /// Print one JSON object a finding, and one with the sum
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

/// Checks one chip by itself.
pub fn check_one(chip: &ChipArguments, as_json: bool) -> Result<Finding> {
    let mut chip = chip.open(Access::ReadOnly)?;
    let geometry = chip.geometry();
    let progress = bar(u64::from(geometry.blocks()), "checking");
    let report = ubi::check(&mut chip, ubi::Access::ReadOnly, &mut |_| progress.inc(1))?;
    progress.finish_and_clear();
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
    print_line(&sum(&report, as_json))?;
    match report.anomalies.is_empty() && report.refusal.is_none() {
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

fn sum(report: &CheckReport, as_json: bool) -> String {
    let refusal = report.refusal.as_ref().map(ToString::to_string);
    if as_json {
        return json!({
            "findings": report.anomalies.len(),
            "refused": refusal,
            "blocks": report.blocks,
            "bad_blocks": report.bad_blocks,
            "used_blocks": report.used_blocks,
        })
        .to_string();
    }
    let found = match report.anomalies.len() {
        0 => "nothing wrong".to_owned(),
        1 => "1 finding".to_owned(),
        number => format!("{number} findings"),
    };
    let blocks = format!(
        "{found} in {} blocks, {} of them used and {} bad",
        report.blocks, report.used_blocks, report.bad_blocks
    );
    match refusal {
        None => blocks,
        Some(refusal) => format!("{blocks}\nit can't be attached: {refusal}"),
    }
}
