//! noop and none: first come, first served.

use std::collections::VecDeque;

use media::Nanos;

use super::pool::{Pool, RequestId};
use super::scheduler::Scheduler;

/// The queue.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    queue: VecDeque<RequestId>,
}

impl Scheduler for Fifo {
    fn insert(&mut self, _: &Pool, id: RequestId, _: Nanos) {
        self.queue.push_back(id);
    }

    fn dispatch(&mut self, _: &Pool, _: Nanos) -> Option<RequestId> {
        self.queue.pop_front()
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }
}
