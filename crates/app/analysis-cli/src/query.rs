//! `tidegate trace query`: runs a named analysis, or a user's query, over block traces.

use std::ops::ControlFlow;

use analysis::{Query, Session, named};
use anyhow::{Result, bail};
use programs::analysis_arguments::TraceQueryArguments;
use programs::output::Printed;
use programs::{Finding, output};

use crate::traces::open;

/// Runs the command.
pub fn run(arguments: &TraceQueryArguments) -> Result<Finding> {
    if arguments.list {
        return list(arguments);
    }
    match (&arguments.named, arguments.words.split_last()) {
        (Some(name), _) => {
            let analysis = named::find(name)?;
            let opened = open(&arguments.limits, &arguments.words)?;
            print(&opened.session, &Query::named(&analysis), arguments.json)?;
        }
        (None, Some((sql, traces))) if !traces.is_empty() => {
            let Some(sql) = sql.to_str() else {
                bail!("the query is not UTF-8");
            };
            let opened = open(&arguments.limits, traces)?;
            print(&opened.session, &Query::of_user(sql), arguments.json)?;
        }
        (None, _) => bail!(
            "a trace, but no query; write it behind the traces, or choose one with --named (--list shows them)"
        ),
    }
    Ok(Finding::Nothing)
}

/// Prints a result: a document row by row, a table once its columns' widths are known.
fn print(session: &Session, query: &Query<'_>, json: bool) -> Result<()> {
    if !json {
        output::print_text(&session.table(query)?.to_text())?;
        return Ok(());
    }
    let mut printed = Ok(Printed::Done);
    session.json(query, |text| {
        printed = output::print_text(text);
        match printed {
            Ok(Printed::Done) => ControlFlow::Continue(()),
            Ok(Printed::Closed) | Err(_) => ControlFlow::Break(()),
        }
    })?;
    printed.map(|_| ())
}

fn list(arguments: &TraceQueryArguments) -> Result<Finding> {
    let text = match &arguments.named {
        Some(name) => named::find(name)?.sql.to_owned(),
        None => {
            let columns = [report::Column::left("name"), report::Column::left("what")];
            let row = |analysis: named::Analysis| vec![analysis.name.to_owned(), analysis.title];
            let rows: Vec<_> = named::all().into_iter().map(row).collect();
            report::table(&columns, &rows)
        }
    };
    output::print_text(&text)?;
    Ok(Finding::Nothing)
}
