//! The paper's figure 4 and table 3 from the traces of this study, as text, page and document.

use analysis::Table;
use anyhow::Result;
use report::html;
use report::svg::{Bar, BarChart, BarGroup, Scale};
use report::{Column, number, table};
use serde::Serialize;

use super::paper;

/// An application on a file system.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// The file system.
    pub file_system: &'static str,
    /// The application.
    pub app: String,
    /// Analysis `paper_figure_4`.
    pub shares: Table,
    /// Analysis `paper_table_3`.
    pub counts: Table,
    /// Analysis `sizes`.
    pub sizes: Table,
    /// Records that the tracer lost.
    pub lost_records: u64,
}

/// The rules of the figure.
const RULES: &str = "Shares of I/Os (reads and writes with bytes). Sequential: starts where the preceding I/O of the device \
                     ended. Buffered: not REQ_SYNC. Data: files and directories; the rest is metadata and journal. The \
                     paper's applications ran on a Galaxy S3 through FUSE; here the bench makes their requests to a file, \
                     and what is counted is what the file system makes of them.";

/// Both tables for a terminal.
pub fn to_text(cells: &[Cell]) -> String {
    let (columns, rows) = figure_4(cells);
    let mut text = format!(
        "Figure 4, ours beside the paper's words (%)\n{}",
        table(&columns, &rows)
    );
    let (columns, rows) = table_3(cells);
    text += &format!("\nTable 3\n{}\n{RULES}\n", table(&columns, &rows));
    text
}

/// One document for programs.
pub fn to_json(cells: &[Cell], notes: &[String]) -> Result<String> {
    Ok(serde_json::to_string(&serde_json::json!({
        "schema": 1,
        "cells": cells,
        "notes": notes,
    }))?)
}

/// A page with the figure and both tables.
pub fn to_html(cells: &[Cell], notes: &[String]) -> String {
    let title = "Applications on file systems: figure 4 and table 3";
    let mut page = report::head(title);
    page += &html::text("h1", title);
    page += &html::text("p", RULES);
    for note in notes {
        page += &html::text("p", note);
    }
    page += &html::text("h2", "Figure 4");
    for operation in ["write", "read"] {
        for (column, part) in paper::PARTS {
            let drawing = chart(cells, operation, column, part).render();
            if !drawing.is_empty() {
                let caption =
                    format!("{operation}s, {part}; dashed: the paper's number, where its text states one");
                page += &html::figure(&drawing, &caption);
            }
        }
    }
    let (columns, rows) = figure_4(cells);
    page += &html::table(&columns, &rows);
    page += &html::text("h2", "Table 3");
    let (columns, rows) = table_3(cells);
    page += &html::table(&columns, &rows);
    page + "</body>\n</html>\n"
}

fn chart(cells: &[Cell], operation: &str, column: &str, part: &str) -> BarChart {
    let mut groups: Vec<BarGroup> = Vec::new();
    for cell in cells {
        let Some(share) = cell.shares.number(&[operation], column) else {
            continue;
        };
        let reference = paper::stated(&cell.app, operation, column).map(|(percent, _)| percent);
        let bar = Bar {
            label: cell.file_system.to_owned(),
            value: Some(share * 100.0),
            samples: Vec::new(),
            annotation: vec![format!("{:.0}", share * 100.0)],
            tooltip: format!("{} on {}: {:.1} %", cell.app, cell.file_system, share * 100.0),
            series: match cell.file_system {
                "ext4" => 3,
                "xfs" => 4,
                _ => 2,
            },
        };
        match groups.iter_mut().find(|group| group.label == cell.app) {
            Some(group) => group.bars.push(bar),
            None => groups.push(BarGroup {
                label: cell.app.clone(),
                reference,
                bars: vec![bar],
            }),
        }
    }
    BarChart {
        title: format!("{operation}s: {part}"),
        axis: "% of I/Os".to_owned(),
        scale: Scale::Linear,
        groups,
    }
}

fn figure_4(cells: &[Cell]) -> (Vec<Column>, Vec<Vec<String>>) {
    let mut columns = vec![
        Column::left("application"),
        Column::left("file system"),
        Column::left("operation"),
        Column::right("I/Os"),
    ];
    for (_, part) in paper::PARTS {
        columns.push(Column::right(part));
        columns.push(Column::left("paper"));
    }
    columns.push(Column::right("metadata"));
    columns.push(Column::right("journal"));
    let mut rows = Vec::new();
    for cell in cells {
        for operation in ["write", "read"] {
            let Some(requests) = cell.shares.number(&[operation], "requests") else {
                continue;
            };
            let percent = |column: &str| {
                let share = cell.shares.number(&[operation], column);
                share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
            };
            let mut row = vec![
                cell.app.clone(),
                cell.file_system.to_owned(),
                operation.to_owned(),
                number::count(requests),
            ];
            for (column, _) in paper::PARTS {
                row.push(percent(column));
                let words = paper::stated(&cell.app, operation, column).map_or("", |(_, words)| words);
                row.push(words.to_owned());
            }
            row.push(percent("metadata_share"));
            row.push(percent("journal_share"));
            rows.push(row);
        }
    }
    (columns, rows)
}

fn table_3(cells: &[Cell]) -> (Vec<Column>, Vec<Vec<String>>) {
    let columns = vec![
        Column::left("application"),
        Column::left("file system"),
        Column::right("pwrite calls"),
        Column::right("I/O requests"),
        Column::right("metadata and journal"),
    ];
    let mut rows: Vec<Vec<String>> = cells
        .iter()
        .map(|cell| {
            let count = |item: &str| {
                let value = cell.counts.number(&[item], "count");
                value.map_or_else(|| "-".to_owned(), number::count)
            };
            vec![
                cell.app.clone(),
                cell.file_system.to_owned(),
                count("1 pwrite calls"),
                count("2 I/O requests"),
                count("3 metadata and journal"),
            ]
        })
        .collect();
    for (file_system, calls, requests, updates) in paper::TABLE_3_NOBUF {
        let mut row = vec!["paper: 512 MB, no buffer".to_owned(), file_system.to_owned()];
        row.extend([calls, requests, updates].map(number::count));
        rows.push(row);
    }
    (columns, rows)
}
