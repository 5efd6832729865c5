//! The timed window of all workers, from the barrier to the last close.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::access::Target;
use crate::cache::CacheOutcome;
use crate::clock::monotonic_ns;
use crate::error::BenchError;
use crate::file::{FileOutcome, OperationOutcome, unix_ns};
use crate::processor::WorkerUse;
use crate::progress::{Phase, Progress};
use crate::spec::FileSpec;
use crate::start_barrier::{CommonStart, StartBarrier};
use crate::verify::Generations;
use crate::window::{Absent, CountCalls, Moved, Running, Window, WindowOutcome};
use crate::worker::{Answer, Counter, Shared, WorkerOutcome};
use crate::worker_setup::WorkerSetup;

/// Interval of progress reports.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Start of the measurement: wall clock for people, and the system's counters.
struct Start {
    unix_ns: u64,
    window: Running,
}

impl Start {
    fn take(window: Window) -> Self {
        Self {
            unix_ns: unix_ns(),
            window: window.begin(),
        }
    }

    /// Restarts the measurement after the ramp; earlier counts are discarded.
    fn again(&mut self, spec: &FileSpec) {
        *self = Self::take(Window::prepare(&spec.directory, CountCalls::No));
    }
}

/// The generations that each worker wrote, for verification.
pub type Parts = Vec<(u32, Generations)>;

/// Runs the workers. The files in `held` are closed after the workers have opened theirs, so that the last close is a
/// worker's.
pub fn measure(
    spec: &FileSpec,
    (setups, held): (Vec<WorkerSetup<'_>>, Vec<Target>),
    cache: CacheOutcome,
    line: &CommonStart,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(FileOutcome, Parts), BenchError> {
    let shared = Shared {
        barrier: StartBarrier::new(),
        stop,
        failed: AtomicBool::new(false),
        done_bytes: (0..spec.threads).map(|_| Counter::default()).collect(),
    };
    let (finished, results) = mpsc::channel();
    let count_calls = if spec.count_calls {
        CountCalls::Yes
    } else {
        CountCalls::No
    };
    let window = Window::prepare(&spec.directory, count_calls);
    let (start, answers) = thread::scope(|scope| {
        for setup in setups {
            setup.start(scope, spec, &shared, finished.clone())?;
        }
        shared.barrier.wait_for(spec.threads);
        drop(held);
        if !line.meet() {
            shared.barrier.cancel();
        }
        // A short window ends before the first report from inside it.
        let (_, total) = position(spec, &shared, 0);
        progress.advance(Phase::Measure, 0, total);
        let mut start = Start::take(window);
        shared.barrier.open();
        let answers = collect(spec, &shared, &results, progress, &mut start);
        Ok::<_, BenchError>((start, answers))
    })?;
    let window = start.window.finish();
    let mut outcomes = answers
        .into_iter()
        .filter_map(Result::transpose)
        .collect::<Result<Vec<_>, _>>()?;
    let mut outcome = combined(spec, &outcomes, start.unix_ns, cache);
    outcome.window = window.outcome(Moved {
        read_bytes: outcome.read.bytes,
        written_bytes: outcome.write.bytes,
    });
    outcome.processor = outcome.window.processor;
    let shared_table = outcomes.iter().find_map(|worker| worker.shared_table);
    outcome.window.absent.extend(shared_table.map(|errno| Absent {
        what: "a table of descriptors for each thread",
        reason: format!(
            "{errno}; each call takes some 3 % longer than a thread of its own process would need"
        ),
    }));
    outcomes.sort_by_key(|worker| worker.index);
    outcome.logs = outcomes
        .iter_mut()
        .filter_map(|worker| worker.log.take())
        .collect();
    let parts = outcomes
        .into_iter()
        .filter_map(|worker| Some((worker.index, worker.generations?)));
    // Fails here rather than in a later record or table.
    outcome.samples()?;
    Ok((outcome, parts.collect()))
}

/// Waits for all workers and reports progress meanwhile.
fn collect(
    spec: &FileSpec,
    shared: &Shared<'_>,
    results: &mpsc::Receiver<Answer>,
    progress: &dyn Progress,
    start: &mut Start,
) -> Vec<Answer> {
    let opened_ns = monotonic_ns();
    let mut ramp_ns = spec.time.map_or(0, |limit| limit.ramp_ns);
    let mut answers = Vec::new();
    for _ in 0..spec.threads {
        let answer = loop {
            let elapsed_ns = monotonic_ns().saturating_sub(opened_ns);
            let wait = match ramp_ns.checked_sub(elapsed_ns) {
                Some(left) if left > 0 => Duration::from_nanos(left).min(PROGRESS_EVERY),
                _ => PROGRESS_EVERY,
            };
            match results.recv_timeout(wait) {
                Ok(answer) => break answer,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let elapsed_ns = monotonic_ns().saturating_sub(opened_ns);
                    if ramp_ns > 0 && elapsed_ns >= ramp_ns {
                        ramp_ns = 0;
                        start.again(spec);
                    }
                    let (done, total) = position(spec, shared, elapsed_ns);
                    progress.advance(Phase::Measure, done.min(total), total);
                }
                // Only a worker that panicked ends without an answer; the scope propagates the panic.
                Err(mpsc::RecvTimeoutError::Disconnected) => return answers,
            }
        };
        answers.push(answer);
    }
    let (done, total) = position(spec, shared, u64::MAX);
    progress.advance(Phase::Measure, done.min(total), total);
    answers
}

/// Progress of the run: in bytes, or in time for a time-based run.
fn position(spec: &FileSpec, shared: &Shared<'_>, elapsed_ns: u64) -> (u64, u64) {
    match spec.time {
        Some(limit) => (elapsed_ns, limit.ramp_ns.saturating_add(limit.run_ns)),
        None => {
            let counters = shared.done_bytes.iter();
            let done = counters.map(|counter| counter.0.load(Ordering::Relaxed)).sum();
            (done, spec.visited_bytes())
        }
    }
}

fn combined(
    spec: &FileSpec,
    outcomes: &[WorkerOutcome],
    started_unix_ns: u64,
    cache: CacheOutcome,
) -> FileOutcome {
    let started = outcomes.iter().map(|worker| worker.started_ns).min();
    let began = outcomes.iter().map(|worker| worker.began_ns).min();
    let latest = |point: fn(&WorkerOutcome) -> u64| outcomes.iter().map(point).max();
    let between = |start: Option<u64>, end: Option<u64>| {
        start.zip(end).map_or(0, |(start, end)| end.saturating_sub(start))
    };
    let worked = latest(|worker| worker.worked_ns);
    let synced = latest(|worker| worker.synced_ns);
    let closed = latest(|worker| worker.closed_ns);
    let mut outcome = FileOutcome {
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
