//! Requests that take a fixed time, while a card's way to its client is measured (see `path_cost`).
//!
//! Reads give the data that is there; writes that would change nothing write nothing. The model learns of neither.

use std::sync::Mutex;

use media::Nanos;
use nand::TimeSource;

use crate::device::lock;

/// Whether it goes on, and when the last request came and was answered.
#[derive(Debug, Default)]
pub struct Rehearsal(Mutex<Option<Rehearsed>>);

#[derive(Clone, Copy, Debug)]
struct Rehearsed {
    answer_after: Nanos,
    last: Option<Times>,
}

/// When a request came, and when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    pub arrived: Nanos,
    pub answered: Nanos,
}

impl Rehearsal {
    /// From here on requests take `answer_after`; none came yet.
    pub fn begin(&self, answer_after: Nanos) {
        let last = None;
        *lock(&self.0) = Some(Rehearsed { answer_after, last });
    }

    /// Requests are the model's again.
    pub fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Whether it goes on.
    pub fn is_on(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// The last request since the beginning.
    pub fn last(&self) -> Option<Times> {
        lock(&self.0).and_then(|rehearsed| rehearsed.last)
    }

    /// Waits until a request that arrived at `arrived` is to be answered.
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
