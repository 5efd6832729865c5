//! The loop of rounds that every measurement shares: schedule, settling, identity, notes and sinks.
//!
//! A caller describes a [`Series`] (its sides and how to measure one) and a [`Schedule`]; the [`Runner`] runs it and
//! passes each record to the [`Sinks`]. It knows no workload, and it prints nothing: a [`Watcher`] does.
//!
//! Invariants:
//! - In a rotated schedule each round runs every side once, and the side that begins moves on by one with each round.
//! - With more than one run, the target is settled before each, so that deferred work of one run is not part of the next.
//! - Whatever was measured before a stop or a failure has reached the sinks; the file of records then keeps its partial
//!   name.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod environment;
mod sinks;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use results::RunRecord;

pub use self::sinks::{HistorySink, Sinks};

/// The note of a run that was stopped.
pub const STOPPED: &str = "stopped before its end; the numbers are partial";

/// The order of sides within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The same in each round: the steps of a job.
    Fixed,
    /// The side that begins moves on by one with each round: the contenders of a comparison.
    Rotated,
}

/// How often each side runs, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Rounds before the others that are not kept.
    pub warmup: u32,
    /// Rounds that are kept; [`Series::goes_on`] may end them earlier.
    pub rounds: u32,
    /// Runs of a round.
    pub sides: usize,
    /// Their order.
    pub order: Order,
}

/// One run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The side, counted from 0.
    pub side: usize,
    /// Counted from 0. Warm-ups count on after the last round, so that no round has their contents.
    pub round: u32,
    /// False for a warm-up.
    pub is_kept: bool,
}

impl Schedule {
    /// One side, so many times.
    #[must_use]
    pub const fn repeated(warmup: u32, rounds: u32) -> Self {
        Self {
            warmup,
            rounds,
            sides: 1,
            order: Order::Fixed,
        }
    }

    /// Rounds of all sides in rotated order.
    #[must_use]
    pub const fn interleaved(rounds: u32, sides: usize) -> Self {
        Self {
            warmup: 0,
            rounds,
            sides,
            order: Order::Rotated,
        }
    }

    /// Number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        let rounds = self.warmup.saturating_add(self.rounds);
        usize::try_from(rounds)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.sides)
    }

    /// The sides of a round in their order.
    pub fn round(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let sides = self.sides;
        let first = match self.order {
            Order::Fixed => 0,
            Order::Rotated => usize::try_from(round).unwrap_or(0) % sides.max(1),
        };
        (0..sides).map(move |position| (first + position) % sides)
    }

    /// The turns of one round after the other; the index of a round counts warm-ups.
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

/// What is brought to the medium before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// The file system that holds this path. A path that can't be opened, such as a busy device, is left as it is.
    FileSystem(PathBuf),
    /// Every file system of the machine: the sides lie on several, or on mounts over one.
    Machine,
}

impl Settle {
    /// Waits until it is done.
    pub fn settle(&self) {
        match self {
            Self::Machine => rustix::fs::sync(),
            // An error of an earlier write is reported to those who made it; the run to come is not about it.
            Self::FileSystem(path) if path.is_dir() => {
                let _ = File::open(path).map(rustix::fs::syncfs);
            }
            Self::FileSystem(_) => {}
        }
    }
}

/// What one run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The record.
    pub record: RunRecord,
    /// What was not measured as asked; each is told once and is a finding.
    pub notes: Vec<String>,
    /// What is good to know and no finding.
    pub remarks: Vec<String>,
    /// A table of the run's own; may be empty.
    pub text: String,
}

impl Measured {
    /// A record of which nothing else is to be said.
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

/// The sides of a schedule.
pub trait Series {
    /// Why a run failed.
    type Error: From<io::Error>;

    /// Title of a run for progress; may be empty.
    fn title(&self, turn: Turn) -> String;

    /// Runs a side once: usually one record, more where workloads run at the same time, none where the run was stopped
    /// before it measured anything.
    ///
    /// # Errors
    /// When the run failed.
    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, Self::Error>;

    /// A run failed. `Ok` leaves the side out of the further rounds, with this note.
    ///
    /// # Errors
    /// When the failure ends the series; by default it does.
    fn failed(&mut self, _turn: Turn, error: Self::Error) -> Result<String, Self::Error> {
        Err(error)
    }

    /// Asked after each kept round: whether the next one is worth its time.
    fn goes_on(&mut self, _rounds_done: u32, _records: &[RunRecord]) -> bool {
        true
    }
}

/// Whether anybody still reads what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Yes, or nothing was printed.
    Present,
    /// The pipe was closed; there is no use in going on.
    Gone,
}

/// Shows a run to the user.
pub trait Watcher {
    /// A run begins.
    fn begin(&self, title: &str);

    /// It is over.
    fn end(&self);

    /// A line for people.
    fn say(&self, text: &str);

    /// The table of one run.
    ///
    /// # Errors
    /// When it can't be shown.
    fn table(&self, text: &str) -> io::Result<()>;

    /// A record that is kept.
    ///
    /// # Errors
    /// When it can't be shown.
    fn record(&self, record: &RunRecord) -> io::Result<Readers>;
}

/// Runs series and collects what they give.
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

/// Everything that was measured.
#[derive(Debug)]
pub struct Ran {
    /// Every kept record, in the order measured.
    pub records: Vec<RunRecord>,
    /// Every note once, in the order told. Without any, all was measured as asked.
    pub notes: Vec<String>,
}

impl<'run> Runner<'run> {
    /// A runner that has measured nothing. `stop` is raised by a signal: the run at work ends early, and no other begins.
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

    /// Runs a series to its end, or until it is stopped. May be called for one series after the other.
    ///
    /// # Errors
    /// When a run failed for which the series has no remedy, or a record can't be written. What was measured before is
    /// kept: [`Self::finish`] has it.
    pub fn run<S: Series>(&mut self, schedule: &Schedule, series: &mut S) -> Result<(), S::Error> {
        let outcome = self.run_rounds(schedule, series);
        self.is_partial |= outcome.is_err();
        outcome
    }

    /// Tells a note, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.watcher.say(&note);
            self.notes.push(note);
        }
    }

    /// True when nothing more is to be run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.has_readers || self.stop.load(Ordering::Relaxed)
    }

    /// Everything kept so far.
    #[must_use]
    pub fn records(&self) -> &[RunRecord] {
        &self.records
    }

    /// Gives the file of records its name; of a run that was stopped or failed it keeps the partial one.
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

    /// False leaves the side out of the further rounds.
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
