//! The results of a study as a page, as tables for the terminal, as JSON, CSV and Markdown. Pure functions.

use anyhow::Result;
use report::html::{self, escape};
use report::number;
use report::record_comparison::interval;
use report::{Align, Column};
use results::words::counted;
use results::{Estimate, RunRecord};
use serde_json::{Value, json};

use crate::evidence::{Judged, Results, Shown, judged, layout, shown};
use crate::figure;
use crate::folder::State;
use crate::panel;
use crate::plan::{Exhibit, Plan, Quantity};

/// Tables with more rows are folded.
const ROWS_SHOWN: usize = 12;

/// An exhibit with its measurements.
pub struct Drawn<'plan> {
    /// The exhibit.
    pub exhibit: &'plan Exhibit,
    /// Its slots.
    pub shown: Vec<Shown>,
    /// The sentences about it.
    pub judged: Vec<Judged<'plan>>,
    /// The write requests of each slot, if the exhibit shows them: data, then metadata and journal.
    pub layouts: Vec<[Vec<(f64, f64)>; 2]>,
    /// The machine, if it is not this one.
    pub panel: Option<String>,
}

/// All exhibits of a plan.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn drawn<'plan>(plan: &'plan Plan, records: &[RunRecord]) -> Result<Vec<Drawn<'plan>>> {
    let results = Results::of(records);
    let one = |exhibit: &'plan Exhibit| {
        let shown = shown(plan, exhibit, &results)?;
        let layouts = match exhibit.y {
            Quantity::Layout => shown.iter().map(|shown| layout(&shown.slot, &results)).collect(),
            _ => Vec::new(),
        };
        Ok(Drawn {
            exhibit,
            panel: panel::sentence(&shown, &results),
            shown,
            judged: judged(plan, exhibit, &results)?,
            layouts,
        })
    };
    plan.exhibits.iter().map(one).collect()
}

/// The page.
#[must_use]
pub fn html(plan: &Plan, state: &State, drawn: &[Drawn<'_>], records: &[RunRecord]) -> String {
    let title = format!("Study: {}", plan.name);
    let mut page = report::head(&title) + &report::heading(&title, &subtitle(state), records);
    page += &format!("<p class=\"headline\">{}</p>\n", escape(&summary(drawn)));
    for drawn in drawn {
        page += &exhibit(drawn);
    }
    page + &report::tail(records)
}

/// Rounds, speed of the card and what it was fitted to.
fn subtitle(state: &State) -> String {
    let mut text = format!("At most {} rounds; medians with their intervals.", state.rounds);
    if let Some([target, measured]) = state.calibrated {
        text += &format!(
            " The card runs {} times as fast as real time: fitted to one number, a share of MAX of {target} (measured then: {}). \
             Everything else is predicted.",
            number::significant(state.time_scale),
            number::significant(measured)
        );
    } else if (state.time_scale - 1.0).abs() > f64::EPSILON {
        text += &format!(
            " The card runs {} times as fast as real time.",
            number::significant(state.time_scale)
        );
    }
    text
}

/// Number of sentences by verdict.
#[must_use]
pub fn summary(drawn: &[Drawn<'_>]) -> String {
    let all: Vec<&Judged<'_>> = drawn.iter().flat_map(|drawn| &drawn.judged).collect();
    let predicted: Vec<_> = all
        .iter()
        .filter(|judged| judged.basis() == "predicted")
        .collect();
    let mut words = Vec::new();
    for verdict in ["holds", "fails", "not shown", "too few rounds", "not measured"] {
        let count = predicted
            .iter()
            .filter(|judged| judged.verdict.word() == verdict)
            .count();
        if count > 0 {
            words.push(format!("{verdict}: {count}"));
        }
    }
    match words.is_empty() {
        true => counted(drawn.len(), "exhibit"),
        false => format!("{} predicted sentences: {}.", predicted.len(), words.join(", ")),
    }
}

fn exhibit(drawn: &Drawn<'_>) -> String {
    let exhibit = drawn.exhibit;
    let mut text = html::text("h2", &heading(exhibit));
    if let Some(panel) = &drawn.panel {
        text += &html::text("p", panel);
    }
    for (picture, caption) in figure::of(drawn) {
        text += &html::figure(&picture, &caption);
    }
    let (columns, rows) = table(drawn);
    let values = html::table(&columns, &rows);
    text += &match rows.len() > ROWS_SHOWN {
        true => format!(
            "<details><summary>{} values</summary>\n{values}</details>\n",
            rows.len()
        ),
        false => values,
    };
    for reason in reasons(drawn) {
        text += &format!("<p class=\"empty\">{}</p>\n", escape(&reason));
    }
    if !drawn.judged.is_empty() {
        text += "<ul>\n";
        for judged in &drawn.judged {
            text += &format!(
                "<li><strong>{}</strong>: {}</li>\n",
                judged.verdict.word(),
                escape(&sentence(judged))
            );
        }
        text += "</ul>\n";
    }
    text
}

/// Name and title of an exhibit.
pub(crate) fn heading(exhibit: &Exhibit) -> String {
    match exhibit.title.is_empty() {
        true => exhibit.name.clone(),
        false => format!("{}: {}", exhibit.name, exhibit.title),
    }
}

/// The slots as a table.
fn table(drawn: &Drawn<'_>) -> (Vec<Column>, Vec<Vec<String>>) {
    let exhibit = drawn.exhibit;
    let mut columns: Vec<Column> = exhibit.axes.iter().map(|(axis, _)| Column::left(axis)).collect();
    let title = exhibit.y.title();
    columns.push(Column::right(match exhibit.y {
        Quantity::Layout => "MB/s",
        _ => &title,
    }));
    columns.push(Column::right("rounds"));
    let rows = drawn.shown.iter().map(|shown| {
        let mut row: Vec<String> = exhibit
            .axes
            .iter()
            .map(|(axis, _)| shown.slot.values[axis].clone())
            .collect();
        row.push(shown.estimate.as_ref().map_or_else(
            || "n/a".to_owned(),
            |estimate| figure::in_words(exhibit, estimate),
        ));
        row.push(shown.values.len().to_string());
        row
    });
    let rows = rows.collect();
    (columns, rows)
}

/// A sentence with its numbers.
fn sentence(judged: &Judged<'_>) -> String {
    let number = |value: f64| format!("{value:.2}");
    let mut text = format!("{} ({}", judged.claim.sentence, judged.basis());
    if let Some(paper) = judged.claim.paper {
        text += &format!("; paper {}", number::significant(paper));
    }
    if let Some(estimate) = &judged.estimate {
        text += &format!("; here {}", interval(estimate, number));
    }
    if let Some(part) = judged.visible() {
        text += &format!("; smallest visible difference {:.0} %", part * 100.0);
    }
    text + ")"
}

/// The sentences of the paper, with ours beside them.
fn sentences(drawn: &Drawn<'_>) -> (Vec<Column>, Vec<Vec<String>>) {
    let columns = vec![
        Column::left("sentence"),
        Column::right("paper"),
        Column::right("ours"),
        Column::left("verdict"),
        Column::left("evidence"),
        Column::right("smallest visible difference"),
    ];
    let rows = drawn.judged.iter().map(|judged| {
        let number = |value: f64| format!("{value:.2}");
        vec![
            judged.claim.sentence.clone(),
            judged.claim.paper.map_or_else(String::new, number::significant),
            judged
                .estimate
                .as_ref()
                .map_or_else(|| "n/a".to_owned(), |estimate| interval(estimate, number)),
            judged.verdict.word().to_owned(),
            judged.basis().to_owned(),
            judged
                .visible()
                .map_or_else(String::new, |part| format!("{:.0} %", part * 100.0)),
        ]
    });
    (columns, rows.collect())
}

/// Why cells of an exhibit are missing.
fn reasons(drawn: &Drawn<'_>) -> Vec<String> {
    // A whole panel that is left out has one reason.
    if let Some(first) = drawn.shown.first()
        && drawn.shown.iter().all(|shown| shown.failures == first.failures)
    {
        return first.failures.clone();
    }
    let mut reasons = Vec::new();
    for shown in &drawn.shown {
        for reason in &shown.failures {
            let values: Vec<&str> = shown.slot.values.values().map(String::as_str).collect();
            reasons.push(format!("{}: {reason}", values.join(" ")));
        }
    }
    reasons
}

/// The tables for a terminal.
#[must_use]
pub fn text(drawn: &[Drawn<'_>]) -> String {
    let mut text = String::new();
    for drawn in drawn {
        let (columns, rows) = table(drawn);
        text += &format!("{}\n", heading(drawn.exhibit));
        if let Some(panel) = &drawn.panel {
            text += &format!("{panel}\n");
        }
        text += &report::table(&columns, &rows);
        for reason in reasons(drawn) {
            text += &format!("{reason}\n");
        }
        for judged in &drawn.judged {
            text += &format!("  {}: {}\n", judged.verdict.word(), sentence(judged));
        }
        text.push('\n');
    }
    text + &summary(drawn) + "\n"
}

/// The tables in Markdown.
#[must_use]
pub fn markdown(plan: &Plan, drawn: &[Drawn<'_>]) -> String {
    let mut text = format!("# Study: {}\n\n{}\n", markdown_text(&plan.name), summary(drawn));
    for drawn in drawn {
        text += &format!("\n## {}\n\n", markdown_text(&heading(drawn.exhibit)));
        if let Some(panel) = &drawn.panel {
            text += &format!("{}\n\n", markdown_text(panel));
        }
        let (columns, rows) = table(drawn);
        text += &markdown_table(&columns, &rows);
        for reason in reasons(drawn) {
            text += &format!("\n- {}\n", markdown_text(&reason));
        }
        if !drawn.judged.is_empty() {
            let (columns, rows) = sentences(drawn);
            text += &format!("\n{}", markdown_table(&columns, &rows));
        }
    }
    text
}

/// Text that stays one line of text in Markdown.
fn markdown_text(text: &str) -> String {
    let line = text.lines().collect::<Vec<_>>().join(" ");
    line.replace('\\', "\\\\")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('|', "\\|")
}

fn markdown_table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| {
        let cells: Vec<String> = cells.iter().map(|cell| markdown_text(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(columns.iter().map(|column| column.title.clone()).collect());
    let rules = columns.iter().map(|column| {
        if column.align == Align::Right {
            "--:"
        } else {
            "---"
        }
    });
    text += &line(rules.map(str::to_owned).collect());
    for row in rows {
        text += &line(row.clone());
    }
    text
}

/// Everything as one document in JSON.
#[must_use]
pub fn json(plan: &Plan, state: &State, drawn: &[Drawn<'_>]) -> Value {
    let estimate = |estimate: &Option<Estimate>| {
        estimate.as_ref().map(|estimate| {
            json!({ "median": estimate.value, "low": estimate.low, "high": estimate.high, "coverage": estimate.coverage })
        })
    };
    let exhibits = drawn.iter().map(|drawn| {
        let cells = drawn.shown.iter().map(|shown| {
            json!({
                "values": shown.slot.values,
                "cell": shown.slot.cell,
                "rounds": shown.values,
                "estimate": estimate(&shown.estimate),
                "failures": shown.failures,
            })
        });
        let sentences = drawn.judged.iter().map(|judged| {
            json!({
                "sentence": judged.claim.sentence,
                "paper": judged.claim.paper,
                "estimate": estimate(&judged.estimate),
                "verdict": judged.verdict.word(),
                "evidence": judged.basis(),
            })
        });
        json!({
            "name": drawn.exhibit.name,
            "title": drawn.exhibit.title,
            "quantity": drawn.exhibit.y.title(),
            "panel": drawn.panel,
            "cells": cells.collect::<Vec<_>>(),
            "sentences": sentences.collect::<Vec<_>>(),
        })
    });
    json!({
        "schema": "tidegate.study/1",
        "name": plan.name,
        "environment": state,
        "exhibits": exhibits.collect::<Vec<_>>(),
    })
}

/// One line for each cell and round, and for each failure.
#[must_use]
pub fn csv(drawn: &[Drawn<'_>]) -> String {
    // A quotation mark before what a spreadsheet would take for a formula.
    let quoted = |text: &str| {
        let mark = if text.starts_with(['=', '+', '-', '@']) {
            "'"
        } else {
            ""
        };
        format!("\"{mark}{}\"", text.replace('"', "\"\""))
    };
    let mut text = String::from("exhibit,values,quantity,round,value,failure\n");
    for drawn in drawn {
        for shown in &drawn.shown {
            let values: Vec<String> = shown
                .slot
                .values
                .iter()
                .map(|(axis, value)| format!("{axis}={value}"))
                .collect();
            let slot = [&drawn.exhibit.name, &values.join(" "), &drawn.exhibit.y.title()]
                .map(|text| quoted(text))
                .join(",");
            for (round, value) in shown.rounds.iter().zip(&shown.values) {
                text += &format!("{slot},{round},{value},\n");
            }
            for reason in &shown.failures {
                text += &format!("{slot},,,{}\n", quoted(reason));
            }
        }
    }
    text
}
