//! Stores run records in the history. A history that can't be written never fails a run: the failure is reported once.

use std::path::PathBuf;

use clap::Args;
use history::{History, RunId};
use results::RunRecord;

use super::location::location;
use crate::output;

/// Flags of storing a run.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreArguments {
    /// File of the history, to store the run in and to look up ids and tags [default: $TIDEGATE_HISTORY, or
    /// tidegate/history.db in $XDG_DATA_HOME]
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Do not store the run in the history; TIDEGATE_HISTORY=off does the same for all runs
    #[arg(long, conflicts_with = "history")]
    pub no_history: bool,
}

/// Adds the records of one run.
#[derive(Debug)]
pub struct HistoryLog {
    state: State,
}

#[derive(Debug)]
enum State {
    Off,
    Unopened(PathBuf),
    Open(History, Option<RunId>),
}

impl HistoryLog {
    /// Creates a log; opens nothing before the first record.
    pub fn new(arguments: &StoreArguments) -> Self {
        let path = if arguments.no_history {
            None
        } else {
            location(arguments.history.as_deref())
        };
        Self {
            state: path.map_or(State::Off, State::Unopened),
        }
    }

    /// Adds a record. After a failure nothing more is stored.
    pub fn store(&mut self, record: &RunRecord) {
        if let State::Unopened(path) = &self.state {
            match History::open(path) {
                Ok(history) => self.state = State::Open(history, None),
                Err(error) => return self.give_up(&error.into()),
            }
        }
        if let State::Open(history, run) = &mut self.state {
            match history.append(*run, record) {
                Ok(id) => *run = Some(id),
                Err(error) => self.give_up(&error.into()),
            }
        }
    }

    fn give_up(&mut self, error: &anyhow::Error) {
        output::print_error(&format!(
            "this run is not stored in the history: {}",
            output::with_causes(error)
        ));
        self.state = State::Off;
    }
}
