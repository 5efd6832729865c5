//! Command line of the original Mobibench on top of the workloads of `bench`: its options, files and result lines.
//!
//! Errors of the original are not reproduced; `docs/guide/mobibench.md` lists each difference with its test. Results
//! and the line `Err string` go to standard output, as in the original; messages also go to standard error, and the
//! exit code tells success from failure. This module does not know how anything is measured.

pub mod arguments;
mod database_test;
mod file_test;
mod folder;
mod log_files;
mod plan;
mod script_test;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use programs::stop_on_signals;

use self::arguments::MobibenchArguments;
use self::plan::{Plan, Test};
use crate::Finding;
use crate::bench_command::progress::{Bar, ProgressForm};
use crate::output::{print_bytes, print_error};

/// Data that every test needs in addition to its own options.
struct Session<'run> {
    arguments: &'run MobibenchArguments,
    plan: &'run Plan,
    bar: Bar,
    stop: Arc<AtomicBool>,
}

/// The end of a test that gave numbers.
struct Ended {
    finding: Finding,
    /// Text of the last line; `None` is the original's `No error`.
    problem: Option<String>,
}

/// Runs the command. `words` is the number of words of the command line: without options it prints how to get help.
pub fn run(arguments: &MobibenchArguments, words: usize) -> Result<Finding> {
    if words <= COMMAND_WORDS {
        print_bytes(text::usage().as_bytes())?;
        return Ok(Finding::Nothing);
    }
    match measure(arguments) {
        Ok(ended) => {
            let problem = ended.problem.as_deref().unwrap_or(text::NO_ERROR);
            print_last_line(arguments, problem)?;
            Ok(ended.finding)
        }
        Err(error) => {
            print_last_line(arguments, &crate::output::with_causes(&error))?;
            Err(error)
        }
    }
}

/// The last line of an interrupted run.
const STOPPED: &str = "stopped before its end; the numbers are partial";

/// Number of words in `tidegate mobibench`.
const COMMAND_WORDS: usize = 2;

fn measure(arguments: &MobibenchArguments) -> Result<Ended> {
    let plan = plan::plan(arguments)?;
    for note in &plan.notes {
        print_error(note);
    }
    let session = Session {
        arguments,
        plan: &plan,
        bar: Bar::new(
            if arguments.quiet {
                ProgressForm::Off
            } else {
                ProgressForm::Auto
            },
            1,
        ),
        stop: stop_on_signals()?,
    };
    match &plan.test {
        Test::File(test) => file_test::run(&session, test),
        Test::Database(test) => database_test::run(&session, test),
        Test::Script(script) => script_test::run(&session, script),
    }
}

impl Session<'_> {
    /// Prints a part of the report, unless a record takes its place.
    fn print(&self, text: &str) -> Result<()> {
        if !self.arguments.json {
            print_bytes(text.as_bytes())?;
        }
        Ok(())
    }
}

fn print_last_line(arguments: &MobibenchArguments, problem: &str) -> Result<()> {
    if !arguments.json {
        print_bytes(text::error_line(problem).as_bytes())?;
    }
    Ok(())
}
