//! `tidegate study gate`: arguments, and exit codes from decisions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use programs::Finding;
use rustix::fs::{Access, access};
use study::gate::{self, Gate, LOOKS, Outcome, Rule, Stored};
use study::plan::Binaries;
use study::{Limits, folder};

use super::VariantArguments;
use crate::output;
use crate::quantity::parse_duration;

/// Greatest number of rounds if they end as soon as everything is decided.
const ROUNDS_MAX: u32 = 64;

/// Arguments of `tidegate study gate`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n\
                  \x20 tidegate study gate out/today --baseline out/yesterday --junit gate.xml\n\
                  \x20 tidegate study gate my.toml --binary A=old/tidegate --binary B=new/tidegate --until-decided -d out/ab\n\
                  A cell is worse if the whole interval of its ratio lies below the bound, and fine if it lies at or above it.\n\
                  Exit codes: 0 every cell is fine, 1 one is worse, 2 could not tell.")]
pub struct GateArguments {
    /// The study's folder; with --binary, a plan: a file, or the name of one that `tidegate study plan` lists
    pub study: String,
    /// Compare with the study in this folder
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "binary")]
    pub baseline: Option<PathBuf>,
    /// Measure mounts that this program serves, in the same rounds as those of another; given twice, the baseline first
    #[arg(long, value_name = "NAME=PATH", value_parser = parse_binary)]
    pub binary: Vec<(String, PathBuf)>,
    /// Folder of the study of two programs, which is made
    #[arg(long, short = 'd', value_name = "DIRECTORY", default_value = "study")]
    pub directory: PathBuf,
    /// Set the smallest accepted ratio of MB/s to the baseline
    #[arg(long, value_name = "RATIO", default_value = "0.97", value_parser = parse_ratio)]
    pub min_ratio: f64,
    /// End the rounds when one cell is worse or all are fine, at most 64 unless --rounds is given
    #[arg(long, requires = "binary")]
    pub until_decided: bool,
    /// Begin no round after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "binary")]
    pub time: Option<Duration>,
    /// Changes of the plan.
    #[command(flatten)]
    pub variant: VariantArguments,
    /// Write one test case for each cell to this file, in the XML of JUnit
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the table to this file, in Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Print one document in JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(arguments: &GateArguments) -> Result<Finding> {
    let (gate, is_stopped) = match (&arguments.baseline, arguments.binary.as_slice()) {
        (Some(baseline), []) => (of_folders(arguments, baseline)?, false),
        (_, []) => (
            of_folder(Path::new(&arguments.study), arguments.min_ratio)?,
            false,
        ),
        (_, [one, other]) if one.0 != other.0 => measured(arguments)?,
        (_, [one, _]) => bail!("--binary: both are named `{}`; name them apart", one.0),
        (_, binaries) => bail!(
            "--binary: {} programs, expected 2, the baseline first",
            binaries.len()
        ),
    };
    if let Some(file) = &arguments.junit {
        output::write_result(file, &gate::junit(&gate))?;
    }
    if let Some(file) = &arguments.markdown {
        output::write_result(file, &gate::markdown(&gate))?;
    }
    let shown = match arguments.json {
        true => serde_json::to_string_pretty(&gate::json(&gate))? + "\n",
        false => gate::text(&gate),
    };
    output::print_text(&shown)?;
    match gate.outcome() {
        Outcome::Failed => Ok(Finding::Something),
        _ if is_stopped => {
            bail!(
                "stopped before its end; `tidegate study resume` continues it, and `study gate` then decides"
            )
        }
        Outcome::Passed => Ok(Finding::Nothing),
        Outcome::Undecided => bail!(
            "it can't be told whether anything is worse; more rounds, a quieter machine or a smaller --min-ratio decide more"
        ),
    }
}

fn of_folders(arguments: &GateArguments, baseline: &Path) -> Result<Gate> {
    let folders = [baseline, Path::new(&arguments.study)];
    let names = folders.map(|folder| folder.display().to_string());
    let [before, after] = [study::stored(folders[0])?, study::stored(folders[1])?];
    let [below, above] = [folder::records(folders[0])?, folder::records(folders[1])?];
    let before = Stored {
        name: &names[0],
        plan: &before.0,
        state: &before.1,
        records: &below,
    };
    let after = Stored {
        name: &names[1],
        plan: &after.0,
        state: &after.1,
        records: &above,
    };
    let rule = Rule {
        min_ratio: arguments.min_ratio,
        looks: 1,
    };
    gate::of_studies(before, after, rule)
}

/// Judges a stored study of two programs.
fn of_folder(directory: &Path, min_ratio: f64) -> Result<Gate> {
    let (plan, state) = study::stored(directory)?;
    let looks = state.decided.map_or(1, |rule| rule.looks);
    gate::of_binaries(&plan, &folder::records(directory)?, Rule { min_ratio, looks })
        .with_context(|| directory.display().to_string())
}

/// Measures two programs; also returns whether that was stopped.
fn measured(arguments: &GateArguments) -> Result<(Gate, bool)> {
    let (text, plan) = super::load(&arguments.study)?;
    let mut binaries = Binaries::new();
    for (name, path) in &arguments.binary {
        let found = path
            .canonicalize()
            .with_context(|| format!("--binary {name}: {} can't be used", path.display()))?;
        if !found.is_file() || access(&found, Access::EXEC_OK).is_err() {
            bail!("--binary {name}: {} is no program", path.display());
        }
        binaries.push((name.clone(), found));
    }
    let mut variant = super::variant(&arguments.study, &plan, &arguments.variant, binaries)?;
    if arguments.until_decided && arguments.variant.rounds.is_none() {
        variant.rounds = Some(ROUNDS_MAX);
    }
    let decided = arguments.until_decided.then_some(Rule {
        min_ratio: arguments.min_ratio,
        looks: LOOKS,
    });
    let limits = Limits {
        time: arguments.time,
        width: None,
        decided,
    };
    let ran = super::rounds(&arguments.directory, variant, limits, move |options| {
        study::run(&text, plan, options)
    })?;
    let is_stopped = ran.notes.iter().any(|note| note == runner::STOPPED);
    Ok((of_folder(&arguments.directory, arguments.min_ratio)?, is_stopped))
}

fn parse_binary(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err(format!("`{text}`: expected NAME=PATH, such as A=./old/tidegate")),
    }
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if f64::is_finite(ratio) && ratio > 0.0 => Ok(ratio),
        _ => Err(format!("`{text}`: expected a number above 0, such as 0.97")),
    }
}
