//! Decisions of a gate as a table for a terminal, Markdown, JUnit's XML and JSON. Pure functions.

use report::html::escape;
use report::record_comparison::interval;
use report::{Align, Column};
use results::words::counted;
use serde_json::{Value, json};

use super::{Compared, Gate, Outcome, Verdict};

/// One sentence: the decision and the numbers behind it.
fn summary(gate: &Gate) -> String {
    let outcome = match gate.outcome() {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::Undecided => "undecided",
    };
    let all = [
        Verdict::Worse,
        Verdict::Undecided,
        Verdict::TooFewRounds,
        Verdict::NotMeasured,
        Verdict::Fine,
    ];
    let counts: Vec<String> = all
        .into_iter()
        .map(|verdict| (gate.count(verdict), verdict.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let unshared = match gate.unshared {
        0 => String::new(),
        1 => "; 1 cell that only one study has was left out".to_owned(),
        count => format!("; {count} cells that only one study has were left out"),
    };
    format!(
        "{outcome}: {} of {}{unshared} (MB/s of {} over {}, bound {})",
        counts.join(", "),
        counted(gate.cells.len(), "cell"),
        gate.sides[1],
        gate.sides[0],
        gate.rule.min_ratio
    )
}

/// The ratio with its interval.
fn ratio(cell: &Compared) -> String {
    let text = |value: f64| format!("{value:.3}");
    cell.estimate
        .as_ref()
        .map_or_else(|| "n/a".to_owned(), |estimate| interval(estimate, text))
}

fn rows(gate: &Gate) -> (Vec<Column>, Vec<Vec<String>>) {
    let columns = vec![
        Column::left("cell"),
        Column::right("ratio"),
        Column::right("rounds"),
        Column::left("verdict"),
        Column::left("reason"),
    ];
    let row = |cell: &Compared| {
        vec![
            cell.title.clone(),
            ratio(cell),
            cell.estimate
                .map_or_else(|| "0".to_owned(), |estimate| estimate.count.to_string()),
            cell.verdict.word().to_owned(),
            cell.reason.clone(),
        ]
    };
    (columns, gate.cells.iter().map(row).collect())
}

/// The table for a terminal.
#[must_use]
pub fn text(gate: &Gate) -> String {
    let (columns, rows) = rows(gate);
    format!("{}{}\n", report::table(&columns, &rows), summary(gate))
}

/// The table in Markdown, for a comment on a change.
#[must_use]
pub fn markdown(gate: &Gate) -> String {
    let (columns, rows) = rows(gate);
    let line = |cells: Vec<String>| {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| escape(cell).replace('|', "\\|").replace('\n', " "))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = format!(
        "### Study gate: {}\n\n{}\n\n",
        escape(&gate.name),
        escape(&summary(gate))
    );
    text += &line(columns.iter().map(|column| column.title.clone()).collect());
    let rules = columns.iter().map(|column| match column.align {
        Align::Right => "--:".to_owned(),
        _ => "---".to_owned(),
    });
    text += &line(rules.collect());
    for row in rows {
        text += &line(row);
    }
    text
}

/// One test case for each cell: a failure if it is worse, an error if it was not measured, skipped if it is undecided.
#[must_use]
pub fn junit(gate: &Gate) -> String {
    let undecided = gate.count(Verdict::Undecided) + gate.count(Verdict::TooFewRounds);
    let seconds: f64 = gate.cells.iter().map(|cell| cell.seconds).sum();
    let counts = format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{undecided}\" time=\"{seconds:.3}\"",
        gate.cells.len(),
        gate.count(Verdict::Worse),
        gate.count(Verdict::NotMeasured),
    );
    let name = attribute(&gate.name);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    text += &format!("  <testsuite name=\"{name}\" {counts}>\n");
    for cell in &gate.cells {
        text += &format!(
            "    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.3}\">",
            attribute(&cell.title),
            cell.seconds
        );
        let said = attribute(&format!("ratio {} {}", ratio(cell), cell.reason));
        text += &match cell.verdict {
            Verdict::Fine => String::new(),
            Verdict::Worse => format!("<failure message=\"{said}\" type=\"worse\"/>"),
            Verdict::Undecided | Verdict::TooFewRounds => format!("<skipped message=\"{said}\"/>"),
            Verdict::NotMeasured => format!("<error message=\"{said}\" type=\"not-measured\"/>"),
        };
        text += "</testcase>\n";
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Text in an attribute of XML, which can't hold most control characters.
fn attribute(text: &str) -> String {
    let allowed = |letter: char| match letter {
        '\t' | '\n' | '\r' => ' ',
        '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        other => other,
    };
    escape(text.trim_end()).chars().map(allowed).collect()
}

/// Everything as one document in JSON.
#[must_use]
pub fn json(gate: &Gate) -> Value {
    let cells = gate.cells.iter().map(|cell| {
        json!({
            "cell": cell.cell,
            "title": cell.title,
            "estimate": cell.estimate,
            "verdict": cell.verdict,
            "reason": cell.reason,
        })
    });
    json!({
        "schema": "tidegate.gate/1",
        "name": gate.name,
        "baseline": gate.sides[0],
        "measured": gate.sides[1],
        "min_ratio": gate.rule.min_ratio,
        "looks": gate.rule.looks,
        "outcome": gate.outcome(),
        "unshared_cells": gate.unshared,
        "cells": cells.collect::<Vec<_>>(),
    })
}
