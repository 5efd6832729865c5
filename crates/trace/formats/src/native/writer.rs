//! Writes a native trace, row by row.
//!
//! All files are written into `NAME.partial`, which gets its name when the trace is finished and synced: a folder with
//! the right name is complete. A writer that is dropped earlier leaves the partial folder with all its rows and a
//! header that says `complete: false`.
//!
//! A checkpoint makes the rows so far readable: each table gets a footer, and then the header is replaced by one with
//! the lengths and sums up to these footers. A process that is killed, or runs out of disk space, leaves the rows of
//! its last checkpoint. Checkpoints are made automatically after as many rows as a row group has, then after each
//! further quarter; the caller, which has a clock, may make more. They are not synced, as that would stall a recorder
//! for as long as its disk takes: a power cut can leave tables shorter than the header says, which the reader then
//! reports.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use results::block_trace::{BLOCK_TRACE_SCHEMA, DeviceNumber, Event, Request, TraceHeader};
use thiserror::Error;

use super::columns::{
    EVENT_COLUMNS, REQUEST_COLUMNS, RUN_COLUMNS, Shared, TooLarge, event_cells, request_cells, run_cells,
};
use super::stored_header::{Durability, FORMAT, ItemCounts, StoredHeader};
use super::table::{ROW_GROUP_ROWS, TableWriter};
use super::table_sum::{TableSum, TableSums};
use super::{EVENTS_FILE, HEADER_FILE, REQUESTS_FILE, RUNS_FILE};
use crate::error::WriteError;
use crate::stream::{TraceSink, Written};

/// Error of writing a native trace.
#[derive(Debug, Error)]
pub enum NativeWriteError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The Parquet encoder failed, usually for lack of space.
    #[error("{}: cannot {operation} the table: {source}", path.display())]
    Parquet {
        /// The operation that failed.
        operation: &'static str,
        /// The table.
        path: PathBuf,
        /// The encoder's error.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// The header cannot be expressed in JSON.
    #[error("{}: cannot write the header: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The name already exists.
    #[error("{} exists already; choose another name, or allow it to be replaced", path.display())]
    Exists {
        /// The path of the trace.
        path: PathBuf,
    },
    /// The name belongs to something other than a trace, which is not replaced.
    #[error("{} is no trace and is not replaced: expected a folder with {HEADER_FILE}", path.display())]
    ReplacesOther {
        /// The path of the trace.
        path: PathBuf,
    },
    /// A number is too large for its column. Only the item that contains it is refused.
    #[error("{item}: {field} is {value}, expected at most {most}")]
    OutOfRange {
        /// The request or event.
        item: String,
        /// The column.
        field: &'static str,
        /// The value.
        value: u64,
        /// The largest value of the column.
        most: u64,
    },
    /// Requests were not in the order of their numbers.
    #[error("request {id} came after request {last}; expected higher numbers only")]
    Order {
        /// The refused request.
        id: u64,
        /// The one before.
        last: u64,
    },
}

/// The text that distinguishes rows of one trace from those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceId(String);

impl TraceId {
    /// Builds an id from the trace's name, the time when it was made (ns since 1970) and the process that made it,
    /// which distinguish it from other traces of that name.
    #[must_use]
    pub fn new(name: &str, made_ns: u128, process: u32) -> Self {
        Self(format!("{name}-{made_ns:x}-{process:x}"))
    }

    /// Uses a text whose uniqueness is the caller's responsibility.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Handling of an existing trace with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep it and write nothing.
    Refuse,
    /// Replace it when the new one is complete.
    Replace,
}

/// Writes a native trace.
#[derive(Debug)]
pub struct NativeWriter {
    path: PathBuf,
    partial: PathBuf,
    id: TraceId,
    /// The header to write if the writer is dropped.
    interrupted: TraceHeader,
    last_request: Option<u64>,
    device_texts: BTreeMap<DeviceNumber, String>,
    /// `None` once it is finished.
    tables: Option<Tables>,
    /// Rows and sums in the header on the disk.
    checkpoint: Checkpoint,
    /// Whether an error has left the tables inconsistent with each other: then the checkpoint counts.
    is_broken: bool,
}

/// Lengths up to which the tables can be read.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    sums: TableSums,
    counts: ItemCounts,
}

#[derive(Debug)]
struct Tables {
    requests: TableWriter,
    runs: TableWriter,
    events: TableWriter,
}

impl Tables {
    const fn counts(&self) -> ItemCounts {
        ItemCounts {
            requests: self.requests.rows(),
            runs: self.runs.rows(),
            events: self.events.rows(),
        }
    }

    fn checkpoint(&mut self) -> Result<TableSums, NativeWriteError> {
        Ok(TableSums {
            requests: self.requests.checkpoint()?,
            runs: self.runs.checkpoint()?,
            events: self.events.checkpoint()?,
        })
    }

    fn close(self) -> Result<TableSums, NativeWriteError> {
        Ok(TableSums {
            requests: self.requests.close()?,
            runs: self.runs.close()?,
            events: self.events.close()?,
        })
    }
}

impl ItemCounts {
    fn rows(self) -> u64 {
        self.requests + self.runs + self.events
    }
}

impl NativeWriter {
    /// Creates the trace `path` (by custom `NAME.trace`). `header` is the information known so far, and the header of
    /// the trace if it is interrupted. An earlier partial folder of that name is replaced.
    ///
    /// # Errors
    /// If the name exists and may not be replaced, or its folder does not exist.
    pub fn create(
        path: &Path,
        id: TraceId,
        header: &TraceHeader,
        existing: Existing,
    ) -> Result<Self, NativeWriteError> {
        // Without a trailing slash, to which a suffix could not be added.
        let path: PathBuf = path.components().collect();
        check_target(&path, existing)?;
        let partial = outfile::partial_name(&path);
        if partial.symlink_metadata().is_ok() {
            check_target(&partial, Existing::Replace)?;
            fs::remove_dir_all(&partial).map_err(|source| failed("replace", &partial, source))?;
        }
        // The folder is named in place of the partial trace in it.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent {
            fs::metadata(parent).map_err(|source| failed("make a trace in this folder", parent, source))?;
        }
        // Fails if another process has created it meanwhile.
        fs::create_dir(&partial).map_err(|source| failed("create", &partial, source))?;
        let mut tables = Tables {
            requests: TableWriter::create(&partial.join(REQUESTS_FILE), &REQUEST_COLUMNS)?,
            runs: TableWriter::create(&partial.join(RUNS_FILE), &RUN_COLUMNS)?,
            events: TableWriter::create(&partial.join(EVENTS_FILE), &EVENT_COLUMNS)?,
        };
        let checkpoint = Checkpoint {
            sums: tables.checkpoint()?,
            counts: ItemCounts::default(),
        };
        let interrupted = TraceHeader {
            complete: false,
            ..header.clone()
        };
        let writer = Self {
            path,
            partial,
            id,
            interrupted,
            last_request: None,
            device_texts: BTreeMap::new(),
            tables: Some(tables),
            checkpoint,
            is_broken: false,
        };
        writer.write_header(&writer.interrupted, checkpoint, Durability::Process)?;
        Ok(writer)
    }

    /// Path of the trace until it is finished.
    #[must_use]
    pub fn partial_path(&self) -> &Path {
        &self.partial
    }

    /// Number of rows so far.
    #[must_use]
    pub fn counts(&self) -> ItemCounts {
        self.tables.as_ref().map(Tables::counts).unwrap_or_default()
    }

    /// Adds a request with all its runs, or nothing if one number does not fit.
    ///
    /// # Errors
    /// [`NativeWriteError::OutOfRange`] and [`NativeWriteError::Order`] refuse only this request.
    pub fn request(&mut self, request: &Request) -> Result<(), NativeWriteError> {
        if let Some(last) = self.last_request.filter(|last| request.id <= *last) {
            return Err(NativeWriteError::Order { id: request.id, last });
        }
        for device in devices_of(request) {
            self.device_texts
                .entry(device)
                .or_insert_with(|| device.to_string());
        }
        let text_of = |device: DeviceNumber| self.device_texts.get(&device).map_or("", String::as_str);
        let shared = Shared {
            trace_id: self.id.as_str(),
            device: text_of(request.device),
            file_system: "",
        };
        let refused = |too_large| out_of_range(format!("request {}", request.id), too_large);
        let row = request_cells(&shared, request).map_err(refused)?;
        let mut run_rows = Vec::with_capacity(request.runs.len());
        for (index, run) in request.runs.iter().enumerate() {
            let file_system = run.file.map_or("", |file| text_of(file.file_system));
            let shared = Shared {
                file_system,
                ..shared
            };
            run_rows.push(run_cells(&shared, request, index, run).map_err(refused)?);
        }
        let tables = self.tables.as_mut().expect("a finished writer is gone");
        let pushed = tables
            .requests
            .push(&row)
            .and_then(|()| run_rows.iter().try_for_each(|row| tables.runs.push(row)));
        self.is_broken |= pushed.is_err();
        pushed?;
        self.last_request = Some(request.id);
        self.checkpoint_when_due()
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`NativeWriteError::OutOfRange`] refuses only this event.
    pub fn event(&mut self, event: &Event) -> Result<(), NativeWriteError> {
        let tables = self.tables.as_mut().expect("a finished writer is gone");
        let index = tables.events.rows();
        let file_system = event.file.map(|file| file.file_system.to_string());
        let shared = Shared {
            trace_id: self.id.as_str(),
            device: "",
            file_system: file_system.as_deref().unwrap_or_default(),
        };
        let row = event_cells(&shared, index, event)
            .map_err(|too_large| out_of_range(format!("event {index}"), too_large))?;
        let pushed = tables.events.push(&row);
        self.is_broken |= pushed.is_err();
        pushed?;
        self.checkpoint_when_due()
    }

    /// Makes the rows so far readable, whatever happens to this process.
    ///
    /// # Errors
    /// If it cannot be written; the checkpoint before stays.
    pub fn checkpoint(&mut self) -> Result<(), NativeWriteError> {
        let tables = self.tables.as_mut().expect("a finished writer is gone");
        let counts = tables.counts();
        if counts == self.checkpoint.counts {
            return Ok(());
        }
        let checkpoint = tables.checkpoint().map(|sums| Checkpoint { sums, counts });
        self.is_broken |= checkpoint.is_err();
        let checkpoint = checkpoint?;
        self.write_header(&self.interrupted, checkpoint, Durability::Process)?;
        self.checkpoint = checkpoint;
        Ok(())
    }

    fn checkpoint_when_due(&mut self) -> Result<(), NativeWriteError> {
        let done = self.checkpoint.counts.rows();
        let least = u64::try_from(ROW_GROUP_ROWS).unwrap_or(u64::MAX);
        if self.counts().rows() - done < least.max(done / 4) {
            return Ok(());
        }
        self.checkpoint()
    }

    /// Writes the rest and gives the trace its name. A header that says `complete: false` is kept as it is.
    ///
    /// # Errors
    /// If the rest cannot be written; the rows so far stay in the partial folder.
    pub fn finish(mut self, header: &TraceHeader) -> Result<ItemCounts, NativeWriteError> {
        let tables = self.tables.take().expect("a finished writer is gone");
        let counts = tables.counts();
        let closed = tables.close();
        if closed.is_err() {
            self.cut_to_checkpoint();
        }
        let checkpoint = Checkpoint {
            sums: closed?,
            counts,
        };
        self.write_header(header, checkpoint, Durability::Power)?;
        sync_folder(&self.partial)?;
        if self.path.exists() {
            let old = old_name(&self.path);
            fs::rename(&self.path, &old).map_err(|source| failed("move away", &self.path, source))?;
            fs::rename(&self.partial, &self.path)
                .map_err(|source| failed("rename", &self.partial, source))?;
            fs::remove_dir_all(&old).map_err(|source| failed("remove", &old, source))?;
        } else {
            fs::rename(&self.partial, &self.path)
                .map_err(|source| failed("rename", &self.partial, source))?;
        }
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
        Ok(counts)
    }

    fn write_header(
        &self,
        header: &TraceHeader,
        checkpoint: Checkpoint,
        durability: Durability,
    ) -> Result<(), NativeWriteError> {
        let stored = StoredHeader {
            format: FORMAT.to_owned(),
            trace_id: self.id.as_str().to_owned(),
            counts: checkpoint.counts,
            tables: Some(checkpoint.sums),
            // The output has this schema, whatever the source's was.
            header: TraceHeader {
                schema: BLOCK_TRACE_SCHEMA,
                ..header.clone()
            },
        };
        stored.write(&self.partial, durability)
    }

    /// Truncates the tables to the checkpoint, so that any Parquet reader can read them. Best effort: this crate's
    /// reader ignores the bytes behind it.
    fn cut_to_checkpoint(&self) {
        let TableSums {
            requests,
            runs,
            events,
        } = self.checkpoint.sums;
        for (name, TableSum { bytes, .. }) in [
            (REQUESTS_FILE, requests),
            (RUNS_FILE, runs),
            (EVENTS_FILE, events),
        ] {
            let _ = OpenOptions::new()
                .write(true)
                .open(self.partial.join(name))
                .and_then(|file| file.set_len(bytes));
        }
    }
}

impl Drop for NativeWriter {
    /// Keeps an interrupted trace with all its rows, or up to its last checkpoint if the rest can't be written. Errors
    /// can't be returned; the folder's name shows that it is partial.
    fn drop(&mut self) {
        let Some(tables) = self.tables.take() else {
            return;
        };
        let counts = tables.counts();
        let closed = if self.is_broken {
            // Closing it would write rows that may be inconsistent.
            drop(tables);
            None
        } else {
            tables.close().ok()
        };
        let kept = closed.is_some_and(|sums| {
            let whole = Checkpoint { sums, counts };
            self.write_header(&self.interrupted, whole, Durability::Process)
                .is_ok()
        });
        if !kept {
            self.cut_to_checkpoint();
        }
    }
}

impl TraceSink for NativeWriter {
    fn request(&mut self, request: &Request) -> Result<(), WriteError> {
        Ok(Self::request(self, request)?)
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        Ok(Self::event(self, event)?)
    }

    fn checkpoint(&mut self) -> Result<(), WriteError> {
        Ok(Self::checkpoint(self)?)
    }

    fn finish(self: Box<Self>, header: &TraceHeader) -> Result<Written, WriteError> {
        let counts = Self::finish(*self, header)?;
        Ok(Written {
            requests: counts.requests,
            events: counts.events,
            ..Written::default()
        })
    }
}

fn check_target(path: &Path, existing: Existing) -> Result<(), NativeWriteError> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let path = path.to_owned();
    match existing {
        Existing::Refuse => Err(NativeWriteError::Exists { path }),
        Existing::Replace if path.join(HEADER_FILE).is_file() => Ok(()),
        Existing::Replace => Err(NativeWriteError::ReplacesOther { path }),
    }
}

/// Devices whose texts the rows of a request need.
fn devices_of(request: &Request) -> impl Iterator<Item = DeviceNumber> {
    let files = request.runs.iter().filter_map(|run| run.file);
    std::iter::once(request.device).chain(files.map(|file| file.file_system))
}

fn old_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".replaced");
    PathBuf::from(name)
}

fn sync_folder(path: &Path) -> Result<(), NativeWriteError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| failed("sync", path, source))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> NativeWriteError {
    NativeWriteError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

fn out_of_range(item: String, too_large: TooLarge) -> NativeWriteError {
    let TooLarge { field, value, most } = too_large;
    NativeWriteError::OutOfRange {
        item,
        field,
        value,
        most,
    }
}
