//! `tidegate trace compare`: the analyses of two block traces beside each other.

use std::path::PathBuf;

use analysis::{Comparison, Pictures, Report};
use anyhow::Result;
use clap::Args;

use super::{Bar, LimitArguments};
use crate::{Finding, output};

/// Arguments of `tidegate trace compare`.
#[derive(Args, Debug)]
#[command(
    after_help = "Rows are matched by their names. Counts, sizes and times have the ratio of B to A, shares the difference in\n\
                  points. Exit codes: 0 done, 2 could not be done."
)]
pub struct TraceCompareArguments {
    /// The trace, or folder of traces, that is compared with
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The trace, or folder of traces, that is compared
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// One JSON document instead of tables
    #[arg(long)]
    pub json: bool,
    /// What the queries may use
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Runs the command.
pub fn run(arguments: &TraceCompareArguments) -> Result<Finding> {
    let report = |path: &PathBuf, prefix: &str| -> Result<Report> {
        let opened = arguments.limits.open(std::slice::from_ref(path))?;
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
    output::print_bytes(text.as_bytes())?;
    Ok(Finding::Nothing)
}
