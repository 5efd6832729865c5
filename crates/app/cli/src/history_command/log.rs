//! Arguments of commands that store their measurements.

use std::path::PathBuf;

use clap::Args;
use programs::user_files::history_file;
use runner::HistorySink;

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

impl StoreArguments {
    /// The history as a sink of records.
    pub fn sink(&self) -> HistorySink {
        let path = match self.no_history {
            true => None,
            false => history_file(self.history.as_deref()),
        };
        HistorySink::new(path)
    }
}
