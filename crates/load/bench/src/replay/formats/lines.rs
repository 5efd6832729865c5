//! Lines of a text file, one at a time and of bounded length.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::TraceError;

/// What is beyond this in a line is dropped: no field that matters is there.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reads lines; knows where it is.
pub struct Lines<R> {
    reader: R,
    file: PathBuf,
    number: u64,
    bytes: Vec<u8>,
    text: String,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R, file: &Path) -> Self {
        Self {
            reader,
            file: file.to_owned(),
            number: 0,
            bytes: Vec::new(),
            text: String::new(),
        }
    }

    pub fn into_reader(self) -> R {
        self.reader
    }

    /// The next line without its end; bytes that are not UTF-8 are replaced. `None` at the end of the file.
    pub fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.bytes.clear();
        self.number += 1;
        let file = &self.file;
        let failed = |source| TraceError::Io {
            path: file.clone(),
            source,
        };
        let mut limited = Read::take(&mut self.reader, LINE_BYTES_MAX);
        let length = limited.read_until(b'\n', &mut self.bytes).map_err(failed)?;
        if length == 0 {
            return Ok(None);
        }
        if !self.bytes.ends_with(b"\n") {
            drop_rest(&mut self.reader).map_err(failed)?;
        }
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(&self.bytes));
        Ok(Some(self.text.trim_end_matches(['\n', '\r'])))
    }

    /// An error at the line that was read last.
    pub fn wrong(&self, expected: impl Into<String>) -> TraceError {
        TraceError::Line {
            path: self.file.clone(),
            line: self.number,
            expected: expected.into(),
            found: self.text.trim_end().chars().take(80).collect(),
        }
    }
}

fn drop_rest(reader: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(length);
        if end.is_some() {
            return Ok(());
        }
    }
}
