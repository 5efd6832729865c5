//! `tidegate ubifs check`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use results::shown;
use serde_json::json;
use ubifs::check::{Area, CheckFinding, CheckReport, check, check_with_key};

use super::source::SourceArguments;
use crate::Finding;
use crate::output::{Printed, print_error, print_line};

/// Arguments of `tidegate ubifs check`.
#[derive(Args, Debug)]
#[command(
    after_help = "Findings go to standard output, a line each; traces of a power cut are notes. The end of a journal head \
                  that a power cut or damage made unreadable on an array is a doubt: data synced last may be lost.\n\
                  Exit codes: 0 nothing is wrong, 1 something is or may be, 2 the image can't be read as UBIFS."
)]
pub struct CheckArguments {
    /// The file system
    #[command(flatten)]
    pub source: SourceArguments,
    /// Verify keyed hashes too, with the key of an authenticated file system: raw bytes in a file
    #[arg(long, value_name = "FILE")]
    pub auth_key: Option<PathBuf>,
    /// Print one JSON object per finding, then a summary object
    #[arg(long)]
    pub json: bool,
    /// Omit the notes about traces of a power cut
    #[arg(long, short = 'q')]
    pub quiet: bool,
}

/// Runs the command.
pub fn run(arguments: &CheckArguments) -> Result<Finding> {
    let volume = arguments.source.volume()?;
    let report = match &arguments.auth_key {
        Some(path) => {
            let key = fs::read(path).with_context(|| format!("{} can't be read", path.display()))?;
            check_with_key(&*volume, &key)
        }
        None => check(&*volume),
    };
    for finding in &report.findings {
        let line = match arguments.json {
            true => as_json(finding).to_string(),
            false => as_text(finding),
        };
        if print_line(&line)? == Printed::Closed {
            return Ok(Finding::Something);
        }
    }
    if !arguments.json {
        for doubt in &report.doubts {
            if print_line(&format!("doubt: {doubt}"))? == Printed::Closed {
                return Ok(Finding::Something);
            }
        }
    }
    if !arguments.quiet && !arguments.json {
        for note in &report.notes {
            print_error(&format!("note: {note}"));
        }
    }
    let sum = match arguments.json {
        true => sum_as_json(&report).to_string(),
        false => sum_as_text(&report),
    };
    print_line(&sum)?;
    if report
        .findings
        .iter()
        .any(|finding| finding.area == Area::Superblock)
        && report.counts.lebs_read == 0
    {
        bail!("{}: without a superblock nothing can be read", volume.name());
    }
    match report.findings.is_empty() && report.doubts.is_empty() {
        true => Ok(Finding::Nothing),
        false => Ok(Finding::Something),
    }
}

fn as_text(finding: &CheckFinding) -> String {
    let mut parts = vec![finding.area.name().to_owned()];
    if let Some(path) = &finding.path {
        parts.push(format!("/{}", shown::name(path)));
    }
    if let Some(inode) = finding.inode {
        parts.push(inode.to_string());
    }
    if let Some(at) = finding.at {
        parts.push(format!("LEB {}, offset {}", at.leb, at.offset));
    }
    parts.push(finding.fault.to_string());
    parts.join(": ")
}

fn as_json(finding: &CheckFinding) -> serde_json::Value {
    json!({
        "area": finding.area.name(),
        "inode": finding.inode.map(|inode| inode.0),
        "path": finding.path.as_ref().map(|path| format!("/{}", shown::from_bytes(path))),
        "leb": finding.at.map(|at| at.leb),
        "offset_bytes": finding.at.map(|at| at.offset),
        "finding": finding.fault.to_string(),
    })
}

fn sum_as_json(report: &CheckReport) -> serde_json::Value {
    let counts = report.counts;
    json!({
        "findings": report.findings.len(),
        "doubts": report.doubts,
        "notes": report.notes,
        "lebs_read": counts.lebs_read,
        "index_nodes": counts.index_nodes,
        "journal_nodes": counts.journal_nodes,
        "directories": counts.directories,
        "files": counts.files,
        "files_damaged": counts.files_damaged,
        "names_without_inode": counts.names_without_inode,
        "blocks": counts.blocks,
        "blocks_lost": counts.blocks_lost,
        "xattrs": counts.xattrs,
        "orphans": counts.orphans,
    })
}

fn sum_as_text(report: &CheckReport) -> String {
    let counts = report.counts;
    let found = match (report.findings.len(), report.doubts.len()) {
        (0, 0) => "nothing wrong".to_owned(),
        (0, _) => "nothing wrong for certain".to_owned(),
        (1, _) => "1 finding".to_owned(),
        (number, _) => format!("{number} findings"),
    };
    let mut lines = vec![format!(
        "{found} in {} directories, {} files, {} blocks and {} extended attributes; {} nodes of the index, {} of the journal",
        counts.directories,
        counts.files,
        counts.blocks,
        counts.xattrs,
        counts.index_nodes,
        counts.journal_nodes
    )];
    if !report.findings.is_empty() {
        lines.push(format!(
            "still readable: {} of {} files whole, {} of {} blocks; {} names lead to nothing",
            counts.files - counts.files_damaged,
            counts.files,
            counts.blocks - counts.blocks_lost,
            counts.blocks,
            counts.names_without_inode
        ));
    }
    lines.join("\n")
}
