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
mod sinks;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use results::RunRecord;

pub use self::identity::{IdentityError, identity};
pub use self::sinks::{HistorySink, Sinks};

/// Note on a run that was stopped.
pub const STOPPED: &str = "stopped before its end; the numbers are partial";

/// The order of sides within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The same in each round, for the steps of a job.
    Fixed,
    /// The starting side rotates by one with each round, for the contenders of a comparison.
    Rotated,
}

/// Number of runs per side, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Warm-up rounds, which are not kept.
    pub warmup: u32,
    /// Number of rounds kept; [`Series::goes_on`] may end them earlier.
    pub rounds: u32,
    /// Number of sides, which is the number of runs per round.
    pub sides: usize,
    /// Order of the sides within a round.
    pub order: Order,
}

/// One run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The side, counted from 0.
    pub side: usize,
    /// The round, counted from 0. Warm-ups are numbered after the last round, so that no round shares their contents.
    pub round: u32,
    /// False for a warm-up.
    pub is_kept: bool,
}

impl Schedule {
    /// A schedule with one side.
    #[must_use]
    pub const fn repeated(warmup: u32, rounds: u32) -> Self {
        Self {
            warmup,
            rounds,
            sides: 1,
            order: Order::Fixed,
        }
    }

    /// A schedule that rotates all sides.
    #[must_use]
    pub const fn interleaved(rounds: u32, sides: usize) -> Self {
        Self {
            warmup: 0,
            rounds,
            sides,
            order: Order::Rotated,
        }
    }

    /// Total number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        let rounds = self.warmup.saturating_add(self.rounds);
        usize::try_from(rounds)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.sides)
    }

    /// The sides of a round in order.
    pub fn round(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let sides = self.sides;
        let first = match self.order {
            Order::Fixed => 0,
            Order::Rotated => usize::try_from(round).unwrap_or(0) % sides.max(1),
        };
        (0..sides).map(move |position| (first + position) % sides)
    }

    /// The turns of one round; `index` counts warm-ups too.
    fn turns(&self, index: u32) -> impl Iterator<Item = Turn> + use<> {
        let kept = index.checked_sub(self.warmup);
        let round = kept.unwrap_or_else(|| self.rounds.saturating_add(index));
        self.round(kept.unwrap_or(index)).map(move |side| Turn {
            side,
            round,
            is_kept: kept.is_some(),
        })
    }
}

/// Scope of the sync before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The file system that contains this path. A path that can't be opened, such as a busy device, is not synced.
    FileSystem(PathBuf),
    /// All file systems of the machine: the sides use several, or several mounts over one.
    Machine,
}

impl Settle {
    /// Syncs and waits for completion.
    pub fn settle(&self) {
        match self {
            Self::Machine => rustix::fs::sync(),
            // Errors of earlier writes are reported to their writers; they don't concern the next run.
            Self::FileSystem(path) if path.is_dir() => {
                let _ = File::open(path).map(rustix::fs::syncfs);
            }
            Self::FileSystem(_) => {}
        }
    }
}

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
