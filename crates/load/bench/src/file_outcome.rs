//! The outcome of a file workload, and its samples and counters.

use std::path::PathBuf;

use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow, counter};

use crate::cache::CacheOutcome;
use crate::operation_log::OperationLog;
use crate::processor::{ProcessorUse, WorkerUse};
use crate::spec::{FileSpec, FinalSync};
use crate::verify::ReadBack;
use crate::window::WindowOutcome;
use crate::worker::WorkerOutcome;
use crate::workload::{Measurement, Outcome};

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
    /// The outcome of all workers together, without the counters of the window.
    pub(crate) fn combined(
        spec: &FileSpec,
        outcomes: &[WorkerOutcome],
        started_unix_ns: u64,
        cache: CacheOutcome,
    ) -> Self {
        let started = outcomes.iter().map(|worker| worker.started_ns).min();
        let began = outcomes.iter().map(|worker| worker.began_ns).min();
        let latest = |point: fn(&WorkerOutcome) -> u64| outcomes.iter().map(point).max();
        let between = |start: Option<u64>, end: Option<u64>| {
            start.zip(end).map_or(0, |(start, end)| end.saturating_sub(start))
        };
        let worked = latest(|worker| worker.worked_ns);
        let synced = latest(|worker| worker.synced_ns);
        let closed = latest(|worker| worker.closed_ns);
        let mut outcome = Self {
            spec: spec.clone(),
            complete: !outcomes.is_empty() && outcomes.iter().all(|worker| worker.complete),
            started_unix_ns,
            read: OperationOutcome::default(),
            write: OperationOutcome::default(),
            sync: OperationOutcome::default(),
            final_sync: OperationOutcome::default(),
            ramp_ns: between(started, began),
            operation_ns: between(began, worked),
            sync_ns: between(worked, synced),
            close_ns: between(synced, closed),
            processor: None,
            window: WindowOutcome::default(),
            longest_worker_ns: outcomes
                .iter()
                .map(|worker| worker.synced_ns.saturating_sub(worker.began_ns))
                .max()
                .unwrap_or(0),
            prepare_ns: 0,
            cache_ns: 0,
            workers: outcomes
                .iter()
                .map(|worker| worker.usage)
                .try_fold(WorkerUse::default(), |sum, usage| Some(sum.plus(usage?))),
            cache,
            verified: None,
            logs: Vec::new(),
            kept_directory: None,
            leftover: None,
        };
        let record_bytes = spec.record_bytes;
        for worker in outcomes {
            outcome.read.merge(&worker.latencies.read.outcome(record_bytes));
            outcome.write.merge(&worker.latencies.write.outcome(record_bytes));
            outcome.sync.merge(&worker.latencies.sync.outcome(0));
            outcome.final_sync.merge(&worker.final_sync);
        }
        outcome
    }

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
        outcome.add_window(&self.window, self.workers);
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
        let is_warmer = self.cache.is_warmer_than_asked();
        outcome.notes.extend(is_warmer.then(|| self.cache.describe()));
        outcome.leftover(self.leftover.as_ref());
        outcome.kept_directory = self.kept_directory;
        Ok(outcome)
    }
}
