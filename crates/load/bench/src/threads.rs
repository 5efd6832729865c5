//! The threads of a run: they start together at a barrier, and share a stop flag and progress counters.
//!
//! Invariants:
//! - no thread passes the barrier before all have reached it and the caller is ready;
//! - a thread that fails, panics or can't be started ends the others, at the barrier too;
//! - a panic reaches the caller after all threads have ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::start_barrier::StartBarrier;
use crate::window::{Finished, Running, Window};

/// Interval of progress reports.
pub const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Stack of threads that need no other: the default of the standard library.
pub const STACK_BYTES: usize = 2 << 20;

/// State shared by the threads of a run.
pub struct Shared<'run> {
    barrier: StartBarrier,
    /// Number of threads at the barrier that opens it; more than there are if the caller does.
    opens_at: u32,
    /// Set by the caller.
    stop: &'run AtomicBool,
    /// Ends the other threads after one of them failed.
    failed: AtomicBool,
    /// Progress, one counter per thread.
    done: Vec<Counter>,
}

/// A timed window of threads.
pub struct TimedThreads<T> {
    /// Start of the window (wall clock).
    pub started_unix_ns: u64,
    /// From the opening of the barrier until the last thread ended.
    pub elapsed_ns: u64,
    pub window: Finished,
    /// Results of the threads, without those of cancelled ones.
    pub results: Vec<T>,
}

/// A counter on its own cache line, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Ends the other threads when one panics.
struct EndOnPanic<'run>(&'run Shared<'run>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end();
        }
    }
}

impl<'run> Shared<'run> {
    /// For this number of threads; the barrier opens when the caller is ready too.
    pub fn new(threads: usize, stop: &'run AtomicBool) -> Self {
        Self {
            barrier: StartBarrier::new(),
            opens_at: u32::MAX,
            stop,
            failed: AtomicBool::new(false),
            done: (0..threads).map(|_| Counter::default()).collect(),
        }
    }

    /// Like [`Self::new`]; the last thread opens the barrier, whenever it gets there.
    pub fn opened_by_last(threads: usize, stop: &'run AtomicBool) -> Self {
        Self {
            opens_at: u32::try_from(threads).unwrap_or(u32::MAX),
            ..Self::new(threads, stop)
        }
    }

    /// Called by a thread: waits for the others at the barrier. Returns false if the run was cancelled.
    pub fn wait(&self) -> bool {
        self.barrier.wait_as_one_of(self.opens_at)
    }

    /// Cancels a run whose threads have not passed the barrier.
    pub fn cancel(&self) {
        self.barrier.cancel();
    }

    /// Ends all threads.
    pub fn end(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.barrier.cancel();
    }

    /// True once the threads are to end; another stop flag for runs inside this one.
    pub const fn ended(&self) -> &AtomicBool {
        &self.failed
    }

    /// True when threads should end as soon as they can.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// The progress of a thread, which only that thread writes.
    pub fn done_by(&self, thread: u32) -> &AtomicU64 {
        let place = usize::try_from(thread).expect("numbers of threads fit in memory");
        &self.done[place].0
    }

    /// The progress of all threads.
    pub fn done(&self) -> u64 {
        let counters = self.done.iter();
        counters.map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    /// Runs one thread per item of `work`, and returns their results in that order, without those of cancelled ones.
    ///
    /// When all threads wait at the barrier, `ready` prepares the window, and the barrier opens. `watch` is called
    /// regularly until the last thread has ended; it returns the time until its next call.
    ///
    /// # Errors
    /// The error of the first thread that failed, or that could not be started.
    pub fn run<W, T, S>(
        &self,
        (name, stack_bytes): (&str, usize),
        work: Vec<W>,
        ready: impl FnOnce() -> S,
        mut watch: impl FnMut(&mut S) -> Duration,
    ) -> Result<(S, Vec<T>), BenchError>
    where
        W: FnOnce() -> Result<Option<T>, BenchError> + Send,
        T: Send,
    {
        let (finished, results) = mpsc::channel();
        let mut ended: Vec<Option<T>> = work.iter().map(|_| None).collect();
        let mut failure = None;
        let state = thread::scope(|scope| {
            for (index, work) in (0_u32..).zip(work) {
                let finished = finished.clone();
                let run = move || {
                    let _end = EndOnPanic(self);
                    let result = work();
                    if result.is_err() {
                        self.end();
                    }
                    // The others would wait for a thread that has not been at the barrier.
                    self.cancel();
                    // The receiver outlives the scope, so this cannot fail.
                    let _ = finished.send((index, result));
                };
                let thread = thread::Builder::new()
                    .name(format!("{name}-{index}"))
                    .stack_size(stack_bytes);
                if let Err(source) = thread.spawn_scoped(scope, run) {
                    self.end();
                    let worker = index;
                    return Err(BenchError::Thread { worker, source });
                }
            }
            // Only the threads hold a sender: when all have ended, by panics too, the channel is closed.
            drop(finished);
            let threads = u32::try_from(ended.len()).unwrap_or(u32::MAX);
            if threads < self.opens_at {
                self.barrier.wait_for(threads);
            }
            let mut state = ready();
            if threads < self.opens_at {
                self.barrier.open();
            }
            loop {
                match results.recv_timeout(watch(&mut state)) {
                    Ok((index, Ok(result))) => {
                        ended[usize::try_from(index).expect("threads fit in memory")] = result;
                    }
                    Ok((_, Err(error))) => {
                        failure.get_or_insert(error);
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(state),
                }
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None => Ok((state, ended.into_iter().flatten().collect())),
        }
    }

    /// Like [`Self::run`], in a window that begins when the barrier opens and ends with the last thread. `report` gets
    /// the time since then, at the beginning, about ten times a second, and at the end.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_timed<W, T>(
        &self,
        work: Vec<W>,
        window: Window,
        report: impl Fn(u64),
    ) -> Result<TimedThreads<T>, BenchError>
    where
        W: FnOnce() -> Result<Option<T>, BenchError> + Send,
        T: Send,
    {
        let ready = || {
            report(0);
            (unix_ns(), window.begin(), Instant::now())
        };
        let watch = |(_, _, began): &mut (u64, Running, Instant)| {
            report(elapsed_ns(*began, Instant::now()));
            PROGRESS_EVERY
        };
        let ((started_unix_ns, running, began), results) =
            self.run(("bench", STACK_BYTES), work, ready, watch)?;
        let elapsed_ns = elapsed_ns(began, Instant::now());
        let window = running.finish();
        report(elapsed_ns);
        Ok(TimedThreads {
            started_unix_ns,
            elapsed_ns,
            window,
            results,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    type Work<'run> = Box<dyn FnOnce() -> Result<Option<u32>, BenchError> + Send + 'run>;

    fn run(shared: &Shared<'_>, work: Vec<Work<'_>>) -> Result<Vec<u32>, BenchError> {
        let watch = |(): &mut ()| PROGRESS_EVERY;
        let ran = shared.run(("test", STACK_BYTES), work, || (), watch);
        ran.map(|((), results)| results)
    }

    fn waits<'run>(shared: &'run Shared<'_>, number: u32) -> Work<'run> {
        Box::new(move || Ok(shared.wait().then_some(number)))
    }

    #[test]
    fn results_come_in_the_order_of_the_threads() {
        let stop = AtomicBool::new(false);
        let shared = Shared::new(3, &stop);
        let work = (0..3).map(|number| waits(&shared, number)).collect();
        assert_eq!(run(&shared, work).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn no_thread_passes_the_barrier_before_all_are_there_and_the_caller_is_ready() {
        const THREADS: u64 = 4;
        let stop = AtomicBool::new(false);
        let shared = &Shared::new(4, &stop);
        let (arrived, passed) = (&AtomicU64::new(0), &AtomicU64::new(0));
        let work = (0..THREADS).map(|number| {
            move || {
                // Arrivals are spread out, so that a barrier that does not wait is noticed.
                (0..number * 100).for_each(|_| thread::yield_now());
                arrived.fetch_add(1, Ordering::SeqCst);
                assert!(shared.wait());
                passed.fetch_add(1, Ordering::SeqCst);
                Ok(Some(()))
            }
        });
        let ready = || (arrived.load(Ordering::SeqCst), passed.load(Ordering::SeqCst));
        let watch = |_: &mut _| PROGRESS_EVERY;
        let ran = shared.run(("test", STACK_BYTES), work.collect(), ready, watch);
        let (when_ready, results) = ran.unwrap();
        assert_eq!((when_ready, results.len()), ((THREADS, 0), 4));
    }

    #[test]
    fn a_thread_that_fails_before_the_barrier_cancels_the_run_with_its_error() {
        let stop = AtomicBool::new(false);
        let shared = Shared::new(2, &stop);
        let fails: Work<'_> = Box::new(|| Err(BenchError::spec("size", "wrong")));
        let error = run(&shared, vec![waits(&shared, 0), fails]).unwrap_err();
        assert!(error.to_string().contains("wrong"), "{error}");
        assert!(shared.is_over());
    }

    #[test]
    fn a_panic_ends_the_other_threads_and_reaches_the_caller() {
        for waits_first in [false, true] {
            let stop = AtomicBool::new(false);
            let shared = Shared::new(2, &stop);
            let others = || {
                assert!(!waits_first || shared.wait());
                panic!("of the test");
            };
            let until_over = || {
                if shared.wait() {
                    while !shared.is_over() {
                        thread::yield_now();
                    }
                }
                Ok(None)
            };
            let work: Vec<Work<'_>> = vec![Box::new(others), Box::new(until_over)];
            let ran = catch_unwind(AssertUnwindSafe(|| run(&shared, work)));
            assert!(ran.is_err(), "waits first: {waits_first}");
        }
    }
}
