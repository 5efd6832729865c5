//! kyber: three domains (reads, sync writes, async writes), each with a limit of requests in the driver.
//!
//! Domains are served in batches, in turn. Depths keep their initial values; the adaptation to target latencies is
//! not modelled.

use std::collections::VecDeque;

use media::Nanos;
use results::block_trace::Operation;

use super::pool::{Pool, Request, RequestId};
use super::scheduler::Scheduler;

/// Limit of requests in the driver, and batch size, for each domain.
const DEPTH: [u32; 3] = [256, 128, 64];
const BATCH: [u32; 3] = [16, 8, 8];

/// The kyber scheduler.
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
