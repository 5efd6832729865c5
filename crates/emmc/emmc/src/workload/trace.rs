//! Replay of the requests of a trace: at their original times, or as fast as the card allows.

use media::Nanos;

use super::{Actor, Step, View};
use crate::block::Bio;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedBio {
    /// Submission time, from the trace's start.
    pub at: Nanos,
    /// The request.
    pub bio: Bio,
}

/// Timing of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As in the trace.
    Traced,
    /// As soon as fewer than this number are in progress.
    Depth(u32),
}

/// A task that replays the requests of a trace in order.
#[must_use]
pub fn replay(requests: Vec<TracedBio>, pace: Pace) -> Box<dyn Actor> {
    Box::new(Replay {
        requests: requests.into_iter(),
        pace,
        next: None,
        asked: false,
    })
}

struct Replay {
    requests: std::vec::IntoIter<TracedBio>,
    pace: Pace,
    next: Option<TracedBio>,
    asked: bool,
}

impl Actor for Replay {
    fn step(&mut self, view: &View) -> Step {
        let Some(next) = self.next.take().or_else(|| self.requests.next()) else {
            return if view.outstanding > 0 {
                Step::WaitBelow(0)
            } else {
                Step::Done
            };
        };
        let waits = match self.pace {
            Pace::Traced if view.now < next.at => Some(Step::SleepUntil(next.at)),
            Pace::Depth(depth) if view.outstanding >= depth.max(1) => Some(Step::WaitBelow(depth.max(1) - 1)),
            _ => None,
        };
        if let Some(step) = waits {
            self.next = Some(next);
            self.asked = true;
            return step;
        }
        Step::Submit(next.bio)
    }
}
