//! Streams of trace items, one at a time from a source to a sink, never the whole trace in memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use results::block_trace::{BlockTrace, Event, Request, TraceHeader};

use crate::error::{CarryError, ReadError, WriteError};
use crate::import::Skipped;

/// An item of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceItem {
    /// A request; requests are in the order of their numbers.
    Request(Request),
    /// An event; events are in the order of their times, between requests by time.
    Event(Event),
}

/// A source of trace items.
pub trait TraceSource {
    /// The next item, `None` at the end and ever after.
    ///
    /// # Errors
    /// If the source cannot be read, or has another format than detected. No item follows an error.
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError>;

    /// Description of the trace. Devices, duration, limitations and losses are complete only after the last item.
    fn header(&self) -> &TraceHeader;

    /// Position in the source: bytes of a file of another tool, requests of a native trace.
    fn position(&self) -> u64;

    /// Lines skipped because they could not be parsed, in formats that allow it.
    fn skipped(&self) -> Option<&Skipped> {
        None
    }
}

/// A sink for trace items.
pub trait TraceSink {
    /// Adds a request; its number is higher than that of the one before.
    ///
    /// # Errors
    /// If it cannot be written. [`WriteError::is_unfit`] tells whether only this item is refused.
    fn request(&mut self, request: &Request) -> Result<(), WriteError>;

    /// Adds an event.
    ///
    /// # Errors
    /// As for [`TraceSink::request`].
    fn event(&mut self, event: &Event) -> Result<(), WriteError>;

    /// Makes the items so far readable in case this process is killed. Does nothing if the format can't do that.
    ///
    /// # Errors
    /// If it cannot be written.
    fn checkpoint(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Ends the trace: the output gets its name and its header.
    ///
    /// # Errors
    /// If the rest cannot be written; the output so far stays under its partial name.
    fn finish(self: Box<Self>, header: &TraceHeader) -> Result<Written, WriteError>;

    /// Passes information about the trace before the items that need it, for example names of devices. Formats that
    /// don't need it ignore it.
    fn known(&mut self, _header: &TraceHeader) {}
}

/// Summary of a written trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Number of requests written.
    pub requests: u64,
    /// Number of events written.
    pub events: u64,
    /// Kinds of data that the format can't represent, with their number.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Written {
    pub(crate) fn leave_out(&mut self, what: &'static str) {
        *self.left_out.entry(what).or_default() += 1;
    }
}

/// Copies a trace from a source to a sink. `step` receives the position after each item and decides whether to
/// continue; a trace that is stopped is finished, and its header says so.
///
/// # Errors
/// If either side fails. An item that the sink refuses is left out and counted.
pub fn carry(
    source: &mut dyn TraceSource,
    mut sink: Box<dyn TraceSink>,
    mut step: impl FnMut(u64) -> ControlFlow<()>,
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
        if step(source.position()).is_break() {
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
            .insert("items with numbers too large for their columns", refused);
    }
    Ok(written)
}

/// A source that reads a trace in memory.
#[derive(Debug)]
pub struct MemorySource {
    header: TraceHeader,
    requests: std::iter::Peekable<std::vec::IntoIter<Request>>,
    events: std::iter::Peekable<std::vec::IntoIter<Event>>,
    given: u64,
}

impl MemorySource {
    /// Yields `trace` item by item.
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

/// Whether the event precedes the request, both being the next of their kind.
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
