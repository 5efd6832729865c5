//! `tidegate bench history`: shows and manages stored runs.

pub mod log;
mod show;
mod timestamp;

use std::io::{BufRead, IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use history::{Filter, History, RunId, StoredRun};
use programs::terminal::WidthArguments;
use programs::user_files::history_file;
use results::RunRecord;

use crate::compare::write_text;
use crate::{Finding, output};

/// Arguments of `tidegate bench history`.
#[derive(Args, Debug)]
pub struct HistoryArguments {
    /// The action [default: list].
    #[command(subcommand)]
    pub action: Option<HistoryAction>,
    /// File of the history [default: $TIDEGATE_HISTORY, or tidegate/history.db in $XDG_DATA_HOME]
    #[arg(long, value_name = "FILE", global = true)]
    pub history: Option<PathBuf>,
}

/// The actions.
#[derive(Debug, Subcommand)]
pub enum HistoryAction {
    /// List runs, latest first
    List(ListArguments),
    /// Show runs with all their numbers
    Show(ShowArguments),
    /// Tag a run, to list and compare it by the tag; several runs can share a tag
    Tag(TagArguments),
    /// Delete runs permanently
    Delete(DeleteArguments),
    /// Write runs as CSV, JSON lines or Markdown
    Export(ExportArguments),
}

/// Selects runs.
#[derive(Args, Debug, Default)]
pub struct FilterArguments {
    /// Only runs whose workload name contains this text, such as random-write or sqlite
    #[arg(long, value_name = "TEXT")]
    pub workload: Option<String>,
    /// Only runs in this folder or below it
    #[arg(long, value_name = "DIRECTORY")]
    pub path: Option<PathBuf>,
    /// Only runs that began since then: 30min, 12h, 7d, 2w, or a day such as 2026-01-31 (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parse_since)]
    pub since: Option<u64>,
    /// Only runs with this tag
    #[arg(long, value_name = "NAME")]
    pub tag: Option<String>,
    /// Maximum number of runs, the latest ones
    #[arg(long, value_name = "N")]
    pub limit: Option<u32>,
}

/// Arguments of `tidegate bench history list`.
#[derive(Args, Debug, Default)]
pub struct ListArguments {
    /// Which runs.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Arguments of `tidegate bench history show`.
#[derive(Args, Debug)]
pub struct ShowArguments {
    /// Ids of the runs
    #[arg(value_name = "ID", required = true)]
    pub runs: Vec<RunId>,
    /// Print the run records as JSON, one per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub width: WidthArguments,
}

/// Arguments of `tidegate bench history tag`.
#[derive(Args, Debug)]
pub struct TagArguments {
    /// Id of the run
    #[arg(value_name = "ID")]
    pub run: RunId,
    /// The tag: at least one letter, no blanks
    #[arg(value_name = "NAME")]
    pub tag: String,
    /// Remove the tag instead
    #[arg(long)]
    pub remove: bool,
}

/// Arguments of `tidegate bench history delete`.
#[derive(Args, Debug)]
pub struct DeleteArguments {
    /// Ids of the runs
    #[arg(value_name = "ID", required = true)]
    pub runs: Vec<RunId>,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `tidegate bench history export`.
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// Ids of the runs [default: all that match the filters]
    #[arg(value_name = "ID")]
    pub runs: Vec<RunId>,
    /// Which runs.
    #[command(flatten)]
    pub filter: FilterArguments,
    /// Output format [default: by the end of the file's name (.csv, .json, .jsonl, .md), otherwise csv]
    #[arg(long, value_enum)]
    pub format: Option<ExportFormat>,
    /// Write to this file; - is standard output
    #[arg(long, short = 'o', value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// A format of exported runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One line per operation of each record, below a header line
    Csv,
    /// Whole records, one per line, as `tidegate bench compare` reads them
    Json,
    /// A Markdown table
    #[value(alias = "md")]
    Markdown,
}

impl ExportFormat {
    /// The format that the end of a file's name tells.
    fn of(output: &Path) -> Self {
        match output.extension().and_then(|extension| extension.to_str()) {
            Some("json" | "jsonl") => Self::Json,
            Some("md") => Self::Markdown,
            _ => Self::Csv,
        }
    }
}

/// Runs the command.
pub fn run(arguments: &HistoryArguments) -> Result<Finding> {
    let path = history_file(arguments.history.as_deref()).context(
        "there is no history: TIDEGATE_HISTORY is `off` or there is no home folder; name a file with --history",
    )?;
    let list_all = HistoryAction::List(ListArguments::default());
    let action = arguments.action.as_ref().unwrap_or(&list_all);
    let Some(mut history) = History::open_existing(&path)? else {
        // No run was ever stored: an empty list is right, and any other action names a missing run.
        return match action {
            HistoryAction::List(_) => {
                output::print_error(&format!("no run is stored in {}", path.display()));
                Ok(Finding::Nothing)
            }
            _ => bail!("{}: there is no history yet", path.display()),
        };
    };
    match action {
        HistoryAction::List(arguments) => list(&history, arguments)?,
        HistoryAction::Show(arguments) => show::run(&history, arguments)?,
        HistoryAction::Tag(arguments) => return tag(&mut history, arguments),
        HistoryAction::Delete(arguments) => return delete(&mut history, arguments),
        HistoryAction::Export(arguments) => export(&history, arguments)?,
    }
    Ok(Finding::Nothing)
}

/// The records of a run (by id) or of all runs with a tag, from the history in use.
pub fn records_of(name: &str, history: Option<&Path>) -> Result<Vec<RunRecord>> {
    let path = history_file(history).with_context(|| {
        format!("`{name}` is no file, and there is no history to look it up in; name one with --history")
    })?;
    let opened = History::open_existing(&path)?
        .with_context(|| format!("`{name}` is no file, and no run is stored in {}", path.display()))?;
    if let Ok(run) = name.parse() {
        return Ok(opened.get(run)?.records);
    }
    let filter = Filter {
        tag: Some(name.to_owned()),
        ..Filter::default()
    };
    let mut tagged = opened.list(&filter)?;
    if tagged.is_empty() {
        bail!(
            "`{name}` is no file, and no run in {} has it as id or tag",
            path.display()
        );
    }
    // Chronological order.
    tagged.reverse();
    let runs = tagged.iter().map(|run| opened.get(run.id));
    let runs = runs.collect::<Result<Vec<StoredRun>, _>>()?;
    Ok(runs.into_iter().flat_map(|run| run.records).collect())
}

fn list(history: &History, arguments: &ListArguments) -> Result<()> {
    let runs = history.list(&filter(&arguments.filter)?)?;
    if arguments.json {
        for run in &runs {
            output::print_line(&serde_json::to_string(run)?)?;
        }
    } else {
        output::print_text(&show::list_table(&runs, arguments.width))?;
    }
    Ok(())
}

fn tag(history: &mut History, arguments: &TagArguments) -> Result<Finding> {
    if !arguments.remove {
        history.tag(arguments.run, &arguments.tag)?;
        return Ok(Finding::Nothing);
    }
    if history.untag(arguments.run, &arguments.tag)? {
        return Ok(Finding::Nothing);
    }
    output::print_error(&format!("run {} has no tag `{}`", arguments.run, arguments.tag));
    Ok(Finding::Something)
}

fn delete(history: &mut History, arguments: &DeleteArguments) -> Result<Finding> {
    let runs: Vec<StoredRun> = arguments
        .runs
        .iter()
        .map(|run| history.get(*run))
        .collect::<Result<_, _>>()?;
    if !arguments.yes {
        if !stdin().is_terminal() {
            bail!("deleting asks on a terminal, and standard input is none: give --yes");
        }
        let summaries: Vec<_> = runs.iter().map(|run| run.summary.clone()).collect();
        output::print_error(&format!(
            "delete for good?\n{}[y/N]",
            show::list_table(&summaries, WidthArguments::default())
        ));
        let mut answer = String::new();
        stdin()
            .lock()
            .read_line(&mut answer)
            .context("no answer can be read")?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            output::print_error("nothing was deleted");
            return Ok(Finding::Something);
        }
    }
    for run in &runs {
        history.delete(run.summary.id)?;
    }
    Ok(Finding::Nothing)
}

fn export(history: &History, arguments: &ExportArguments) -> Result<()> {
    let ids: Vec<RunId> = if arguments.runs.is_empty() {
        let mut listed = history.list(&filter(&arguments.filter)?)?;
        listed.reverse();
        listed.iter().map(|run| run.id).collect()
    } else {
        arguments.runs.clone()
    };
    let runs: Vec<StoredRun> = ids
        .iter()
        .map(|run| history.get(*run))
        .collect::<Result<_, _>>()?;
    let format = arguments
        .format
        .unwrap_or_else(|| ExportFormat::of(&arguments.output));
    let text = match format {
        ExportFormat::Csv => history::csv(&runs),
        ExportFormat::Json => history::json_lines(&runs),
        ExportFormat::Markdown => history::markdown(&runs),
    };
    write_text(&arguments.output, &text)
}

fn filter(arguments: &FilterArguments) -> Result<Filter> {
    let path = arguments.path.as_deref().map(|path| {
        // A path that no longer exists is searched for as given.
        let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
        absolute.with_context(|| format!("{} can't be looked for", path.display()))
    });
    Ok(Filter {
        workload: arguments.workload.clone(),
        path: path.transpose()?.map(|path| path.to_string_lossy().into_owned()),
        since_unix_ns: arguments.since,
        tag: arguments.tag.clone(),
        limit: arguments.limit,
    })
}

fn parse_since(text: &str) -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    timestamp::parse_timestamp(text, u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
