//! Reads the lines of a text file, one at a time and of bounded length, and counts those that could not be parsed.

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use results::shown;

use crate::error::ReadError;

/// The rest of a longer line is dropped: it contains no field that matters.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Maximum number of skipped lines to show.
const SHOWN_MAX: usize = 5;

/// Maximum number of characters of a line to show.
const SHOWN_CHARS: usize = 80;

/// Handling of lines that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadLines {
    /// Skip and count them; keep the first ones to show.
    Skip,
    /// Fail at the first one.
    Refuse,
}

/// Skipped lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of skipped lines.
    pub count: u64,
    /// The first ones.
    pub first: Vec<SkippedLine>,
}

/// A skipped line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedLine {
    /// Its place.
    pub place: SkippedPlace,
    /// Expected content.
    pub expected: String,
    /// Its beginning.
    pub found: String,
}

/// The place of a line or record that was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedPlace {
    /// Number of a line, from 1.
    Line(u64),
    /// Offset in a binary file, in bytes.
    Byte(u64),
    /// Sector of the device that a record names, in units of 512 bytes.
    Sector(u64),
}

impl SkippedPlace {
    /// Word for the kind of place.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Line(_) => "line",
            Self::Byte(_) => "byte",
            Self::Sector(_) => "sector",
        }
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Self::Line(number) | Self::Byte(number) | Self::Sector(number) => number,
        }
    }
}

impl std::fmt::Display for SkippedPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.word(), self.number())
    }
}

impl Skipped {
    pub(super) fn add(&mut self, place: SkippedPlace, expected: &str, found: &str) {
        self.count += 1;
        if self.first.len() < SHOWN_MAX {
            self.first.push(SkippedLine {
                place,
                expected: expected.to_owned(),
                found: beginning(found),
            });
        }
    }

    /// The error of a file in which nothing but skipped lines or records was found; `None` if none was skipped.
    pub(super) fn nothing_read(&self, path: &Path) -> Option<ReadError> {
        let first = self.first.first()?;
        Some(ReadError::NothingRead {
            path: path.to_owned(),
            count: self.count,
            place: first.place,
            expected: first.expected.clone(),
            found: first.found.clone(),
        })
    }
}

/// The beginning of a text.
pub(crate) fn beginning(text: &str) -> String {
    let beginning: String = text.trim_end().chars().take(SHOWN_CHARS).collect();
    shown::line(&beginning).into_owned()
}

/// Reads lines and keeps track of the position.
pub struct Lines<R = Box<dyn BufRead + Send>> {
    reader: R,
    file: PathBuf,
    number: u64,
    position: u64,
    bytes: Vec<u8>,
    text: String,
}

impl<R> std::fmt::Debug for Lines<R> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Lines")
            .field("file", &self.file)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, file: &Path) -> Self {
        Self {
            reader,
            file: file.to_owned(),
            number: 0,
            position: 0,
            bytes: Vec::new(),
            text: String::new(),
        }
    }

    /// The next line without its line feed; invalid UTF-8 is replaced. `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&str>, ReadError> {
        self.bytes.clear();
        let limited = Read::take(&mut self.reader, LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes);
        let length = limited.map_err(|source| self.failed(source))?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.position += u64::try_from(length).unwrap_or(u64::MAX);
        if !self.bytes.ends_with(b"\n") {
            self.position += drop_rest(&mut self.reader).map_err(|source| self.failed(source))?;
        }
        self.text.clear();
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => self.text.push_str(text),
            Err(_) => self.text.push_str(&String::from_utf8_lossy(&self.bytes)),
        }
        Ok(Some(self.text.trim_end_matches(['\n', '\r'])))
    }

    pub fn into_reader(self) -> R {
        self.reader
    }

    /// The last line read.
    pub fn current(&self) -> &str {
        self.text.trim_end_matches(['\n', '\r'])
    }

    pub const fn number(&self) -> u64 {
        self.number
    }

    pub const fn position(&self) -> u64 {
        self.position
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    /// An error at the last line read.
    pub fn wrong(&self, expected: &str, hint: &str) -> ReadError {
        ReadError::Line {
            path: self.file.clone(),
            line: self.number,
            expected: expected.to_owned(),
            found: beginning(self.current()),
            hint: hint.to_owned(),
        }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Io {
            path: self.file.clone(),
            source,
        }
    }
}

fn drop_rest(reader: &mut impl BufRead) -> io::Result<u64> {
    let mut dropped = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(dropped);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(length);
        dropped += u64::try_from(length).unwrap_or(u64::MAX);
        if end.is_some() {
            return Ok(dropped);
        }
    }
}
