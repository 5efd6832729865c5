//! Converts rows of the tables to requests, runs and events.
//!
//! Columns are looked up, their texts decoded, and option values parsed once per batch. An impossible value is reported
//! with its column; the caller adds file and row.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, BooleanArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use results::block_trace::{
    BlockType, CauseQuality, DeviceNumber, DriverCommand, Event, EventKind, FileIdentity, IoMode, IoPriority,
    Operation, Process, Request, RequestFlags, Run,
};

use super::reader::NativeReadError;

/// An error without file and row.
#[derive(Debug)]
pub enum Problem {
    Column {
        column: &'static str,
        expected: &'static str,
        found: String,
    },
    Value {
        column: &'static str,
        problem: String,
    },
}

impl Problem {
    pub fn at(self, path: &Path, row: u64) -> NativeReadError {
        let path = path.to_owned();
        match self {
            Self::Column {
                column,
                expected,
                found,
            } => NativeReadError::Column {
                path,
                column,
                expected,
                found,
            },
            Self::Value { column, problem } => NativeReadError::Value {
                path,
                row,
                column,
                problem,
            },
        }
    }

    fn empty(column: &'static str) -> Self {
        Self::Value {
            column,
            problem: "expected a value, found none".to_owned(),
        }
    }
}

/// A batch of rows of one table.
pub trait Rows: Sized {
    /// Type of a row.
    type Row;

    fn of(batch: &RecordBatch) -> Result<Self, Problem>;
    fn len(&self) -> usize;
    fn row(&self, row: usize, processes: &mut Processes) -> Result<Self::Row, Problem>;
}

/// Processes shared between rows.
#[derive(Debug, Default)]
pub struct Processes(HashMap<Process, Arc<Process>>);

impl Processes {
    /// At this size the set is cleared: sharing must save memory, not cost it.
    const MAX: usize = 1 << 16;

    fn share(&mut self, process: Process) -> Arc<Process> {
        if self.0.len() >= Self::MAX {
            self.0.clear();
        }
        let shared = self.0.entry(process);
        Arc::clone(match &shared {
            std::collections::hash_map::Entry::Occupied(entry) => entry.get(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let process = Arc::new(entry.key().clone());
                return Arc::clone(shared.or_insert(process));
            }
        })
    }
}

fn found<'a, T: 'static>(
    batch: &'a RecordBatch,
    column: &'static str,
    expected: &'static str,
) -> Result<&'a T, Problem> {
    let array = batch.column_by_name(column).ok_or_else(|| Problem::Column {
        column,
        expected,
        found: "none".to_owned(),
    })?;
    array.as_any().downcast_ref::<T>().ok_or_else(|| Problem::Column {
        column,
        expected,
        found: array.data_type().to_string(),
    })
}

#[derive(Debug)]
struct Flag {
    column: &'static str,
    values: BooleanArray,
}

impl Flag {
    fn of(batch: &RecordBatch, column: &'static str) -> Result<Self, Problem> {
        let values = found::<BooleanArray>(batch, column, "boolean")?.clone();
        Ok(Self { column, values })
    }

    /// A column that older schemas lack.
    fn where_there(batch: &RecordBatch, column: &'static str) -> Result<Option<Self>, Problem> {
        let there = batch.column_by_name(column).is_some();
        there.then(|| Self::of(batch, column)).transpose()
    }

    fn where_known(&self, row: usize) -> Option<bool> {
        self.values.is_valid(row).then(|| self.values.value(row))
    }

    fn at(&self, row: usize) -> Result<bool, Problem> {
        self.where_known(row).ok_or_else(|| Problem::empty(self.column))
    }
}

/// An integer column of either width, as numbers of the field's type.
#[derive(Debug)]
struct Number {
    column: &'static str,
    values: Integers,
}

#[derive(Debug)]
enum Integers {
    Narrow(Int32Array),
    Wide(Int64Array),
}

impl Number {
    fn of(batch: &RecordBatch, column: &'static str) -> Result<Self, Problem> {
        let values = if let Ok(narrow) = found::<Int32Array>(batch, column, "int32") {
            Integers::Narrow(narrow.clone())
        } else {
            Integers::Wide(found::<Int64Array>(batch, column, "int64")?.clone())
        };
        Ok(Self { column, values })
    }

    /// A column that older schemas lack.
    fn where_there(batch: &RecordBatch, column: &'static str) -> Result<Option<Self>, Problem> {
        let there = batch.column_by_name(column).is_some();
        there.then(|| Self::of(batch, column)).transpose()
    }

    fn where_known<T: TryFrom<i64>>(&self, row: usize) -> Result<Option<T>, Problem> {
        let value = match &self.values {
            Integers::Narrow(values) => values.is_valid(row).then(|| i64::from(values.value(row))),
            Integers::Wide(values) => values.is_valid(row).then(|| values.value(row)),
        };
        let Some(value) = value else {
            return Ok(None);
        };
        T::try_from(value).map(Some).map_err(|_| Problem::Value {
            column: self.column,
            problem: format!("expected {}, found {value}", std::any::type_name::<T>()),
        })
    }

    fn at<T: TryFrom<i64>>(&self, row: usize) -> Result<T, Problem> {
        self.where_known(row)?.ok_or_else(|| Problem::empty(self.column))
    }
}

/// A text column, each distinct text decoded once.
#[derive(Debug)]
struct Texts<T> {
    column: &'static str,
    values: Vec<T>,
    keys: Int32Array,
}

impl<T> Texts<T> {
    fn of_each(
        batch: &RecordBatch,
        column: &'static str,
        make: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Self, Problem> {
        let dictionary = found::<DictionaryArray<Int32Type>>(batch, column, "text")?;
        let texts = dictionary.values().as_any().downcast_ref::<StringArray>();
        let texts = texts.ok_or_else(|| Problem::Column {
            column,
            expected: "text",
            found: dictionary.values().data_type().to_string(),
        })?;
        let values: Result<Vec<T>, String> =
            texts.iter().map(|text| make(text.unwrap_or_default())).collect();
        Ok(Self {
            column,
            values: values.map_err(|problem| Problem::Value { column, problem })?,
            keys: dictionary.keys().clone(),
        })
    }

    fn where_known(&self, row: usize) -> Option<&T> {
        if self.keys.is_null(row) {
            return None;
        }
        let key = usize::try_from(self.keys.value(row)).ok()?;
        self.values.get(key)
    }

    fn at(&self, row: usize) -> Result<&T, Problem> {
        self.where_known(row).ok_or_else(|| Problem::empty(self.column))
    }
}

impl Texts<Arc<str>> {
    fn of(batch: &RecordBatch, column: &'static str) -> Result<Self, Problem> {
        Self::of_each(batch, column, |text| Ok(Arc::from(text)))
    }
}

impl<T: FromStr<Err: Display>> Texts<T> {
    fn words(batch: &RecordBatch, column: &'static str) -> Result<Self, Problem> {
        Self::of_each(batch, column, |text| {
            text.parse().map_err(|error: T::Err| error.to_string())
        })
    }
}

#[derive(Debug)]
struct ProcessColumns {
    pid: Number,
    tid: Number,
    name: Texts<Arc<str>>,
    package: Texts<Arc<str>>,
}

impl ProcessColumns {
    fn of(batch: &RecordBatch, columns: [&'static str; 4]) -> Result<Self, Problem> {
        let [pid, tid, name, package] = columns;
        Ok(Self {
            pid: Number::of(batch, pid)?,
            tid: Number::of(batch, tid)?,
            name: Texts::of(batch, name)?,
            package: Texts::of(batch, package)?,
        })
    }

    fn at(&self, row: usize, processes: &mut Processes) -> Result<Option<Arc<Process>>, Problem> {
        let Some(pid) = self.pid.where_known(row)? else {
            return Ok(None);
        };
        Ok(Some(processes.share(Process {
            pid,
            tid: self.tid.at(row)?,
            name: Arc::clone(self.name.at(row)?),
            package: self.package.where_known(row).cloned(),
        })))
    }
}

#[derive(Debug)]
struct FileColumns {
    file_system: Texts<DeviceNumber>,
    inode: Number,
    generation: Number,
}

impl FileColumns {
    fn of(batch: &RecordBatch) -> Result<Self, Problem> {
        Ok(Self {
            file_system: Texts::words(batch, "file_system")?,
            inode: Number::of(batch, "inode")?,
            generation: Number::of(batch, "generation")?,
        })
    }

    fn at(&self, row: usize) -> Result<Option<FileIdentity>, Problem> {
        let Some(file_system) = self.file_system.where_known(row) else {
            return Ok(None);
        };
        Ok(Some(FileIdentity {
            file_system: *file_system,
            inode: self.inode.at(row)?,
            generation: self.generation.at(row)?,
        }))
    }
}

/// Rows of `requests.parquet`. A row is a request without its runs, and their number.
#[derive(Debug)]
pub struct RequestRows {
    length: usize,
    id: Number,
    device: Texts<DeviceNumber>,
    sector: Number,
    bytes: Number,
    operation: Texts<Operation>,
    flags: Number,
    priority_class: Number,
    priority_level: Number,
    queued: Number,
    inserted: Number,
    issued: Number,
    completed: Number,
    status: Number,
    in_flight: Number,
    hardware_queue: Number,
    submitter: ProcessColumns,
    mode: Texts<IoMode>,
    command: CommandColumns,
    run_count: Number,
}

#[derive(Debug)]
struct CommandColumns {
    code: Number,
    argument: Number,
    packed_requests: Number,
    retries: Number,
    interrupts: Number,
    // Since schema 2.
    bytes: Option<Number>,
    tag: Option<Number>,
    waits_busy: Option<Flag>,
    issued: Option<Number>,
    completed: Option<Number>,
    status: Option<Number>,
}

fn where_there<T: TryFrom<i64>>(column: &Option<Number>, row: usize) -> Result<Option<T>, Problem> {
    column.as_ref().map_or(Ok(None), |column| column.where_known(row))
}

impl CommandColumns {
    fn of(batch: &RecordBatch) -> Result<Self, Problem> {
        Ok(Self {
            code: Number::of(batch, "command_code")?,
            argument: Number::of(batch, "command_argument")?,
            packed_requests: Number::of(batch, "command_packed_requests")?,
            retries: Number::of(batch, "command_retries")?,
            interrupts: Number::of(batch, "command_interrupts")?,
            bytes: Number::where_there(batch, "command_bytes")?,
            tag: Number::where_there(batch, "command_tag")?,
            waits_busy: Flag::where_there(batch, "command_waits_busy")?,
            issued: Number::where_there(batch, "command_issued_ns")?,
            completed: Number::where_there(batch, "command_completed_ns")?,
            status: Number::where_there(batch, "command_status")?,
        })
    }

    fn at(&self, row: usize) -> Result<Option<DriverCommand>, Problem> {
        let Some(code) = self.code.where_known(row)? else {
            return Ok(None);
        };
        Ok(Some(DriverCommand {
            code,
            argument: self.argument.at(row)?,
            packed_requests: self.packed_requests.at(row)?,
            retries: self.retries.at(row)?,
            interrupts: self.interrupts.at(row)?,
            bytes: where_there(&self.bytes, row)?,
            tag: where_there(&self.tag, row)?,
            waits_busy: self
                .waits_busy
                .as_ref()
                .and_then(|flag| flag.where_known(row))
                .unwrap_or_default(),
            issued_ns: where_there(&self.issued, row)?,
            completed_ns: where_there(&self.completed, row)?,
            status: where_there(&self.status, row)?,
        }))
    }
}

impl Rows for RequestRows {
    type Row = (Request, u64);

    fn of(batch: &RecordBatch) -> Result<Self, Problem> {
        let number = |column| Number::of(batch, column);
        let submitter = [
            "submitter_pid",
            "submitter_tid",
            "submitter_name",
            "submitter_package",
        ];
        Ok(Self {
            length: batch.num_rows(),
            id: number("id")?,
            device: Texts::words(batch, "device")?,
            sector: number("sector")?,
            bytes: number("bytes")?,
            operation: Texts::words(batch, "operation")?,
            flags: number("flags")?,
            priority_class: number("priority_class")?,
            priority_level: number("priority_level")?,
            queued: number("queued_ns")?,
            inserted: number("inserted_ns")?,
            issued: number("issued_ns")?,
            completed: number("completed_ns")?,
            status: number("status")?,
            in_flight: number("in_flight")?,
            hardware_queue: number("hardware_queue")?,
            submitter: ProcessColumns::of(batch, submitter)?,
            mode: Texts::words(batch, "mode")?,
            command: CommandColumns::of(batch)?,
            run_count: number("run_count")?,
        })
    }

    fn len(&self) -> usize {
        self.length
    }

    fn row(&self, row: usize, processes: &mut Processes) -> Result<Self::Row, Problem> {
        let priority = match self.priority_class.where_known(row)? {
            None => None,
            Some(class) => Some(IoPriority {
                class,
                level: self.priority_level.at(row)?,
            }),
        };
        let request = Request {
            id: self.id.at(row)?,
            device: *self.device.at(row)?,
            sector: self.sector.at(row)?,
            bytes: self.bytes.at(row)?,
            operation: *self.operation.at(row)?,
            flags: RequestFlags(self.flags.at(row)?),
            priority,
            queued_ns: self.queued.where_known(row)?,
            inserted_ns: self.inserted.where_known(row)?,
            issued_ns: self.issued.where_known(row)?,
            completed_ns: self.completed.where_known(row)?,
            status: self.status.where_known(row)?,
            in_flight: self.in_flight.where_known(row)?,
            hardware_queue: self.hardware_queue.where_known(row)?,
            submitter: self.submitter.at(row, processes)?,
            mode: *self.mode.at(row)?,
            command: self.command.at(row)?,
            runs: Vec::new(),
        };
        Ok((request, self.run_count.at(row)?))
    }
}

/// A run with the number of its request.
#[derive(Debug)]
pub struct NumberedRun {
    pub request_id: u64,
    pub run: Run,
}

/// Rows of `runs.parquet`.
#[derive(Debug)]
pub struct RunRows {
    length: usize,
    request_id: Number,
    sector: Number,
    bytes: Number,
    block_type: Texts<BlockType>,
    detail: Texts<Arc<str>>,
    file: FileColumns,
    path: Texts<Arc<str>>,
    deleted: Flag,
    file_offset: Number,
    home_sector: Number,
    transaction: Number,
    cause: ProcessColumns,
    cause_quality: Texts<CauseQuality>,
    dirtied: Number,
}

impl Rows for RunRows {
    type Row = NumberedRun;

    fn of(batch: &RecordBatch) -> Result<Self, Problem> {
        let number = |column| Number::of(batch, column);
        Ok(Self {
            length: batch.num_rows(),
            request_id: number("request_id")?,
            sector: number("sector")?,
            bytes: number("bytes")?,
            block_type: Texts::words(batch, "block_type")?,
            detail: Texts::of(batch, "detail")?,
            file: FileColumns::of(batch)?,
            path: Texts::of(batch, "path")?,
            deleted: Flag::of(batch, "deleted")?,
            file_offset: number("file_offset")?,
            home_sector: number("home_sector")?,
            transaction: number("transaction_id")?,
            cause: ProcessColumns::of(batch, ["cause_pid", "cause_tid", "cause_name", "cause_package"])?,
            cause_quality: Texts::words(batch, "cause_quality")?,
            dirtied: number("dirtied_ns")?,
        })
    }

    fn len(&self) -> usize {
        self.length
    }

    fn row(&self, row: usize, processes: &mut Processes) -> Result<NumberedRun, Problem> {
        Ok(NumberedRun {
            request_id: self.request_id.at(row)?,
            run: Run {
                sector: self.sector.at(row)?,
                bytes: self.bytes.at(row)?,
                block_type: *self.block_type.at(row)?,
                detail: self.detail.where_known(row).cloned(),
                file: self.file.at(row)?,
                path: self.path.where_known(row).cloned(),
                deleted: self.deleted.at(row)?,
                file_offset: self.file_offset.where_known(row)?,
                home_sector: self.home_sector.where_known(row)?,
                transaction: self.transaction.where_known(row)?,
                cause: self.cause.at(row, processes)?,
                cause_quality: *self.cause_quality.at(row)?,
                dirtied_ns: self.dirtied.where_known(row)?,
            },
        })
    }
}

/// Rows of `events.parquet`.
#[derive(Debug)]
pub struct EventRows {
    length: usize,
    time: Number,
    kind: Texts<EventKind>,
    process: ProcessColumns,
    file: FileColumns,
    path: Texts<Arc<str>>,
    name: Texts<Arc<str>>,
    value: Number,
}

impl Rows for EventRows {
    type Row = Event;

    fn of(batch: &RecordBatch) -> Result<Self, Problem> {
        Ok(Self {
            length: batch.num_rows(),
            time: Number::of(batch, "time_ns")?,
            kind: Texts::words(batch, "kind")?,
            process: ProcessColumns::of(batch, ["pid", "tid", "process_name", "package"])?,
            file: FileColumns::of(batch)?,
            path: Texts::of(batch, "path")?,
            name: Texts::of(batch, "name")?,
            value: Number::of(batch, "value")?,
        })
    }

    fn len(&self) -> usize {
        self.length
    }

    fn row(&self, row: usize, processes: &mut Processes) -> Result<Event, Problem> {
        Ok(Event {
            time_ns: self.time.at(row)?,
            kind: *self.kind.at(row)?,
            process: self.process.at(row, processes)?,
            file: self.file.at(row)?,
            path: self.path.where_known(row).cloned(),
            name: self.name.where_known(row).cloned(),
            value: self.value.at(row)?,
        })
    }
}
