//! `tidegate study`: arguments of the studies.

mod flags;
mod gate;
mod tune;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use programs::stop_on_signals;
use results::words::{counted, unknown};
use study::cell::{self, Cell};
use study::plan::{Binaries, PRESETS, Plan, Variant};
use study::{Limits, Options, folder, page};

use crate::bench_command::progress::ProgressForm;
use crate::bench_command::terminal::Terminal;
use crate::quantity::{parse_bytes, parse_duration};
use crate::{Finding, output};

/// More cells than this ask for --yes.
const CELLS_MAX: u64 = 10_000;

/// Subcommands of `tidegate study`.
#[derive(Debug, Subcommand)]
pub enum StudyCommand {
    /// Measure all cells of a plan in interleaved rounds, and write the page
    Run(RunArguments),
    /// Print a plan that is part of the program: a starting point for one's own
    Plan(PlanArguments),
    /// Check a plan and what it needs, and list its cells; nothing is touched
    Check(CheckArguments),
    /// Show how far a study is
    Status(FolderArguments),
    /// Continue a study that was stopped or killed: measure what is missing, and nothing twice
    Resume(ResumeArguments),
    /// Write the page or the tables of what has been measured
    Report(ReportArguments),
    /// Compare a study with an earlier one, or two programs with each other, and fail if one is slower
    Gate(gate::GateArguments),
    /// Find the fastest setting for a workload by a race, and confirm it against the default
    Tune(tune::TuneArguments),
    /// Remove what a killed study left mounted, attached or running; its records stay
    Clean(FolderArguments),
    /// Boot the lab guest for the cells in a folder: a study starts this
    #[command(hide = true)]
    Guest(GuestArguments),
    /// Measure the cells in a folder: the lab guest starts this
    #[command(hide = true)]
    Cells(GuestArguments),
}

/// Arguments of the processes of a study outside and inside the lab guest.
#[derive(Args, Debug)]
pub struct GuestArguments {
    /// Folder that both share
    pub share: PathBuf,
}

/// Arguments of `tidegate study run`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n\
                  \x20 tidegate study run paper --quick -d out/study\n\
                  \x20 tidegate study run my.toml --until-width 5% --time 30min -d out/mine\n\
                  Exit codes: 0 done, 1 stopped or a cell failed, 2 could not do it.")]
pub struct RunArguments {
    /// The plan: a file, or the name of one that `tidegate study plan` lists
    pub plan: String,
    /// Folder of the study, which is made
    #[arg(long, short = 'd', value_name = "DIRECTORY", default_value = "study")]
    pub directory: PathBuf,
    /// Changes of the plan.
    #[command(flatten)]
    pub variant: VariantArguments,
    /// When to stop.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Changes of a plan.
#[derive(Args, Debug)]
pub struct VariantArguments {
    /// Fewer rounds, smaller files and fewer exhibits, as the plan says
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// More rounds and larger files, as the plan says
    #[arg(long)]
    pub full: bool,
    /// Measure only these exhibits; repeatable
    #[arg(long, value_name = "EXHIBIT")]
    pub only: Vec<String>,
    /// Set the number of rounds [default: the plan's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Set the size of the workload's files [default: the plan's]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub size: Option<u64>,
    /// Run a plan of more than 10,000 cells
    #[arg(long)]
    pub yes: bool,
}

/// When to stop.
#[derive(Args, Debug)]
pub struct LimitArguments {
    /// Begin no round after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub time: Option<Duration>,
    /// End the rounds when each interval is at most this wide, in percent of its value
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub until_width: Option<f64>,
}

/// Arguments of `tidegate study plan`.
#[derive(Args, Debug)]
pub struct PlanArguments {
    /// Name of the plan; without it, the names are listed
    pub name: Option<String>,
}

/// Arguments of `tidegate study check`.
#[derive(Args, Debug)]
pub struct CheckArguments {
    /// The plan: a file or the name of one that is part of the program
    pub plan: String,
    /// Print the cells as JSON
    #[arg(long)]
    pub json: bool,
}

/// A study's folder.
#[derive(Args, Debug)]
pub struct FolderArguments {
    /// Folder of the study
    #[arg(default_value = "study")]
    pub directory: PathBuf,
}

/// Arguments of `tidegate study resume`.
#[derive(Args, Debug)]
pub struct ResumeArguments {
    /// Folder of the study
    #[arg(default_value = "study")]
    pub directory: PathBuf,
    /// When to stop.
    #[command(flatten)]
    pub limits: LimitArguments,
}

/// Arguments of `tidegate study report`.
#[derive(Args, Debug)]
pub struct ReportArguments {
    /// Folder of the study
    #[arg(default_value = "study")]
    pub directory: PathBuf,
    /// Write to this file; - is standard output [default: report.html in the folder, or standard output for tables]
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Set the form
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A page that needs nothing else
    #[default]
    Html,
    /// Tables for a terminal
    Text,
    /// One document
    Json,
    /// One line for each cell and round
    Csv,
    /// Tables
    Markdown,
}

/// Runs a subcommand.
pub fn run(command: &StudyCommand) -> Result<Finding> {
    match command {
        StudyCommand::Run(arguments) => run_plan(arguments),
        StudyCommand::Plan(arguments) => print_plan(arguments),
        StudyCommand::Check(arguments) => check(arguments),
        StudyCommand::Status(arguments) => status(&arguments.directory),
        StudyCommand::Resume(arguments) => {
            let variant = Variant::default();
            measure(&arguments.directory, variant, &arguments.limits, study::resume)
        }
        StudyCommand::Report(arguments) => report(arguments),
        StudyCommand::Gate(arguments) => gate::run(arguments),
        StudyCommand::Tune(arguments) => tune::run(arguments),
        StudyCommand::Clean(arguments) => clean(&arguments.directory),
        StudyCommand::Guest(arguments) => {
            study::guest::boot(&arguments.share)?;
            Ok(Finding::Nothing)
        }
        StudyCommand::Cells(arguments) => {
            let stop = stop_on_signals()?;
            study::guest::measure(&arguments.share, &stop)?;
            Ok(Finding::Nothing)
        }
    }
}

fn run_plan(arguments: &RunArguments) -> Result<Finding> {
    let (text, plan) = load(&arguments.plan)?;
    let variant = variant(&arguments.plan, &plan, &arguments.variant, Vec::new())?;
    measure(&arguments.directory, variant, &arguments.limits, move |options| {
        study::run(&text, plan, options)
    })
}

/// The changes of a plan, once the changed plan was found to be one that can be run here.
fn variant(name: &str, plan: &Plan, arguments: &VariantArguments, binaries: Binaries) -> Result<Variant> {
    let mut variant = match (arguments.quick, arguments.full) {
        (true, _) => plan.run.quick.clone(),
        (_, true) => plan.run.full.clone(),
        _ => Variant::default(),
    };
    variant.binaries = binaries;
    variant.rounds = arguments.rounds.or(variant.rounds);
    variant.size = arguments.size.map(|bytes| bytes.to_string()).or(variant.size);
    if !arguments.only.is_empty() {
        variant.only = arguments.only.clone();
    }
    let names: Vec<&str> = plan
        .exhibits
        .iter()
        .map(|exhibit| exhibit.name.as_str())
        .collect();
    for name in &variant.only {
        if !names.contains(&name.as_str()) {
            bail!("--only: exhibit {}", unknown(name, &names));
        }
    }
    let mut applied = plan.clone();
    applied.apply(&variant);
    let cells = cell::combinations(&applied);
    if cells > CELLS_MAX && !arguments.yes {
        bail!(
            "{name}: {} in each round; if that is wanted, add --yes",
            counted(cells, "cell")
        );
    }
    flags::check(&applied).with_context(|| name.to_owned())?;
    let missing = study::check::missing(&applied)?;
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(variant)
}

fn measure(
    directory: &Path,
    variant: Variant,
    limits: &LimitArguments,
    run: impl FnOnce(&Options<'_>) -> Result<runner::Ran>,
) -> Result<Finding> {
    let limits = Limits {
        time: limits.time,
        width: limits.until_width,
        decided: None,
    };
    let ran = rounds(directory, variant, limits, run)?;
    write_report(directory, Some(Path::new("-")), Format::Text)?;
    output::print_error(&format!("report: {}", directory.join(REPORT).display()));
    // Also a cell that failed before this part of the study.
    let failed = folder::records(directory)?
        .iter()
        .filter_map(folder::place)
        .any(|place| place.failed.is_some());
    Ok(match ran.notes.is_empty() && !failed {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

/// Runs the rounds of a study and writes its page.
fn rounds(
    directory: &Path,
    variant: Variant,
    limits: Limits,
    run: impl FnOnce(&Options<'_>) -> Result<runner::Ran>,
) -> Result<runner::Ran> {
    let stop = stop_on_signals()?;
    let terminal = Terminal::new(ProgressForm::Auto, 0, false);
    let ran = run(&Options {
        folder: directory,
        tidegate: study::this_program()?,
        variant,
        limits,
        watcher: &terminal,
        stop: &stop,
    })?;
    write_report(directory, None, Format::Html)?;
    Ok(ran)
}

/// Name of the page in the study's folder.
const REPORT: &str = "report.html";

fn report(arguments: &ReportArguments) -> Result<Finding> {
    write_report(
        &arguments.directory,
        arguments.output.as_deref(),
        arguments.format,
    )?;
    Ok(Finding::Nothing)
}

fn write_report(directory: &Path, target: Option<&Path>, format: Format) -> Result<()> {
    let (plan, state) = study::stored(directory)?;
    let records = folder::records(directory)?;
    let drawn = page::drawn(&plan, &records)?;
    let text = match format {
        Format::Html => page::html(&plan, &state, &drawn, &records),
        Format::Text => page::text(&drawn),
        Format::Json => serde_json::to_string_pretty(&page::json(&plan, &state, &drawn))? + "\n",
        Format::Csv => page::csv(&drawn),
        Format::Markdown => page::markdown(&plan, &drawn),
    };
    let usual = match format {
        Format::Html => directory.join(REPORT),
        _ => PathBuf::from("-"),
    };
    output::write_result(target.unwrap_or(&usual), &text)
}

fn print_plan(arguments: &PlanArguments) -> Result<Finding> {
    match &arguments.name {
        Some(name) => {
            let (text, _) = load(name)?;
            output::print_text(&text)?;
        }
        None => {
            for (name, text) in PRESETS {
                let plan = Plan::parse(name, text)?;
                output::print_line(&format!("{name}: {}", counted(plan.exhibits.len(), "exhibit")))?;
            }
        }
    }
    Ok(Finding::Nothing)
}

fn check(arguments: &CheckArguments) -> Result<Finding> {
    let (_, plan) = load(&arguments.plan)?;
    let cells = cell::combinations(&plan);
    if cells > CELLS_MAX {
        bail!(
            "{}: {cells} cells, expected at most {CELLS_MAX} to list",
            arguments.plan
        );
    }
    flags::check(&plan)?;
    let blocks = cell::blocks(&plan)?;
    let cells: Vec<&Cell> = blocks.iter().flat_map(|block| &block.cells).collect();
    if arguments.json {
        output::print_line(&serde_json::to_string(&cells)?)?;
    } else {
        for block in &blocks {
            let values: Vec<&str> = block.values.values().map(String::as_str).collect();
            output::print_line(&format!("{}:", values.join(" ")))?;
            for cell in &block.cells {
                output::print_line(&format!("  {}", cell.label(&plan)))?;
            }
        }
        output::print_line(&format!(
            "{} in {}, {}",
            counted(cells.len(), "cell"),
            counted(blocks.len(), "block"),
            counted(plan.run.rounds, "round")
        ))?;
    }
    let missing = study::check::missing(&plan)?;
    let left_out = study::check::left_out(&plan)?;
    for problem in missing.iter().chain(&left_out) {
        output::print_error(problem);
    }
    Ok(match missing.is_empty() && left_out.is_empty() {
        true => Finding::Nothing,
        false => Finding::Something,
    })
}

fn status(directory: &Path) -> Result<Finding> {
    let (plan, state) = study::stored(directory)?;
    let records = folder::records(directory)?;
    let progress = study::progress(&plan, &state, &records)?;
    output::print_line(&format!("{}: {progress}", plan.name))?;
    Ok(Finding::Nothing)
}

fn clean(directory: &Path) -> Result<Finding> {
    if !directory.is_dir() {
        bail!("{} is no folder", directory.display());
    }
    for done in folder::clean(directory, &study::this_program()?)? {
        output::print_line(&done)?;
    }
    Ok(Finding::Nothing)
}

/// A plan from a file, or one that is part of the program.
fn load(name: &str) -> Result<(String, Plan)> {
    let preset = PRESETS.iter().find(|(preset, _)| *preset == name);
    let text = match preset {
        Some((_, text)) => (*text).to_owned(),
        None => {
            let names: Vec<&str> = PRESETS.iter().map(|(preset, _)| *preset).collect();
            programs::small_text::read(Path::new(name)).with_context(|| {
                format!(
                    "{name} can't be read; a plan is a file or one of {}",
                    results::words::expected(name, &names)
                )
            })?
        }
    };
    let plan = Plan::parse(name, &text)?;
    Ok((text, plan))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number: f64 = text
        .trim_end_matches('%')
        .trim_end()
        .parse()
        .map_err(|_| format!("`{text}` is no percentage, such as 5%"))?;
    if number > 0.0 && number <= 100.0 {
        Ok(number / 100.0)
    } else {
        Err(format!("{text}: expected more than 0 and at most 100 percent"))
    }
}
