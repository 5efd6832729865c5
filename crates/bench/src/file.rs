//! The file workload: prepare, set the cache, measure, clean up.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use results::LatencyHistogram;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use crate::access::Target;
use crate::cache::{self, CacheOutcome};
use crate::data::RecordBuffer;
use crate::error::BenchError;
use crate::gate::Gate;
use crate::processor::{ProcessorSnapshot, ProcessorUse, WorkerUse};
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::spec::FileSpec;
use crate::worker::{Counter, Shared, Worker, WorkerOutcome, part_of};

/// Size of the writes that prepare files.
const PREPARE_BYTES: u64 = 1 << 20;

/// How often progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Files of the preparation have other contents than the workload writes, so that overwriting changes them.
const PREPARED_SEED: u64 = 0x7072_6570;

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

    fn merge(&mut self, other: &Self) {
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
    /// Syncs: after each record and at the end.
    pub sync: OperationOutcome,
    /// From the first worker's start to the last worker's last operation, per-record syncs included.
    pub operation_ns: u64,
    /// From then until the last final sync had returned.
    pub sync_ns: u64,
    /// From then until the last file was closed.
    pub close_ns: u64,
    /// The machine's processors; `None` when the window was too short to tell.
    pub processor: Option<ProcessorUse>,
    /// The workers together.
    pub workers: Option<WorkerUse>,
    /// The page cache when the window began.
    pub cache: CacheOutcome,
    /// Where the files are, when they were kept.
    pub kept_directory: Option<PathBuf>,
    /// Why the test directory is still there, when removing it failed.
    pub leftover: Option<String>,
}

impl FileOutcome {
    /// The timed window: operations, final sync, close.
    #[must_use]
    pub const fn elapsed_ns(&self) -> u64 {
        self.operation_ns
            .saturating_add(self.sync_ns)
            .saturating_add(self.close_ns)
    }
}

/// Runs a file workload.
///
/// Raising `stop` ends it early with a partial outcome. The test directory is removed in every case, unless the
/// workload keeps it.
///
/// # Errors
/// Before anything is touched: a contradiction in the description, too little space. Later: any operation that
/// failed, with file and offset.
pub fn run(spec: &FileSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<FileOutcome, BenchError> {
    spec.validate()?;
    check_space(spec)?;
    let scratch = Scratch::create(&spec.directory)?;
    let files = prepare(spec, scratch.path(), progress, stop)?;
    let workers = open(spec, &files)?;
    let bytes = if spec.starts_with_content() {
        spec.bytes_in_a_file()
    } else {
        0
    };
    let cache = cache::apply(spec.cache, &files, bytes, progress, stop)?;
    let mut outcome = measure(spec, workers, cache, progress, stop)?;
    if spec.keep_files {
        outcome.kept_directory = Some(scratch.keep());
    } else {
        outcome.leftover = scratch.remove().err().map(|error| error.to_string());
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

/// Refuses a workload that would fill the file system. A file system that reports no size is not judged.
pub(crate) fn check_bytes(directory: &Path, bytes: u64) -> Result<(), BenchError> {
    let space =
        rustix::fs::statvfs(directory).map_err(|errno| BenchError::io("statvfs", directory, errno))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    // A sixteenth for metadata, journals and blocks reserved by the file system.
    let needed_bytes = bytes.saturating_add(bytes / 16).saturating_add(1 << 20);
    if space.f_blocks > 0 && needed_bytes > free_bytes {
        return Err(BenchError::NoSpace {
            directory: directory.to_owned(),
            needed_bytes,
            free_bytes,
        });
    }
    Ok(())
}

fn check_space(spec: &FileSpec) -> Result<(), BenchError> {
    check_bytes(&spec.directory, spec.total_bytes())
}

/// Makes the files: with content where the workload finds files, of full length where it maps them.
fn prepare(
    spec: &FileSpec,
    directory: &Path,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Vec<PathBuf>, BenchError> {
    let length = spec.bytes_in_a_file();
    let mut files = Vec::new();
    for number in 0..spec.files() {
        let path = directory.join(format!("data-{number}"));
        let created = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = created.map_err(|error| BenchError::io("open", &path, error))?;
        if spec.starts_with_content() {
            let before = length * u64::from(number);
            let total = length * u64::from(spec.files());
            fill(spec, &path, &file, stop, |done| {
                progress.advance(Phase::Prepare, before + done, total)
            })?;
        } else if spec.mode.is_mapped() {
            grow(&path, &file, length)?;
        }
        files.push(path);
    }
    Ok(files)
}

fn fill(
    spec: &FileSpec,
    path: &Path,
    file: &File,
    stop: &AtomicBool,
    progress: impl Fn(u64),
) -> Result<(), BenchError> {
    let chunk = usize::try_from(PREPARE_BYTES).expect("1 MiB fits in memory");
    let mut buffer = RecordBuffer::new(chunk, spec.data, spec.seed ^ PREPARED_SEED);
    let length = spec.bytes_in_a_file();
    let mut offset = 0;
    while offset < length && !stop.load(Ordering::Relaxed) {
        let content = buffer.content_at(offset);
        let part = usize::try_from(length - offset).map_or(chunk, |rest| rest.min(chunk));
        let moved = retry_on_intr(|| rustix::io::pwrite(file, &content[..part], offset))
            .and_then(|moved| if moved == 0 { Err(Errno::IO) } else { Ok(moved) })
            .map_err(|errno| BenchError::data("write", path, offset, errno))?;
        offset += u64::try_from(moved).expect("lengths in memory fit in 64 bits");
        progress(offset);
    }
    rustix::fs::fsync(file).map_err(|errno| BenchError::io("fsync", path, errno))
}

/// Gives a file its length with its blocks, so that a full file system is an error here and not a SIGBUS later.
fn grow(path: &Path, file: &File, length: u64) -> Result<(), BenchError> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, length) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file
            .set_len(length)
            .map_err(|error| BenchError::io("ftruncate", path, error)),
        Err(errno) => Err(BenchError::io("fallocate", path, errno)),
    }
}

fn open<'run>(spec: &'run FileSpec, files: &[PathBuf]) -> Result<Vec<Worker<'run>>, BenchError> {
    let record = usize::try_from(spec.record_bytes).expect("records are checked to be at most 1 GiB");
    (0..spec.threads)
        .map(|index| {
            let (path, base) = part_of(spec, files, index);
            let target = Target::open(&path, spec, base)?;
            let seed = spec.seed.wrapping_add(u64::from(index));
            Ok(Worker {
                spec,
                index,
                base,
                target,
                buffer: RecordBuffer::new(record, spec.data, seed),
            })
        })
        .collect()
}

/// The timed window.
fn measure(
    spec: &FileSpec,
    workers: Vec<Worker<'_>>,
    cache: CacheOutcome,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<FileOutcome, BenchError> {
    let shared = Shared {
        gate: Gate::new(),
        stop,
        failed: AtomicBool::new(false),
        done_bytes: (0..spec.threads).map(|_| Counter::default()).collect(),
    };
    let (finished, results) = mpsc::channel();
    let (started_unix_ns, before, answers) = thread::scope(|scope| {
        for worker in workers {
            let (shared, finished, index) = (&shared, finished.clone(), worker.index);
            let spawned = thread::Builder::new()
                .name(format!("bench-{index}"))
                .spawn_scoped(scope, move || {
                    let answer = worker.run(shared);
                    if answer.is_err() {
                        shared.failed.store(true, Ordering::Relaxed);
                    }
                    // The receiver outlives the scope, so this cannot fail.
                    let _ = finished.send(answer);
                });
            if let Err(source) = spawned {
                shared.gate.cancel();
                return Err(BenchError::Thread {
                    worker: index,
                    source,
                });
            }
        }
        shared.gate.wait_for(spec.threads);
        let (started_unix_ns, before) = (unix_ns(), ProcessorSnapshot::take());
        shared.gate.open();
        Ok((
            started_unix_ns,
            before,
            collect(spec, &shared, &results, progress),
        ))
    })?;
    let after = ProcessorSnapshot::take();
    let processor = after.zip(before).and_then(|(after, before)| after.since(&before));
    let outcomes = answers
        .into_iter()
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(combined(spec, &outcomes, started_unix_ns, processor, cache))
}

type Answer = Result<Option<WorkerOutcome>, BenchError>;

/// Waits for all workers and reports progress meanwhile.
fn collect(
    spec: &FileSpec,
    shared: &Shared<'_>,
    results: &mpsc::Receiver<Answer>,
    progress: &dyn Progress,
) -> Vec<Answer> {
    let mut answers = Vec::new();
    for _ in 0..spec.threads {
        let answer = loop {
            match results.recv_timeout(PROGRESS_EVERY) {
                Ok(answer) => break answer,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let done = shared
                        .done_bytes
                        .iter()
                        .map(|counter| counter.0.load(Ordering::Relaxed))
                        .sum();
                    progress.advance(Phase::Measure, done, spec.visited_bytes());
                }
                // Only a worker that panicked ends without an answer; the scope passes the panic on.
                Err(mpsc::RecvTimeoutError::Disconnected) => return answers,
            }
        };
        answers.push(answer);
    }
    let done = shared
        .done_bytes
        .iter()
        .map(|counter| counter.0.load(Ordering::Relaxed))
        .sum();
    progress.advance(Phase::Measure, done, spec.visited_bytes());
    answers
}

fn combined(
    spec: &FileSpec,
    outcomes: &[WorkerOutcome],
    started_unix_ns: u64,
    processor: Option<ProcessorUse>,
    cache: CacheOutcome,
) -> FileOutcome {
    let first = outcomes.iter().map(|worker| worker.began).min();
    let latest = |point: fn(&WorkerOutcome) -> Instant| outcomes.iter().map(point).max();
    let between = |start: Option<Instant>, end: Option<Instant>| {
        start.zip(end).map_or(0, |(start, end)| elapsed_ns(start, end))
    };
    let (worked, synced) = (latest(|worker| worker.worked), latest(|worker| worker.synced));
    let closed = latest(|worker| worker.closed);
    let mut outcome = FileOutcome {
        spec: spec.clone(),
        complete: !outcomes.is_empty() && outcomes.iter().all(|worker| worker.complete),
        started_unix_ns,
        read: OperationOutcome::default(),
        write: OperationOutcome::default(),
        sync: OperationOutcome::default(),
        operation_ns: between(first, worked),
        sync_ns: between(worked, synced),
        close_ns: between(synced, closed),
        processor,
        workers: outcomes
            .iter()
            .map(|worker| worker.usage)
            .try_fold(WorkerUse::default(), |sum, usage| Some(sum.plus(usage?))),
        cache,
        kept_directory: None,
        leftover: None,
    };
    for worker in outcomes {
        outcome.read.merge(&worker.read);
        outcome.write.merge(&worker.write);
        outcome.sync.merge(&worker.sync);
    }
    outcome
}
