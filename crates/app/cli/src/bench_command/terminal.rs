//! Terminal output of runs: implements the watcher with progress, messages, tables, and records as JSON lines.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};
use results::{RunIdentity, RunRecord};
use runner::{Readers, Watcher, environment};
use rustix::fs::{Access, access};
use rustix::io::Errno;

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
    if directory.is_dir() {
        match access(directory, Access::WRITE_OK) {
            Err(Errno::ROFS) => bail!(
                "{} is on a read-only file system; name a writable folder",
                directory.display()
            ),
            Err(Errno::ACCESS) => bail!(
                "{}: this user may not make files here; name a writable folder",
                directory.display()
            ),
            _ => {}
        }
    }
    Ok(RunIdentity {
        command: command_line(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        label: label.to_owned(),
        round,
        host: environment::host(),
        target: environment::target(directory)
            .with_context(|| format!("{} can't be used", directory.display()))?,
    })
}

/// The command line of this process; invalid UTF-8 is replaced by replacement characters.
pub fn command_line() -> Vec<String> {
    std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}
