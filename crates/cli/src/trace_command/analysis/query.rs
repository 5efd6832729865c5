//! `tidegate trace query`: a named analysis, or a query of the user's own, over block traces.

use std::path::PathBuf;

use analysis::named;
use anyhow::{Result, bail};
use clap::Args;

use super::LimitArguments;
use crate::{Finding, output};

/// Arguments of `tidegate trace query`.
#[derive(Args, Debug)]
#[command(
    after_help = "Tables: requests, runs, events (docs/formats/block-trace.md); views: io, pieces, file_types, typed_pieces,\n\
                  ordered_io (docs/trace-report.md). Queries can only read.\n\
                  tidegate trace query phone.trace 'SELECT path, SUM(bytes) FROM runs GROUP BY path ORDER BY 2 DESC LIMIT 9'\n\
                  Exit codes: 0 done, 2 could not be done."
)]
pub struct TraceQueryArguments {
    /// Traces or folders of traces, and behind them the query in SQL unless --named gives one
    #[arg(value_name = "TRACE", required_unless_present = "list")]
    pub words: Vec<PathBuf>,
    /// Run this named analysis
    #[arg(long, value_name = "NAME")]
    pub named: Option<String>,
    /// Name the analyses; with --named, print the query of one
    #[arg(long)]
    pub list: bool,
    /// One JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// What the queries may use
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Runs the command.
pub fn run(arguments: &TraceQueryArguments) -> Result<Finding> {
    if arguments.list {
        return list(arguments);
    }
    let table = match (&arguments.named, arguments.words.split_last()) {
        (Some(name), _) => {
            let analysis = named::find(name)?;
            arguments.limits.open(&arguments.words)?.session.run(&analysis)?
        }
        (None, Some((sql, traces))) if !traces.is_empty() => {
            let Some(sql) = sql.to_str() else {
                bail!("the query is not UTF-8");
            };
            arguments.limits.open(traces)?.session.query(sql)?
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
    output::print_bytes(text.as_bytes())?;
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
    output::print_bytes(text.as_bytes())?;
    Ok(Finding::Nothing)
}
