//! Compares `tidegate bench` with outside programs: fio, plain C loops, the original Mobibench. Not shipped.
//!
//! Each suite is a list of cells. In each round every side of a cell runs once, in rotated order, and the ratio is
//! formed within the round, so a verdict needs no absolute speed. See `docs/evidence/agreement.md`.
//!
//! Like any user, it uses only the command line and the run records of the program under test.

mod arguments;
mod builds_suite;
mod c_loop;
mod ceiling;
mod cell;
mod contest;
mod error;
mod fio;
mod fio_suite;
mod journal;
mod mobibench_suite;
mod ours;
mod program;
mod report;
mod sqlite_suite;
mod trace_overhead;
mod verdict;

use std::fs::OpenOptions;
use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Common, Judge, Suite};
use crate::error::JudgeError;
use crate::report::Report;

fn main() -> ExitCode {
    let judge = Judge::parse();
    match run(&judge) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            contest::say(&error.to_string());
            ExitCode::from(2)
        }
    }
}

/// True when no difference is unexplained.
fn run(judge: &Judge) -> Result<bool, JudgeError> {
    let (common, report): (&Common, Report) = match &judge.suite {
        Suite::Fio(arguments) => (&arguments.common, fio_suite::run(arguments)?),
        Suite::Ceiling(common) => (common, ceiling::run(common)?),
        Suite::Builds(arguments) => (&arguments.common, builds_suite::run(arguments)?),
        Suite::Sqlite(arguments) => (&arguments.common, sqlite_suite::run(arguments)?),
        Suite::Mobibench(arguments) => (&arguments.common, mobibench_suite::run(arguments)?),
        Suite::TraceOverhead(arguments) => {
            let (is_good, text) = trace_overhead::run(arguments)?;
            let _ = stdout().write_all(text.as_bytes());
            return Ok(is_good);
        }
        Suite::DirectLoad(arguments) => return trace_overhead::load(arguments).map(|()| true),
    };
    if let Some(path) = common.markdown.as_ref().filter(|_| !common.list) {
        append(path, &report.text)?;
    }
    // A closed pipe is not an error.
    let _ = stdout().write_all(report.text.as_bytes());
    Ok(report.is_good())
}

fn append(path: &Path, text: &str) -> Result<(), JudgeError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| JudgeError::io("write", path, error))
}
