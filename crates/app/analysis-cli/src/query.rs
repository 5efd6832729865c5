//! `tidegate trace query`: runs a named analysis, or a user's query, over block traces.

use analysis::named;
use anyhow::{Result, bail};
use programs::analysis_arguments::TraceQueryArguments;
use programs::{Finding, output};

use crate::traces::open;

/// Runs the command.
pub fn run(arguments: &TraceQueryArguments) -> Result<Finding> {
    if arguments.list {
        return list(arguments);
    }
    let table = match (&arguments.named, arguments.words.split_last()) {
        (Some(name), _) => {
            let analysis = named::find(name)?;
            open(&arguments.limits, &arguments.words)?
                .session
                .run(&analysis)?
        }
        (None, Some((sql, traces))) if !traces.is_empty() => {
            let Some(sql) = sql.to_str() else {
                bail!("the query is not UTF-8");
            };
            open(&arguments.limits, traces)?.session.query(sql)?
        }
        (None, _) => bail!(
            "a trace, but no query; write it behind the traces, or choose one with --named (--list shows them)"
        ),
    };
    let text = if arguments.json {
        serde_json::to_string(&table)? + "\n"
    } else {
        table.to_text()
    };
    output::print_text(&text)?;
    Ok(Finding::Nothing)
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
