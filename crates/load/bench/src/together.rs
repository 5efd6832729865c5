//! Runs several file workloads concurrently: each is prepared separately, and their windows begin at one start
//! barrier.
//!
//! System-wide counters (processors, block device) cover all workloads together in each outcome, because they share
//! one machine. A workload that fails ends the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::BenchError;
use crate::file::run_with;
use crate::file_outcome::FileOutcome;
use crate::progress::{Phase, Progress};
use crate::spec::FileSpec;
use crate::threads::{STACK_BYTES, Shared};

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
    let all = &Shares::new(specs.len(), progress);
    let shared = &Shared::opened_by_last(specs.len(), stop);
    let work = specs.iter().enumerate().map(|(number, spec)| {
        let share = all.share(number);
        move || run_with(spec, Some(shared), &share, shared.ended()).map(Some)
    });
    let watch = |(): &mut ()| {
        if stop.load(Ordering::Relaxed) {
            shared.end();
        }
        STOP_SEEN_WITHIN
    };
    let ran = shared.run(("workload", STACK_BYTES), work.collect(), || (), watch);
    ran.map(|((), outcomes)| outcomes)
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
