//! Storage of requests: each has a number, which is reused when the request is done.

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use crate::geometry::index;

/// Number of a request in its [`Pool`].
pub type RequestId = u32;

/// A request to the card.
#[derive(Clone, Debug)]
pub struct Request {
    /// First sector.
    pub sector: u64,
    /// Sectors; 0 for a flush.
    pub sectors: u64,
    /// Kind of operation.
    pub operation: Operation,
    /// Flags, as in the kernel.
    pub flags: RequestFlags,
    /// The task that submitted the first bio.
    pub actor: u16,
    /// Context of the data, 0 for none.
    pub context: u8,
    /// Number of merged bios, including the first.
    pub bios: u32,
    /// Submission time.
    pub queued: Nanos,
    /// Time at which it reached the scheduler.
    pub inserted: Nanos,
    /// Unique over all requests ever made.
    pub ticket: u64,
    /// Whether it waits in the scheduler.
    pub waiting: bool,
}

impl Request {
    /// First sector after the request.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.sector + self.sectors
    }

    /// Whether the request is synchronous (REQ_SYNC): reads, and writes flagged as sync.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.operation == Operation::Read || self.flags.contains(RequestFlags::SYNC)
    }
}

/// The existing requests.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    requests: Vec<Request>,
    free: Vec<RequestId>,
    tickets: u64,
}

impl Pool {
    /// Stores a request and sets its ticket.
    pub fn add(&mut self, mut request: Request) -> RequestId {
        self.tickets += 1;
        request.ticket = self.tickets;
        if let Some(id) = self.free.pop() {
            self.requests[index(id)] = request;
            return id;
        }
        self.requests.push(request);
        u32::try_from(self.requests.len() - 1).expect("queues hold fewer than 2^32 requests")
    }

    /// Removes a request; its number is reused.
    pub fn remove(&mut self, id: RequestId) {
        self.free.push(id);
    }

    /// Removes all requests. Tickets keep counting.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.free.clear();
    }

    /// Returns a request.
    #[must_use]
    pub fn get(&self, id: RequestId) -> &Request {
        &self.requests[index(id)]
    }

    /// Returns a request mutably.
    pub fn get_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[index(id)]
    }

    /// Whether the request with this ticket and number still waits in the scheduler.
    #[must_use]
    pub fn still_waits(&self, noted: (u64, RequestId)) -> bool {
        let request = self.get(noted.1);
        request.waiting && request.ticket == noted.0
    }
}
