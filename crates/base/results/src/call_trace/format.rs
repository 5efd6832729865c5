//! The call trace file format of this project: JSON lines. Specification: `docs/formats/syscalls.md`.
//!
//! The first line is the header, the last one the end. A name precedes the first call that uses it; its number is its
//! position among the names, from 0. The first key of a line gives its type, so the reader decodes each line once.
//! The writer works on `NAME.partial`; a file without its last line is a partial trace and is read as such.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use outfile::{OutFile, Unfinished, partial_name};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Action, Call, Handle, Layer, Name, Trace};

/// Name and version of the format, in the header.
pub const CALL_TRACE_SCHEMA: &str = "tidegate.calls/1";

/// A name has at most 4096 bytes, each at most six characters in JSON; no line needs more.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reason for calls cut off by a reader's limit.
const BEYOND_LIMIT: &str = "call beyond the limit of calls in memory";

/// First line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`CALL_TRACE_SCHEMA`].
    pub schema: String,
    /// Layer at which the calls were recorded.
    pub layer: Layer,
    /// Writer of the file.
    pub origin: String,
    /// The traced command.
    pub command: Vec<String>,
    /// Start of the trace in nanoseconds since 1970 (wall clock, for people).
    pub started_unix_ns: u64,
}

/// Last line of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    calls: u64,
    skipped: BTreeMap<String, u64>,
    complete: bool,
}

#[derive(Serialize, Deserialize)]
struct EndLine {
    end: End,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NameLine {
    Text { path: String },
    Bytes { path_bytes: Vec<u8> },
}

/// Errors of reading or writing a trace.
#[derive(Debug, Error)]
pub enum CallTraceError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// Failed operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A line violates the format.
    #[error("{}, line {line}: expected {expected}, found `{found}`{}", path.display(), because(reason))]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Expected content.
        expected: String,
        /// Beginning of the line.
        found: String,
        /// Details; may be empty.
        reason: String,
    },
}

fn because(reason: &str) -> String {
    if reason.is_empty() {
        String::new()
    } else {
        format!(" ({reason})")
    }
}

/// True if the file begins like a trace of this format, of any version.
#[must_use]
pub fn starts_like_call_trace(beginning: &[u8]) -> bool {
    beginning.starts_with(br#"{"schema":"tidegate.calls/"#)
}

/// Writes a trace. The file gets its final name only in [`CallTraceWriter::finish`].
#[derive(Debug)]
pub struct CallTraceWriter {
    path: PathBuf,
    file: BufWriter<OutFile>,
    /// Names that were written and are remembered. One that was forgotten is written again, with a new number.
    names: HashMap<PathBuf, Name>,
    names_bytes: usize,
    names_bytes_max: usize,
    names_written: u32,
    end: End,
}

/// Bytes of names that a writer remembers: a program may use names without end.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Memory that a name takes beside its text.
const NAME_OVERHEAD_BYTES: usize = 64;

impl CallTraceWriter {
    /// Starts `path`. Replaces an earlier partial file of that name; `path` itself is not touched yet.
    ///
    /// # Errors
    /// When the partial file cannot be created.
    pub fn create(path: &Path, header: &Header) -> Result<Self, CallTraceError> {
        let created = OutFile::create(path, Unfinished::Keep);
        let file = created.map_err(|source| failed("create", &partial_name(path), source))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 18, file),
            names: HashMap::new(),
            names_bytes: 0,
            names_bytes_max: NAMES_BYTES_MAX,
            names_written: 0,
            end: End::default(),
        };
        writer.line(header)?;
        Ok(writer)
    }

    /// Returns the name for a path; writes it to the file on first use.
    ///
    /// # Errors
    /// When the file cannot be written.
    ///
    /// # Panics
    /// After 2^32 names, of which no reader could hold the trace.
    pub fn name(&mut self, path: &Path) -> Result<Name, CallTraceError> {
        if let Some(name) = self.names.get(path) {
            return Ok(*name);
        }
        let name = Name(self.names_written);
        self.names_written = self
            .names_written
            .checked_add(1)
            .expect("a file of 2^32 names fills the disk before");
        let bytes = path.as_os_str().len() + NAME_OVERHEAD_BYTES;
        if self.names_bytes + bytes > self.names_bytes_max {
            self.names.clear();
            self.names_bytes = 0;
        }
        self.names_bytes += bytes;
        self.names.insert(path.to_owned(), name);
        self.line(&name_line(path))?;
        Ok(name)
    }

    /// Adds a call.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn call(&mut self, call: &Call) -> Result<(), CallTraceError> {
        self.line(call)?;
        self.end.calls += 1;
        Ok(())
    }

    /// Counts an item that is omitted from the trace.
    pub fn skip(&mut self, reason: &str) {
        if let Some(count) = self.end.skipped.get_mut(reason) {
            *count += 1;
        } else {
            self.end.skipped.insert(reason.to_owned(), 1);
        }
    }

    /// Calls written so far.
    #[must_use]
    pub const fn calls(&self) -> u64 {
        self.end.calls
    }

    /// Omitted items so far, by reason.
    #[must_use]
    pub const fn skipped(&self) -> &BTreeMap<String, u64> {
        &self.end.skipped
    }

    /// Completes the trace, syncs the file and renames it to its final name.
    ///
    /// # Errors
    /// When the file cannot be written, synced or renamed; the partial file then holds everything written so far.
    pub fn finish(mut self) -> Result<PathBuf, CallTraceError> {
        self.end_as(true)?;
        let partial = self.file.get_ref().path().to_owned();
        let output = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let finished = output.and_then(OutFile::finish);
        finished.map_err(|source| failed("finish", &partial, source))?;
        Ok(self.path)
    }

    /// Ends the trace early: the file is marked incomplete and keeps its partial name, which is returned.
    ///
    /// # Errors
    /// When the file cannot be written or synced.
    pub fn abandon(mut self) -> Result<PathBuf, CallTraceError> {
        self.end_as(false)?;
        let partial = self.file.get_ref().path().to_owned();
        let output = self.file.into_inner().map_err(io::IntoInnerError::into_error);
        let left = output.and_then(OutFile::leave);
        left.map_err(|source| failed("sync", &partial, source))
    }

    fn end_as(&mut self, complete: bool) -> Result<(), CallTraceError> {
        let mut end = std::mem::take(&mut self.end);
        end.complete = complete;
        self.line(&EndLine { end })?;
        let flushed = self.file.flush();
        flushed.map_err(|source| failed("write", self.file.get_ref().path(), source))
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), CallTraceError> {
        let written = serde_json::to_writer(&mut self.file, value).map_err(io::Error::from);
        written
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| failed("write", self.file.get_ref().path(), source))
    }
}

fn name_line(path: &Path) -> NameLine {
    match path.to_str() {
        Some(text) => NameLine::Text {
            path: text.to_owned(),
        },
        None => NameLine::Bytes {
            path_bytes: path.as_os_str().as_bytes().to_vec(),
        },
    }
}

/// Reads a trace. `file` is its name in messages; calls after the first `calls_max` are counted and dropped.
///
/// A file without its last line is read as a partial trace; half a line at its end is dropped.
///
/// # Errors
/// When the file cannot be read or has another format or version.
pub fn read_call_trace(reader: impl BufRead, file: &Path, calls_max: usize) -> Result<Trace, CallTraceError> {
    let mut lines = Lines {
        reader,
        file,
        number: 0,
        text: Vec::new(),
    };
    let header = lines.header()?;
    let mut decoding = Decoding {
        trace: Trace::new(header.layer, header.origin),
        names: Vec::new(),
        handles: HashMap::new(),
        calls_max,
    };
    decoding.trace.complete = false;
    while lines.next()? {
        if lines.text.is_empty() {
            continue;
        }
        if lines.text.starts_with(br#"{"end""#) {
            let EndLine { end } = lines.decode("the end of the trace")?;
            decoding.trace.complete = end.complete;
            for (reason, count) in &end.skipped {
                decoding.trace.skip_many(reason, *count);
            }
            break;
        }
        match decoding.line(&lines) {
            // The writer was killed in the middle of a line.
            Err(_) if lines.is_cut_short() => decoding.trace.skip("half a line at the end of the trace"),
            other => other?,
        }
    }
    decoding.trace.sort();
    Ok(decoding.trace)
}

struct Decoding {
    trace: Trace,
    names: Vec<Name>,
    /// Maps the file's handles, which may be any numbers, to dense ones in memory.
    handles: HashMap<Handle, Handle>,
    calls_max: usize,
}

impl Decoding {
    fn line(&mut self, lines: &Lines<'_, impl BufRead>) -> Result<(), CallTraceError> {
        if lines.text.starts_with(br#"{"path"#) {
            let name = match lines.decode("a name")? {
                NameLine::Text { path } => self.trace.name(Path::new(&path)),
                NameLine::Bytes { path_bytes } => self.trace.name(Path::new(OsStr::from_bytes(&path_bytes))),
            };
            self.names.push(name);
            return Ok(());
        }
        let mut call: Call = lines.decode("a call")?;
        if call.action.layer() != self.trace.layer {
            return Err(lines.wrong("a call of the layer that the header names", String::new()));
        }
        if self.trace.calls.len() >= self.calls_max {
            self.trace.skip(BEYOND_LIMIT);
            return Ok(());
        }
        for name in call.action.names_mut().into_iter().flatten() {
            let place = usize::try_from(name.0).ok();
            let known = place.and_then(|place| self.names.get(place));
            let reason = || format!("name {} is used and {} names are known", name.0, self.names.len());
            *name = *known.ok_or_else(|| lines.wrong("a name that came before", reason()))?;
        }
        for handle in call.action.handles_mut().into_iter().flatten() {
            let trace = &mut self.trace;
            *handle = *self.handles.entry(*handle).or_insert_with(|| trace.new_handle());
        }
        self.trace.calls.push(call);
        Ok(())
    }
}

impl Action {
    /// The handles of the action.
    pub fn handles_mut(&mut self) -> [Option<&mut Handle>; 2] {
        match self {
            Self::Open { handle, .. }
            | Self::Close { handle }
            | Self::Read { handle, .. }
            | Self::Write { handle, .. }
            | Self::ReadAt { handle, .. }
            | Self::WriteAt { handle, .. }
            | Self::Fsync { handle }
            | Self::Fdatasync { handle }
            | Self::SyncRange { handle, .. }
            | Self::Seek { handle, .. }
            | Self::TruncateHandle { handle, .. }
            | Self::Allocate { handle, .. }
            | Self::StatHandle { handle }
            | Self::List { handle } => [Some(handle), None],
            Self::Duplicate { handle, copy } => [Some(handle), Some(copy)],
            Self::Copy { from, to, .. } => [Some(from), Some(to)],
            Self::Truncate { .. }
            | Self::Stat { .. }
            | Self::Access { .. }
            | Self::Unlink { .. }
            | Self::Rename { .. }
            | Self::Link { .. }
            | Self::MakeDirectory { .. }
            | Self::RemoveDirectory { .. }
            | Self::BlockRead { .. }
            | Self::BlockWrite { .. }
            | Self::BlockDiscard { .. }
            | Self::BlockFlush => [None, None],
        }
    }

    /// The names of the action.
    pub fn names_mut(&mut self) -> [Option<&mut Name>; 2] {
        match self {
            Self::Open { name, .. }
            | Self::Truncate { name, .. }
            | Self::Stat { name }
            | Self::Access { name }
            | Self::Unlink { name }
            | Self::MakeDirectory { name }
            | Self::RemoveDirectory { name } => [Some(name), None],
            Self::Rename { from, to } | Self::Link { from, to } => [Some(from), Some(to)],
            _ => [None, None],
        }
    }
}

struct Lines<'file, R> {
    reader: R,
    file: &'file Path,
    number: u64,
    /// The line, including its line feed if it has one.
    text: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    /// Reads the next line; false at the end of the file.
    fn next(&mut self) -> Result<bool, CallTraceError> {
        self.text.clear();
        self.number += 1;
        let mut limited = Read::take(&mut self.reader, LINE_BYTES_MAX);
        let length = limited
            .read_until(b'\n', &mut self.text)
            .map_err(|source| failed("read", self.file, source))?;
        if u64::try_from(length).unwrap_or(u64::MAX) >= LINE_BYTES_MAX && self.is_cut_short() {
            return Err(self.wrong("a line", format!("it has more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(length > 0)
    }

    fn is_cut_short(&self) -> bool {
        !self.text.ends_with(b"\n")
    }

    fn header(&mut self) -> Result<Header, CallTraceError> {
        self.next()?;
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let Version { schema } = self.decode(CALL_TRACE_SCHEMA)?;
        if schema != CALL_TRACE_SCHEMA {
            return Err(self.wrong(
                &format!("schema {CALL_TRACE_SCHEMA}"),
                "read it with the version of tidegate that wrote it".to_owned(),
            ));
        }
        self.decode("a header")
    }

    fn decode<T: for<'de> Deserialize<'de>>(&self, expected: &str) -> Result<T, CallTraceError> {
        serde_json::from_slice(&self.text).map_err(|error| self.wrong(expected, error.to_string()))
    }

    fn wrong(&self, expected: &str, reason: String) -> CallTraceError {
        let text = String::from_utf8_lossy(&self.text);
        CallTraceError::Line {
            path: self.file.to_owned(),
            line: self.number,
            expected: expected.to_owned(),
            found: text.trim_end().chars().take(60).collect(),
            reason,
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> CallTraceError {
    CallTraceError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_trace::{OpenFlags, Outcome};

    fn header() -> Header {
        Header {
            schema: CALL_TRACE_SCHEMA.to_owned(),
            layer: Layer::SystemCalls,
            origin: "test".to_owned(),
            command: vec!["true".to_owned()],
            started_unix_ns: 5,
        }
    }

    fn call(at_ns: u64, action: Action) -> Call {
        Call {
            thread: 3,
            at_ns,
            recorded_duration_ns: Some(9),
            outcome: Outcome::Done(4),
            action,
        }
    }

    #[test]
    fn names_without_end_take_bounded_memory_and_are_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.jsonl");
        let mut writer = CallTraceWriter::create(&path, &header()).unwrap();
        writer.names_bytes_max = 100 * (10 + NAME_OVERHEAD_BYTES);
        let paths: Vec<PathBuf> = (0..1000).map(|number| format!("/{number:09}").into()).collect();
        for path in paths.iter().chain(&paths) {
            let name = writer.name(path).unwrap();
            writer.call(&call(1, Action::Unlink { name })).unwrap();
            assert!(writer.names.len() <= 100);
        }
        let path = writer.finish().unwrap();
        let trace = read_call_trace(std::fs::read(&path).unwrap().as_slice(), &path, usize::MAX).unwrap();
        let found = trace.calls.iter().map(|call| match call.action {
            Action::Unlink { name } => Path::new("/").join(trace.path(name).unwrap()),
            other => panic!("{other:?}"),
        });
        assert!(found.eq(paths.iter().chain(&paths).cloned()));
    }

    fn written(finish: bool) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calls.jsonl");
        let mut writer = CallTraceWriter::create(&path, &header()).unwrap();
        let name = writer.name(Path::new("/data/é\n")).unwrap();
        let odd = writer.name(Path::new(OsStr::from_bytes(b"/\xFF"))).unwrap();
        let handle = Handle(900);
        let flags = OpenFlags::READ_WRITE.creating();
        writer
            .call(&call(20, Action::Write { handle, bytes: 4 }))
            .unwrap();
        writer
            .call(&call(10, Action::Open { name, handle, flags }))
            .unwrap();
        writer.call(&call(30, Action::Unlink { name: odd })).unwrap();
        writer.skip("mmap");
        let path = if finish { writer.finish() } else { writer.abandon() }.unwrap();
        (directory, path)
    }

    fn read(path: &Path) -> Result<Trace, CallTraceError> {
        read_call_trace(std::fs::read(path).unwrap().as_slice(), path, 100)
    }

    #[test]
    fn a_trace_reads_back_in_order_with_dense_handles() {
        let (_directory, path) = written(true);
        let trace = read(&path).unwrap();
        assert!(trace.complete && path.ends_with("calls.jsonl"));
        assert_eq!(trace.skipped, BTreeMap::from([("mmap".to_owned(), 1)]));
        assert_eq!(
            trace.calls.iter().map(|call| call.at_ns).collect::<Vec<_>>(),
            [10, 20, 30]
        );
        let Action::Open { name, handle, .. } = trace.calls[0].action else {
            panic!("{:?}", trace.calls[0]);
        };
        assert_eq!(trace.path(name), Some(Path::new("data/é\n")));
        assert_eq!((handle, trace.handle_count()), (Handle(0), 1));
        assert_eq!(trace.calls[1], call(20, Action::Write { handle, bytes: 4 }));
    }

    #[test]
    fn the_bytes_of_the_format_are_these() {
        let (_directory, path) = written(true);
        let expected = concat!(
            r#"{"schema":"tidegate.calls/1","layer":"system_calls","origin":"test","command":["true"],"started_unix_ns":5}"#,
            "\n",
            r#"{"path":"/data/é\n"}"#,
            "\n",
            r#"{"path_bytes":[47,255]}"#,
            "\n",
            r#"{"t":3,"at":20,"ns":9,"r":{"done":4},"call":"write","handle":900,"bytes":4}"#,
            "\n",
            r#"{"t":3,"at":10,"ns":9,"r":{"done":4},"call":"open","name":0,"handle":900,"flags":"read-write,create"}"#,
            "\n",
            r#"{"t":3,"at":30,"ns":9,"r":{"done":4},"call":"unlink","name":1}"#,
            "\n",
            r#"{"end":{"calls":3,"skipped":{"mmap":1},"complete":true}}"#,
            "\n",
        );
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn an_abandoned_trace_keeps_its_partial_name_and_says_so() {
        let (_directory, path) = written(false);
        assert!(path.to_string_lossy().ends_with(".partial"));
        let trace = read(&path).unwrap();
        assert!(!trace.complete && trace.calls.len() == 3);
    }

    #[test]
    fn a_trace_cut_anywhere_is_partial_or_refused_and_never_complete() {
        let (_directory, path) = written(true);
        let bytes = std::fs::read(&path).unwrap();
        let end = bytes.len() - 1;
        for cut in 0..end {
            if let Ok(trace) = read_call_trace(&bytes[..cut], &path, 100) {
                assert!(!trace.complete, "cut at {cut}");
            }
        }
        assert!(read_call_trace(&bytes[..end], &path, 100).unwrap().complete);
    }

    #[test]
    fn flipped_bytes_never_panic() {
        let (_directory, path) = written(true);
        let mut bytes = std::fs::read(&path).unwrap();
        for place in 0..bytes.len() {
            for value in [0, b'"', b'9', b'{', 0xFF] {
                let before = std::mem::replace(&mut bytes[place], value);
                let _ = read_call_trace(bytes.as_slice(), &path, 100);
                bytes[place] = before;
            }
        }
    }

    #[test]
    fn errors_name_file_line_expected_and_found() {
        let good = serde_json::to_string(&header()).unwrap();
        for (line, expected) in [
            (
                r#"{"t":1,"at":0,"call":"unlink","name":4}"#,
                "name 4 is used and 0 names are known",
            ),
            (
                r#"{"t":1,"at":0,"call":"block_flush"}"#,
                "expected a call of the layer that the header names",
            ),
            (r#"{"t":1}"#, "line 2: expected a call, found `{\"t\":1}`"),
        ] {
            let text = format!("{good}\n{line}\n");
            let error = read_call_trace(text.as_bytes(), Path::new("x.jsonl"), 100).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with("x.jsonl, line 2") && message.contains(expected),
                "{message}"
            );
        }
        let other = good.replace("calls/1", "calls/9");
        let message = read_call_trace(other.as_bytes(), Path::new("x"), 100)
            .unwrap_err()
            .to_string();
        assert!(message.contains("expected schema tidegate.calls/1"), "{message}");
    }

    #[test]
    fn calls_beyond_the_limit_are_counted() {
        let (_directory, path) = written(true);
        let trace = read_call_trace(std::fs::read(&path).unwrap().as_slice(), &path, 1).unwrap();
        assert_eq!((trace.calls.len(), trace.skipped[BEYOND_LIMIT]), (1, 2));
    }
}
