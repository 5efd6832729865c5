//! Measurement rounds shared by all benchmarks: schedule, settling, identity, notes and sinks.
//!
//! A caller describes a [`Series`] (its sides and how to measure one) and a [`Schedule`]; the [`Runner`] runs it and
//! passes each record to the [`Sinks`]. It knows no workload, and it prints nothing: a [`Watcher`] does.
//!
//! Invariants:
//! - In a rotated schedule each round runs every side once, and the starting side rotates by one with each round.
//! - With more than one run, the target is settled before each, so that deferred work of one run is not part of the
//!   next.
//! - Everything measured before a stop or a failure has reached the sinks; the record file then keeps its partial
//!   name.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod environment;
mod identity;
mod schedule;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use history::{History, HistoryError, RunId};
use results::{RecordWriter, RunRecord, shown};

pub use self::identity::{IdentityError, identity};
pub use self::schedule::{Order, Schedule, Settle, Turn};

/// Note on a run that was stopped.
pub const STOPPED: &str = "stopped before its end; the numbers are partial";

/// Result of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The record.
    pub record: RunRecord,
    /// Deviations from the requested measurement; each is reported once and counts as a finding.
    pub notes: Vec<String>,
    /// Remarks for the user that are not findings.
    pub remarks: Vec<String>,
    /// Additional table of the run; may be empty.
    pub text: String,
}

impl Measured {
    /// A record without notes, remarks or table.
    #[must_use]
    pub const fn plain(record: RunRecord) -> Self {
        Self {
            record,
            notes: Vec::new(),
            remarks: Vec::new(),
            text: String::new(),
        }
    }
}

/// The sides of a schedule, and how to measure them.
pub trait Series {
    /// Error of a failed run.
    type Error: From<io::Error>;

    /// Title of a run for progress; may be empty.
    fn title(&self, turn: Turn) -> String;

    /// Runs a side once. Usually returns one record; several if workloads run at the same time; none if the run was
    /// stopped before it measured anything.
    ///
    /// # Errors
    /// When the run failed.
    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, Self::Error>;

    /// Handles a failed run. `Ok` excludes the side from further rounds, with this note.
    ///
    /// # Errors
    /// When the failure ends the series, which is the default.
    fn failed(&mut self, _turn: Turn, error: Self::Error) -> Result<String, Self::Error> {
        Err(error)
    }

    /// Called after each kept round; false ends the series.
    fn goes_on(&mut self, _rounds_done: u32, _records: &[RunRecord]) -> bool {
        true
    }
}

/// State of the output's reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The reader exists, or nothing was printed.
    Present,
    /// The pipe was closed; continuing is pointless.
    Gone,
}

/// Shows runs to the user.
pub trait Watcher {
    /// Called when a run begins.
    fn begin(&self, title: &str);

    /// Called when a run ends.
    fn end(&self);

    /// Shows a message.
    fn say(&self, text: &str);

    /// Shows the table of one run.
    ///
    /// # Errors
    /// When it can't be shown.
    fn table(&self, text: &str) -> io::Result<()>;

    /// Shows a record that is kept.
    ///
    /// # Errors
    /// When it can't be shown.
    fn record(&self, record: &RunRecord) -> io::Result<Readers>;
}

/// Runs series and collects their records.
pub struct Runner<'run> {
    watcher: &'run dyn Watcher,
    stop: &'run AtomicBool,
    settle: Settle,
    sinks: Sinks,
    records: Vec<RunRecord>,
    notes: Vec<String>,
    is_partial: bool,
    has_readers: bool,
}

/// Results of all series.
#[derive(Debug)]
pub struct Ran {
    /// All kept records, in the order measured.
    pub records: Vec<RunRecord>,
    /// All notes without duplicates, in the order reported. If empty, everything was measured as requested.
    pub notes: Vec<String>,
}

impl<'run> Runner<'run> {
    /// A runner without results. `stop` is raised by a signal: the current run ends early, and no other begins.
    pub const fn new(
        watcher: &'run dyn Watcher,
        stop: &'run AtomicBool,
        settle: Settle,
        sinks: Sinks,
    ) -> Self {
        Self {
            watcher,
            stop,
            settle,
            sinks,
            records: Vec::new(),
            notes: Vec::new(),
            is_partial: false,
            has_readers: true,
        }
    }

    /// Runs a series to its end, or until it is stopped. May be called for several series in turn.
    ///
    /// # Errors
    /// When the series does not handle a failed run, or a record can't be written. Earlier results are kept and
    /// returned by [`Self::finish`].
    pub fn run<S: Series>(&mut self, schedule: &Schedule, series: &mut S) -> Result<(), S::Error> {
        let outcome = self.run_rounds(schedule, series);
        self.is_partial |= outcome.is_err();
        outcome
    }

    /// Reports a note, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.watcher.say(&note);
            self.notes.push(note);
        }
    }

    /// True when no more runs should begin.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.has_readers || self.stop.load(Ordering::Relaxed)
    }

    /// All records kept so far.
    #[must_use]
    pub fn records(&self) -> &[RunRecord] {
        &self.records
    }

    /// Renames the record file to its final name; after a stop or a failure it keeps the partial one.
    ///
    /// # Errors
    /// When the file can't be finished.
    pub fn finish(self) -> io::Result<Ran> {
        if let Some(partial) = self.sinks.finish(self.is_partial)? {
            self.watcher
                .say(&format!("records so far: {}", partial.display()));
        }
        Ok(Ran {
            records: self.records,
            notes: self.notes,
        })
    }

    fn run_rounds<S: Series>(&mut self, schedule: &Schedule, series: &mut S) -> Result<(), S::Error> {
        let mut is_left_out = vec![false; schedule.sides];
        for index in 0..schedule.warmup.saturating_add(schedule.rounds) {
            for turn in schedule.turns(index) {
                if self.is_over() {
                    self.stopped();
                    return Ok(());
                }
                if !is_left_out[turn.side] {
                    is_left_out[turn.side] = !self.run_side(schedule, series, turn)?;
                }
            }
            let rounds_done = (index + 1).saturating_sub(schedule.warmup);
            let is_last = rounds_done == schedule.rounds;
            if !is_last && rounds_done > 0 && !series.goes_on(rounds_done, &self.records) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns false to exclude the side from further rounds.
    fn run_side<S: Series>(
        &mut self,
        schedule: &Schedule,
        series: &mut S,
        turn: Turn,
    ) -> Result<bool, S::Error> {
        self.watcher.begin(&series.title(turn));
        if schedule.runs() > 1 {
            self.settle.settle();
        }
        let measured = series.measure(turn);
        self.watcher.end();
        match measured {
            Ok(all) => {
                for one in all {
                    self.keep(turn, one)?;
                }
                Ok(true)
            }
            Err(error) => {
                let note = series.failed(turn, error)?;
                self.note(note);
                Ok(false)
            }
        }
    }

    fn keep(&mut self, turn: Turn, measured: Measured) -> io::Result<()> {
        let record = measured.record;
        for remark in &measured.remarks {
            self.watcher.say(remark);
        }
        if turn.is_kept && !measured.text.is_empty() {
            self.watcher.table(&measured.text)?;
        }
        for note in measured.notes {
            self.note(note);
        }
        if turn.is_kept {
            self.sinks.write(&record, self.watcher)?;
            self.has_readers &= self.watcher.record(&record)? == Readers::Present;
        }
        if !record.complete {
            self.stopped();
        }
        if turn.is_kept {
            self.records.push(record);
        }
        Ok(())
    }

    fn stopped(&mut self) {
        self.is_partial = true;
        if self.has_readers {
            self.note(STOPPED.to_owned());
        }
    }
}

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
    fn write(&mut self, record: &RunRecord, watcher: &dyn Watcher) -> io::Result<()> {
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
    fn finish(self, is_partial: bool) -> io::Result<Option<PathBuf>> {
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
