//! Terminal output of runs: implements the watcher with progress, messages, tables, and records as JSON lines.

use std::io;
use std::path::Path;

use anyhow::Result;
use results::{RunIdentity, RunRecord};
use runner::{Readers, Watcher};

use super::progress::{Bar, ProgressForm};
use crate::output::{self, Printed};

/// Standard output and standard error of a run.
pub struct Terminal {
    /// Progress display, which receives the reports of workloads.
    pub bar: Bar,
    is_json: bool,
}

impl Terminal {
    /// Shows the progress of `runs` runs. With JSON, prints records instead of tables.
    pub fn new(form: ProgressForm, runs: usize, is_json: bool) -> Self {
        Self {
            bar: Bar::new(form, runs),
            is_json,
        }
    }
}

impl Watcher for Terminal {
    fn begin(&self, title: &str) {
        self.bar.begin(title);
    }

    fn end(&self) {
        self.bar.end();
    }

    fn say(&self, text: &str) {
        self.bar.hide();
        output::print_error(text);
    }

    fn table(&self, text: &str) -> io::Result<()> {
        if !self.is_json {
            output::print_text(text).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn record(&self, record: &RunRecord) -> io::Result<Readers> {
        if !self.is_json {
            return Ok(Readers::Present);
        }
        let line = serde_json::to_string(record)?;
        Ok(match output::print_line(&line).map_err(io::Error::other)? {
            Printed::Done => Readers::Present,
            Printed::Closed => Readers::Gone,
        })
    }
}

/// The parts of a record that are known before the run.
pub fn identity(label: &str, directory: &Path, round: u32) -> Result<RunIdentity> {
    Ok(runner::identity(
        programs::own_arguments(),
        label,
        directory,
        round,
    )?)
}
