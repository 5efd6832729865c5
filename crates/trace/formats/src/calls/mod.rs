//! Traces of calls for replays: formats, their detection, and errors. Block traces are read as calls on one image.
//!
//! Every format is read line by line; the file is never in memory as a whole, and the calls are kept in about 80 bytes
//! each, up to [`ReadOptions::calls_max`]. What a format holds and a replay cannot use is counted by reason.

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
use thiserror::Error;

use crate::import::lines::{Lines, shown};
use crate::import::{blkparse, fio_iolog};

/// Calls that are kept unless asked otherwise: about 1 GB of memory.
pub const USUAL_CALLS_MAX: usize = 12_000_000;

/// A format is told by so much of the file.
const BEGINNING_BYTES: usize = 64 << 10;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Our own, as `tidegate trace syscalls` writes it.
    Calls,
    /// Replay scripts of Mobibench, as MobiGen writes them.
    Mobigen,
    /// Output of strace, best with `-f -ttt -T -y`.
    Strace,
    /// I/O logs of fio, version 2 and 3.
    FioIolog,
    /// Text output of blkparse.
    Blkparse,
    /// Any other trace of block requests that the crate `formats` reads; told by the content where none is named.
    Block(Option<crate::Format>),
}

/// Every format with its name.
pub const NAMES: [(Format, &str); 10] = [
    (Format::Calls, "calls"),
    (Format::Mobigen, "mobigen"),
    (Format::Strace, "strace"),
    (Format::FioIolog, "fio-iolog"),
    (Format::Blkparse, "blkparse"),
    (Format::Block(Some(crate::Format::Biotracer)), "biotracer"),
    (Format::Block(Some(crate::Format::PixelCsv)), "pixel-csv"),
    (Format::Block(Some(crate::Format::Most)), "most"),
    (Format::Block(Some(crate::Format::Ftrace)), "ftrace"),
    (Format::Block(None), "block-trace"),
];

impl Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(format, _)| format == self);
        formatter.write_str(found.map_or("", |(_, name)| name))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(format, _)| *format).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            format!("`{text}` is none of {}", names.join(", "))
        })
    }
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Calls that are kept; those after them are counted and left out.
    pub calls_max: usize,
    /// What becomes of descriptors that are likely to be pipes.
    pub ipc: Ipc,
}

/// What becomes of descriptors of a MobiGen script that have no file and move at most eight bytes a call: on the phone
/// they were pipes, sockets and event counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipc {
    /// They are counted and left out.
    LeaveOut,
    /// They are replayed as files, as the original replayer does.
    AsFiles,
}

impl ReadOptions {
    /// What most want: twelve million calls, no pipes.
    pub const USUAL: Self = Self {
        calls_max: USUAL_CALLS_MAX,
        ipc: Ipc::LeaveOut,
    };
}

/// Why a trace could not be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Nothing at the beginning of the file looks like a known format.
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
    /// A line is not what the format says.
    #[error("{}, line {line}: expected {expected}, found `{found}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// What should be there.
        expected: String,
        /// Beginning of the line.
        found: String,
    },
    /// A trace of our own format is broken.
    #[error(transparent)]
    Calls(#[from] CallTraceError),
    /// A trace of block requests is broken.
    #[error(transparent)]
    Block(#[from] crate::ReadError),
}

/// Reads a trace file; without `format`, the content tells.
///
/// # Errors
/// When the file cannot be read, is of no known format, or is broken; with file, line, expected and found.
pub fn read_trace(path: &Path, format: Option<Format>, options: ReadOptions) -> Result<Trace, TraceError> {
    let (format, reader) = opened(path, format)?;
    match (format, reader) {
        (Format::Blkparse, _) => Ok(sorted(block::read(path, Some(crate::Format::Blkparse), options)?)),
        (Format::Block(format), _) => Ok(sorted(block::read(path, format, options)?)),
        (format, Some(reader)) => parse(reader, path, format, options),
        // Only a folder has no reader, and a folder is a native trace of block requests.
        (_, None) => Ok(sorted(block::read(path, None, options)?)),
    }
}

/// The format of a trace file, of which only the beginning is read.
///
/// # Errors
/// When the file cannot be read, or is of no known format.
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

/// Reads a trace of a known format. `file` is its name in messages, and the file itself for traces of block requests
/// other than blkparse's.
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

/// The format whose lines the beginning of a file looks like.
#[must_use]
pub fn detect(beginning: &[u8]) -> Option<Format> {
    if starts_like_call_trace(beginning) {
        return Some(Format::Calls);
    }
    let text = String::from_utf8_lossy(beginning);
    // The last line may be cut.
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(200);
    for line in lines {
        let found = if fio_iolog::is_header(line) {
            Format::FioIolog
        } else if blkparse::is_event(line) {
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
            found: shown(self.current()),
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

/// True for files that the kernel makes up: they are on no file system that could be measured.
fn is_kernel_file(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_below = |directory: &[u8]| {
        path.strip_prefix(directory)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    (is_below(b"dev") && !is_below(b"dev/shm")) || is_below(b"proc") || is_below(b"sys")
}

/// Reason for a file that [`is_kernel_file`].
const KERNEL_FILE: &str = "file of /dev, /proc or /sys";

/// Reason for a descriptor of which nothing is known.
const UNKNOWN_DESCRIPTOR: &str = "descriptor opened before the trace began";

fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests;
