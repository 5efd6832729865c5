//! How traces flow: one item after another, from a source to a sink, never the whole of it in memory.

use std::collections::BTreeMap;

use results::block_trace::{BlockTrace, Event, Request, TraceHeader};

use crate::error::{CarryError, ReadError, WriteError};
use crate::import::Skipped;

/// One thing in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceItem {
    /// A request; they come in the order of their numbers.
    Request(Request),
    /// An event; they come in the order of their times, among the requests by time.
    Event(Event),
}

/// Where a trace comes from.
pub trait TraceSource {
    /// The next item, `None` at the end and ever after.
    ///
    /// # Errors
    /// When the source cannot be read, or is not what it seemed to be. Nothing more comes after an error.
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError>;

    /// What the trace is of. Devices, duration, limitations and losses are whole only after the last item.
    fn header(&self) -> &TraceHeader;

    /// How far the source was read: bytes of a file of another tool, requests of a native trace.
    fn position(&self) -> u64;

    /// What was left out because it could not be read, in formats where that may be.
    fn skipped(&self) -> Option<&Skipped> {
        None
    }
}

/// Where a trace goes.
pub trait TraceSink {
    /// Adds a request; its number is higher than that of the one before.
    ///
    /// # Errors
    /// When it cannot be written. [`WriteError::is_unfit`] tells whether only this item is refused.
    fn request(&mut self, request: &Request) -> Result<(), WriteError>;

    /// Adds an event.
    ///
    /// # Errors
    /// As for [`TraceSink::request`].
    fn event(&mut self, event: &Event) -> Result<(), WriteError>;

    /// Makes what was added so far readable, should this process be killed. Where a format can't do that, nothing is done.
    ///
    /// # Errors
    /// When it cannot be written.
    fn checkpoint(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Ends the trace: what was written gets its name and its header.
    ///
    /// # Errors
    /// When the rest cannot be written; what is there stays under its partial name.
    fn finish(self: Box<Self>, header: &TraceHeader) -> Result<Written, WriteError>;

    /// Tells what is known of the trace before the items that need it come: names of devices, say. Formats that want no
    /// such thing need not listen.
    fn known(&mut self, _header: &TraceHeader) {}
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Requests that were written.
    pub requests: u64,
    /// Events that were written.
    pub events: u64,
    /// What the format has no place for, and how often it came.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Written {
    pub(crate) fn leave_out(&mut self, what: &'static str) {
        *self.left_out.entry(what).or_default() += 1;
    }
}

/// Carries a trace from a source to a sink. `step` is told how far it is after each item, and answers whether to go on;
/// a trace that is stopped is finished, and its header says so.
///
/// # Errors
/// When either side fails. An item that the sink refuses is left out and counted.
pub fn carry(
    source: &mut dyn TraceSource,
    mut sink: Box<dyn TraceSink>,
    mut step: impl FnMut(u64) -> Carry,
) -> Result<Written, CarryError> {
    let (mut refused, mut complete, mut known_devices) = (0, true, None);
    while let Some(item) = source.next_item()? {
        let devices = source.header().devices.len();
        if known_devices != Some(devices) {
            known_devices = Some(devices);
            sink.known(source.header());
        }
        let taken = match &item {
            TraceItem::Request(request) => sink.request(request),
            TraceItem::Event(event) => sink.event(event),
        };
        match taken {
            Err(error) if error.is_unfit() => refused += 1,
            taken => taken?,
        }
        if step(source.position()) == Carry::Stop {
            complete = false;
            break;
        }
    }
    let mut header = source.header().clone();
    header.complete &= complete;
    let mut written = sink.finish(&header)?;
    if refused > 0 {
        written
            .left_out
            .insert("items with numbers beyond 2^63 - 1", refused);
    }
    Ok(written)
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carry {
    /// On.
    On,
    /// No further.
    Stop,
}

/// A trace that is in memory, as a source.
#[derive(Debug)]
pub struct MemorySource {
    header: TraceHeader,
    requests: std::iter::Peekable<std::vec::IntoIter<Request>>,
    events: std::iter::Peekable<std::vec::IntoIter<Event>>,
    given: u64,
}

impl MemorySource {
    /// Gives `trace` item by item.
    #[must_use]
    pub fn new(trace: BlockTrace) -> Self {
        Self {
            header: trace.header,
            requests: trace.requests.into_iter().peekable(),
            events: trace.events.into_iter().peekable(),
            given: 0,
        }
    }
}

impl TraceSource for MemorySource {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        let event_is_first = event_is_first(self.requests.peek(), self.events.peek());
        let item = if event_is_first {
            self.events.next().map(TraceItem::Event)
        } else {
            self.requests.next().map(TraceItem::Request)
        };
        self.given += u64::from(item.is_some());
        Ok(item)
    }

    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn position(&self) -> u64 {
        self.given
    }
}

/// Whether the event comes before the request, both being the next of their kind.
pub(crate) fn event_is_first(request: Option<&Request>, event: Option<&Event>) -> bool {
    match (request, event) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(request), Some(event)) => request.first_ns().is_some_and(|first| event.time_ns <= first),
    }
}

/// Reads a source to its end; for small traces and tests.
///
/// # Errors
/// As [`TraceSource::next_item`].
pub fn read_all(source: &mut dyn TraceSource) -> Result<BlockTrace, ReadError> {
    let (mut requests, mut events) = (Vec::new(), Vec::new());
    while let Some(item) = source.next_item()? {
        match item {
            TraceItem::Request(request) => requests.push(request),
            TraceItem::Event(event) => events.push(event),
        }
    }
    Ok(BlockTrace {
        header: source.header().clone(),
        requests,
        events,
    })
}
