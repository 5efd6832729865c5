//! Call traces for replay: formats, their detection, and errors. Block traces are read as calls on one image.
//!
//! Every format is read line by line, so the file is never entirely in memory; the calls take about 80 bytes each, up
//! to [`ReadOptions::calls_max`]. Items that a replay cannot use are counted by reason.

mod block;
mod errno;
mod iolog;
mod mobigen;
mod strace;

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use results::call_trace::{Call, CallTraceError, Trace, read_call_trace, starts_like_call_trace};
use results::words::unknown;
use thiserror::Error;

use crate::import::blkparse::BlkparseParser;
use crate::import::fio_iolog::FioIologParser;
use crate::import::lines::{Lines, beginning};
use crate::import::text_source::LineParser;

/// Default limit of calls kept in memory: about 1 GB.
pub const USUAL_CALLS_MAX: usize = 12_000_000;

/// Bytes read from the beginning of a file to detect its format.
const BEGINNING_BYTES: usize = 64 << 10;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The call trace format of this project, as written by `tidegate trace syscalls`.
    Calls,
    /// Replay scripts of Mobibench, as written by MobiGen.
    Mobigen,
    /// strace output, preferably with `-f -ttt -T -y`.
    Strace,
    /// fio I/O logs, version 2 and 3.
    FioIolog,
    /// Text output of blkparse.
    Blkparse,
    /// Any other block trace that the crate `formats` reads; `None` detects the format from the content.
    Block(Option<crate::Format>),
}

/// The formats that are not read as block traces of [`crate::Format`] only, with option value and description.
const WORDS: [(Format, &str, &str); 6] = [
    (
        Format::Calls,
        "calls",
        "calls recorded by tidegate trace syscalls",
    ),
    (Format::Mobigen, "mobigen", "scripts of Mobibench"),
    (
        Format::Strace,
        "strace",
        "text of strace, best of strace -f -ttt -T -y -o FILE",
    ),
    (
        Format::FioIolog,
        "fio-iolog",
        "I/O log of fio --write_iolog, version 2 or 3",
    ),
    (Format::Blkparse, "blkparse", "text of blkparse"),
    (
        Format::Block(None),
        "block-trace",
        "any trace of block requests, or a folder of tidegate trace",
    ),
];

/// Every format with its option value and description: those of calls, then those of block requests.
pub fn words() -> impl Iterator<Item = (Format, &'static str, &'static str)> {
    use crate::Format::{Blkparse, FioIolog, Native};
    let is_new = |format: &crate::Format| !matches!(format, Native | Blkparse | FioIolog);
    let blocks = crate::Format::WORDS
        .into_iter()
        .filter(move |(format, _, _)| is_new(format));
    WORDS
        .into_iter()
        .chain(blocks.map(|(format, word, description)| (Format::Block(Some(format)), word, description)))
}

impl Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = words().find(|(format, _, _)| format == self);
        formatter.write_str(found.map_or("", |(_, word, _)| word))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = words().find(|(_, word, _)| *word == text);
        found.map(|(format, _, _)| format).ok_or_else(|| {
            let words: Vec<&str> = words().map(|(_, word, _)| word).collect();
            unknown(text, &words)
        })
    }
}

/// Options for reading a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Maximum number of calls kept in memory; later ones are counted and dropped.
    pub calls_max: usize,
    /// Handling of descriptors that are likely to be pipes.
    pub ipc: Ipc,
}

/// Handling of descriptors in a MobiGen script that have no file and move at most eight bytes per call: on the phone
/// they were pipes, sockets and event counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipc {
    /// Drop them and count them.
    LeaveOut,
    /// Replay them as files, like the original replayer.
    AsFiles,
}

impl ReadOptions {
    /// Default options: up to twelve million calls, no pipes.
    pub const USUAL: Self = Self {
        calls_max: USUAL_CALLS_MAX,
        ipc: Ipc::LeaveOut,
    };
}

/// Errors of reading a trace.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The beginning of the file does not match any known format.
    #[error(
        "{}: no known format of traces, it begins with `{found}`; name the format with --format",
        path.display()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// First line.
        found: String,
    },
    /// A line violates the format.
    #[error("{}, line {line}: expected {expected}, found `{found}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Expected content.
        expected: String,
        /// Beginning of the line.
        found: String,
    },
    /// Error in a call trace of this project's format.
    #[error(transparent)]
    Calls(#[from] CallTraceError),
    /// Error in a block trace.
    #[error(transparent)]
    Block(#[from] crate::ReadError),
}

/// Reads a trace file; without `format`, it is detected from the content.
///
/// # Errors
/// When the file cannot be read, has no known format, or is invalid; with file, line, expected and found.
pub fn read_trace(path: &Path, format: Option<Format>, options: ReadOptions) -> Result<Trace, TraceError> {
    let (format, reader) = opened(path, format)?;
    match (format, reader) {
        (Format::Blkparse, _) => Ok(sorted(block::read(path, Some(crate::Format::Blkparse), options)?)),
        (Format::Block(format), _) => Ok(sorted(block::read(path, format, options)?)),
        (format, Some(reader)) => parse(reader, path, format, options),
        // Only a folder has no reader, and a folder is a native block trace.
        (_, None) => Ok(sorted(block::read(path, None, options)?)),
    }
}

/// The format of a trace file; reads only its beginning.
///
/// # Errors
/// When the file cannot be read, or has no known format.
pub fn format_of(path: &Path, format: Option<Format>) -> Result<Format, TraceError> {
    opened(path, format).map(|(format, _)| format)
}

type Opened = (Format, Option<BufReader<File>>);

fn opened(path: &Path, format: Option<Format>) -> Result<Opened, TraceError> {
    if path.is_dir() {
        return Ok((Format::Block(None), None));
    }
    let failed = |source| TraceError::Io {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::with_capacity(BEGINNING_BYTES, File::open(path).map_err(failed)?);
    let beginning = reader.fill_buf().map_err(failed)?;
    let Some(format) = format.or_else(|| detect(beginning)) else {
        let text = String::from_utf8_lossy(beginning);
        let first = text.lines().next().unwrap_or_default();
        return Err(TraceError::UnknownFormat {
            path: path.to_owned(),
            found: first.chars().take(60).collect(),
        });
    };
    Ok((format, Some(reader)))
}

fn sorted(mut trace: Trace) -> Trace {
    trace.sort();
    trace
}

/// Reads a trace of a known format. `file` is its name in messages; block traces other than blkparse's are read from
/// that file instead.
///
/// # Errors
/// As [`read_trace`].
pub fn parse(
    reader: impl BufRead,
    file: &Path,
    format: Format,
    options: ReadOptions,
) -> Result<Trace, TraceError> {
    let lines = Lines::new(reader, file);
    let trace = match format {
        Format::Calls => return Ok(read_call_trace(lines.into_reader(), file, options.calls_max)?),
        Format::Mobigen => mobigen::parse(lines, options)?,
        Format::Strace => strace::parse(lines, options)?,
        Format::FioIolog => iolog::parse(lines, options)?,
        Format::Blkparse => {
            let mut text = Vec::new();
            let read = lines.into_reader().read_to_end(&mut text);
            read.map_err(|source| TraceError::Io {
                path: file.to_owned(),
                source,
            })?;
            block::read_blkparse(text, file, options)?
        }
        Format::Block(format) => block::read(file, format, options)?,
    };
    Ok(sorted(trace))
}

/// Detects the format from the beginning of a file.
#[must_use]
pub fn detect(beginning: &[u8]) -> Option<Format> {
    if starts_like_call_trace(beginning) {
        return Some(Format::Calls);
    }
    let text = String::from_utf8_lossy(beginning);
    // The last line may be truncated.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(200);
    for line in lines {
        let found = if FioIologParser::is_line(line) {
            Format::FioIolog
        } else if BlkparseParser::is_line(line) {
            Format::Blkparse
        } else if mobigen::looks_like(line) {
            Format::Mobigen
        } else if strace::looks_like(line) {
            Format::Strace
        } else {
            continue;
        };
        return Some(found);
    }
    block::looks_like(beginning).then_some(Format::Block(None))
}

impl<R: BufRead> Lines<R> {
    /// An error at the last line read.
    fn broken(&self, expected: impl Into<String>) -> TraceError {
        TraceError::Line {
            path: self.file().to_owned(),
            line: self.number(),
            expected: expected.into(),
            found: beginning(self.current()),
        }
    }
}

/// Adds calls up to a limit.
struct Collector {
    trace: Trace,
    calls_max: usize,
}

impl Collector {
    const fn new(trace: Trace, options: ReadOptions) -> Self {
        Self {
            trace,
            calls_max: options.calls_max,
        }
    }

    fn push(&mut self, call: Call) {
        if self.trace.calls.len() < self.calls_max {
            self.trace.calls.push(call);
        } else {
            self.trace
                .skip("call beyond the limit of calls in memory (raise it with --max-calls)");
        }
    }
}

/// True for files generated by the kernel, which are on no file system that could be measured.
fn is_kernel_file(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_below = |directory: &[u8]| {
        path.strip_prefix(directory)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    (is_below(b"dev") && !is_below(b"dev/shm")) || is_below(b"proc") || is_below(b"sys")
}

/// Reason for dropping an [`is_kernel_file`] file.
const KERNEL_FILE: &str = "file of /dev, /proc or /sys";

/// Reason for dropping a call on an unknown descriptor.
const UNKNOWN_DESCRIPTOR: &str = "descriptor opened before the trace began";

fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests;
