//! Reports and tables for a terminal.

use ::report::{Column, number, table};
use results::block_trace::{CaptureMethod, TraceHeader};
use results::shown;

use crate::report::Report;
use crate::table::Table;

/// Maximum number of rows of a table in a report for the terminal; the page and the document have all.
const ROWS_SHOWN: usize = 20;

/// Longer texts are cut in a terminal.
const TEXT_LETTERS: usize = 60;

pub(crate) fn report(report: &Report) -> String {
    let mut text = String::new();
    for trace in &report.traces {
        let path = trace.path.display().to_string();
        text += &format!(
            "{}\n  {}\n",
            shown::line(&path),
            shown::line(&described(&trace.header))
        );
        for device in &trace.header.devices {
            let file_system = device.file_system.as_ref();
            let mounted =
                file_system.map_or_else(String::new, |(kind, place)| format!(", {kind} on {place}"));
            let size = device.sectors.map_or_else(String::new, |sectors| {
                format!(", {}", number::bytes(sectors.saturating_mul(512)))
            });
            let scheduler = device
                .scheduler
                .as_ref()
                .map_or_else(String::new, |name| format!(", scheduler {name}"));
            let line = format!("{} {}{size}{mounted}{scheduler}", device.device, device.name);
            text += &format!("  device {}\n", shown::line(&line));
        }
    }
    let warnings = report.warnings();
    if !warnings.is_empty() {
        text += "\nLimits of these traces\n";
        for warning in warnings {
            text += &format!("  - {}\n", shown::line(&warning));
        }
    }
    for table in &report.tables {
        text += &format!("\n{}\n", titled(table));
    }
    text
}

/// Description of a trace in a line.
pub(crate) fn described(header: &TraceHeader) -> String {
    let method = match header.method {
        CaptureMethod::Bpf => "BPF",
        CaptureMethod::Tracefs => "tracefs",
        CaptureMethod::Import => "another tool's file",
        CaptureMethod::Simulation => "a simulation",
    };
    let start = header
        .start_realtime_ns
        .map_or_else(String::new, |start| format!(", from {}", number::utc(start)));
    let kernel = header
        .host
        .as_ref()
        .map_or_else(String::new, |host| format!(", {}", host.kernel));
    format!(
        "{}: by {method}{start}, {}{kernel}",
        header.source,
        number::duration_ns(header.duration_ns)
    )
}

fn titled(content: &Table) -> String {
    let body = limited(&content.shown_columns(), &content.shown_rows());
    format!("{}  [{}]\n{body}", content.title, content.name)
        .trim_end()
        .to_owned()
}

/// A complete table with its numbers in units.
pub(crate) fn plain(content: &Table) -> String {
    table(&content.shown_columns(), &shortened_rows(&content.shown_rows()))
}

/// The first rows of a table, and the number of the others.
pub(crate) fn limited(columns: &[Column], rows: &[Vec<String>]) -> String {
    let shown = rows.get(..ROWS_SHOWN).unwrap_or(rows);
    let mut text = table(columns, &shortened_rows(shown));
    if rows.len() > shown.len() {
        text += &format!("and {} more\n", rows.len() - shown.len());
    }
    text
}

fn shortened_rows(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let shortened_row = |row: &Vec<String>| row.iter().map(|cell| shortened(cell)).collect();
    rows.iter().map(shortened_row).collect()
}

/// Removes the beginning of a long path: its end is more informative.
fn shortened(cell: &str) -> String {
    let letters = cell.chars().count();
    if letters <= TEXT_LETTERS {
        return cell.to_owned();
    }
    let kept: String = cell.chars().skip(letters - TEXT_LETTERS + 1).collect();
    format!("…{kept}")
}
