//! The columns of the three tables of a stored trace, in order: name, type and value.
//!
//! This is the only place that lists them: schema and rows are made from it, and a test compares it with
//! `docs/formats/block-trace.md`. Readers ask for the columns that they need by name. It touches no file.
//!
//! Invariants:
//! - Integers are signed, of 32 or 64 bits: Spark has no unsigned ones. Larger values are refused here, before anything
//!   is written.
//! - A value that the source lacks is null, never 0.
//! - A place in bytes, `sector * 512 + bytes`, fits 63 bits: queries compute with it.

use results::block_trace::{Event, Request, RequestFlags, Run};

use super::schema::{Column, ColumnKind, Presence};
use super::table::Cell;

/// A number that is too large for its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub field: &'static str,
    pub value: u64,
    pub most: u64,
}

/// Largest sector: the last one of a device of 4 EiB.
pub(super) const SECTOR_MAX: u64 = (1 << 53) - 1;

/// Largest size.
pub(super) const BYTES_MAX: u64 = (1 << 62) - 1;

/// The largest number of a column of 64 bits.
pub(super) fn most_of(column: &str) -> u64 {
    match column {
        "sector" | "home_sector" => SECTOR_MAX,
        "bytes" => BYTES_MAX,
        _ => i64::MAX.unsigned_abs(),
    }
}

/// Texts of numbers that rows share, formatted once per item.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a> {
    pub trace_id: &'a str,
    pub device: &'a str,
    /// The file system of a run's or event's file, if it has one.
    pub file_system: &'a str,
}

/// A type of values, and that of their column.
trait Value<'a>: Sized {
    const KIND: ColumnKind;
    const PRESENCE: Presence = Presence::Always;

    fn cell(self, field: &'static str) -> Result<Cell<'a>, TooLarge>;
}

/// A text of the program, which need not be copied.
struct Word(&'static str);

macro_rules! values {
    ($($kind:ident: $type:ty, $value:ident => $cell:expr;)*) => {
        $(impl<'a> Value<'a> for $type {
            const KIND: ColumnKind = ColumnKind::$kind;

            fn cell(self, _: &'static str) -> Result<Cell<'a>, TooLarge> {
                let $value = self;
                Ok($cell)
            }
        })*
    };
}

values! {
    Boolean: bool, value => Cell::Boolean(value);
    Int32: i32, value => Cell::Int32(value);
    Int32: u16, value => Cell::Int32(i32::from(value));
    Int64: u32, value => Cell::Int64(i64::from(value));
    Text: &'a str, value => Cell::Text(value);
    Text: Word, value => Cell::Word(value.0);
}

impl<'a> Value<'a> for u64 {
    const KIND: ColumnKind = ColumnKind::Int64;

    fn cell(self, field: &'static str) -> Result<Cell<'a>, TooLarge> {
        let most = most_of(field);
        let fitting = i64::try_from(self).ok().filter(|_| self <= most);
        fitting.map(Cell::Int64).ok_or(TooLarge {
            field,
            value: self,
            most,
        })
    }
}

impl<'a, T: Value<'a>> Value<'a> for Option<T> {
    const KIND: ColumnKind = T::KIND;
    const PRESENCE: Presence = Presence::WhereKnown;

    fn cell(self, field: &'static str) -> Result<Cell<'a>, TooLarge> {
        self.map_or(Ok(Cell::Null), |value| value.cell(field))
    }
}

/// Defines the columns of a table and the function that makes its rows.
macro_rules! table {
    ($(#[$doc:meta])* $columns:ident, $row:ident($($argument:ident: $argument_type:ty),*) {
        $($name:ident: $type:ty = $value:expr;)*
    }) => {
        $(#[$doc])*
        pub const $columns: [Column; [$(stringify!($name)),*].len()] = [$(Column {
            name: stringify!($name),
            kind: <$type as Value>::KIND,
            presence: <$type as Value>::PRESENCE,
        },)*];

        pub(super) fn $row<'a>($($argument: $argument_type),*) -> Result<[Cell<'a>; $columns.len()], TooLarge> {
            Ok([$(<$type as Value>::cell($value, stringify!($name))?,)*])
        }
    };
}

table! {
    /// Columns of `requests.parquet`, in order.
    REQUEST_COLUMNS, request_cells(shared: &Shared<'a>, request: &'a Request) {
        trace_id: &str = shared.trace_id;
        id: u64 = request.id;
        device: &str = shared.device;
        sector: u64 = request.sector;
        bytes: u64 = request.bytes;
        operation: Word = Word(request.operation.word());
        flags: u32 = request.flags.0;
        sync: bool = request.flags.contains(RequestFlags::SYNC);
        meta: bool = request.flags.contains(RequestFlags::META);
        fua: bool = request.flags.contains(RequestFlags::FUA);
        preflush: bool = request.flags.contains(RequestFlags::PREFLUSH);
        readahead: bool = request.flags.contains(RequestFlags::READAHEAD);
        moves_data: bool = request.moves_data();
        priority_class: Option<u16> = request.priority.map(|priority| priority.class.into());
        priority_level: Option<u16> = request.priority.map(|priority| priority.level);
        first_ns: Option<u64> = request.first_ns();
        queued_ns: Option<u64> = request.queued_ns;
        inserted_ns: Option<u64> = request.inserted_ns;
        issued_ns: Option<u64> = request.issued_ns;
        completed_ns: Option<u64> = request.completed_ns;
        status: Option<i32> = request.status;
        in_flight: Option<u32> = request.in_flight;
        hardware_queue: Option<u16> = request.hardware_queue;
        submitter_pid: Option<u32> = request.submitter.as_deref().map(|process| process.pid);
        submitter_tid: Option<u32> = request.submitter.as_deref().map(|process| process.tid);
        submitter_name: Option<&str> = request.submitter.as_deref().map(|process| &*process.name);
        submitter_package: Option<&str> = request.submitter.as_deref().and_then(|process| process.package.as_deref());
        mode: Word = Word(request.mode.word());
        command_code: Option<u16> = request.command.map(|command| command.code);
        command_argument: Option<u32> = request.command.map(|command| command.argument);
        command_packed_requests: Option<u16> = request.command.map(|command| command.packed_requests);
        command_retries: Option<u16> = request.command.map(|command| command.retries);
        command_interrupts: Option<u16> = request.command.map(|command| command.interrupts);
        command_bytes: Option<u32> = request.command.and_then(|command| command.bytes);
        command_tag: Option<u16> = request.command.and_then(|command| command.tag);
        command_waits_busy: Option<bool> = request.command.map(|command| command.waits_busy);
        command_issued_ns: Option<u64> = request.command.and_then(|command| command.issued_ns);
        command_completed_ns: Option<u64> = request.command.and_then(|command| command.completed_ns);
        command_status: Option<i32> = request.command.and_then(|command| command.status);
        run_count: u64 = count(request.runs.len());
    }
}

table! {
    /// Columns of `runs.parquet`, in order.
    RUN_COLUMNS, run_cells(shared: &Shared<'a>, request: &Request, index: usize, run: &'a Run) {
        trace_id: &str = shared.trace_id;
        request_id: u64 = request.id;
        run_index: u64 = count(index);
        device: &str = shared.device;
        operation: Word = Word(request.operation.word());
        mode: Word = Word(request.mode.word());
        sync: bool = request.flags.contains(RequestFlags::SYNC);
        first_ns: Option<u64> = request.first_ns();
        sector: u64 = run.sector;
        bytes: u64 = run.bytes;
        block_type: Word = Word(run.block_type.word());
        class: Word = Word(run.block_type.class().word());
        detail: Option<&str> = run.detail.as_deref();
        file_system: Option<&str> = run.file.map(|_| shared.file_system);
        inode: Option<u64> = run.file.map(|file| file.inode);
        generation: Option<u32> = run.file.map(|file| file.generation);
        path: Option<&str> = run.path.as_deref();
        deleted: bool = run.deleted;
        file_offset: Option<u64> = run.file_offset;
        home_sector: Option<u64> = run.home_sector;
        transaction_id: Option<u64> = run.transaction;
        cause_pid: Option<u32> = run.cause.as_deref().map(|process| process.pid);
        cause_tid: Option<u32> = run.cause.as_deref().map(|process| process.tid);
        cause_name: Option<&str> = run.cause.as_deref().map(|process| &*process.name);
        cause_package: Option<&str> = run.cause.as_deref().and_then(|process| process.package.as_deref());
        cause_quality: Word = Word(run.cause_quality.word());
        dirtied_ns: Option<u64> = run.dirtied_ns;
        one_of_names: Option<bool> = run.path.as_ref().map(|_| run.one_of_names);
    }
}

table! {
    /// Columns of `events.parquet`, in order.
    EVENT_COLUMNS, event_cells(shared: &Shared<'a>, index: u64, event: &'a Event) {
        trace_id: &str = shared.trace_id;
        event_index: u64 = index;
        time_ns: u64 = event.time_ns;
        kind: Word = Word(event.kind.word());
        pid: Option<u32> = event.process.as_deref().map(|process| process.pid);
        tid: Option<u32> = event.process.as_deref().map(|process| process.tid);
        process_name: Option<&str> = event.process.as_deref().map(|process| &*process.name);
        package: Option<&str> = event.process.as_deref().and_then(|process| process.package.as_deref());
        file_system: Option<&str> = event.file.map(|_| shared.file_system);
        inode: Option<u64> = event.file.map(|file| file.inode);
        generation: Option<u32> = event.file.map(|file| file.generation);
        path: Option<&str> = event.path.as_deref();
        name: Option<&str> = event.name.as_deref();
        value: u64 = event.value;
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
