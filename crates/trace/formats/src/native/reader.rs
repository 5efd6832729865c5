//! Reads a native trace request by request, each with its runs, and events between them.
//!
//! Memory is bounded by a batch of rows and the pages of a row group. Columns are looked up by name, so that tables
//! rewritten by another tool (reordered, with more columns) are read too, once the header contains no sums.
//!
//! Order of trust: the header, then each table's sum, then the offsets in its footer, then its rows. Rows are checked
//! as they are read; [`NativeReader::check_rows`] checks all of them, and the columns that only queries use.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use results::block_trace::{Event, READABLE_SCHEMAS, Request, TraceHeader};
use thiserror::Error;

use super::check::check_rows;
use super::columns::{EVENT_COLUMNS, REQUEST_COLUMNS, RUN_COLUMNS};
use super::decode::{EventRows, NumberedRun, RequestRows, RunRows};
use super::stored_header::{FORMAT, ItemCounts, StoredHeader};
use super::table_reader::{OpenTable, Table};
use super::table_sum::{Behind, TableSum, TableSums};
use super::{EVENTS_FILE, HEADER_FILE, REQUESTS_FILE, RUNS_FILE};
use crate::error::ReadError;
use crate::stream::{TraceItem, TraceSource, event_is_first};

/// Error of reading a native trace.
#[derive(Debug, Error)]
pub enum NativeReadError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The path is not a native trace.
    #[error("{} is no native trace: expected a folder with {HEADER_FILE}, or a .parquet file in one", path.display())]
    NotATrace {
        /// The given path.
        path: PathBuf,
    },
    /// The header is malformed.
    #[error("{}: no header of a trace: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The decoder's error, with line and column.
        #[source]
        source: serde_json::Error,
    },
    /// The header has another format or version.
    #[error("{}: expected {FORMAT} of schema {} to {}, found {found}; \
             read it with the version of tidegate that wrote it", path.display(), READABLE_SCHEMAS.start(),
             READABLE_SCHEMAS.end())]
    Format {
        /// The file.
        path: PathBuf,
        /// Format and version found.
        found: String,
    },
    /// The length of a table differs from the header.
    #[error("{}: expected a table of {expected} bytes, as header.json says, found a file of {found}; take the trace from a \
             copy, or, where another tool has written the table anew, remove \"tables\" from header.json", path.display())]
    Length {
        /// The table.
        path: PathBuf,
        /// Its length in bytes when it was written.
        expected: u64,
        /// Length of the file in bytes.
        found: u64,
    },
    /// A table is damaged.
    #[error("{}: damaged: expected CRC-32 {expected:#010x} over {bytes} bytes, as header.json says, found {found:#010x}; \
             take the trace from a copy, or, where another tool has written the table anew, remove \"tables\" from \
             header.json", path.display())]
    Checksum {
        /// The table.
        path: PathBuf,
        /// Number of bytes in the sum.
        bytes: u64,
        /// Their sum when they were written.
        expected: u32,
        /// Their sum now.
        found: u32,
    },
    /// The table is malformed.
    #[error("{}: {problem}", path.display())]
    Table {
        /// The table.
        path: PathBuf,
        /// Its problem.
        #[source]
        problem: TableProblem,
    },
}

/// Malformed content of a table.
#[derive(Debug, Error)]
pub enum TableProblem {
    /// It cannot be decoded.
    #[error("cannot read the table: {0}")]
    Parquet(#[from] ParquetError),
    /// A column is missing or has another type.
    #[error("expected a column {column} of type {expected}, found {found}")]
    Column {
        /// The column.
        column: &'static str,
        /// Its type.
        expected: &'static str,
        /// Type found.
        found: String,
    },
    /// An impossible value.
    #[error(
        "row {row}, {column}: {problem}; correct the tool that wrote the table, or take the trace from a copy"
    )]
    Value {
        /// Row, counted from 0.
        row: u64,
        /// The column.
        column: &'static str,
        /// Expected and found.
        problem: String,
    },
}

/// Reads a native trace.
#[derive(Debug)]
pub struct NativeReader {
    folder: PathBuf,
    stored: StoredHeader,
    requests: Table<RequestRows>,
    runs: Table<RunRows>,
    events: Table<EventRows>,
    next_request: Option<Request>,
    next_run: Option<NumberedRun>,
    next_event: Option<Event>,
    last_id: Option<u64>,
    given: u64,
}

impl NativeReader {
    /// Opens the trace in the folder `path`, or the one that the table `path` belongs to.
    ///
    /// # Errors
    /// If there is no trace, or its header, schema or columns are not those of this version.
    pub fn open(path: &Path) -> Result<Self, NativeReadError> {
        let folder = folder_of(path).ok_or_else(|| NativeReadError::NotATrace {
            path: path.to_owned(),
        })?;
        // All before the first is verified, which takes its time: an unfinished trace is renamed when its recorder ends.
        let stored = StoredHeader::read(&folder)?;
        let requests = open_table(folder.join(REQUESTS_FILE))?;
        let runs = open_table(folder.join(RUNS_FILE))?;
        let events = open_table(folder.join(EVENTS_FILE))?;
        let behind = if stored.header.complete {
            Behind::Nothing
        } else {
            Behind::Unfinished
        };
        let sums = stored.tables;
        let sum = |of: fn(&TableSums) -> TableSum| sums.as_ref().map(|sums| (of(sums), behind));
        let mut reader = Self {
            requests: Table::open(requests, sum(|sums| sums.requests))?,
            runs: Table::open(runs, sum(|sums| sums.runs))?,
            events: Table::open(events, sum(|sums| sums.events))?,
            folder,
            stored,
            next_request: None,
            next_run: None,
            next_event: None,
            last_id: None,
            given: 0,
        };
        reader.next_run = reader.runs.next()?;
        reader.next_event = reader.events.next()?;
        reader.advance_request()?;
        Ok(reader)
    }

    /// The folder of the trace.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The content of `header.json`.
    #[must_use]
    pub const fn stored_header(&self) -> &StoredHeader {
        &self.stored
    }

    /// The tables of requests, runs and events, for readers of columns.
    #[must_use]
    pub fn tables(&self) -> [OpenTable; 3] {
        [
            self.requests.table().clone(),
            self.runs.table().clone(),
            self.events.table().clone(),
        ]
    }

    /// Number of rows in the tables, whatever the header says.
    #[must_use]
    pub const fn counts(&self) -> ItemCounts {
        ItemCounts {
            requests: self.requests.table().rows(),
            runs: self.runs.table().rows(),
            events: self.events.table().rows(),
        }
    }

    /// Number of bytes behind the tables, which an interrupted writer did not finish. If it is not 0, only this reader
    /// can read the tables as they are.
    #[must_use]
    pub const fn unfinished_bytes(&self) -> u64 {
        self.requests.bytes_behind + self.runs.bytes_behind + self.events.bytes_behind
    }

    /// Checks every value of all rows, for readers that trust the tables. Tables with right sums are those of this
    /// crate's writer, which has checked their rows.
    ///
    /// # Errors
    /// If a value is impossible: the file, row and column of the first one in its column.
    pub fn check_rows(&self) -> Result<(), NativeReadError> {
        if self.stored.tables.is_some() {
            return Ok(());
        }
        let trace_id = &self.stored.trace_id;
        check_rows(self.requests.table(), &REQUEST_COLUMNS, trace_id)?;
        check_rows(self.runs.table(), &RUN_COLUMNS, trace_id)?;
        check_rows(self.events.table(), &EVENT_COLUMNS, trace_id)
    }

    /// Reads the next request from its table, with its runs.
    fn advance_request(&mut self) -> Result<(), NativeReadError> {
        let Some((mut request, run_count)) = self.requests.next()? else {
            self.next_request = None;
            if let Some(run) = &self.next_run {
                return Err(self.stray_run(run.request_id, "the table of requests has none after the last"));
            }
            return Ok(());
        };
        if let Some(last) = self.last_id.filter(|last| request.id <= *last) {
            let problem = format!("expected more than {last}, found {}", request.id);
            return Err(self.requests.wrong("id", problem));
        }
        self.last_id = Some(request.id);
        while let Some(run) = self.next_run.take_if(|run| run.request_id == request.id) {
            request.runs.push(run.run);
            self.next_run = self.runs.next()?;
        }
        if let Some(run) = self.next_run.as_ref().filter(|run| run.request_id < request.id) {
            return Err(self.stray_run(run.request_id, &format!("request {} comes before it", request.id)));
        }
        if u64::try_from(request.runs.len()).ok() != Some(run_count) {
            let found = request.runs.len();
            return Err(self.requests.wrong(
                "run_count",
                format!("expected as many runs in {RUNS_FILE}, {run_count}, found {found}"),
            ));
        }
        self.next_request = Some(request);
        Ok(())
    }

    fn stray_run(&self, request_id: u64, why: &str) -> NativeReadError {
        self.runs.wrong(
            "request_id",
            format!("expected the number of a request, found {request_id}: {why}"),
        )
    }
}

impl TraceSource for NativeReader {
    fn next_item(&mut self) -> Result<Option<TraceItem>, ReadError> {
        if event_is_first(self.next_request.as_ref(), self.next_event.as_ref()) {
            let event = self.next_event.take();
            self.next_event = self.events.next()?;
            return Ok(event.map(TraceItem::Event));
        }
        let request = self.next_request.take();
        if request.is_some() {
            self.given += 1;
            self.advance_request()?;
        }
        Ok(request.map(TraceItem::Request))
    }

    fn header(&self) -> &TraceHeader {
        &self.stored.header
    }

    fn position(&self) -> u64 {
        self.given
    }
}

/// Opens the file of a table. Waits for no other program, as opening a pipe would.
fn open_table(path: PathBuf) -> Result<(PathBuf, File), NativeReadError> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .and_then(|file| match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("expected a regular file")),
        });
    match opened {
        Ok(file) => Ok((path, file)),
        Err(source) => Err(NativeReadError::Io { path, source }),
    }
}

/// The folder of the trace that `path` is or belongs to.
pub(super) fn folder_of(path: &Path) -> Option<PathBuf> {
    let has_header = |folder: &Path| folder.join(HEADER_FILE).is_file();
    if path.is_dir() {
        return has_header(path).then(|| path.to_owned());
    }
    let name = path.file_name()?;
    if ![REQUESTS_FILE, RUNS_FILE, EVENTS_FILE, HEADER_FILE]
        .iter()
        .any(|known| name == *known)
    {
        return None;
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    has_header(parent).then(|| parent.to_owned())
}
