//! Writes JSON, one object per line: `{"format":"tidegate.block-trace","schema":2}`, then `{"request":...}` and
//! `{"event":...}`, and at the end `{"header":...}` if the trace is complete.

use results::block_trace::{BLOCK_TRACE_SCHEMA, Event, Request, TraceHeader};
use results::shown;
use serde::Serialize;

use super::output::Output;
use crate::error::WriteError;
use crate::stream::{TraceSink, Written};

/// First field of the first line.
pub const FORMAT: &str = "tidegate.block-trace";

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Request(&'a Request),
    Event(&'a Event),
    Header(&'a TraceHeader),
}

/// Writes JSON lines.
pub struct JsonLinesWriter {
    output: Output,
    begun: bool,
    written: Written,
}

impl JsonLinesWriter {
    pub fn new(output: Output) -> Self {
        Self {
            output,
            begun: false,
            written: Written::default(),
        }
    }

    fn line(&mut self, line: &Line<'_>) -> Result<(), WriteError> {
        if !self.begun {
            self.begun = true;
            let head = format!("{{\"format\":\"{FORMAT}\",\"schema\":{BLOCK_TRACE_SCHEMA}}}\n");
            self.output.write(head.as_bytes())?;
        }
        let mut text = serde_json::to_string(line).map_err(|source| WriteError::Json { source })?;
        text.push('\n');
        // Standard output may be a terminal.
        self.output.write(shown::lines(&text).as_bytes())
    }
}

impl TraceSink for JsonLinesWriter {
    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        self.written.requests += 1;
        self.line(&Line::Request(request))
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.written.events += 1;
        self.line(&Line::Event(event))
    }

    fn checkpoint(&mut self) -> Result<(), WriteError> {
        self.output.flush()
    }

    fn finish(mut self: Box<Self>, header: &TraceHeader) -> Result<Written, WriteError> {
        // The output has this schema, whatever the source's was.
        let header = TraceHeader {
            schema: BLOCK_TRACE_SCHEMA,
            ..header.clone()
        };
        self.line(&Line::Header(&header))?;
        self.output.finish()?;
        Ok(self.written)
    }
}
