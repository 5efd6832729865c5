//! The metadata workload: creates, lists, stats and removes many small files in one directory.
//!
//! Each of the four steps has its own timed window. Creating is open, write, close; listing reads the whole directory
//! once; the third step is one `stat` per file, in listing order; removing is one `unlink` per file.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow};
use serde::{Deserialize, Serialize};

use crate::cache::{self, CacheMethod};
use crate::data::Content;
use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::prepare::check_room;
use crate::processor::{ProcessorUse, UsageWindow, WorkerUse};
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::spec::{Cache, DataPattern};
use crate::workload::{Measurement, Outcome, Workload, usage_counters};

/// The default number of files.
pub const USUAL_FILES: u32 = 10_000;

/// Number of files between progress reports and checks of the stop flag.
const BATCH: u32 = 256;

/// Largest content of a small file.
const CONTENT_BYTES_MAX: u32 = 1 << 20;

/// Blocks are allocated whole: a small file takes at least one.
const BLOCK_BYTES: u64 = 4096;

/// A workload on many small files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataSpec {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// Number of files (usually [`USUAL_FILES`]).
    pub files: u32,
    /// Content size of each file (usually 0 or 4096).
    pub content_bytes: u32,
    /// Whether creating and removing end with an fsync of the directory, inside their windows.
    pub sync_directory: bool,
    /// `Cold` drops the caches before listing and before the `stat` step.
    pub cache: Cache,
    /// Seed of the contents.
    pub seed: u64,
}

/// One timed step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutcome {
    /// Files created, listed, examined by `stat`, or removed.
    pub count: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Length of the window.
    pub elapsed_ns: u64,
    /// Time spent in syncing the directory, included in `elapsed_ns`.
    pub sync_ns: u64,
    /// Latency per file; for listing, of the whole directory.
    pub latency: LatencyHistogram,
}

/// The outcome of a metadata workload.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataOutcome {
    /// The workload.
    pub spec: MetadataSpec,
    /// False if the run was stopped: the steps are partial or missing.
    pub complete: bool,
    /// Start of the first window (wall clock).
    pub started_unix_ns: u64,
    /// Open, write, close.
    pub create: StepOutcome,
    /// Reading the directory.
    pub list: StepOutcome,
    /// `stat` of each file.
    pub stat: StepOutcome,
    /// `unlink` of each file.
    pub remove: StepOutcome,
    /// Processor use of the whole machine over the run.
    pub processor: Option<ProcessorUse>,
    /// Processor use of the worker thread over the run.
    pub worker: Option<WorkerUse>,
    /// The method used to drop the caches.
    pub cache_method: CacheMethod,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

impl MetadataOutcome {
    /// One sample per step.
    fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let steps = [
            ("create", &self.create),
            ("list", &self.list),
            ("stat", &self.stat),
            ("remove", &self.remove),
        ];
        let done = steps.into_iter().filter(|(_, step)| step.count > 0);
        done.map(|(name, step)| {
            let window = TimedWindow {
                sync_ns: step.sync_ns,
                ..TimedWindow::of(step.elapsed_ns)
            };
            Sample::new(name, (step.count, step.bytes), window, step.latency.clone())
        })
        .collect()
    }
}

impl Measurement for MetadataOutcome {
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("metadata", &self.spec, &self.spec.directory);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        outcome.counters = usage_counters(self.processor, self.worker);
        outcome.fact("cache_method", self.cache_method);
        outcome.leftover(self.leftover.as_ref());
        Ok(outcome)
    }
}

impl Workload for MetadataSpec {
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(run(&spec, progress, stop)?.outcome()?)
    }
}

/// Runs a metadata workload. Raising `stop` ends it early with a partial outcome; the test directory is always
/// removed.
///
/// # Errors
/// Before anything is touched: a contradiction, too few bytes or inodes. Later: any call that failed, with the file.
pub fn run(
    spec: &MetadataSpec,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<MetadataOutcome, BenchError> {
    validate(spec)?;
    let scratch = Scratch::create(&spec.directory)?;
    let run = Run {
        spec,
        directory: scratch.path(),
        progress,
        stop,
    };
    let mut outcome = MetadataOutcome {
        spec: spec.clone(),
        complete: false,
        started_unix_ns: unix_ns(),
        create: StepOutcome::default(),
        list: StepOutcome::default(),
        stat: StepOutcome::default(),
        remove: StepOutcome::default(),
        processor: None,
        worker: None,
        cache_method: CacheMethod::None,
        leftover: None,
    };
    let usage = UsageWindow::begin();
    run.steps(&mut outcome)?;
    outcome.samples()?;
    (outcome.processor, outcome.worker) = usage.end();
    outcome.leftover = scratch.remove();
    Ok(outcome)
}

fn validate(spec: &MetadataSpec) -> Result<(), BenchError> {
    if spec.files == 0 {
        return Err(BenchError::spec("files", "0, expected at least 1"));
    }
    if spec.content_bytes > CONTENT_BYTES_MAX {
        let problem = format!(
            "{} bytes, expected at most {CONTENT_BYTES_MAX}",
            spec.content_bytes
        );
        return Err(BenchError::spec("content size", problem));
    }
    if spec.cache.reads_files() {
        return Err(BenchError::spec(
            "cache",
            format!(
                "`{}`, expected `as-is` or `cold` for a metadata workload",
                spec.cache
            ),
        ));
    }
    let file_bytes = u64::from(spec.content_bytes).next_multiple_of(BLOCK_BYTES);
    check_room(&spec.directory, u64::from(spec.files), file_bytes)
}

struct Run<'run> {
    spec: &'run MetadataSpec,
    directory: &'run Path,
    progress: &'run dyn Progress,
    stop: &'run AtomicBool,
}

impl Run<'_> {
    fn steps(&self, outcome: &mut MetadataOutcome) -> Result<(), BenchError> {
        self.create(&mut outcome.create)?;
        if self.stopped() {
            return Ok(());
        }
        self.make_cold(outcome)?;
        let names = self.list(&mut outcome.list)?;
        self.make_cold(outcome)?;
        self.each(Phase::Stat, "stat", &names, &mut outcome.stat, |path| {
            // Like `ls -l` and `find`: without the birth time, which FUSE requests from the daemon each time.
            rustix::fs::lstat(path).map(drop).map_err(std::io::Error::from)
        })?;
        self.remove(&names, &mut outcome.remove)?;
        outcome.complete = !self.stopped();
        Ok(())
    }

    fn create(&self, step: &mut StepOutcome) -> Result<(), BenchError> {
        let length =
            usize::try_from(self.spec.content_bytes).expect("contents are checked to be at most 1 MiB");
        let mut buffer = Content::written(length, DataPattern::Random, self.spec.seed);
        let started = Instant::now();
        for number in 0..self.spec.files {
            if self.batch(Phase::Create, number) {
                break;
            }
            let path = self.directory.join(format!("file-{number:07}"));
            let content = buffer.at(u64::from(number) * BLOCK_BYTES, 1);
            let start = Instant::now();
            create_one(&path, content)?;
            step.latency.record(elapsed_ns(start, Instant::now()));
            step.count += 1;
            step.bytes += u64::from(self.spec.content_bytes);
        }
        self.finish(step, started)
    }

    fn list(&self, step: &mut StepOutcome) -> Result<Vec<OsString>, BenchError> {
        self.progress.advance(Phase::List, 0, u64::from(self.spec.files));
        let failed = |error| BenchError::io("readdir", self.directory, error);
        let started = Instant::now();
        let entries = fs::read_dir(self.directory).map_err(failed)?;
        let names: Vec<OsString> = entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        step.elapsed_ns = elapsed_ns(started, Instant::now());
        step.latency.record(step.elapsed_ns);
        step.count = u64::try_from(names.len()).unwrap_or(u64::MAX);
        let expected = u64::from(self.spec.files);
        if step.count != expected {
            let directory = self.directory.to_owned();
            return Err(BenchError::WrongListing {
                directory,
                expected,
                found: step.count,
            });
        }
        self.progress.advance(Phase::List, expected, expected);
        Ok(names)
    }

    fn remove(&self, names: &[OsString], step: &mut StepOutcome) -> Result<(), BenchError> {
        let started = Instant::now();
        self.each(Phase::Remove, "unlink", names, step, |path| fs::remove_file(path))?;
        self.finish(step, started)
    }

    fn each(
        &self,
        phase: Phase,
        operation: &'static str,
        names: &[OsString],
        step: &mut StepOutcome,
        call: impl Fn(&Path) -> std::io::Result<()>,
    ) -> Result<(), BenchError> {
        let started = Instant::now();
        for (number, name) in (0..).zip(names) {
            if self.batch(phase, number) {
                break;
            }
            let path = self.directory.join(name);
            let start = Instant::now();
            call(&path).map_err(|error| BenchError::io(operation, &path, error))?;
            step.latency.record(elapsed_ns(start, Instant::now()));
            step.count += 1;
        }
        step.elapsed_ns = elapsed_ns(started, Instant::now());
        Ok(())
    }

    /// Ends the window of a step that changed the directory.
    fn finish(&self, step: &mut StepOutcome, started: Instant) -> Result<(), BenchError> {
        let worked = Instant::now();
        if self.spec.sync_directory && !self.stopped() {
            let synced = File::open(self.directory).and_then(|directory| directory.sync_all());
            synced.map_err(|error| BenchError::io("fsync", self.directory, error))?;
            step.sync_ns = elapsed_ns(worked, Instant::now());
        }
        step.elapsed_ns = elapsed_ns(started, Instant::now());
        Ok(())
    }

    fn make_cold(&self, outcome: &mut MetadataOutcome) -> Result<(), BenchError> {
        if self.spec.cache == Cache::Cold {
            // Inodes and directories cannot be dropped individually: without root this drops nothing.
            outcome.cache_method = cache::make_cold(&[])?;
        }
        Ok(())
    }

    /// Reports progress at every batch; returns true if the run must stop.
    fn batch(&self, phase: Phase, number: u32) -> bool {
        if number.is_multiple_of(BATCH) {
            self.progress
                .advance(phase, u64::from(number), u64::from(self.spec.files));
        }
        self.stopped()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Dropping the file ignores the result of `close`: this workload acknowledges no data.
fn create_one(path: &Path, content: &[u8]) -> Result<(), BenchError> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = created.map_err(|error| BenchError::io("open", path, error))?;
    if content.is_empty() {
        return Ok(());
    }
    file.write_all(content)
        .map_err(|error| BenchError::io("write", path, error))
}
