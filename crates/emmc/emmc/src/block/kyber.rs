//! kyber: three domains (reads, writes somebody waits for, other writes) with a number of requests in the driver each.
//!
//! Domains are served in batches, one after the other. Depths stay as they are at the start; the adaption to target
//! latencies is left out.

use std::collections::VecDeque;

use media::Nanos;
use results::block_trace::Operation;

use super::pool::{Pool, Request, RequestId};
use super::scheduler::Scheduler;

/// Requests in the driver, and of a batch, for each domain.
const DEPTH: [u32; 3] = [256, 128, 64];
const BATCH: [u32; 3] = [16, 8, 8];

/// The scheduler.
#[derive(Clone, Debug, Default)]
pub struct Kyber {
    queues: [VecDeque<RequestId>; 3],
    in_driver: [u32; 3],
    domain: usize,
    batched: u32,
}

fn domain_of(request: &Request) -> usize {
    match (request.operation, request.is_sync()) {
        (Operation::Read, _) => 0,
        (_, true) => 1,
        _ => 2,
    }
}

impl Kyber {
    fn take(&mut self, domain: usize) -> Option<RequestId> {
        if self.in_driver[domain] >= DEPTH[domain] {
            return None;
        }
        let id = self.queues[domain].pop_front()?;
        self.in_driver[domain] += 1;
        Some(id)
    }
}

impl Scheduler for Kyber {
    fn insert(&mut self, pool: &Pool, id: RequestId, _: Nanos) {
        self.queues[domain_of(pool.get(id))].push_back(id);
    }

    fn dispatch(&mut self, _: &Pool, _: Nanos) -> Option<RequestId> {
        if self.batched < BATCH[self.domain]
            && let Some(id) = self.take(self.domain)
        {
            self.batched += 1;
            return Some(id);
        }
        for _ in 0..DEPTH.len() {
            self.domain = (self.domain + 1) % DEPTH.len();
            if let Some(id) = self.take(self.domain) {
                self.batched = 1;
                return Some(id);
            }
        }
        None
    }

    fn completed(&mut self, pool: &Pool, id: RequestId, _: Nanos) {
        self.in_driver[domain_of(pool.get(id))] -= 1;
    }

    fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}
