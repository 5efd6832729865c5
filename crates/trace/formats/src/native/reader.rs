//! Reads a native trace request by request, each with its runs, and events between them.
//!
//! Memory is bounded by a batch of rows and the pages of a row group. Columns are looked up by name, so that tables
//! rewritten by another tool (reordered, with more columns) are read too, once the header contains no sums.
//!
//! Order of trust: the header, then each table's sum, then the offsets in its footer, then its rows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, Field, Schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use results::block_trace::{Event, READABLE_SCHEMAS, Request, TraceHeader};
use thiserror::Error;

use super::decode::{EventRows, NumberedRun, Processes, RequestRows, Rows, RunRows};
use super::stored_header::{FORMAT, ItemCounts, StoredHeader};
use super::table_sum::{Behind, TableSum, TableSums, verify};
use super::{EVENTS_FILE, HEADER_FILE, REQUESTS_FILE, RUNS_FILE};
use crate::error::ReadError;
use crate::stream::{TraceItem, TraceSource, event_is_first};

const BATCH_ROWS: usize = 8 << 10;

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
    /// The table cannot be decoded.
    #[error("{}: cannot read the table: {source}", path.display())]
    Parquet {
        /// The table.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: ParquetError,
    },
    /// A batch of rows cannot be decoded.
    #[error("{}: cannot read rows: {source}", path.display())]
    Rows {
        /// The table.
        path: PathBuf,
        /// The decoder's error.
        #[source]
        source: ArrowError,
    },
    /// A column is missing or has another type.
    #[error("{}: expected a column {column} of type {expected}, found {found}", path.display())]
    Column {
        /// The table.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// Its type.
        expected: &'static str,
        /// Type found.
        found: String,
    },
    /// An impossible value.
    #[error("{}, row {row}: {column}: {problem}", path.display())]
    Value {
        /// The table.
        path: PathBuf,
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
        let stored = StoredHeader::read(&folder)?;
        let behind = if stored.header.complete {
            Behind::Nothing
        } else {
            Behind::Unfinished
        };
        let sums = stored.tables;
        let sum = |of: fn(&TableSums) -> TableSum| sums.as_ref().map(|sums| (of(sums), behind));
        let mut reader = Self {
            requests: Table::open(folder.join(REQUESTS_FILE), sum(|sums| sums.requests))?,
            runs: Table::open(folder.join(RUNS_FILE), sum(|sums| sums.runs))?,
            events: Table::open(folder.join(EVENTS_FILE), sum(|sums| sums.events))?,
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

    /// Number of rows in the tables, whatever the header says.
    #[must_use]
    pub const fn counts(&self) -> ItemCounts {
        ItemCounts {
            requests: self.requests.rows,
            runs: self.runs.rows,
            events: self.events.rows,
        }
    }

    /// Number of bytes behind the tables, which an interrupted writer did not finish. If it is not 0, only this reader
    /// can read the tables as they are.
    #[must_use]
    pub const fn unfinished_bytes(&self) -> u64 {
        self.requests.bytes_behind + self.runs.bytes_behind + self.events.bytes_behind
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

/// One table, row by row.
#[derive(Debug)]
struct Table<R> {
    path: PathBuf,
    /// `None` after a panic in it.
    batches: Option<ParquetRecordBatchReader>,
    current: Option<R>,
    row_in_batch: usize,
    /// Number of rows before the current batch.
    rows_before: u64,
    rows: u64,
    bytes_behind: u64,
    processes: Processes,
}

impl<R: Rows> Table<R> {
    fn open(path: PathBuf, sum: Option<(TableSum, Behind)>) -> Result<Self, NativeReadError> {
        let file = File::open(&path).map_err(|source| NativeReadError::Io {
            path: path.clone(),
            source,
        })?;
        let failed = |source| NativeReadError::Parquet {
            path: path.clone(),
            source,
        };
        let (bytes, bytes_behind) = match sum {
            Some((sum, behind)) => (sum.bytes, verify(&path, &file, sum, behind)?),
            None => {
                let length = file.metadata().map_err(|source| NativeReadError::Io {
                    path: path.clone(),
                    source,
                })?;
                (length.len(), 0)
            }
        };
        let decoder = || -> Result<_, NativeReadError> {
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let footer = Arc::new(footer(&file, bytes).map_err(failed)?);
            let plain = ArrowReaderMetadata::try_new(Arc::clone(&footer), options.clone()).map_err(failed)?;
            // Texts as indices into a dictionary, as they are stored: each is then decoded once per batch instead of
            // once per row.
            let schema = Arc::new(with_dictionaries(plain.schema()));
            let metadata =
                ArrowReaderMetadata::try_new(footer, options.with_schema(schema)).map_err(failed)?;
            check_places(&path, bytes, metadata.metadata())?;
            let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
            let batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
                .with_batch_size(BATCH_ROWS)
                .build()
                .map_err(failed)?;
            Ok((rows, batches))
        };
        let (rows, batches) = contained(decoder).map_err(|source| NativeReadError::Rows {
            path: path.clone(),
            source,
        })??;
        Ok(Self {
            path,
            batches: Some(batches),
            current: None,
            row_in_batch: 0,
            rows_before: 0,
            rows,
            bytes_behind,
            processes: Processes::default(),
        })
    }

    fn next(&mut self) -> Result<Option<R::Row>, NativeReadError> {
        loop {
            if let Some(rows) = &self.current {
                if self.row_in_batch < rows.len() {
                    let row = rows.row(self.row_in_batch, &mut self.processes);
                    let row = row.map_err(|problem| {
                        let number = self.row_number();
                        problem.at(&self.path, number)
                    })?;
                    self.row_in_batch += 1;
                    return Ok(Some(row));
                }
                self.rows_before = self.row_number();
                self.row_in_batch = 0;
                self.current = None;
            }
            let Some(batches) = &mut self.batches else {
                return Ok(None);
            };
            let next = contained(|| batches.next());
            if next.is_err() {
                self.batches = None;
            }
            let batch = next.and_then(Option::transpose);
            let batch = batch.map_err(|source| NativeReadError::Rows {
                path: self.path.clone(),
                source,
            })?;
            let Some(batch) = batch else {
                return Ok(None);
            };
            let rows = R::of(&batch).map_err(|problem| problem.at(&self.path, self.rows_before))?;
            self.current = Some(rows);
        }
    }

    fn row_number(&self) -> u64 {
        self.rows_before + u64::try_from(self.row_in_batch).unwrap_or(u64::MAX)
    }

    /// An error at the last row read.
    fn wrong(&self, column: &'static str, problem: String) -> NativeReadError {
        NativeReadError::Value {
            path: self.path.clone(),
            row: self.row_number().saturating_sub(1),
            column,
            problem,
        }
    }
}

/// Runs a step of the decoder, which assumes well-formed tables and panics on some that are not; sums detect damage,
/// but not tables crafted to do harm.
fn contained<T>(step: impl FnOnce() -> T) -> Result<T, ArrowError> {
    let panicked =
        |_| ArrowError::ParquetError("the decoder panicked: the table is not well-formed".to_owned());
    catch_unwind(AssertUnwindSafe(step)).map_err(panicked)
}

/// Decodes the footer of a table that is the first `bytes` of its file.
fn footer(file: &File, bytes: u64) -> Result<ParquetMetaData, ParquetError> {
    let short = || ParquetError::EOF(format!("a table of {bytes} bytes has no footer"));
    let mut tail = [0; 8];
    let tail_at = bytes.checked_sub(8).ok_or_else(short)?;
    file.read_exact_at(&mut tail, tail_at)?;
    let length = FooterTail::try_new(&tail)?.metadata_length();
    let start = u64::try_from(length)
        .ok()
        .and_then(|length| tail_at.checked_sub(length))
        .ok_or_else(short)?;
    let mut footer = vec![0; length];
    file.read_exact_at(&mut footer, start)?;
    ParquetMetaDataReader::decode_metadata(&footer)
}

/// Checks that the offsets in the footer lie within the table, because the decoder trusts them.
fn check_places(path: &Path, bytes: u64, metadata: &ParquetMetaData) -> Result<(), NativeReadError> {
    let table_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    for column in columns {
        let start = column
            .dictionary_page_offset()
            .unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        let is_inside = start >= 0
            && column.data_page_offset() >= start
            && column.compressed_size() >= 0
            && end.is_some_and(|end| end <= table_bytes);
        if !is_inside {
            let found = format!("{} bytes at {start}", column.compressed_size());
            return Err(NativeReadError::Parquet {
                path: path.to_owned(),
                source: ParquetError::General(format!(
                    "a column is said to have {found} of a table of {table_bytes}"
                )),
            });
        }
    }
    Ok(())
}

fn with_dictionaries(schema: &Schema) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::Utf8 => {
                let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
                field.as_ref().clone().with_data_type(kind)
            }
            _ => field.as_ref().clone(),
        })
        .collect();
    Schema::new(fields)
}
