//! A bounded queue of jobs for threads. The largest one is taken first, so that no thread is left with a large file when
//! the others have ended.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Jobs with their sizes.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    length_max: usize,
}

struct State<T> {
    jobs: Vec<(u64, T)>,
    is_closed: bool,
    takers: usize,
}

/// A thread that takes jobs. While one exists, [`Queue::put`] waits for room.
pub(crate) struct Taker<'a, T>(&'a Queue<T>);

/// Closes a queue when it is dropped.
pub(crate) struct Close<'a, T>(pub(crate) &'a Queue<T>);

impl<T> Queue<T> {
    pub(crate) fn new(length_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                jobs: Vec::new(),
                is_closed: false,
                takers: 0,
            }),
            changed: Condvar::new(),
            length_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a thread, which must happen before jobs are put.
    pub(crate) fn taker(&self) -> Taker<'_, T> {
        self.lock().takers += 1;
        Taker(self)
    }

    /// Adds a job, and waits for room before. `false` if all threads have ended.
    pub(crate) fn put(&self, size: u64, job: T) -> bool {
        let is_full = |state: &mut State<T>| state.jobs.len() >= self.length_max && state.takers > 0;
        let waited = self.changed.wait_while(self.lock(), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.takers == 0 {
            return false;
        }
        state.jobs.push((size, job));
        self.changed.notify_all();
        true
    }
}

impl<T> Taker<'_, T> {
    /// Takes the largest job. `None` once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<T> {
        let is_waiting = |state: &mut State<T>| state.jobs.is_empty() && !state.is_closed;
        let waited = self.0.changed.wait_while(self.0.lock(), is_waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let sizes = state.jobs.iter().enumerate().map(|(at, (size, _))| (*size, at));
        let (_, largest) = sizes.max()?;
        let (_, job) = state.jobs.swap_remove(largest);
        self.0.changed.notify_all();
        Some(job)
    }
}

impl<T> Drop for Taker<'_, T> {
    fn drop(&mut self) {
        self.0.lock().takers -= 1;
        self.0.changed.notify_all();
    }
}

impl<T> Drop for Close<'_, T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_job_is_taken_first_and_the_end_is_seen() {
        let queue = Queue::new(8);
        let taker = queue.taker();
        for size in [3, 9, 1, 9] {
            assert!(queue.put(size, size));
        }
        drop(Close(&queue));
        let taken: Vec<u64> = std::iter::from_fn(|| taker.take()).collect();
        assert_eq!(taken, [9, 9, 3, 1]);
    }

    #[test]
    fn nobody_waits_for_threads_that_have_ended() {
        let queue = Queue::new(1);
        let taker = queue.taker();
        assert!(queue.put(1, ()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.put(1, ()));
            drop(taker);
            assert!(!waiting.join().unwrap());
        });
        assert!(!queue.put(1, ()));
    }
}
