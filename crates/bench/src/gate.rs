//! Holds workers back until all are ready, and lets them go together or not at all.
//!
//! A plain barrier would hang the run when one of the threads cannot be started.

use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { ready: u32 },
    Open,
    Cancelled,
}

/// The start line of the timed window.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State::Waiting { ready: 0 }),
            changed: Condvar::new(),
        }
    }

    /// Called by a worker: says that it is ready and waits. False when the run was cancelled.
    pub fn wait(&self) -> bool {
        self.wait_as_one_of(u32::MAX)
    }

    /// The same, and the last of `all` opens the gate.
    fn wait_as_one_of(&self, all: u32) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waiting { ready } = &mut *state {
            *ready += 1;
            if *ready >= all {
                *state = State::Open;
            }
        }
        self.changed.notify_all();
        while matches!(*state, State::Waiting { .. }) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state == State::Open
    }

    /// Waits until `workers` are ready.
    pub fn wait_for(&self, workers: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while matches!(*state, State::Waiting { ready } if ready < workers) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the workers go, unless one of them has cancelled the run.
    pub fn open(&self) {
        self.leave_waiting_for(State::Open);
    }

    /// Sends the workers home: one of them could not be made ready.
    pub fn cancel(&self) {
        self.leave_waiting_for(State::Cancelled);
    }

    /// The first decision stands.
    fn leave_waiting_for(&self, next: State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Waiting { .. }) {
            *state = next;
        }
        self.changed.notify_all();
    }
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
