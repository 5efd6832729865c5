//! `tidegate trace compare`: compares the analyses of two block traces.

use std::path::PathBuf;

use analysis::{Comparison, Pictures, Report};
use anyhow::Result;
use programs::analysis_arguments::TraceCompareArguments;
use programs::{Finding, output};

use crate::traces::{Bar, open};

/// Runs the command.
pub fn run(arguments: &TraceCompareArguments) -> Result<Finding> {
    let report = |path: &PathBuf, prefix: &str| -> Result<Report> {
        let opened = open(&arguments.limits, std::slice::from_ref(path))?;
        let bar = Bar::new(prefix);
        Ok(Report::of(&opened.session, Pictures::LeftOut, |step| {
            bar.show(step)
        })?)
    };
    let first = report(&arguments.first, "A ")?;
    let second = report(&arguments.second, "B ")?;
    let comparison = Comparison::of(&first, &second);
    let text = if arguments.json {
        serde_json::to_string(&comparison)? + "\n"
    } else {
        comparison.to_text()
    };
    output::print_text(&text)?;
    Ok(Finding::Nothing)
}
