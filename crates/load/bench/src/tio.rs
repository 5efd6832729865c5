//! The workload of tiobench: four phases on the same files, one file per thread.
//!
//! The phases, in the original's order: sequential write (allocating), random write, sequential read, random read.
//! Each has its own timed window, which ends with the sync and the close of every file. Random records are drawn with
//! replacement, as in the original. The page cache is left as it is unless the run requests a cold one before each
//! read phase.
//!
//! Differences from the original: files are empty instead of sparse when the first phase begins, times are of a
//! monotonic clock, and an error ends the run.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use results::{ImpossibleLatency, LatencyHistogram, nearest_f64};
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::file;
use crate::file_outcome::{FileOutcome, OperationOutcome};
use crate::prepare;
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::spec::{Cache, FileSpec, FinalSync, Mode, Order, Pattern, WriteTarget};
use crate::words::words;
use crate::workload::{Measurement, Outcome, TextForm, Workload, usage_counters};

/// Slower operations are counted separately, as in the original.
const SLOW_NS: u64 = 2_000_000_000;

/// Operations slower than this are counted separately again.
const VERY_SLOW_NS: u64 = 10_000_000_000;

const GIB: u64 = 1 << 30;

/// The specification of a run of the four phases. There is no `Default`: see [`TioSpec::sequential`] and
/// [`TioSpec::random`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TioSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// Total size of all files; a multiple of block times threads.
    pub total_bytes: u64,
    /// Size of each operation.
    pub block_bytes: u64,
    /// Threads, each with its own file.
    pub threads: u32,
    /// Operations per thread in a random phase; `None` for the number of blocks in its file.
    pub random_operations: Option<u64>,
    /// I/O mode: buffered, sync, direct or mmap.
    pub mode: Mode,
    /// Page cache before each read phase: `AsIs` or `Cold`.
    pub cache: Cache,
    /// Seed of random orders and contents.
    pub seed: u64,
}

impl TioSpec {
    /// `tio_seq` of the packed-command study: 2 GB in blocks of 8 MB by one thread (published); powers of 1024
    /// (assumed), all other settings as in tiobench.
    #[must_use]
    pub const fn sequential(directory: PathBuf) -> Self {
        Self::of(directory, 8 << 20, 1)
    }

    /// `tio_rand` of the packed-command study: 2 GB in blocks of 4 KB by four threads (published); powers of 1024
    /// (assumed), all other settings as in tiobench.
    #[must_use]
    pub const fn random(directory: PathBuf) -> Self {
        Self::of(directory, 4096, 4)
    }

    const fn of(directory: PathBuf, block_bytes: u64, threads: u32) -> Self {
        Self {
            directory,
            total_bytes: 2 * GIB,
            block_bytes,
            threads,
            random_operations: None,
            mode: Mode::BUFFERED,
            cache: Cache::AsIs,
            seed: 1,
        }
    }

    fn phase(&self, name: TioPhase) -> FileSpec {
        let threads = u64::from(self.threads.max(1));
        let plain = FileSpec::plain(
            self.directory.clone(),
            name.pattern(),
            self.block_bytes,
            self.total_bytes / threads,
        );
        FileSpec {
            threads: self.threads,
            mode: self.mode,
            records_max: name.is_random().then_some(self.random_operations).flatten(),
            order: if name.is_random() {
                Order::WithReplacement
            } else {
                Order::EachOnce
            },
            write_target: match name {
                TioPhase::SequentialWrite => WriteTarget::NewFile,
                _ => WriteTarget::ExistingFile,
            },
            final_sync: FinalSync::Timed,
            cache: if name.pattern().reads() {
                self.cache
            } else {
                Cache::AsIs
            },
            seed: self.seed,
            ..plain
        }
    }

    fn validate(&self) -> Result<(), BenchError> {
        let threads = u64::from(self.threads);
        let unit = self.block_bytes.saturating_mul(threads);
        if unit == 0 || self.total_bytes == 0 || !self.total_bytes.is_multiple_of(unit) {
            let problem = format!(
                "{} bytes, expected a multiple of {} bytes times {threads} threads",
                self.total_bytes, self.block_bytes
            );
            return Err(BenchError::spec("size", problem));
        }
        if self.cache.reads_files() {
            return Err(BenchError::spec(
                "cache",
                format!("`{}`, expected `as-is` or `cold` for tio", self.cache),
            ));
        }
        TioPhase::ALL
            .iter()
            .try_for_each(|name| self.phase(*name).validate())
    }
}

words! {
    /// One of the four phases, in execution order.
    TioPhase {
        /// Each file from start to end; allocates.
        SequentialWrite = "sequential_write",
        /// Blocks drawn with replacement.
        RandomWrite = "random_write",
        /// Each file from start to end.
        SequentialRead = "sequential_read",
        /// Blocks drawn with replacement.
        RandomRead = "random_read",
    }
}

impl TioPhase {
    const fn pattern(self) -> Pattern {
        match self {
            Self::SequentialWrite => Pattern::SequentialWrite,
            Self::RandomWrite => Pattern::RandomWrite,
            Self::SequentialRead => Pattern::SequentialRead,
            Self::RandomRead => Pattern::RandomRead,
        }
    }

    const fn is_random(self) -> bool {
        matches!(self, Self::RandomWrite | Self::RandomRead)
    }
}

/// The outcome of the phases. A stopped run has fewer of them, and the last one is partial.
#[derive(Clone, Debug, PartialEq)]
pub struct TioOutcome {
    /// The specification of the run.
    pub spec: TioSpec,
    /// Each phase that was started.
    pub phases: Vec<(TioPhase, FileOutcome)>,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

/// Runs the four phases. Raising `stop` ends the run early with a partial outcome; the test directory is always
/// removed.
///
/// # Errors
/// Before anything is touched: a contradiction in the specification, too little space. Later: any call that failed.
pub fn run(spec: &TioSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<TioOutcome, BenchError> {
    spec.validate()?;
    let first = spec.phase(TioPhase::SequentialWrite);
    prepare::check_path(&first)?;
    prepare::check_space(&first)?;
    let scratch = Scratch::create(&spec.directory)?;
    let files = prepare::make_files(&first, scratch.path(), progress, stop)?;
    let mut phases = Vec::new();
    for &name in TioPhase::ALL {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        phases.push((
            name,
            file::measure(&spec.phase(name), &files, None, progress, stop)?,
        ));
    }
    Ok(TioOutcome {
        spec: spec.clone(),
        phases,
        leftover: scratch.remove(),
    })
}

/// One line of the original's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TioLine {
    /// The phase.
    pub phase: TioPhase,
    /// 10^6 bytes per second over the whole window.
    pub mb_per_s: f64,
    /// Processor time of the workers, as a percentage of one processor.
    pub cpu_percent: f64,
    /// Mean latency of an operation.
    pub mean_ms: f64,
    /// Largest latency of an operation.
    pub max_ms: f64,
    /// Percentage of operations slower than 2 s.
    pub slow_percent: f64,
    /// Percentage of operations slower than 10 s.
    pub very_slow_percent: f64,
}

impl TioOutcome {
    /// True if every phase was completed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.phases.len() == TioPhase::ALL.len() && self.phases.iter().all(|(_, outcome)| outcome.complete)
    }

    /// The phases in the original's format.
    #[must_use]
    pub fn lines(&self) -> Vec<TioLine> {
        self.phases
            .iter()
            .map(|(phase, outcome)| line(*phase, outcome))
            .collect()
    }

    /// The lines as a human-readable table.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::from(
            "phase                   MB/s    CPU %     mean ms       max ms    > 2 s %   > 10 s %\n",
        );
        for line in self.lines() {
            text.push_str(&format!(
                "{:<18} {:>9.2} {:>8.1} {:>11.4} {:>12.3} {:>10.5} {:>10.5}\n",
                line.phase.name(),
                line.mb_per_s,
                line.cpu_percent,
                line.mean_ms,
                line.max_ms,
                line.slow_percent,
                line.very_slow_percent
            ));
        }
        text
    }
}

impl Measurement for TioOutcome {
    /// One sample per phase; counters are those of the phases, prefixed with the phase's name.
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("tio", &self.spec, &self.spec.directory);
        outcome.complete = self.is_complete();
        outcome.started_unix_ns = self.phases.first().map_or(0, |(_, first)| first.started_unix_ns);
        for (phase, done) in &self.phases {
            let name = phase.name();
            let counters = usage_counters(done.processor, done.workers).into_iter();
            let named = counters.map(|(counter, value)| (format!("{name}_{counter}"), value));
            outcome.counters.extend(named);
            outcome.samples.push(done.sample(name, moved(*phase, done))?);
            if done.cache.is_warmer_than_asked() {
                outcome.notes.push(format!("{name}: {}", done.cache.describe()));
            }
        }
        let phases: Vec<&str> = self.phases.iter().map(|(phase, _)| phase.name()).collect();
        outcome.fact("layer", "system_calls");
        outcome.fact("phases", phases);
        outcome.leftover(self.leftover.as_ref());
        outcome.text = self.describe() + "\n";
        outcome.text_form = TextForm::Table;
        Ok(outcome)
    }
}

impl Workload for TioSpec {
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(run(&spec, progress, stop)?.outcome()?)
    }
}

const fn moved(phase: TioPhase, outcome: &FileOutcome) -> &OperationOutcome {
    if phase.pattern().reads() {
        &outcome.read
    } else {
        &outcome.write
    }
}

fn line(phase: TioPhase, outcome: &FileOutcome) -> TioLine {
    let done = moved(phase, outcome);
    let elapsed_ns = nearest_f64(outcome.elapsed_ns().max(1));
    let summary = done.latency.summary();
    let cpu_ns = outcome.workers.map_or(0, |workers| workers.cpu_ns);
    let above = |latency: &LatencyHistogram, limit_ns| {
        let whole = nearest_f64(latency.count().max(1));
        100.0 * nearest_f64(latency.count_above(limit_ns)) / whole
    };
    TioLine {
        phase,
        mb_per_s: nearest_f64(done.bytes) * 1e3 / elapsed_ns,
        cpu_percent: 100.0 * nearest_f64(cpu_ns) / elapsed_ns,
        mean_ms: summary.map_or(0.0, |summary| summary.mean_ns / 1e6),
        max_ms: summary.map_or(0.0, |summary| nearest_f64(summary.max_ns) / 1e6),
        slow_percent: above(&done.latency, SLOW_NS),
        very_slow_percent: above(&done.latency, VERY_SLOW_NS),
    }
}
