//! Requests that take a fixed time, to measure the latency between a card and its client (see `path_cost`).
//!
//! Reads return the existing data; writes that would change nothing write nothing. The model sees neither.

use std::sync::Mutex;

use media::Nanos;
use nand::TimeSource;

use crate::device::lock;

/// Whether a rehearsal is running, and the times of the last request.
#[derive(Debug, Default)]
pub struct Rehearsal(Mutex<Option<Rehearsed>>);

#[derive(Clone, Copy, Debug)]
struct Rehearsed {
    answer_after: Nanos,
    last: Option<Times>,
}

/// Arrival and answer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub arrived: Nanos,
    pub answered: Nanos,
}

impl Rehearsal {
    /// Starts a rehearsal: from here on requests take `answer_after`.
    pub fn begin(&self, answer_after: Nanos) {
        let last = None;
        *lock(&self.0) = Some(Rehearsed { answer_after, last });
    }

    /// Ends the rehearsal: requests go to the model again.
    pub fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Whether a rehearsal is running.
    pub fn is_on(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// The last request since the beginning.
    pub fn last(&self) -> Option<Times> {
        lock(&self.0).and_then(|rehearsed| rehearsed.last)
    }

    /// Waits until the answer to a request that arrived at `arrived` is due.
    pub fn answer(&self, arrived: Nanos, time: &impl TimeSource) {
        let answer_after = lock(&self.0).map_or(Nanos::ZERO, |rehearsed| rehearsed.answer_after);
        time.sleep_until(arrived + answer_after);
        let times = Times {
            arrived,
            answered: time.now(),
        };
        if let Some(rehearsed) = lock(&self.0).as_mut() {
            rehearsed.last = Some(times);
        }
    }
}
