//! `tidegate trace report`: runs all analyses of block traces, as a page, a text or a document.

use std::path::{Path, PathBuf};

use analysis::{Pictures, Report, StoredTrace};
use anyhow::Result;
use programs::analysis_arguments::TraceReportArguments;
use programs::{Finding, output};

use crate::traces::{Bar, open};

/// Runs the command.
pub fn run(arguments: &TraceReportArguments) -> Result<Finding> {
    let opened = open(&arguments.limits, &arguments.traces)?;
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
