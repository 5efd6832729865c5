//! Executor of the pieces of a request: in the caller's thread, or on one worker per member, each with its own queue
//! (seeds/001 section 3.2.2).
//!
//! A worker runs its member's jobs first in, first out. The last job of a request runs in the caller's thread, which
//! would otherwise only wait; a request with a single job involves no other thread. Members have their own locks, so a
//! job in the caller's thread and one in the member's queue never overlap on a device.
//!
//! Jobs own their data: no borrow crosses a thread, and a panic of a job reaches the caller.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Mode of execution of the pieces of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Execution {
    /// In sequence in the caller's thread, in the order of the members: for virtual time and tests.
    #[default]
    Inline,
    /// One thread per member: for devices that take real time.
    Threads,
}

/// Time that a thread spins before it sleeps. Members that start a row together finish it at nearly the same time, and
/// the next row follows immediately; waking a thread of a virtual machine takes 30 to 80 us, up to three times per row.
const SOON: Duration = Duration::from_micros(100);

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs for members. Dropping it ends the workers after their queued jobs.
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
    /// Creates an executor for `members` members.
    ///
    /// # Errors
    /// When the host can't start more threads.
    pub fn new(execution: Execution, members: usize) -> std::io::Result<Self> {
        let count = match execution {
            Execution::Threads if members > 1 => members,
            Execution::Threads | Execution::Inline => 0,
        };
        let workers = (0..count).map(Worker::start).collect::<std::io::Result<_>>()?;
        Ok(Self { workers })
    }

    /// Runs one job for each listed member. Returns their results in the same order, after all have ended.
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
        let answers = Arc::new(Answers::to(jobs.len()));
        let mut jobs = jobs.into_iter().enumerate();
        let own = jobs.next_back();
        for (place, (member, job)) in jobs {
            let answers = Arc::clone(&answers);
            self.workers[member].queue(Box::new(move || {
                answers.put(place, catch_unwind(AssertUnwindSafe(job)));
            }));
        }
        if let Some((place, (_, job))) = own {
            answers.put(place, catch_unwind(AssertUnwindSafe(job)));
        }
        let all = answers.all().into_iter();
        all.map(|answer| answer.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    }
}

/// Results of the jobs of a request. The last job wakes the waiter, once: each wake-up costs as much as preparing a few
/// pages.
struct Answers<R> {
    given: Mutex<Given<R>>,
    all_there: Condvar,
}

struct Given<R> {
    answers: Vec<Option<std::thread::Result<R>>>,
    missing: usize,
}

impl<R> Answers<R> {
    fn to(jobs: usize) -> Self {
        let given = Given {
            answers: (0..jobs).map(|_| None).collect(),
            missing: jobs,
        };
        Self {
            given: Mutex::new(given),
            all_there: Condvar::new(),
        }
    }

    fn given(&self) -> MutexGuard<'_, Given<R>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, place: usize, answer: std::thread::Result<R>) {
        let mut given = self.given();
        given.answers[place] = Some(answer);
        given.missing -= 1;
        if given.missing == 0 {
            drop(given);
            self.all_there.notify_one();
        }
    }

    /// Waits for all results and takes them.
    fn all(&self) -> Vec<std::thread::Result<R>> {
        soon(|| (self.given().missing == 0).then_some(()));
        let waiting = self.all_there.wait_while(self.given(), |given| given.missing > 0);
        let mut given = waiting.unwrap_or_else(PoisonError::into_inner);
        let answers = std::mem::take(&mut given.answers).into_iter();
        answers
            .map(|answer| answer.expect("a worker answers every job"))
            .collect()
    }
}

/// Polls until there is a result, for at most [`SOON`].
fn soon<T>(mut there: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = there() {
            return Some(found);
        }
        if start.elapsed() > SOON {
            return None;
        }
        std::thread::yield_now();
    }
}

impl Worker {
    fn start(member: usize) -> std::io::Result<Self> {
        let (queue, jobs) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name(format!("member {member}"))
            .spawn(move || {
                while let Some(job) = soon(|| jobs.try_recv().ok()).or_else(|| jobs.recv().ok()) {
                    job();
                }
            })?;
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
            // Jobs catch their panics, so the thread does not panic.
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
        // Would wait forever if two jobs shared a thread.
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
