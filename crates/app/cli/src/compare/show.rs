//! Output of a comparison: tables on the terminal, one Markdown table, one HTML file.

use std::path::Path;

use anyhow::{Context, Result, bail};
use report::{Comparison, ComparisonInput};
use results::RunRecord;

use super::arguments::BenchShowArguments;
use super::records;
use crate::{Finding, output};

/// Runs `tidegate bench show`.
pub fn run(arguments: &BenchShowArguments) -> Result<Finding> {
    let records = records::read_file(&arguments.file)?;
    let comparisons = Comparison::all(&records, &arguments.baseline);
    if comparisons.is_empty() {
        bail!(
            "{}: no record of `tidegate bench compare` in it",
            arguments.file.display()
        );
    }
    let text = if arguments.markdown {
        report::comparison::markdown(&comparisons, &records)
    } else {
        tables(&comparisons)
    };
    output::print_text(&text)?;
    if let Some(path) = &arguments.report {
        write_html(path, comparisons, records, Vec::new())?;
    }
    Ok(Finding::Nothing)
}

/// All tables for the terminal, separated by empty lines.
pub fn tables(comparisons: &[Comparison]) -> String {
    let texts: Vec<String> = comparisons.iter().map(Comparison::text).collect();
    texts.join("\n")
}

/// Writes the HTML report.
pub fn write_html(
    path: &Path,
    comparisons: Vec<Comparison>,
    records: Vec<RunRecord>,
    notes: Vec<String>,
) -> Result<()> {
    let rounds = records.iter().map(|record| record.round + 1).max().unwrap_or(0);
    let baseline = comparisons
        .first()
        .map_or("the baseline", |first| first.baseline.as_str());
    let page = report::comparison::render(&ComparisonInput {
        title: format!("Speed of each configuration relative to {baseline}"),
        subtitle: format!(
            "{rounds} interleaved rounds: each runs every configuration once, in rotated order. Ratios are formed \
             inside each round; shown are their medians."
        ),
        records,
        comparisons,
        notes,
    });
    write_text(path, &page)
}

/// Writes a result; creates its directory if it does not exist.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))?;
    }
    output::write_result(path, text)
}
