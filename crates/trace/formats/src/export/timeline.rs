//! Puts steps of requests into chronological order, as in the text of block tracers.
//!
//! Requests arrive in the order of their first steps; later steps wait here until no earlier one can follow. Memory is
//! bounded by the steps that overlap in time.

use std::collections::BTreeMap;

use results::block_trace::{Event, Request, TraceHeader};

use super::output::Output;
use crate::error::WriteError;
use crate::stream::{TraceSink, Written};

/// Lines by time, then by arrival.
#[derive(Debug, Default)]
pub struct Timeline {
    lines: BTreeMap<(u64, u64), Line>,
    arrivals: u64,
}

/// One line, without its sequence number, which is known only when it is written.
#[derive(Clone, Debug)]
pub struct Line {
    pub time_ns: u64,
    /// Text before the sequence number.
    pub head: String,
    /// Text after it.
    pub tail: String,
}

impl Timeline {
    pub fn add(&mut self, line: Line) {
        self.lines.insert((line.time_ns, self.arrivals), line);
        self.arrivals += 1;
    }

    /// Removes the next line that began before `time_ns`.
    pub fn before(&mut self, time_ns: u64) -> Option<Line> {
        let first = self.lines.first_entry()?;
        (first.key().0 < time_ns).then(|| first.remove())
    }

    /// Removes the next line.
    pub fn next(&mut self) -> Option<Line> {
        self.lines.pop_first().map(|(_, line)| line)
    }
}

/// A text format with a line for each step of a request.
pub trait StepText {
    /// Formats a line.
    fn line(&mut self, line: &Line) -> String;

    /// Adds the steps of a request, and counts data that the format can't represent.
    fn steps(&mut self, request: &Request, timeline: &mut Timeline, written: &mut Written);
}

/// Writes such a format.
pub struct StepWriter<T> {
    text: T,
    output: Output,
    timeline: Timeline,
    written: Written,
}

impl<T: StepText> StepWriter<T> {
    pub fn new(text: T, output: Output) -> Self {
        Self {
            text,
            output,
            timeline: Timeline::default(),
            written: Written::default(),
        }
    }

    fn print(&mut self, line: &Line) -> Result<(), WriteError> {
        self.output.write(self.text.line(line).as_bytes())
    }
}

impl<T: StepText> TraceSink for StepWriter<T> {
    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        let Some(first) = request.first_ns() else {
            self.written.leave_out("requests without any time");
            return Ok(());
        };
        while let Some(line) = self.timeline.before(first) {
            self.print(&line)?;
        }
        self.written.requests += 1;
        self.text.steps(request, &mut self.timeline, &mut self.written);
        Ok(())
    }

    fn event(&mut self, _: &Event) -> Result<(), WriteError> {
        self.written.leave_out("events that are no requests");
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &TraceHeader) -> Result<Written, WriteError> {
        while let Some(line) = self.timeline.next() {
            self.print(&line)?;
        }
        self.output.finish()?;
        Ok(self.written)
    }
}
