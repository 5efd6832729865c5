//! Reads JSON lines as [`crate::export`] writes them: requests, events, and the header at the end, all unchanged.

use results::block_trace::{Event, READABLE_SCHEMAS, Request, TraceHeader};
use serde::Deserialize;

use super::assembly::Assembly;
use super::lines::{BadLines, Lines, Skipped};
use crate::error::ReadError;
use crate::stream::{TraceItem, TraceSource};

const EXPECTED: &str = "{\"request\":...}, {\"event\":...} or {\"header\":...} of schema 1 or 2";

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Request(Box<Request>),
    Event(Event),
    Header(Box<TraceHeader>),
}

/// A source that reads JSON lines.
#[derive(Debug)]
pub struct JsonLinesSource {
    lines: Lines,
    header: TraceHeader,
    bad_lines: BadLines,
    skipped: Skipped,
}

impl JsonLinesSource {
    pub fn new(lines: Lines, source: String, bad_lines: BadLines) -> Self {
        let mut header = Assembly::new(source).header().clone();
        // Until the header arrives, at the end.
        header.complete = false;
        Self {
            lines,
            header,
            bad_lines,
            skipped: Skipped::default(),
        }
    }
}

impl TraceSource for JsonLinesSource {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        loop {
            let Some(line) = self.lines.next()? else {
                return Ok(None);
            };
            if line.trim().is_empty() || is_head(line) {
                continue;
            }
            match serde_json::from_str(line) {
                Ok(Line::Request(request)) => return Ok(Some(TraceItem::Request(*request))),
                Ok(Line::Event(event)) => return Ok(Some(TraceItem::Event(event))),
                Ok(Line::Header(header)) if READABLE_SCHEMAS.contains(&header.schema) => {
                    self.header = *header
                }
                _ if self.bad_lines == BadLines::Refuse => {
                    return Err(self
                        .lines
                        .wrong(EXPECTED, "without --strict such lines are left out and counted"));
                }
                _ => self
                    .skipped
                    .add(self.lines.number(), EXPECTED, self.lines.current()),
            }
        }
    }

    fn header(&self) -> &TraceHeader {
        &self.header
    }

    fn position(&self) -> u64 {
        self.lines.position()
    }

    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
}

/// True for the first line of such a file.
pub fn is_head(line: &str) -> bool {
    line.starts_with("{\"format\":\"tidegate.block-trace\"")
}
