//! `tidegate bench run` and `tidegate bench job`, and their code shared with `tidegate bench all`: several steps as
//! one run.

pub mod run;
pub mod steps;

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use jobs::preset::{PRESETS, Preset, preset};
use jobs::{Job, JobError, Vocabulary};
use programs::small_text;
use results::words::expected;

use self::run::{JobRunArguments, run_job};
use self::steps::{planned, vocabulary};
use super::fio;
use crate::Finding;
use crate::inspect::{JOBS, not_understood};
use crate::output;

/// Arguments of `tidegate bench run`.
#[derive(Args, Debug)]
#[command(
    after_help = "A step's keys are the flags of `tidegate bench KIND`; `tidegate bench job --show-preset NAME` \
                  prints a job to start from, and `tidegate bench job --check FILE` checks one.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchRunArguments {
    /// Read the job from this file, in TOML or fio format, or a built-in job by its name; - is standard input
    pub job: PathBuf,
    /// Measure the file system of this existing directory; subdirectories are created in it and removed
    pub directory: PathBuf,
    /// Selection of steps, and reporting.
    #[command(flatten)]
    pub run: JobRunArguments,
}

/// Arguments of `tidegate bench job`.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct BenchJobArguments {
    /// Check a job file and print its steps without running anything
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    /// List the built-in jobs
    #[arg(long)]
    pub list_presets: bool,
    /// Print a built-in job
    #[arg(long, value_name = "NAME")]
    pub show_preset: Option<String>,
}

/// Runs `tidegate bench run`.
pub fn run(arguments: &BenchRunArguments) -> Result<Finding> {
    let text = job_text(&arguments.job)?;
    let (run, directory) = (&arguments.run, &arguments.directory);
    if fio::is_fio_job(&text) {
        return fio::run_job(&name(&arguments.job), &text, Some(directory), false, run);
    }
    let vocabulary = vocabulary();
    let job = parse_job(&arguments.job, &text, &vocabulary)?;
    run_job(job, &vocabulary, directory, run)
}

/// Checks the job of `tidegate bench run` without running it.
pub fn check_run(arguments: &BenchRunArguments) -> Result<()> {
    let text = job_text(&arguments.job)?;
    if fio::is_fio_job(&text) {
        return fio::check_job(&name(&arguments.job), &text);
    }
    let vocabulary = vocabulary();
    check(&parse_job(&arguments.job, &text, &vocabulary)?, &vocabulary)?;
    Ok(())
}

/// Runs `tidegate bench job`.
pub fn run_inspection(arguments: &BenchJobArguments) -> Result<Finding> {
    let vocabulary = vocabulary();
    let text = if let Some(path) = &arguments.check {
        let text = read_text(path)?;
        if fio::is_fio_job(&text) {
            return fio::check(&name(path), &text);
        }
        check(&parse_job(path, &text, &vocabulary)?, &vocabulary)?
    } else if let Some(name) = &arguments.show_preset {
        preset(name)?.text.to_owned()
    } else {
        list(&vocabulary)?
    };
    output::print_text(&text)?;
    Ok(Finding::Nothing)
}

/// The name of a job file, for messages.
fn name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Reads a job file, or standard input for `-`.
fn read_text(path: &Path) -> Result<String> {
    let text = if path == Path::new("-") {
        small_text::read_from(io::stdin())
    } else {
        small_text::read(path)
    };
    text.map_err(|source| {
        let file = name(path);
        no_job(path, JobError::Read { file, source })
    })
}

/// Reads a job file, or standard input for `-`, or a built-in job by its name.
pub fn job_text(path: &Path) -> Result<String> {
    let is_named = |preset: &Preset| path == Path::new(preset.name);
    if let Some(preset) = PRESETS.into_iter().find(is_named) {
        return Ok(preset.text.to_owned());
    }
    if path != Path::new("-") && !path.exists() {
        let names = PRESETS.map(|preset| preset.name);
        let source = path.display().to_string();
        bail!(
            "{source} is no file and none of the presets {}",
            expected(&source, &names)
        );
    }
    read_text(path)
}

/// The error about a job: the kind of a file that is none.
fn no_job(path: &Path, error: JobError) -> anyhow::Error {
    not_understood(path, "a job", &JOBS, error.into())
}

/// Parses the text of a job file.
pub fn parse_job(path: &Path, text: &str, vocabulary: &Vocabulary) -> Result<Job> {
    Job::parse(&name(path), text, vocabulary).map_err(|error| no_job(path, error))
}

/// Lists each step as the equivalent single command.
fn check(job: &Job, vocabulary: &Vocabulary) -> Result<String> {
    let steps = planned(job, Path::new("."), vocabulary)?;
    let mut text = format!("{}: {} steps, nothing wrong\n", job.name, steps.len());
    for planned in &steps {
        let words = planned.step.words(vocabulary, "DIR").join(" ");
        text.push_str(&format!(
            "  {}: tidegate bench {}\n",
            planned.step.name,
            words.replace(" -- ", " ")
        ));
    }
    Ok(text)
}

fn list(vocabulary: &Vocabulary) -> Result<String> {
    let mut text = String::new();
    for preset in PRESETS {
        let job = Job::parse(preset.name, preset.text, vocabulary)?;
        let summary = job.description.lines().next().unwrap_or_default();
        let steps: Vec<&str> = job.steps.iter().map(|step| step.name.as_str()).collect();
        text.push_str(&format!(
            "{:<16} {summary}\n{:<16} {}\n",
            preset.name,
            "",
            steps.join(", ")
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_job_without_mistakes_and_the_steps_of_the_app_in_their_order() {
        let vocabulary = vocabulary();
        for preset in PRESETS {
            let job = Job::parse(preset.name, preset.text, &vocabulary).expect(preset.name);
            assert!(!job.description.is_empty(), "{}", preset.name);
            planned(&job, Path::new("/nowhere"), &vocabulary).expect(preset.name);
        }
    }
}
