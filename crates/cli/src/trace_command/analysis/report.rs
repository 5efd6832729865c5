//! `tidegate trace report`: all analyses of block traces, as a page, a text or a document.

use std::path::{Path, PathBuf};

use analysis::{Pictures, Report, StoredTrace};
use anyhow::Result;
use clap::Args;

use super::{Bar, LimitArguments};
use crate::{Finding, output};

/// Arguments of `tidegate trace report`.
#[derive(Args, Debug)]
#[command(
    after_help = "Several traces are reported as one; `tidegate trace compare` sets two side by side. The page needs nothing\n\
                  from outside and can be mailed as it is. docs/trace-report.md says what each table counts.\n\
                  Exit codes: 0 done, 1 done but a trace was interrupted or lost records, 2 could not be done."
)]
pub struct TraceReportArguments {
    /// Traces, native or of a format that tidegate reads, or folders of native ones
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The file that is written, - for standard output [default: NAME.html in the current folder; - for text and JSON]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Tables for the terminal instead of the page
    #[arg(long, conflicts_with = "json")]
    pub text: bool,
    /// One JSON document instead of the page
    #[arg(long)]
    pub json: bool,
    /// What the queries may use
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Runs the command.
pub fn run(arguments: &TraceReportArguments) -> Result<Finding> {
    let opened = arguments.limits.open(&arguments.traces)?;
    let session = &opened.session;
    let page = !arguments.text && !arguments.json;
    let pictures = if page { Pictures::Drawn } else { Pictures::LeftOut };
    let bar = Bar::new("");
    let report = Report::of(session, pictures, |step| bar.show(step))?;
    drop(bar);
    let (text, default) = if page {
        (report.to_html(), page_name(session.traces()))
    } else if arguments.json {
        (report.to_json() + "\n", PathBuf::from("-"))
    } else {
        (report.to_text(), PathBuf::from("-"))
    };
    let target = arguments.output.as_deref().unwrap_or(&default);
    output::write_result(target, &text)?;
    if target != Path::new("-") {
        output::print_error(&format!("report: {}", target.display()));
    }
    let whole = |trace: &StoredTrace| trace.header.complete && trace.header.lost_records == 0;
    Ok(if session.traces().iter().all(whole) {
        Finding::Nothing
    } else {
        Finding::Something
    })
}

fn page_name(traces: &[StoredTrace]) -> PathBuf {
    match traces {
        [trace] => PathBuf::from(format!("{}.html", trace.name())),
        _ => PathBuf::from("traces.html"),
    }
}
