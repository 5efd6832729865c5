//! The frame of a workload whose threads repeat the same calls on files of their own, until a time or a number of
//! loops is over.
//!
//! The timed window begins when the files of all threads are made and synced. A loop that has begun is completed; the
//! window ends when the last thread has closed its files. A stopped run ends in the same way.

use std::fs::File;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use results::{TimedWindow, nearest_f64};
use serde::Serialize;

use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::file_calls::{FileCalls, Kinds, WHOLE_BYTES};
use crate::prepare::{allow_descriptors, check_room};
use crate::processor::WorkerUse;
use crate::progress::{Phase, Progress};
use crate::scratch::Scratch;
use crate::threads::Shared;
use crate::window::{CountCalls, Moved, Window};
use crate::workload::{Outcome, Workload};

/// Most threads: each has buffers of its own.
const THREADS_MAX: u64 = 1024;

/// Most files of a set.
const FILES_MAX: u64 = 10_000_000;

/// Largest mean size and largest append.
const SIZE_BYTES_MAX: u64 = 64 << 20;

/// A thread of the workload, with its files.
pub trait FileLoop: Sized + Send {
    /// Kind of the workload in jobs and records.
    const NAME: &'static str;
    /// Help about the calls of a loop, and about the source of the settings.
    const HELP: &'static str;
    /// Settings that the user does not give.
    const USUAL: UsualLoops;
    /// Fewest files of a thread.
    const FILES_MIN: u64 = 1;
    /// The loop has [`FileCalls::write_whole`].
    const WRITES_WHOLE: bool = false;

    /// Makes the files that exist at the start. These calls are not measured. It may return early if the run is stopped.
    ///
    /// # Errors
    /// The call that failed.
    fn prepare(share: &Share<'_>, calls: &mut FileCalls) -> Result<Self, BenchError>;

    /// One loop.
    ///
    /// # Errors
    /// The call that failed.
    fn once(&mut self, calls: &mut FileCalls) -> Result<(), BenchError>;

    /// Closes files that stay open from loop to loop, in the timed window; no operation of a loop, so not counted.
    ///
    /// # Errors
    /// The call that failed.
    fn finish(self) -> Result<(), BenchError> {
        Ok(())
    }
}

/// Usual settings, as a user writes them.
#[derive(Debug)]
pub struct UsualLoops {
    /// Number of threads.
    pub threads: &'static str,
    /// Files in the set.
    pub files: &'static str,
    /// Mean size of the files that exist at the start.
    pub mean_size: &'static str,
    /// Largest append.
    pub append: &'static str,
    /// No loop starts later than this.
    pub runtime: &'static str,
}

/// A thread's part of a run.
#[derive(Debug)]
pub struct Share<'run> {
    /// The settings of the run.
    pub loops: &'run Loops,
    /// Number of the thread, from 0.
    pub thread: u32,
    /// The run's own directory.
    pub directory: &'run Path,
    /// Determines names, orders and contents.
    pub seed: u64,
    /// Ends the preparation early.
    pub stop: &'run AtomicBool,
}

/// The specification of a run.
#[derive(Debug, Serialize)]
#[serde(bound = "")]
pub struct LoopsSpec<L> {
    /// An existing directory; the run creates its own directory inside.
    pub directory: PathBuf,
    /// Threads, files and end.
    #[serde(flatten)]
    pub loops: Loops,
    #[serde(skip)]
    kind: PhantomData<fn() -> L>,
}

impl<L> LoopsSpec<L> {
    /// A run of `L` on the file system of `directory`.
    pub const fn new(directory: PathBuf, loops: Loops) -> Self {
        Self {
            directory,
            loops,
            kind: PhantomData,
        }
    }
}

impl<L: FileLoop> Workload for LoopsSpec<L> {
    fn check(&self) -> Result<(), BenchError> {
        self.loops.check::<L>()
    }

    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let outcome = Outcome::new(L::NAME, self, &self.directory);
        self.loops
            .run::<L>(outcome, &self.directory, seed, progress, stop)
    }
}

/// Threads, their files, and the end of their loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loops {
    /// Number of threads.
    pub threads: u32,
    /// Files in the set, at least [`FileLoop::FILES_MIN`] for each thread; 80 % of each thread's share exist at the start.
    pub files: u32,
    /// Mean size of the files that exist at the start.
    pub mean_bytes: u64,
    /// Largest append.
    pub append_bytes: u64,
    /// No loop starts later than this.
    pub run_ns: u64,
    /// Most loops of each thread; `None` for no limit.
    pub loops: Option<u64>,
}

impl Loops {
    /// Runs the threads in a directory inside `parent`, and adds the results to `outcome`.
    fn run<L: FileLoop>(
        &self,
        mut outcome: Outcome,
        parent: &Path,
        seed: u64,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<Outcome, BenchError> {
        let threads = u64::from(self.threads);
        self.check::<L>()?;
        // A file of mean size may get an append. A fifth of the files is absent: room for sizes above the mean.
        let file_bytes = (self.mean_bytes + self.append_bytes).next_multiple_of(4096) + 4096;
        check_room(parent, u64::from(self.files), file_bytes)?;
        // One that stays open and one for the loop.
        allow_descriptors("threads", 2 * threads)?;
        let scratch = Scratch::create(parent)?;
        let shared = &Shared::new(usize::try_from(self.threads).expect("checked to be few"), stop);
        let append_bytes = usize::try_from(self.append_bytes).expect("checked to be at most 64 MiB");
        let write_bytes = match L::WRITES_WHOLE {
            true => append_bytes.max(WHOLE_BYTES),
            false => append_bytes,
        };
        let mut work = Vec::new();
        let mut preparing = FileCalls::new(!seed, WHOLE_BYTES);
        for thread in (0..self.threads).take_while(|_| !stop.load(Ordering::Relaxed)) {
            progress.advance(Phase::Prepare, u64::from(thread), threads);
            let calls = FileCalls::new(seed ^ u64::from(thread), write_bytes);
            let share = Share {
                loops: self,
                thread,
                directory: scratch.path(),
                seed,
                stop,
            };
            let files = L::prepare(&share, &mut preparing)?;
            work.push(move || self.repeat(files, calls, thread, shared));
        }
        if stop.load(Ordering::Relaxed) {
            (outcome.complete, outcome.started_unix_ns) = (false, unix_ns());
            drop(work);
            outcome.leftover(scratch.remove().as_ref());
            return Ok(outcome);
        }
        let synced = File::open(scratch.path()).and_then(|directory| Ok(rustix::fs::syncfs(directory)?));
        synced.map_err(|error| BenchError::io("syncfs", scratch.path(), error))?;
        let window = Window::prepare(parent, CountCalls::No);
        let timed = shared.run_timed(work, window, |elapsed_ns| match self.loops {
            Some(loops) => progress.advance(Phase::Measure, shared.done(), loops.saturating_mul(threads)),
            None => progress.advance(Phase::Measure, elapsed_ns.min(self.run_ns), self.run_ns),
        })?;
        outcome.complete = !stop.load(Ordering::Relaxed);
        outcome.started_unix_ns = timed.started_unix_ns;
        let mut all = Kinds::new();
        for (kind, done) in timed.results.iter().flat_map(|(kinds, _)| kinds) {
            all.entry(kind).or_default().merge(done);
        }
        for (kind, done) in &all {
            let sample = done.sample(kind, TimedWindow::of(timed.elapsed_ns))?;
            outcome.samples.push(sample);
        }
        let read_bytes = all.get("read").map_or(0, |done| done.bytes);
        let moved = Moved {
            read_bytes,
            written_bytes: all.values().map(|done| done.bytes).sum::<u64>() - read_bytes,
        };
        let uses = timed.results.iter().filter_map(|(_, used)| *used);
        outcome.add_window(&timed.window.outcome(moved), uses.reduce(WorkerUse::plus));
        let count = all.values().map(|done| done.count).sum();
        let per_s = nearest_f64(count) / Duration::from_nanos(timed.elapsed_ns).as_secs_f64();
        outcome.count("loops_count", shared.done());
        outcome.count("operations_count", count);
        outcome.counters.insert("operations_per_s".to_owned(), per_s);
        outcome.text = format!("{count} operations, {per_s:.1} per second\n");
        outcome.fact("seed", seed);
        outcome.leftover(scratch.remove().as_ref());
        Ok(outcome)
    }

    /// A thread's loops.
    fn repeat(
        &self,
        mut files: impl FileLoop,
        mut calls: FileCalls,
        thread: u32,
        shared: &Shared<'_>,
    ) -> Result<Option<(Kinds, Option<WorkerUse>)>, BenchError> {
        if !shared.wait() {
            return Ok(None);
        }
        let (began, used) = (Instant::now(), WorkerUse::of_this_thread());
        for number in 1..=self.loops.unwrap_or(u64::MAX) {
            if shared.is_over() || elapsed_ns(began, Instant::now()) >= self.run_ns {
                break;
            }
            files.once(&mut calls)?;
            shared.done_by(thread).store(number, Ordering::Relaxed);
        }
        files.finish()?;
        Ok(Some((calls.kinds, WorkerUse::of_this_thread_since(used))))
    }

    fn check<L: FileLoop>(&self) -> Result<(), BenchError> {
        let threads = u64::from(self.threads);
        for (field, value, low, high) in [
            ("threads", threads, 1, THREADS_MAX),
            ("files", u64::from(self.files), threads * L::FILES_MIN, FILES_MAX),
            ("mean size", self.mean_bytes, 1, SIZE_BYTES_MAX),
            ("append", self.append_bytes, 1, SIZE_BYTES_MAX),
            ("runtime in ns", self.run_ns, 1, u64::MAX),
            ("loops", self.loops.unwrap_or(u64::MAX), 1, u64::MAX),
        ] {
            if !(low..=high).contains(&value) {
                let problem = format!("{value}, expected {low} to {high}");
                return Err(BenchError::spec(field, problem));
            }
        }
        Ok(())
    }
}
