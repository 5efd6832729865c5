//! Requests and where they are kept: a number for each, used again when the request is done.

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
    /// What is asked.
    pub operation: Operation,
    /// Flags as the kernel has them.
    pub flags: RequestFlags,
    /// Who asked first.
    pub actor: u16,
    /// Context of the data, 0 for none.
    pub context: u8,
    /// Pieces that were merged, the first included.
    pub bios: u32,
    /// When it was submitted.
    pub queued: Nanos,
    /// When it went to the scheduler.
    pub inserted: Nanos,
    /// Different for each request that ever was.
    pub ticket: u64,
    /// Whether it waits in the scheduler.
    pub waiting: bool,
}

impl Request {
    /// Sector after the last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.sector + self.sectors
    }

    /// Whether somebody waits for it: reads, and writes that say so.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        self.operation == Operation::Read || self.flags.contains(RequestFlags::SYNC)
    }
}

/// The requests that there are.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    requests: Vec<Request>,
    free: Vec<RequestId>,
    tickets: u64,
}

impl Pool {
    /// Keeps a request. Its ticket is set here.
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

    /// Forgets a request; its number is used again.
    pub fn remove(&mut self, id: RequestId) {
        self.free.push(id);
    }

    /// Forgets all requests. Tickets go on.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.free.clear();
    }

    /// A request.
    #[must_use]
    pub fn get(&self, id: RequestId) -> &Request {
        &self.requests[index(id)]
    }

    /// A request, to change it.
    pub fn get_mut(&mut self, id: RequestId) -> &mut Request {
        &mut self.requests[index(id)]
    }

    /// Whether a request that was noted with its ticket still waits in the scheduler.
    #[must_use]
    pub fn still_waits(&self, noted: (u64, RequestId)) -> bool {
        let request = self.get(noted.1);
        request.waiting && request.ticket == noted.0
    }
}
