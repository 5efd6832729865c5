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

/// What one kind of operation did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperationOutcome {
    /// Operations done.
    pub count: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Latency of each.
    pub latency: LatencyHistogram,
}

impl OperationOutcome {
    pub(crate) fn add(&mut self, latency_ns: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.latency.record(latency_ns);
    }

    /// The operations as a sample of a window.
    pub(crate) fn sample(&self, operation: &str, window: TimedWindow) -> Result<Sample, ImpossibleLatency> {
        Sample::new(operation, (self.count, self.bytes), window, self.latency.clone())
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
    }
}

/// What a file workload did.
#[derive(Clone, Debug, PartialEq)]
pub struct FileOutcome {
    /// The workload.
    pub spec: FileSpec,
    /// False when the run was stopped: everything below is partial.
    pub complete: bool,
    /// When the timed window began (wall clock).
    pub started_unix_ns: u64,
    /// Reads.
    pub read: OperationOutcome,
    /// Writes.
    pub write: OperationOutcome,
    /// Syncs after each record.
    pub sync: OperationOutcome,
    /// The sync of each file or mapping when all was written.
    pub final_sync: OperationOutcome,
    /// From the start line until the window began; operations of the ramp may end in the window.
    pub ramp_ns: u64,
    /// From the first worker's start to the last worker's last operation, per-record syncs included.
    pub operation_ns: u64,
    /// From then until the last final sync had returned; a part of the window unless the workload says otherwise.
    pub sync_ns: u64,
    /// From then until the last file was closed.
    pub close_ns: u64,
    /// From a worker's own start until its final sync had returned, of the worker that took longest: shorter than the
    /// window where the machine starts a worker late.
    pub longest_worker_ns: u64,
    /// Making the files, before the window.
    pub prepare_ns: u64,
    /// Bringing the page cache into its state, before the window.
    pub cache_ns: u64,
    /// The machine's processors; `None` when the window was too short to tell.
    pub processor: Option<ProcessorUse>,
    /// What the system counted: block device, process, system calls; with what it does not tell.
    pub window: WindowOutcome,
    /// The workers together.
    pub workers: Option<WorkerUse>,
    /// The page cache when the window began.
    pub cache: CacheOutcome,
    /// What was read back and compared; `None` when the workload does not verify or was stopped.
    pub verified: Option<ReadBack>,
    /// What was kept of single operations, one log for each thread in the order of their numbers.
    pub logs: Vec<OperationLog>,
    /// Where the files are, when they were kept.
    pub kept_directory: Option<PathBuf>,
    /// Why the test directory is still there, when removing it failed.
    pub leftover: Option<String>,
}

impl FileOutcome {
    /// The timed window: operations, final sync where it is timed, close.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.operation_ns
            .saturating_add(self.timed_sync_ns())
            .saturating_add(self.close_ns)
    }

    /// The part of the window that the final sync takes.
    #[must_use]
    pub fn timed_sync_ns(&self) -> u64 {
        match self.spec.final_sync {
            FinalSync::None | FinalSync::Timed => self.sync_ns,
            FinalSync::Untimed => 0,
        }
    }
}

impl FileOutcome {
    /// What each kind of operation did.
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
/// Raising `stop` ends it early with a partial outcome. The test directory is removed in every case, unless the
/// workload keeps it.
///
/// # Errors
/// Before anything is touched: a contradiction in the description, a path of another kind, too little space. Later:
/// any operation that failed, with file and offset; data that is not what was written.
pub fn run(spec: &FileSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<FileOutcome, BenchError> {
    run_with(spec, &CommonStart::of(1), progress, stop)
}

/// Runs a file workload whose window begins with those of others at one start line.
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

/// Opens the files, sets the cache, measures and verifies.
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
    // What can't be opened is found before the cache is emptied, and what is open keeps its inode in memory.
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
