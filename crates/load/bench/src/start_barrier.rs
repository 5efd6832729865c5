//! A barrier that releases all workers together, or cancels the run for all.
//!
//! A plain barrier would hang the run if one of the threads cannot be started. A condition variable hands its lock
//! from one woken thread to the next: with more threads than processors, each thread starts to work before it lets
//! the next one start, so the last of eight starts many time slices after the first. Here one system call makes all
//! threads runnable, and none depends on another.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

/// Values of the decision.
const UNDECIDED: u32 = 0;
const OPEN: u32 = 1;
const CANCELLED: u32 = 2;

/// Flag in the number of ready workers: a decision was made. Far above any number of threads.
const DECIDED: u32 = 1 << 31;

/// Wakes all waiters.
const EVERYBODY: u32 = i32::MAX.unsigned_abs();

/// The barrier at the start of the timed window.
#[derive(Debug)]
pub struct StartBarrier {
    /// Workers wait for this to change, once.
    decision: AtomicU32,
    /// Number of ready workers, and [`DECIDED`]; the opener waits for this to change.
    ready: AtomicU32,
}

impl StartBarrier {
    pub const fn new() -> Self {
        Self {
            decision: AtomicU32::new(UNDECIDED),
            ready: AtomicU32::new(0),
        }
    }

    /// Called by a worker: reports that it is ready, and waits. The last of `all` opens the barrier. Returns false if
    /// the run was cancelled.
    pub fn wait_as_one_of(&self, all: u32) -> bool {
        let before = self.ready.fetch_add(1, Ordering::AcqRel) & !DECIDED;
        wake_all(&self.ready);
        if before.saturating_add(1) >= all {
            self.open();
        }
        while self.decision.load(Ordering::Acquire) == UNDECIDED {
            sleep_while(&self.decision, UNDECIDED);
        }
        self.decision.load(Ordering::Acquire) == OPEN
    }

    /// Waits until `workers` are ready.
    pub fn wait_for(&self, workers: u32) {
        loop {
            let ready = self.ready.load(Ordering::Acquire);
            // The flag of a decision exceeds every number of workers.
            if ready >= workers {
                return;
            }
            sleep_while(&self.ready, ready);
        }
    }

    /// Releases the workers, unless the run was cancelled.
    pub fn open(&self) {
        self.decide(OPEN);
    }

    /// Cancels the run: a worker could not be prepared.
    pub fn cancel(&self) {
        self.decide(CANCELLED);
    }

    /// The first decision is final.
    fn decide(&self, decision: u32) {
        let is_first = self
            .decision
            .compare_exchange(UNDECIDED, decision, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if is_first {
            wake_all(&self.decision);
            self.ready.fetch_or(DECIDED, Ordering::AcqRel);
            wake_all(&self.ready);
        }
    }
}

/// Returns when the word has changed, or spuriously.
fn sleep_while(word: &AtomicU32, value: u32) {
    match futex::wait(word, futex::Flags::PRIVATE, value, None) {
        // The word has already changed, or a signal arrived: the caller checks again.
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
        // A kernel that forbids the call: the caller polls.
        Err(_) => std::thread::yield_now(),
    }
}

fn wake_all(word: &AtomicU32) {
    // A wake without waiters is not an error, and a valid word has no other one.
    let _ = futex::wake(word, futex::Flags::PRIVATE, EVERYBODY);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn workers_leave_together_or_learn_that_the_run_was_cancelled() {
        for cancelled in [false, true] {
            let barrier = StartBarrier::new();
            let passed: Vec<bool> = thread::scope(|scope| {
                let workers: Vec<_> = (0..3)
                    .map(|_| scope.spawn(|| barrier.wait_as_one_of(u32::MAX)))
                    .collect();
                barrier.wait_for(3);
                if cancelled {
                    barrier.cancel()
                } else {
                    barrier.open()
                }
                workers.into_iter().map(|worker| worker.join().unwrap()).collect()
            });
            assert_eq!(passed, [!cancelled; 3]);
        }
    }
}
