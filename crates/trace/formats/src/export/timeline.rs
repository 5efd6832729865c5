//! Steps of requests in the order of time, as text of block tracers has them.
//!
//! Requests come in the order of their first steps; later steps wait here until no earlier one can come. Memory is that of
//! the steps which overlap in time.

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

/// One line, whose number in the text is not known until it goes out.
#[derive(Clone, Debug)]
pub struct Line {
    pub time_ns: u64,
    /// What stands before the sequence number.
    pub head: String,
    /// What stands behind.
    pub tail: String,
}

impl Timeline {
    pub fn add(&mut self, line: Line) {
        self.lines.insert((line.time_ns, self.arrivals), line);
        self.arrivals += 1;
    }

    /// The next line that began before `time_ns`.
    pub fn before(&mut self, time_ns: u64) -> Option<Line> {
        let first = self.lines.first_entry()?;
        (first.key().0 < time_ns).then(|| first.remove())
    }

    /// The next line.
    pub fn next(&mut self) -> Option<Line> {
        self.lines.pop_first().map(|(_, line)| line)
    }
}

/// A text with a line for each step of a request.
pub trait StepText {
    /// A line as it is written.
    fn line(&mut self, line: &Line) -> String;

    /// Adds the steps of a request, and counts what has no place in the text.
    fn steps(&mut self, request: &Request, timeline: &mut Timeline, written: &mut Written);
}

/// Writes such a text.
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
