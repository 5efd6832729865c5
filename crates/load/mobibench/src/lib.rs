//! The original Mobibench on top of the workloads of `bench`: its options, files and result lines.
//!
//! Errors of the original are not reproduced; `docs/guide/mobibench.md` lists each difference with its test. A [`Watcher`] shows
//! the result lines, and the record after them. This crate does not know how anything is measured.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod database_test;
mod error;
mod file_test;
mod folder;
mod log_files;
mod options;
mod plan;
mod script_test;
mod text;

use std::sync::atomic::AtomicBool;

use bench::{Measurement, Progress};
use results::RunIdentity;
use runner::{STOPPED, Watcher, identity};

pub use self::error::MobibenchError;
pub use self::options::{FinalSync, Options, Preset};
pub use self::plan::PlanError;
pub use self::text::{error_line, usage};

use self::plan::{Plan, Test};

/// The connections of a run to the program that it is part of.
#[derive(Clone, Copy)]
pub struct Surroundings<'run> {
    /// Shows result lines, messages and the record.
    pub watcher: &'run dyn Watcher,
    /// Receives the reports of the workload.
    pub progress: &'run dyn Progress,
    /// Ends the run early when it is raised.
    pub stop: &'run AtomicBool,
    /// Command line of the program, for the record.
    pub command: &'run [String],
}

/// The end of a run that gave numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether everything was measured as requested.
    pub is_as_requested: bool,
    /// Text of the last line.
    pub message: &'static str,
}

impl Ended {
    const fn new(is_complete: bool, is_as_requested: bool) -> Self {
        Self {
            is_as_requested: is_complete && is_as_requested,
            message: if is_complete { text::NO_ERROR } else { STOPPED },
        }
    }
}

/// A planned test and its surroundings.
struct Session<'run> {
    options: &'run Options,
    plan: &'run Plan,
    surroundings: Surroundings<'run>,
}

/// Runs the test that the options select. The caller prints the last line ([`error_line`]).
///
/// # Errors
/// [`MobibenchError`] when there are no numbers.
pub fn run(options: &Options, surroundings: Surroundings<'_>) -> Result<Ended, MobibenchError> {
    let plan = plan::plan(options)?;
    for note in &plan.notes {
        surroundings.watcher.say(note);
    }
    let session = Session {
        options,
        plan: &plan,
        surroundings,
    };
    match &plan.test {
        Test::File(test) => file_test::run(&session, test),
        Test::Database(test) => database_test::run(&session, test),
        Test::Script(script) => script_test::run(&session, script),
    }
}

impl<'run> Session<'run> {
    /// Shows a part of the report.
    fn print(&self, text: &str) -> Result<(), MobibenchError> {
        Ok(self.surroundings.watcher.table(text)?)
    }

    /// Shows a message.
    fn say(&self, text: &str) {
        self.surroundings.watcher.say(text);
    }

    /// Measures, with progress.
    fn measure<T, E>(
        &self,
        run: impl FnOnce(&'run dyn Progress, &'run AtomicBool) -> Result<T, E>,
    ) -> Result<T, E> {
        let Surroundings {
            watcher,
            progress,
            stop,
            ..
        } = self.surroundings;
        watcher.begin("");
        let outcome = run(progress, stop);
        watcher.end();
        outcome
    }

    /// Identity of the run in `directory`.
    fn identity(&self, directory: &std::path::Path) -> Result<RunIdentity, MobibenchError> {
        let command = self.surroundings.command.to_vec();
        Ok(identity(command, self.plan.preset.name(), directory, 0)?)
    }

    /// Passes the record on.
    fn record(&self, outcome: impl Measurement, identity: RunIdentity) -> Result<(), MobibenchError> {
        self.surroundings
            .watcher
            .record(&outcome.into_record(identity)?)?;
        Ok(())
    }
}
