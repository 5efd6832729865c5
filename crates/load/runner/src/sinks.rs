//! Destinations of records: a file of JSON lines, and the history.

use std::io;
use std::path::{Path, PathBuf};

use history::{History, HistoryError, RunId};
use results::{RecordWriter, RunRecord, shown};

use crate::Watcher;

/// Destinations of the records of a run, in addition to the watcher.
#[derive(Debug, Default)]
pub struct Sinks {
    file: Option<(RecordWriter, PathBuf)>,
    history: HistorySink,
}

impl Sinks {
    /// No sinks: the caller uses the returned records.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A new record file, if requested, and the history.
    ///
    /// # Errors
    /// When the file can't be created.
    pub fn new(file: Option<&Path>, history: HistorySink) -> io::Result<Self> {
        let create = |path: &Path| RecordWriter::create(path).map(|writer| (writer, path.to_owned()));
        let file = file.map(create).transpose().map_err(io::Error::other)?;
        Ok(Self { file, history })
    }

    /// Writes a record to all sinks.
    pub(crate) fn write(&mut self, record: &RunRecord, watcher: &dyn Watcher) -> io::Result<()> {
        if let Some((writer, _)) = &mut self.file {
            writer.write(record).map_err(io::Error::other)?;
        }
        if let Err(error) = self.history.store(record) {
            watcher.say(&format!(
                "this run is not stored in the history: {}",
                shown::with_causes(&error)
            ));
        }
        Ok(())
    }

    /// Finishes the file, or leaves it under its partial name, which is returned.
    pub(crate) fn finish(self, is_partial: bool) -> io::Result<Option<PathBuf>> {
        match self.file {
            Some((writer, path)) if is_partial => {
                drop(writer);
                Ok(Some(outfile::partial_name(&path)))
            }
            Some((writer, _)) => writer.finish().map_err(io::Error::other).map(|()| None),
            None => Ok(None),
        }
    }
}

/// The history of runs. If it can't be written, the run does not fail: the error is reported once and storing stops.
#[derive(Debug, Default)]
pub struct HistorySink {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Off,
    Unopened(PathBuf),
    Open(Box<History>, Option<RunId>),
}

impl HistorySink {
    /// Stores into this file, which is opened at the first record; `None` stores nothing.
    #[must_use]
    pub fn new(path: Option<PathBuf>) -> Self {
        Self {
            state: path.map_or(State::Off, State::Unopened),
        }
    }

    /// Adds a record to the run; after a failure nothing more is stored.
    fn store(&mut self, record: &RunRecord) -> Result<(), HistoryError> {
        let stored = self.try_store(record);
        if stored.is_err() {
            self.state = State::Off;
        }
        stored
    }

    fn try_store(&mut self, record: &RunRecord) -> Result<(), HistoryError> {
        if let State::Unopened(path) = &self.state {
            self.state = State::Open(Box::new(History::open(path)?), None);
        }
        if let State::Open(history, run) = &mut self.state {
            *run = Some(history.append(*run, record)?);
        }
        Ok(())
    }
}
