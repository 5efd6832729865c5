//! Runs several file workloads concurrently: each is prepared separately, and their windows begin at one start
//! barrier.
//!
//! System-wide counters (processors, block device) cover all workloads together in each outcome, because they share
//! one machine. A workload that fails ends the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::error::BenchError;
use crate::file::{FileOutcome, run_with};
use crate::progress::{Phase, Progress};
use crate::spec::FileSpec;
use crate::start_barrier::CommonStart;

/// Interval at which a stop is passed on to the workloads.
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(50);

/// Runs workloads at the same time; returns their outcomes in the order of `specs`.
///
/// # Errors
/// The first error of [`crate::run`]; the other workloads are then stopped, and their files removed.
pub fn run_together(
    specs: &[FileSpec],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Vec<FileOutcome>, BenchError> {
    // All are validated before any of them creates a file.
    specs.iter().try_for_each(FileSpec::validate)?;
    let line = CommonStart::of(u32::try_from(specs.len()).unwrap_or(u32::MAX));
    let all = Shares::new(specs.len(), progress);
    let stop_all = AtomicBool::new(false);
    let (ended, ends) = mpsc::channel();
    thread::scope(|scope| {
        for (number, spec) in specs.iter().enumerate() {
            let (line, stop_all, ended, share) = (&line, &stop_all, ended.clone(), all.share(number));
            let spawned = thread::Builder::new()
                .name(format!("workload-{number}"))
                .spawn_scoped(scope, move || {
                    let outcome = run_with(spec, line, &share, stop_all);
                    // The others would wait for a workload that ends before it reaches the barrier.
                    line.cancel();
                    // The receiver outlives the scope, so this cannot fail.
                    let _ = ended.send((number, outcome));
                });
            if let Err(source) = spawned {
                stop_all.store(true, Ordering::Relaxed);
                line.cancel();
                return Err(BenchError::Thread {
                    worker: u32::try_from(number).unwrap_or(u32::MAX),
                    source,
                });
            }
        }
        drop(ended);
        collected(specs.len(), &ends, &stop_all, stop)
    })
}

fn collected(
    count: usize,
    ends: &mpsc::Receiver<(usize, Result<FileOutcome, BenchError>)>,
    stop_all: &AtomicBool,
    stop: &AtomicBool,
) -> Result<Vec<FileOutcome>, BenchError> {
    let mut outcomes: Vec<Option<FileOutcome>> = vec![None; count];
    let mut failure = None;
    loop {
        match ends.recv_timeout(STOP_SEEN_WITHIN) {
            Ok((number, Ok(outcome))) => outcomes[number] = Some(outcome),
            Ok((_, Err(error))) => {
                stop_all.store(true, Ordering::Relaxed);
                failure.get_or_insert(error);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if stop.load(Ordering::Relaxed) {
                    stop_all.store(true, Ordering::Relaxed);
                }
            }
            // All have ended; the scope propagates a panic.
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(outcomes.into_iter().flatten().collect()),
    }
}

/// Combines the workloads' progress into one: the earliest phase, and the amounts of the workloads in it.
struct Shares<'run> {
    reported: Mutex<Vec<Option<(Phase, u64, u64)>>>,
    progress: &'run dyn Progress,
}

struct Share<'run> {
    all: &'run Shares<'run>,
    number: usize,
}

impl<'run> Shares<'run> {
    fn new(count: usize, progress: &'run dyn Progress) -> Self {
        Self {
            reported: Mutex::new(vec![None; count]),
            progress,
        }
    }

    const fn share(&'run self, number: usize) -> Share<'run> {
        Share { all: self, number }
    }
}

impl Progress for Share<'_> {
    fn advance(&self, phase: Phase, done: u64, total: u64) {
        let mut reported = self.all.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported[self.number] = Some((phase, done, total));
        let begun = || reported.iter().flatten();
        let Some(earliest) = begun()
            .map(|(phase, ..)| *phase)
            .min_by_key(|phase| place(*phase))
        else {
            return;
        };
        let (mut done, mut total) = (0_u64, 0_u64);
        for (_, one_done, one_total) in begun().filter(|(phase, ..)| *phase == earliest) {
            done = done.saturating_add(*one_done);
            total = total.saturating_add(*one_total);
        }
        self.all.progress.advance(earliest, done, total);
    }
}

/// Position of a phase in a file workload.
const fn place(phase: Phase) -> u8 {
    match phase {
        Phase::Prepare => 0,
        Phase::Cache => 1,
        Phase::Verify => 3,
        _ => 2,
    }
}
