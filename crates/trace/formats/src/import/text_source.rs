//! Reads a text file of another tool: line by line through a parser into an assembly.

use results::block_trace::TraceHeader;

use super::assembly::{Assembly, Impossible};
use super::clock::digits;
use super::lines::{BadLines, Lines, Skipped, SkippedPlace};
use crate::error::ReadError;
use crate::stream::{TraceItem, TraceSource};

/// If none of this many lines could be parsed, the file has another format.
const HOPELESS_LINES: u64 = 1000;

/// Error of a line that could not be parsed: its expected content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected(pub &'static str);

impl From<Impossible> for Expected {
    fn from(Impossible: Impossible) -> Self {
        Self("a place that a device can have")
    }
}

/// Parses the lines of one format.
pub trait LineParser: Default {
    /// Description of the lines of this format.
    const LINE: &'static str;

    /// True for a line of this format and of no other one: detects the format.
    fn is_line(line: &str) -> bool;

    /// Parses one line.
    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected>;

    /// Adds the limitations of the format to the header.
    fn end(&mut self, assembly: &mut Assembly);
}

/// The columns of a row of CSV without the spaces around them; `None` if it has more or fewer.
pub fn columns<const COUNT: usize>(line: &str) -> Option<[&str; COUNT]> {
    let mut found = line.split(',').map(str::trim_ascii);
    let mut columns = [""; COUNT];
    for column in &mut columns {
        *column = found.next()?;
    }
    found.next().is_none().then_some(columns)
}

/// A number of bytes that is a whole number of sectors.
pub fn sector_bytes(text: &str) -> Option<u64> {
    digits(text).filter(|bytes| bytes.is_multiple_of(512))
}

/// A source that reads a text file.
#[derive(Debug)]
pub struct TextSource<P> {
    lines: Lines,
    parser: P,
    assembly: Assembly,
    bad_lines: BadLines,
    skipped: Skipped,
    is_read: bool,
}

impl<P: LineParser> TextSource<P> {
    pub fn new(lines: Lines, source: String, bad_lines: BadLines) -> Self {
        Self {
            lines,
            parser: P::default(),
            assembly: Assembly::new(source),
            bad_lines,
            skipped: Skipped::default(),
            is_read: false,
        }
    }

    /// Reads one line, or ends the assembly at the end of the file.
    fn advance(&mut self) -> Result<(), ReadError> {
        let Some(line) = self.lines.next()? else {
            if self.assembly.is_empty() && self.skipped.count > 0 {
                return Err(self.hopeless());
            }
            self.is_read = true;
            self.parser.end(&mut self.assembly);
            self.assembly.finish();
            return Ok(());
        };
        if line.trim().is_empty() {
            return Ok(());
        }
        let Err(Expected(expected)) = self.parser.line(line, &mut self.assembly) else {
            return Ok(());
        };
        if self.bad_lines == BadLines::Refuse {
            return Err(self
                .lines
                .wrong(expected, "without --strict such lines are left out and counted"));
        }
        self.skipped.add(
            SkippedPlace::Line(self.lines.number()),
            expected,
            self.lines.current(),
        );
        if self.skipped.count >= HOPELESS_LINES && self.assembly.is_empty() {
            return Err(self.hopeless());
        }
        Ok(())
    }

    fn hopeless(&self) -> ReadError {
        let first = self.skipped.first.first();
        ReadError::Line {
            path: self.lines.file().to_owned(),
            line: first.map_or(0, |line| line.place.number()),
            expected: P::LINE.to_owned(),
            found: first.map(|line| line.found.clone()).unwrap_or_default(),
            hint: "no line could be read; is it of another format (--from)?".to_owned(),
        }
    }
}

impl<P: LineParser> TraceSource for TextSource<P> {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        loop {
            if let Some(next) = self.assembly.next_or_end(self.is_read) {
                return Ok(next);
            }
            self.advance()?;
        }
    }

    fn header(&self) -> &TraceHeader {
        self.assembly.header()
    }

    fn position(&self) -> u64 {
        self.lines.position()
    }

    fn skipped(&self) -> Option<&Skipped> {
        Some(&self.skipped)
    }
}
