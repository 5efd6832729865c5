//! `tidegate bench compare A B`: compares two existing sets of records, as ratios with intervals.

use std::path::Path;

use anyhow::{Context, Result};
use report::record_comparison::{self, RecordSet};
use results::{RecordComparison, RunRecord};
use serde_json::json;

use super::arguments::BenchCompareArguments;
use super::write_text;
use crate::inspect::{RECORDS, not_understood};
use crate::{Finding, history_command, output};

/// Runs the command. Operations in only one set give exit code 1; different machines and noise give warnings.
pub fn run(a: &str, b: &str, arguments: &BenchCompareArguments) -> Result<Finding> {
    let (a, b) = (read(a, arguments)?, read(b, arguments)?);
    let comparison = RecordComparison::of(&a.records, &b.records)
        .with_context(|| format!("{} (A) and {} (B) can't be compared", a.name, b.name))?;
    if arguments.json {
        let document = json!({
            "a": a.title(),
            "b": b.title(),
            "operations": comparison.operations,
            "left_out": comparison.left_out,
            "warnings": comparison.warnings,
        });
        output::print_line(&document.to_string())?;
    } else {
        output::print_text(&record_comparison::text(&comparison, &a, &b))?;
    }
    for note in comparison.left_out.iter().chain(&comparison.warnings) {
        output::print_error(note);
    }
    if let Some(path) = &arguments.markdown {
        write_text(path, &record_comparison::markdown(&comparison, &a, &b))?;
    }
    if let Some(path) = &arguments.report {
        write_text(path, &record_comparison::render(&comparison, &a, &b))?;
        output::print_error(&format!("report: {}", path.display()));
    }
    Ok(if comparison.left_out.is_empty() {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

/// Reads a file of run records.
pub fn read_file(path: &Path) -> Result<Vec<RunRecord>> {
    results::read_records(path).map_err(|error| not_understood(path, "run records", &RECORDS, error.into()))
}

/// Reads a file of that name, else a run of the history, else all runs with that tag.
fn read(name: &str, arguments: &BenchCompareArguments) -> Result<RecordSet> {
    let path = Path::new(name);
    if path.exists() {
        return Ok(RecordSet {
            name: name.to_owned(),
            records: read_file(path)?,
        });
    }
    let records = history_command::records_of(name, arguments.store.history.as_deref())?;
    let is_id = name.bytes().all(|letter| letter.is_ascii_digit());
    Ok(RecordSet {
        name: if is_id {
            format!("run {name}")
        } else {
            name.to_owned()
        },
        records,
    })
}
