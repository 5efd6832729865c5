//! Sorts complete requests by their first times and numbers them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use results::block_trace::Request;

/// Sorts requests within a window and numbers them.
#[derive(Debug, Default)]
pub struct Ready {
    /// By first time, then by first step in the source (the `id` until here), then by arrival.
    order: BinaryHeap<Reverse<(u64, u64, u64)>>,
    requests: HashMap<u64, Request>,
    arrivals: u64,
    next_id: u64,
    last_first_ns: u64,
    late: u64,
}

impl Ready {
    pub fn push(&mut self, request: Request) {
        let first = request.first_ns().unwrap_or(self.last_first_ns);
        self.order.push(Reverse((first, request.id, self.arrivals)));
        self.requests.insert(self.arrivals, request);
        self.arrivals += 1;
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// First time and first step of the next request.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.order.peek().map(|Reverse((first, step, _))| (*first, *step))
    }

    /// Removes the next request and numbers it.
    pub fn pop(&mut self) -> Option<Request> {
        let Reverse((first, _, arrival)) = self.order.pop()?;
        let mut request = self.requests.remove(&arrival)?;
        request.id = self.next_id;
        self.next_id += 1;
        self.late += u64::from(first < self.last_first_ns);
        self.last_first_ns = self.last_first_ns.max(first);
        Some(request)
    }

    /// Number of requests that arrived too late for their position.
    pub const fn late(&self) -> u64 {
        self.late
    }
}
