//! Who runs the pieces of a request: the caller, or one worker a member with a queue of its own
//! (seeds/001 section 3.2.2).
//!
//! A worker takes the jobs of its member first in, first out. Of the jobs of one request the last runs in the caller's
//! thread, which would only wait otherwise; a request with a single job meets no other thread at all. Members keep
//! their own locks, so a job in the caller's thread and one in the member's queue never overlap on a device.
//!
//! Jobs own their data: no borrow crosses a thread, and a panic of a job reaches the caller.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// How an array runs the pieces of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Execution {
    /// One after the other in the caller's thread, in the order of the members: for virtual time and tests.
    #[default]
    Inline,
    /// One thread a member: for devices that take real time.
    Threads,
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs for members. Dropping it ends the workers after what is queued.
#[derive(Debug)]
pub struct Executor {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    queue: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Executor {
    /// An executor for `members` members.
    ///
    /// # Errors
    /// When the host gives no more threads.
    pub fn new(execution: Execution, members: usize) -> std::io::Result<Self> {
        let count = match execution {
            Execution::Threads if members > 1 => members,
            Execution::Threads | Execution::Inline => 0,
        };
        let workers = (0..count).map(Worker::start).collect::<std::io::Result<_>>()?;
        Ok(Self { workers })
    }

    /// Runs one job for each named member and returns what they gave, in the same order. Returns when all have ended.
    ///
    /// # Panics
    /// With the panic of a job, after all have ended.
    pub fn run<R, J>(&self, jobs: Vec<(usize, J)>) -> Vec<R>
    where
        R: Send + 'static,
        J: FnOnce() -> R + Send + 'static,
    {
        if self.workers.is_empty() || jobs.len() < 2 {
            return jobs.into_iter().map(|(_, job)| job()).collect();
        }
        let count = jobs.len();
        let (done, results) = channel();
        let mut jobs = jobs.into_iter().enumerate();
        let own = jobs.next_back();
        for (place, (member, job)) in jobs {
            let done = done.clone();
            let job = Box::new(move || {
                let result = catch_unwind(AssertUnwindSafe(job));
                // The caller waits for every result, so the channel is open.
                let _ = done.send((place, result));
            });
            self.workers[member].queue(job);
        }
        if let Some((place, (_, job))) = own {
            let _ = done.send((place, catch_unwind(AssertUnwindSafe(job))));
        }
        drop(done);
        in_order(results, count)
    }
}

fn in_order<R>(results: Receiver<(usize, std::thread::Result<R>)>, count: usize) -> Vec<R> {
    let mut ordered: Vec<Option<std::thread::Result<R>>> = (0..count).map(|_| None).collect();
    for (place, result) in results {
        ordered[place] = Some(result);
    }
    ordered
        .into_iter()
        .map(|result| {
            result
                .expect("a worker answers every job")
                .unwrap_or_else(|panic| resume_unwind(panic))
        })
        .collect()
}

impl Worker {
    fn start(member: usize) -> std::io::Result<Self> {
        let (queue, jobs) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name(format!("member {member}"))
            .spawn(move || jobs.into_iter().for_each(|job| job()))?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    fn queue(&self, job: Job) {
        let sent = self.queue.as_ref().map(|queue| queue.send(job).is_ok());
        assert_eq!(sent, Some(true), "a worker lives as long as its executor");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // Jobs catch their panics, so the thread ends well.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for execution in [Execution::Inline, Execution::Threads] {
            let executor = Executor::new(execution, 4).unwrap();
            let jobs = (0..4).rev().map(|member| (member, move || member * 10)).collect();
            assert_eq!(executor.run(jobs), [30, 20, 10, 0], "{execution:?}");
        }
    }

    #[test]
    fn with_threads_the_jobs_of_a_request_run_at_the_same_time() {
        let executor = Executor::new(Execution::Threads, 4).unwrap();
        let meeting = Arc::new(Barrier::new(4));
        // Would wait for ever if two of them shared a thread.
        let jobs = (0..4).map(|member| {
            let meeting = Arc::clone(&meeting);
            (member, move || meeting.wait().is_leader())
        });
        assert_eq!(
            executor
                .run(jobs.collect())
                .into_iter()
                .filter(|leader| *leader)
                .count(),
            1
        );
    }

    #[test]
    fn a_single_job_runs_in_the_callers_thread() {
        let executor = Executor::new(Execution::Threads, 4).unwrap();
        let jobs = vec![(2, || std::thread::current().id())];
        assert_eq!(executor.run(jobs), [std::thread::current().id()]);
    }

    #[test]
    fn a_panic_of_a_job_reaches_the_caller_and_the_executor_works_on() {
        let executor = Executor::new(Execution::Threads, 2).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            executor.run(
                (0..2)
                    .map(|member| (member, move || assert_eq!(member, 1)))
                    .collect(),
            )
        }));
        assert!(panicked.is_err());
        assert_eq!(
            executor.run((0..2).map(|member| (member, move || member)).collect()),
            [0, 1]
        );
    }
}
