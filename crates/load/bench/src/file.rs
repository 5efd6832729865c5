//! The file workload: prepare, set the cache, measure, verify, clean up.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow, counter};

use crate::cache::{self, CacheOutcome};
use crate::error::BenchError;
use crate::measure;
use crate::operation_log::OperationLog;
use crate::order::RecordOrder;
use crate::placement::{FilePlacement, NamedFiles};
use crate::prepare;
use crate::processor::{ProcessorUse, WorkerUse};
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::spec::{DeviceAccess, FileSpec, FinalSync};
use crate::start_barrier::CommonStart;
use crate::verify::{self, ReadBack};
use crate::window::WindowOutcome;
use crate::worker_setup::WorkerSetup;
use crate::workload::{Measurement, Outcome, Workload, usage_counters};

/// The outcome of one kind of operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationOutcome {
    /// Number of operations.
    pub count: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Latency histogram.
    pub latency: LatencyHistogram,
}

impl OperationOutcome {
    pub(crate) fn add(&mut self, latency_ns: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.latency.record(latency_ns);
    }

    /// Converts the operations to a sample of a window.
    pub(crate) fn sample(&self, operation: &str, window: TimedWindow) -> Result<Sample, ImpossibleLatency> {
        Sample::new(operation, (self.count, self.bytes), window, self.latency.clone())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
    }
}

/// The outcome of a file workload.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOutcome {
    /// The workload.
    pub spec: FileSpec,
    /// False if the run was stopped: everything below is partial.
    pub complete: bool,
    /// Start of the timed window (wall clock).
    pub started_unix_ns: u64,
    /// Reads.
    pub read: OperationOutcome,
    /// Writes.
    pub write: OperationOutcome,
    /// Syncs after each record.
    pub sync: OperationOutcome,
    /// The final sync of each file or mapping.
    pub final_sync: OperationOutcome,
    /// From the start barrier until the window began; operations of the ramp may end in the window.
    pub ramp_ns: u64,
    /// From the first worker's start to the last worker's last operation, per-record syncs included.
    pub operation_ns: u64,
    /// From then until the last final sync returned; part of the window unless the workload says otherwise.
    pub sync_ns: u64,
    /// From then until the last file was closed.
    pub close_ns: u64,
    /// The longest time from a worker's own start until its final sync returned: shorter than the window if the
    /// system starts a worker late.
    pub longest_worker_ns: u64,
    /// Time to create the files, before the window.
    pub prepare_ns: u64,
    /// Time to prepare the page cache, before the window.
    pub cache_ns: u64,
    /// Processor use of the whole machine; `None` if the window was too short to tell.
    pub processor: Option<ProcessorUse>,
    /// Counters of the block device, the process and its system calls, with the unavailable ones.
    pub window: WindowOutcome,
    /// Processor use of all workers together.
    pub workers: Option<WorkerUse>,
    /// The page cache at the start of the window.
    pub cache: CacheOutcome,
    /// The result of verification; `None` if the workload does not verify or was stopped.
    pub verified: Option<ReadBack>,
    /// Logs of single operations, one per thread, in thread order.
    pub logs: Vec<OperationLog>,
    /// The directory of the files, if they were kept.
    pub kept_directory: Option<PathBuf>,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

impl FileOutcome {
    /// The timed window: operations, final sync if it is timed, close.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.operation_ns
            .saturating_add(self.timed_sync_ns())
            .saturating_add(self.close_ns)
    }

    /// The part of the final sync that belongs to the window.
    #[must_use]
    pub fn timed_sync_ns(&self) -> u64 {
        match self.spec.final_sync {
            FinalSync::None | FinalSync::Timed => self.sync_ns,
            FinalSync::Untimed => 0,
        }
    }
}

impl FileOutcome {
    /// One sample per kind of operation.
    pub(crate) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let pattern = self.spec.pattern;
        let kinds = [
            ("read", &self.read, pattern.reads()),
            ("write", &self.write, pattern.writes()),
            ("sync", &self.sync, self.sync.count > 0),
            ("final-sync", &self.final_sync, self.final_sync.count > 0),
        ];
        let of_the_run = kinds.into_iter().filter(|(.., is_part)| *is_part);
        of_the_run
            .map(|(operation, done, _)| self.sample(operation, done))
            .collect()
    }

    pub(crate) fn sample(
        &self,
        operation: &str,
        done: &OperationOutcome,
    ) -> Result<Sample, ImpossibleLatency> {
        let untimed_sync_ns = self.sync_ns - self.timed_sync_ns();
        let window = TimedWindow {
            elapsed_ns: self.elapsed_ns(),
            sync_ns: self.timed_sync_ns(),
            close_ns: self.close_ns,
            outside_ns: self.ramp_ns.saturating_add(untimed_sync_ns),
        };
        done.sample(operation, window)
    }
}

impl Measurement for FileOutcome {
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("file", &self.spec, &self.spec.directory);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        outcome.counters = usage_counters(self.processor, self.workers);
        outcome.counters.extend(self.window.counters.clone());
        outcome.count(counter::LONGEST_WORKER, self.longest_worker_ns);
        if let Some(cached) = self.cache.cached_bytes {
            outcome.count(counter::CACHED_BEFORE, cached);
        }
        if self.spec.final_sync == FinalSync::Untimed {
            outcome.count("untimed_sync_ns", self.sync_ns);
        }
        if let Some(verified) = self.verified {
            outcome.count("verified_bytes", verified.bytes);
        }
        outcome.fact("cache_state", self.cache);
        outcome.fact("absent", &self.window.absent);
        let is_warmer = self.cache.is_warmer_than_asked();
        outcome.notes.extend(is_warmer.then(|| self.cache.describe()));
        outcome.leftover(self.leftover.as_ref());
        outcome.kept_directory = self.kept_directory;
        Ok(outcome)
    }
}

impl Workload for FileSpec {
    fn check(&self) -> Result<(), BenchError> {
        self.validate()
    }

    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(run(&spec, progress, stop)?.outcome()?)
    }

    fn as_file(&self) -> Option<&FileSpec> {
        Some(self)
    }
}

/// Runs a file workload.
///
/// Raising `stop` ends it early with a partial outcome. The test directory is always removed unless the workload
/// keeps it.
///
/// # Errors
/// Before anything is touched: a contradiction in the specification, a path of the wrong type, too little space.
/// Later: any operation that failed, with file and offset; data read that differs from data written.
pub fn run(spec: &FileSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<FileOutcome, BenchError> {
    run_with(spec, &CommonStart::of(1), progress, stop)
}

/// Runs a file workload whose window begins together with others at one start barrier.
pub(crate) fn run_with(
    spec: &FileSpec,
    line: &CommonStart,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<FileOutcome, BenchError> {
    spec.validate()?;
    prepare::check_path(spec)?;
    prepare::check_space(spec)?;
    if spec.device != DeviceAccess::Refused {
        let _claim = prepare::claim_device(spec)?;
        if spec.verify {
            prepare::fill_device(spec, progress, stop)?;
        }
        return measure(spec, std::slice::from_ref(&spec.directory), line, progress, stop);
    }
    if let FilePlacement::Named { prefix } = &spec.files {
        let began = Instant::now();
        let files = NamedFiles::prepare(spec, prefix, progress, stop)?;
        let prepared = Instant::now();
        let mut outcome = measure(spec, files.paths(), line, progress, stop)?;
        outcome.prepare_ns = elapsed_ns(began, prepared);
        files.keep();
        outcome.kept_directory = Some(spec.directory.clone());
        return Ok(outcome);
    }
    let scratch = Scratch::create(&spec.directory)?;
    let began = Instant::now();
    let files = prepare::make_files(spec, scratch.path(), progress, stop)?;
    let prepared = Instant::now();
    let mut outcome = measure(spec, &files, line, progress, stop)?;
    outcome.prepare_ns = elapsed_ns(began, prepared);
    if spec.keep_files {
        outcome.kept_directory = Some(scratch.keep());
    } else {
        outcome.leftover = scratch.remove().err().map(|error| error.to_string());
    }
    Ok(outcome)
}

/// Opens the files, prepares the cache, measures and verifies.
pub(crate) fn measure(
    spec: &FileSpec,
    files: &[PathBuf],
    line: &CommonStart,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<FileOutcome, BenchError> {
    let setups: Vec<_> = (0..)
        .zip(RecordOrder::of_all(spec))
        .map(|(index, order)| WorkerSetup { index, order, files })
        .collect();
    // Open every file before dropping caches: errors surface early, and open inodes stay cached.
    let held = setups.iter().map(|setup| setup.open(spec));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    let bytes = match spec.device {
        DeviceAccess::Refused => spec.prepared_bytes_in_a_file(),
        DeviceAccess::Read | DeviceAccess::Destroy => spec.bytes_in_a_file(),
    };
    let began = Instant::now();
    let cache = cache::apply(spec.cache, files, bytes, progress, stop)?;
    let cache_ns = elapsed_ns(began, Instant::now());
    if spec.cold_or_fail && !cache.is_proven_cold() && !spec.mode.is_direct() {
        let state = cache.describe();
        return Err(BenchError::NotCold { state });
    }
    let (mut outcome, parts) = measure::measure(spec, (setups, held), cache, line, progress, stop)?;
    outcome.cache_ns = cache_ns;
    if spec.verify && outcome.complete {
        cache::give_up_pages(files)?;
        let read_back = verify::read_back(spec, files, &parts, progress, stop)?;
        outcome.verified = Some(read_back);
    }
    Ok(outcome)
}

pub(crate) fn elapsed_ns(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
