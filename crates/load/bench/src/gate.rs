//! Holds workers back until all are ready, and lets them go together or not at all.
//!
//! A plain barrier would hang the run when one of the threads cannot be started. And a condition variable hands its lock
//! from one woken thread to the next: with more threads than processors each begins to work before it lets the next one
//! begin, so that the last of eight starts many time slices after the first. Here one call of the kernel makes all of
//! them runnable, and none needs anything of another.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::thread::futex;

/// What was decided.
const UNDECIDED: u32 = 0;
const OPEN: u32 = 1;
const CANCELLED: u32 = 2;

/// In the number of those who are ready: something was decided. Far above any number of threads.
const DECIDED: u32 = 1 << 31;

/// All who wait.
const EVERYBODY: u32 = i32::MAX.unsigned_abs();

/// The start line of the timed window.
#[derive(Debug)]
pub struct Gate {
    /// Workers wait for this to change, once.
    decision: AtomicU32,
    /// Workers that have come, and [`DECIDED`]; whoever opens the gate waits for this to change.
    ready: AtomicU32,
}

impl Gate {
    pub const fn new() -> Self {
        Self {
            decision: AtomicU32::new(UNDECIDED),
            ready: AtomicU32::new(0),
        }
    }

    /// Called by a worker: says that it is ready and waits. False when the run was cancelled.
    pub fn wait(&self) -> bool {
        self.wait_as_one_of(u32::MAX)
    }

    /// The same, and the last of `all` opens the gate.
    fn wait_as_one_of(&self, all: u32) -> bool {
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
            // A decision is above every number of workers.
            if ready >= workers {
                return;
            }
            sleep_while(&self.ready, ready);
        }
    }

    /// Lets the workers go, unless one of them has cancelled the run.
    pub fn open(&self) {
        self.decide(OPEN);
    }

    /// Sends the workers home: one of them could not be made ready.
    pub fn cancel(&self) {
        self.decide(CANCELLED);
    }

    /// The first decision stands.
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

/// Returns when the word has changed, and sometimes before.
fn sleep_while(word: &AtomicU32, value: u32) {
    match futex::wait(word, futex::Flags::PRIVATE, value, None) {
        // Changed already, or a signal came: the caller looks again.
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
        // A kernel that forbids the call: the caller looks again, and does nothing else meanwhile.
        Err(_) => std::thread::yield_now(),
    }
}

fn wake_all(word: &AtomicU32) {
    // Nobody to wake is no error, and there is no other one for a word that exists.
    let _ = futex::wake(word, futex::Flags::PRIVATE, EVERYBODY);
}

/// Where the windows of several workloads begin together: the last one to come lets all of them go.
#[derive(Debug)]
pub struct StartLine {
    gate: Gate,
    workloads: u32,
}

impl StartLine {
    /// For so many workloads.
    pub const fn of(workloads: u32) -> Self {
        Self {
            gate: Gate::new(),
            workloads,
        }
    }

    /// Called by each workload when it is ready; false when one of them will not come.
    pub fn meet(&self) -> bool {
        self.gate.wait_as_one_of(self.workloads)
    }

    /// One of the workloads will not come.
    pub fn cancel(&self) {
        self.gate.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn workers_leave_together_or_learn_that_the_run_was_cancelled() {
        for cancelled in [false, true] {
            let gate = Gate::new();
            let passed: Vec<bool> = thread::scope(|scope| {
                let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| gate.wait())).collect();
                gate.wait_for(3);
                if cancelled {
                    gate.cancel()
                } else {
                    gate.open()
                }
                workers.into_iter().map(|worker| worker.join().unwrap()).collect()
            });
            assert_eq!(passed, [!cancelled; 3]);
        }
    }
}
