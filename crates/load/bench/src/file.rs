//! The file workload: prepare, set the cache, measure, verify, clean up.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::access::Target;
use crate::cache::{self, CacheOutcome};
use crate::clock::monotonic_ns;
use crate::engine;
use crate::error::BenchError;
use crate::file_outcome::FileOutcome;
use crate::order::RecordOrder;
use crate::placement::{FilePlacement, NamedFiles};
use crate::prepare;
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::spec::{Cache, DeviceAccess, FileSpec};
use crate::threads::{PROGRESS_EVERY, STACK_BYTES, Shared};
use crate::verify;
use crate::window::{Absent, CountCalls, Moved, Running, Window};
use crate::worker::{self, WorkerOutcome};
use crate::workload::{Measurement, Outcome, Workload};

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
    run_with(spec, None, progress, stop)
}

/// Runs a file workload, whose window begins together with those of the other threads of `together`.
pub(crate) fn run_with(
    spec: &FileSpec,
    together: Option<&Shared<'_>>,
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
        return measure(
            spec,
            std::slice::from_ref(&spec.directory),
            together,
            progress,
            stop,
        );
    }
    if let FilePlacement::Named { prefix } = &spec.files {
        let began = Instant::now();
        let files = NamedFiles::prepare(spec, prefix, progress, stop)?;
        let prepared = Instant::now();
        let mut outcome = measure(spec, files.paths(), together, progress, stop)?;
        outcome.prepare_ns = elapsed_ns(began, prepared);
        files.keep();
        outcome.kept_directory = Some(spec.directory.clone());
        return Ok(outcome);
    }
    let scratch = Scratch::create(&spec.directory)?;
    let began = Instant::now();
    let files = prepare::make_files(spec, scratch.path(), progress, stop)?;
    let prepared = Instant::now();
    let mut outcome = measure(spec, &files, together, progress, stop)?;
    outcome.prepare_ns = elapsed_ns(began, prepared);
    (outcome.kept_directory, outcome.leftover) = match spec.keep_files {
        true => (Some(scratch.keep()), None),
        false => (None, scratch.remove()),
    };
    Ok(outcome)
}

/// Opens the files, prepares the cache, measures and verifies.
pub(crate) fn measure(
    spec: &FileSpec,
    files: &[PathBuf],
    together: Option<&Shared<'_>>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<FileOutcome, BenchError> {
    // Open every file before dropping caches: errors surface early, and open inodes stay cached.
    let held = (0..spec.threads).map(|index| worker::open(spec, index, files));
    let held = held.collect::<Result<Vec<_>, _>>()?;
    let bytes = match spec.device {
        DeviceAccess::Refused => spec.prepared_bytes_in_a_file(),
        DeviceAccess::Read | DeviceAccess::Destroy => spec.bytes_in_a_file(),
    };
    let prepare_cache = || {
        let began = Instant::now();
        let cache = cache::apply(spec.cache, files, bytes, progress, stop)?;
        if spec.cold_or_fail && !cache.is_proven_cold() && !spec.mode.is_direct() {
            let state = cache.describe();
            return Err(BenchError::NotCold { state });
        }
        Ok((cache, elapsed_ns(began, Instant::now())))
    };
    // On many mounts in user space an open drops the pages of the file: a warm one is read after the last open. In mapped
    // modes the worker makes its pages present itself.
    let late = spec.cache == Cache::Warm && !spec.mode.is_mapped();
    let early = (!late).then(prepare_cache).transpose()?;
    let cache_at_start = || early.map_or_else(prepare_cache, Ok);
    let (start, mut workers) = run_workers(spec, (files, held), cache_at_start, together, progress, stop)?;
    let window = start.window.finish();
    let (cache, cache_ns) = start.cache?;
    let mut outcome = FileOutcome::combined(spec, &workers, start.unix_ns, cache);
    outcome.cache_ns = cache_ns;
    outcome.window = window.outcome(Moved {
        read_bytes: outcome.read.bytes,
        written_bytes: outcome.write.bytes,
    });
    outcome.processor = outcome.window.processor;
    let shared_table = workers.iter().find_map(|worker| worker.shared_table);
    outcome.window.absent.extend(shared_table.map(|errno| Absent {
        what: "a table of descriptors for each thread",
        reason: format!(
            "{errno}; each call takes some 3 % longer than a thread of its own process would need"
        ),
    }));
    outcome.logs = workers
        .iter_mut()
        .filter_map(|worker| worker.log.take())
        .collect();
    // Fails here rather than in a later record or table.
    outcome.samples()?;
    if spec.verify && outcome.complete {
        cache::give_up_pages(files)?;
        let parts = workers.into_iter();
        let parts: Vec<_> = parts
            .filter_map(|worker| Some((worker.index, worker.generations?)))
            .collect();
        let read_back = verify::read_back(spec, files, &parts, progress, stop)?;
        outcome.verified = Some(read_back);
    }
    Ok(outcome)
}

/// Start of the measurement: wall clock for people, and the system's counters.
struct Start {
    unix_ns: u64,
    window: Running,
    opened_ns: u64,
    /// Length of the ramp, until it is over.
    ramp_ns: u64,
    cache: PreparedCache,
}

/// The state of the cache at the start, and the time that its preparation took (ns).
type PreparedCache = Result<(CacheOutcome, u64), BenchError>;

impl Start {
    /// Restarts the measurement at the end of the ramp, discarding earlier counts; returns the time until the next
    /// progress report.
    fn after_ramp(&mut self, spec: &FileSpec, elapsed_ns: u64) -> Duration {
        let left = self.ramp_ns.saturating_sub(elapsed_ns);
        if left > 0 {
            return Duration::from_nanos(left).min(PROGRESS_EVERY);
        }
        if self.ramp_ns > 0 {
            self.ramp_ns = 0;
            self.unix_ns = unix_ns();
            self.window = Window::prepare(&spec.directory, CountCalls::No).begin();
        }
        PROGRESS_EVERY
    }
}

/// The timed window of all workers, from the barrier to the last close. The files in `held` are closed after the
/// workers have opened theirs, so that the last close is a worker's; then `cache_at_start` is called.
fn run_workers(
    spec: &FileSpec,
    (files, held): (&[PathBuf], Vec<Target>),
    cache_at_start: impl FnOnce() -> PreparedCache,
    together: Option<&Shared<'_>>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(Start, Vec<WorkerOutcome>), BenchError> {
    let shared = &Shared::new(held.len(), stop);
    let orders = RecordOrder::of_all(spec).into_iter();
    let work = (0..)
        .zip(orders)
        .map(|(index, order)| move || engine::run(spec, index, files, order, shared));
    let count_calls = if spec.count_calls {
        CountCalls::Yes
    } else {
        CountCalls::No
    };
    let window = Window::prepare(&spec.directory, count_calls);
    let report = |elapsed_ns| {
        let (done, total) = match spec.time {
            Some(limit) => (elapsed_ns, limit.ramp_ns.saturating_add(limit.run_ns)),
            None => (shared.done(), spec.visited_bytes()),
        };
        progress.advance(Phase::Measure, done.min(total), total);
    };
    let ready = || {
        drop(held);
        let cache = cache_at_start();
        if cache.is_err() || !together.is_none_or(Shared::wait) {
            shared.cancel();
        }
        // A short window ends before the first report from inside it.
        report(0);
        Start {
            unix_ns: unix_ns(),
            window: window.begin(),
            opened_ns: monotonic_ns(),
            ramp_ns: spec.time.map_or(0, |limit| limit.ramp_ns),
            cache,
        }
    };
    let watch = |start: &mut Start| {
        let elapsed_ns = monotonic_ns().saturating_sub(start.opened_ns);
        report(elapsed_ns);
        start.after_ramp(spec, elapsed_ns)
    };
    let ran = shared.run(("bench", STACK_BYTES), work.collect(), ready, watch)?;
    report(u64::MAX);
    Ok(ran)
}

pub(crate) fn elapsed_ns(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
