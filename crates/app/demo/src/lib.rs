//! The ladder of the bFUSE paper on this machine, in one interleaved run.
//!
//! Each round writes one file sequentially through every configuration, in rotated order, so that changes of the
//! machine over time affect all configurations alike. A result is the median of the ratios formed within each round,
//! with its interval. Mounts and measurements are child processes of this program (`tidegate`); counters come from the daemons, as
//! in `tidegate stats`.
//!
//! Everything created (image, loop device, mounts, directories) is owned by a value whose drop removes it; signals
//! only raise a flag, and the results so far are reported. Existing files are not touched, and nothing is stored in
//! the user's history.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod ladder;
mod table;
mod test_file_system;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use media::quantity::show_bytes;
use mounted::document::Document;
use report::{LadderRow, ReportInput};
use results::{RunRecord, counter, nearest_f64, shown};
use runner::{HistorySink, Measured, Runner, Schedule, Series, Settle, Sinks, Turn, Watcher};

pub use self::error::DemoError;

use self::ladder::{LADDER, MountedConfiguration};
use self::test_file_system::{TestFileSystem, failed};

/// Size of each write, as in the paper's table 3.
const RECORD_BYTES: u64 = 512 << 10;

/// Size of the pilot runs, which warm up and measure the speed of this machine.
const PILOT_BYTES: u64 = 16 << 20;

/// Time limit for the rounds; set-up, report and removal need the rest of two minutes.
const TIME_FOR_ROUNDS: Duration = Duration::from_secs(85);

/// Minimum file size.
const SIZE_BYTES_MIN: u64 = 32 << 20;

/// Minimum rounds on a machine too slow for the given number: fewer do not give a meaningful median.
const ROUNDS_MIN: u32 = 3;

/// Minimum rounds without a given number: fewer do not give an interval of 95 %.
const ROUNDS_FOR_INTERVAL: u32 = 6;

/// Rounds to aim for without a given number: on a slow machine, sizes are reduced to reach them.
const ROUNDS_WANTED: u32 = 12;

/// Maximum rounds without a given number: more would not help.
const ROUNDS_MAX: u32 = 40;

/// Without a given number: time after which no further round begins, once there is an interval.
const TIME_FOR_NARROWING: Duration = Duration::from_secs(60);

/// An interval of at most this fraction of its ratio is narrow enough.
const NARROW: f64 = 0.05;

/// Counter of the run records: context switches of the daemon during the run.
const CONTEXT_SWITCHES_DAEMON: &str = "context_switches_daemon_count";

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// Work in this directory, which is created if missing.
    pub directory: PathBuf,
    /// Size of the file written.
    pub size_bytes: u64,
    /// Number of rounds; without it, as many as make the intervals narrow.
    pub rounds: Option<u32>,
    /// File for the records.
    pub records_file: PathBuf,
    /// Command line of the program, for the records.
    pub command: Vec<String>,
}

/// Results of the demo.
#[derive(Debug)]
pub struct Demo {
    /// One line about what was measured.
    pub subtitle: String,
    /// One row for each configuration.
    pub ladder: Vec<LadderRow>,
    /// Reasons why the numbers can't show small differences.
    pub noise: Vec<String>,
    /// Note on rows that are not in the order of the paper.
    pub order: Option<String>,
    /// Whether all rounds ended as planned.
    pub is_complete: bool,
    records: Vec<RunRecord>,
    notes: Vec<String>,
}

impl Demo {
    fn new(plan: &Plan, records: Vec<RunRecord>, notes: Vec<String>, is_complete: bool) -> Self {
        let ladder = table::rows(&records);
        let rounds = records.iter().map(|record| record.round + 1).max().unwrap_or(0);
        let subtitle = format!(
            "Sequential write of {} in {} records with fsync at the end; {rounds} interleaved rounds, medians.",
            show_bytes(plan.size_bytes),
            show_bytes(RECORD_BYTES),
        );
        Self {
            subtitle,
            noise: table::noise(&records, &ladder),
            order: table::order_note(&ladder),
            ladder,
            is_complete,
            records,
            notes,
        }
    }

    /// The results for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{}\n\n{}{}",
            self.subtitle,
            report::ladder::text_table(&self.ladder),
            table::legend(&self.ladder)
        )
    }

    /// A chart of the throughputs, as SVG.
    #[must_use]
    pub fn chart(&self) -> String {
        report::ladder::throughput_chart(&self.ladder).render_standalone()
    }

    /// The report, as HTML.
    #[must_use]
    pub fn page(mut self) -> String {
        self.notes.append(&mut self.noise);
        self.notes.extend(self.order);
        report::render(&ReportInput {
            title: "Share of native speed that each layer keeps".to_owned(),
            subtitle: self.subtitle,
            records: self.records,
            ladder: self.ladder,
            notes: self.notes,
        })
    }
}

/// Measures every configuration that can be mounted.
///
/// # Errors
/// [`DemoError`] when there is no result.
pub fn run(options: &Options, watcher: &dyn Watcher, stop: &AtomicBool) -> Result<Demo, DemoError> {
    if options.size_bytes == 0 || !options.size_bytes.is_multiple_of(RECORD_BYTES) {
        return Err(DemoError::Size(options.size_bytes));
    }
    let test = TestFileSystem::make(&options.directory, options.size_bytes)?;
    let mut notes = test.notes().to_vec();
    let mounted = mount_all(&test, &mut notes);
    if stop.load(Ordering::Relaxed) {
        return Err(DemoError::Stopped);
    }
    notes.iter().for_each(|note| watcher.say(note));
    let plan = Plan::fit(options, &mounted, watcher, stop)?;
    make_parent(&options.records_file)?;
    // The rounds of a demo are not stored in the user's history, only in the record file.
    let sinks = Sinks::new(Some(&options.records_file), HistorySink::default())?;
    let mut runner = Runner::new(watcher, stop, Settle::Machine, sinks);
    let schedule = Schedule::interleaved(plan.rounds, mounted.len());
    let mut series = Ladder {
        plan: &plan,
        mounted: &mounted,
        command: &options.command,
        watcher,
        stop,
        began: Instant::now(),
    };
    let outcome = runner.run(&schedule, &mut series);
    drop(mounted);
    drop(test);
    let ran = runner.finish()?;
    outcome?;
    if ran.records.is_empty() {
        return Err(DemoError::NoRun);
    }
    let is_complete = ran.notes.is_empty();
    notes.extend(ran.notes);
    Ok(Demo::new(&plan, ran.records, notes, is_complete))
}

/// Mounts every configuration; each failure adds a note.
fn mount_all(test: &TestFileSystem, notes: &mut Vec<String>) -> Vec<MountedConfiguration> {
    let mut mounted = Vec::new();
    for configuration in &LADDER {
        match MountedConfiguration::mount(configuration, test) {
            Ok(configuration) => {
                let granted = configuration.negotiated();
                notes.extend(granted.map(|granted| format!("{}: {granted}", configuration.label())));
                mounted.push(configuration);
            }
            Err(error) => notes.push(format!(
                "{} is left out: {}",
                configuration.label,
                shown::with_causes(&error)
            )),
        }
    }
    mounted
}

/// Size and number of rounds, reduced to fit the time limit.
struct Plan {
    size_bytes: u64,
    rounds: u32,
    /// Whether the rounds end as soon as all intervals are narrow.
    ends_when_narrow: bool,
}

impl Plan {
    fn fit(
        options: &Options,
        mounted: &[MountedConfiguration],
        watcher: &dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<Self, DemoError> {
        let started = Instant::now();
        for configuration in mounted {
            let pilot = run_once(configuration, PILOT_BYTES, 0, &options.command, stop)?;
            if pilot.is_none() || stop.load(Ordering::Relaxed) {
                return Err(DemoError::Stopped);
            }
        }
        let pilot = started.elapsed().as_secs_f64();
        let (rounds, rounds_min) = match options.rounds {
            Some(rounds) => (rounds, ROUNDS_MIN),
            None => (ROUNDS_WANTED, ROUNDS_FOR_INTERVAL),
        };
        let mut plan = Self::cut(options.size_bytes, rounds, rounds_min, pilot);
        if (plan.size_bytes, plan.rounds) != (options.size_bytes, rounds) {
            watcher.say(&format!(
                "this machine needs about {:.0} s for {rounds} rounds of {}; running {} rounds of {} instead",
                seconds(options.size_bytes, rounds, pilot),
                show_bytes(options.size_bytes),
                plan.rounds,
                show_bytes(plan.size_bytes)
            ));
        } else if options.rounds.is_none() {
            plan.rounds = ROUNDS_MAX;
        }
        plan.ends_when_narrow = options.rounds.is_none();
        Ok(plan)
    }

    /// Reduces rounds first, then the size, until the estimate fits.
    fn cut(size_bytes: u64, rounds: u32, rounds_min: u32, pilot_seconds: f64) -> Self {
        let mut plan = Self {
            size_bytes,
            rounds,
            ends_when_narrow: false,
        };
        let fits = |plan: &Self| {
            seconds(plan.size_bytes, plan.rounds, pilot_seconds) <= TIME_FOR_ROUNDS.as_secs_f64()
        };
        while !fits(&plan) && plan.rounds > rounds_min {
            plan.rounds -= 1;
        }
        while !fits(&plan) && plan.size_bytes / 2 >= SIZE_BYTES_MIN {
            plan.size_bytes = plan.size_bytes / 2 / RECORD_BYTES * RECORD_BYTES;
        }
        plan
    }
}

/// Estimates the duration of rounds from that of the pilot. It scales the fixed cost of a run too, so it is an upper
/// bound.
fn seconds(size_bytes: u64, rounds: u32, pilot_seconds: f64) -> f64 {
    pilot_seconds * nearest_f64(size_bytes) / nearest_f64(PILOT_BYTES) * f64::from(rounds)
}

/// The configurations as a series.
struct Ladder<'run> {
    plan: &'run Plan,
    mounted: &'run [MountedConfiguration],
    command: &'run [String],
    watcher: &'run dyn Watcher,
    stop: &'run AtomicBool,
    began: Instant,
}

impl Series for Ladder<'_> {
    type Error = DemoError;

    fn title(&self, turn: Turn) -> String {
        self.mounted[turn.side].label().to_owned()
    }

    fn measure(&mut self, turn: Turn) -> Result<Vec<Measured>, DemoError> {
        let record = run_once(
            &self.mounted[turn.side],
            self.plan.size_bytes,
            turn.round,
            self.command,
            self.stop,
        )?;
        Ok(record.map(Measured::plain).into_iter().collect())
    }

    fn goes_on(&mut self, rounds_done: u32, records: &[RunRecord]) -> bool {
        let widest = table::widest_interval(records);
        let shown = widest.map_or_else(String::new, |width| {
            format!(", widest interval {:.0} %", width * 100.0)
        });
        let bound = if self.plan.ends_when_narrow {
            "at most "
        } else {
            ""
        };
        self.watcher.say(&format!(
            "round {rounds_done} of {bound}{} done{shown}",
            self.plan.rounds
        ));
        // Only the width of the intervals decides when to stop, never the ratio itself.
        let is_enough = rounds_done >= ROUNDS_FOR_INTERVAL
            && (widest.is_some_and(|width| width <= NARROW) || self.began.elapsed() >= TIME_FOR_NARROWING);
        !(self.plan.ends_when_narrow && is_enough)
    }
}

/// Runs one write, and reads the daemon's counters before and after it. `None` if the run was stopped.
fn run_once(
    configuration: &MountedConfiguration,
    size_bytes: u64,
    round: u32,
    command: &[String],
    stop: &AtomicBool,
) -> Result<Option<RunRecord>, DemoError> {
    let before = configuration.statistics()?;
    let Some(mut record) = bench_child(configuration, size_bytes, round, stop)? else {
        return Ok(None);
    };
    let counted = match (before, configuration.statistics()?) {
        (Some(before), Some(after)) => Counted::between(&before, &after, size_bytes),
        // Without a mount every write reaches the file system unchanged.
        _ => Counted {
            backing_writes: size_bytes / RECORD_BYTES,
            computed_writes: size_bytes / RECORD_BYTES,
            context_switches: 0,
        },
    };
    record.round = round;
    record.command = command.to_vec();
    for (name, value) in [
        (counter::BACKING_WRITES, counted.backing_writes),
        (report::ladder::BACKING_WRITES_COMPUTED, counted.computed_writes),
        (CONTEXT_SWITCHES_DAEMON, counted.context_switches),
    ] {
        record.counters.insert(name.to_owned(), nearest_f64(value));
    }
    Ok(Some(record))
}

/// Counters of one run.
struct Counted {
    backing_writes: u64,
    /// Backing writes that no daemon issued or counted: as many as records, by construction.
    computed_writes: u64,
    context_switches: u64,
}

impl Counted {
    fn between(before: &Document, after: &Document, size_bytes: u64) -> Self {
        let writes = |document: &Document| document.backing.get("writes").and_then(serde_json::Value::as_u64);
        let switches = |document: &Document| {
            document.session.context_switches_voluntary + document.session.context_switches_involuntary
        };
        let daemon_writes = writes(after)
            .unwrap_or(0)
            .saturating_sub(writes(before).unwrap_or(0));
        let by_the_kernel = after.negotiated.get("passthrough") == Some(&serde_json::Value::Bool(true));
        // With passthrough the kernel hands every write of the program to the file system unchanged.
        let computed_writes = if by_the_kernel {
            size_bytes / RECORD_BYTES
        } else {
            0
        };
        Self {
            backing_writes: daemon_writes + computed_writes,
            computed_writes,
            context_switches: switches(after).saturating_sub(switches(before)),
        }
    }
}

/// Measures in a child process, which a Ctrl-C on the terminal stops too.
fn bench_child(
    configuration: &MountedConfiguration,
    size_bytes: u64,
    round: u32,
    stop: &AtomicBool,
) -> Result<Option<RunRecord>, DemoError> {
    let output = this_program()?
        .args(["bench", "file", "--pattern", "sequential-write", "--fsync-at-end"])
        .args(["--json", "--no-history", "--progress", "off"])
        .args(["--record", &RECORD_BYTES.to_string()])
        .args(["--size", &size_bytes.to_string()])
        .args(["--seed", &(u64::from(round) + 1).to_string()])
        .args(["--label", configuration.label()])
        .arg(configuration.directory())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| DemoError::Start("measuring", error))?;
    if !output.status.success() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        return Err(DemoError::Measure {
            label: configuration.label(),
            message: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        });
    }
    serde_json::from_slice(&output.stdout)
        .map(Some)
        .map_err(DemoError::NoRecord)
}

fn make_parent(path: &Path) -> Result<(), DemoError> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::create_dir_all(parent).map_err(failed(parent, "made")),
        None => Ok(()),
    }
}

/// A command that runs this program again.
fn this_program() -> Result<Command, DemoError> {
    std::env::current_exe()
        .map(Command::new)
        .map_err(DemoError::NoProgram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_machine_runs_what_was_asked() {
        let plan = Plan::cut(512 << 20, 5, ROUNDS_MIN, 0.4);
        assert_eq!((plan.size_bytes, plan.rounds), (512 << 20, 5));
    }

    #[test]
    fn a_slow_machine_runs_fewer_rounds_and_then_smaller_files() {
        let plan = Plan::cut(512 << 20, 5, ROUNDS_MIN, 0.7);
        assert_eq!((plan.size_bytes, plan.rounds), (512 << 20, 3));
        let plan = Plan::cut(512 << 20, 5, ROUNDS_MIN, 3.0);
        assert_eq!((plan.size_bytes, plan.rounds), (128 << 20, 3));
        assert!(seconds(plan.size_bytes, plan.rounds, 3.0) <= TIME_FOR_ROUNDS.as_secs_f64());
    }

    #[test]
    fn without_a_number_of_rounds_there_are_enough_for_an_interval() {
        let plan = Plan::cut(128 << 20, ROUNDS_WANTED, ROUNDS_FOR_INTERVAL, 4.0);
        assert_eq!((plan.size_bytes, plan.rounds), (32 << 20, ROUNDS_FOR_INTERVAL));
    }
}
