//! Sorts requests and events by time, although they become known when they complete.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use results::block_trace::{Event, Request};

/// An item that waits for its turn.
#[derive(Debug)]
pub(crate) enum Item {
    Request(Box<Request>),
    Event(Box<Event>),
}

#[derive(Debug)]
struct Waiting {
    time: u64,
    arrival: u64,
    item: Item,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    /// The earliest is the greatest, as a heap yields the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.arrival).cmp(&(self.time, self.arrival))
    }
}

/// Items that wait until no earlier one can follow.
#[derive(Debug, Default)]
pub(crate) struct Order {
    heap: BinaryHeap<Waiting>,
    arrivals: u64,
}

impl Order {
    /// Adds an item, sorted by its time.
    pub(crate) fn push(&mut self, item: Item) {
        let time = match &item {
            Item::Request(request) => request.first_ns().unwrap_or(0),
            Item::Event(event) => event.time_ns,
        };
        self.arrivals += 1;
        self.heap.push(Waiting {
            time,
            arrival: self.arrivals,
            item,
        });
    }

    /// Number of items in the queue.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Removes the next item if it is before `until`.
    pub(crate) fn pop_before(&mut self, until: u64) -> Option<Item> {
        if self.heap.peek()?.time >= until {
            return None;
        }
        self.heap.pop().map(|waiting| waiting.item)
    }
}
