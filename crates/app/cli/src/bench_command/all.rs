//! `tidegate bench all`: the test sets of the Mobibench app (All, File I/O, SQLite and Custom) from a preset.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use jobs::Job;
use jobs::preset::preset;

use super::job::run::{JobRunArguments, run_job};
use super::job::steps::vocabulary;
use crate::Finding;

/// Arguments of `tidegate bench all`.
#[derive(Args, Debug)]
#[command(
    after_help = "The sets of the Mobibench app: All without a choice, File I/O with --only file, SQLite with \
                  --only sqlite, Custom with --steps. `tidegate bench job --list-presets` lists presets and \
                  steps.\n\
                  Exit codes: 0 done, 1 stopped before its end or not measured as asked, 2 could not do it."
)]
pub struct BenchAllArguments {
    /// Measure the file system of this existing directory; subdirectories are created in it and removed
    pub directory: PathBuf,
    /// Run this built-in job
    #[arg(long, value_name = "NAME", default_value = "mobibench")]
    pub preset: String,
    /// Selection of steps, and reporting.
    #[command(flatten)]
    pub run: JobRunArguments,
}

/// Runs the command.
pub fn run(arguments: &BenchAllArguments) -> Result<Finding> {
    let vocabulary = vocabulary();
    let preset = preset(&arguments.preset)?;
    let job = Job::parse(&format!("preset {}", preset.name), preset.text, &vocabulary)?;
    run_job(job, &vocabulary, &arguments.directory, &arguments.run)
}
