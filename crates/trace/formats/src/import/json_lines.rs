//! Reads JSON lines as [`crate::export`] writes them: requests, events, and the header at the end, all unchanged.

use results::block_trace::{Event, READABLE_SCHEMAS, Request, TraceHeader};
use serde::Deserialize;

use super::assembly::Assembly;
use super::lines::{BadLines, Lines, Skipped, SkippedPlace};
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
    /// Something was read.
    has_items: bool,
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
            has_items: false,
        }
    }

    /// The end of the file, where lines without any item are an error.
    fn end(&self) -> Result<Option<TraceItem>, ReadError> {
        match self.skipped.nothing_read(self.lines.file()) {
            Some(error) if !self.has_items => Err(error),
            _ => Ok(None),
        }
    }
}

impl TraceSource for JsonLinesSource {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        loop {
            let Some(line) = self.lines.next()? else {
                return self.end();
            };
            if line.trim().is_empty() || is_head(line) {
                continue;
            }
            match serde_json::from_str(line) {
                Ok(Line::Request(request)) => {
                    self.has_items = true;
                    return Ok(Some(TraceItem::Request(*request)));
                }
                Ok(Line::Event(event)) => {
                    self.has_items = true;
                    return Ok(Some(TraceItem::Event(event)));
                }
                Ok(Line::Header(header)) if READABLE_SCHEMAS.contains(&header.schema) => {
                    self.header = *header
                }
                _ if self.bad_lines == BadLines::Refuse => {
                    return Err(self
                        .lines
                        .wrong(EXPECTED, "without --strict such lines are left out and counted"));
                }
                _ => self.skipped.add(
                    SkippedPlace::Line(self.lines.number()),
                    EXPECTED,
                    self.lines.current(),
                ),
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
    /// Other writers of JSON put spaces between the tokens.
    #[derive(Deserialize)]
    struct Head<'line> {
        format: &'line str,
    }
    line.contains("tidegate.block-trace")
        && serde_json::from_str(line).is_ok_and(|head: Head<'_>| head.format == "tidegate.block-trace")
}
