//! Converts requests, runs and events to rows: one array each, in the order of the columns in [`super::schema`].
//!
//! A number that does not fit its column is detected here, before anything is written.

use results::block_trace::{Event, FileIdentity, Process, Request, RequestFlags, Run};

use super::schema::{EVENT_COLUMNS, REQUEST_COLUMNS, RUN_COLUMNS};
use super::table::Cell;

/// A number that is too large for its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    pub field: &'static str,
    pub value: u64,
}

/// Texts of numbers that rows share, formatted once per item.
#[derive(Debug)]
pub struct Shared<'a> {
    pub trace_id: &'a str,
    pub device: &'a str,
}

fn number<'a>(field: &'static str, value: u64) -> Result<Cell<'a>, TooLarge> {
    i64::try_from(value)
        .map(Cell::Int64)
        .map_err(|_| TooLarge { field, value })
}

fn number_where<'a>(field: &'static str, value: Option<u64>) -> Result<Cell<'a>, TooLarge> {
    value.map_or(Ok(Cell::Null), |value| number(field, value))
}

fn long<'a>(value: Option<u32>) -> Cell<'a> {
    value.map_or(Cell::Null, |value| Cell::Int64(i64::from(value)))
}

fn short<'a>(value: Option<u16>) -> Cell<'a> {
    value.map_or(Cell::Null, |value| Cell::Int32(i32::from(value)))
}

fn text(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Null, Cell::Text)
}

fn process_cells(process: Option<&Process>) -> [Cell<'_>; 4] {
    [
        long(process.map(|process| process.pid)),
        long(process.map(|process| process.tid)),
        text(process.map(|process| &*process.name)),
        text(process.and_then(|process| process.package.as_deref())),
    ]
}

fn file_cells<'a>(file: Option<FileIdentity>, file_system: &'a str) -> Result<[Cell<'a>; 3], TooLarge> {
    let Some(file) = file else {
        return Ok([Cell::Null; 3]);
    };
    Ok([
        Cell::Text(file_system),
        number("inode", file.inode)?,
        Cell::Int64(i64::from(file.generation)),
    ])
}

pub fn request_cells<'a>(
    shared: &Shared<'a>,
    request: &'a Request,
) -> Result<[Cell<'a>; REQUEST_COLUMNS.len()], TooLarge> {
    let flag = |flag| Cell::Boolean(request.flags.contains(flag));
    let command = request.command;
    let [pid, tid, name, package] = process_cells(request.submitter.as_deref());
    Ok([
        Cell::Text(shared.trace_id),
        number("id", request.id)?,
        Cell::Text(shared.device),
        number("sector", request.sector)?,
        number("bytes", request.bytes)?,
        Cell::Word(request.operation.word()),
        Cell::Int64(i64::from(request.flags.0)),
        flag(RequestFlags::SYNC),
        flag(RequestFlags::META),
        flag(RequestFlags::FUA),
        flag(RequestFlags::PREFLUSH),
        flag(RequestFlags::READAHEAD),
        Cell::Boolean(request.moves_data()),
        short(request.priority.map(|priority| u16::from(priority.class))),
        short(request.priority.map(|priority| priority.level)),
        number_where("first_ns", request.first_ns())?,
        number_where("queued_ns", request.queued_ns)?,
        number_where("inserted_ns", request.inserted_ns)?,
        number_where("issued_ns", request.issued_ns)?,
        number_where("completed_ns", request.completed_ns)?,
        request.status.map_or(Cell::Null, Cell::Int32),
        long(request.in_flight),
        short(request.hardware_queue),
        pid,
        tid,
        name,
        package,
        Cell::Word(request.mode.word()),
        short(command.map(|command| command.code)),
        long(command.map(|command| command.argument)),
        short(command.map(|command| command.packed_requests)),
        short(command.map(|command| command.retries)),
        short(command.map(|command| command.interrupts)),
        long(command.and_then(|command| command.bytes)),
        short(command.and_then(|command| command.tag)),
        command.map_or(Cell::Null, |command| Cell::Boolean(command.waits_busy)),
        number_where("command_issued_ns", command.and_then(|command| command.issued_ns))?,
        number_where(
            "command_completed_ns",
            command.and_then(|command| command.completed_ns),
        )?,
        command
            .and_then(|command| command.status)
            .map_or(Cell::Null, Cell::Int32),
        number("run_count", count(request.runs.len()))?,
    ])
}

pub fn run_cells<'a>(
    shared: &Shared<'a>,
    request: &Request,
    index: usize,
    run: &'a Run,
    file_system: &'a str,
) -> Result<[Cell<'a>; RUN_COLUMNS.len()], TooLarge> {
    let [pid, tid, name, package] = process_cells(run.cause.as_deref());
    let [file_system, inode, generation] = file_cells(run.file, file_system)?;
    Ok([
        Cell::Text(shared.trace_id),
        number("request_id", request.id)?,
        number("run_index", count(index))?,
        Cell::Text(shared.device),
        Cell::Word(request.operation.word()),
        Cell::Word(request.mode.word()),
        Cell::Boolean(request.flags.contains(RequestFlags::SYNC)),
        number_where("first_ns", request.first_ns())?,
        number("sector", run.sector)?,
        number("bytes", run.bytes)?,
        Cell::Word(run.block_type.word()),
        Cell::Word(run.block_type.class().word()),
        text(run.detail.as_deref()),
        file_system,
        inode,
        generation,
        text(run.path.as_deref()),
        Cell::Boolean(run.deleted),
        number_where("file_offset", run.file_offset)?,
        number_where("home_sector", run.home_sector)?,
        number_where("transaction_id", run.transaction)?,
        pid,
        tid,
        name,
        package,
        Cell::Word(run.cause_quality.word()),
        number_where("dirtied_ns", run.dirtied_ns)?,
        run.path
            .as_ref()
            .map_or(Cell::Null, |_| Cell::Boolean(run.one_of_names)),
    ])
}

pub fn event_cells<'a>(
    trace_id: &'a str,
    index: u64,
    event: &'a Event,
    file_system: &'a str,
) -> Result<[Cell<'a>; EVENT_COLUMNS.len()], TooLarge> {
    let [pid, tid, process_name, package] = process_cells(event.process.as_deref());
    let [file_system, inode, generation] = file_cells(event.file, file_system)?;
    Ok([
        Cell::Text(trace_id),
        number("event_index", index)?,
        number("time_ns", event.time_ns)?,
        Cell::Word(event.kind.word()),
        pid,
        tid,
        process_name,
        package,
        file_system,
        inode,
        generation,
        text(event.path.as_deref()),
        text(event.name.as_deref()),
        number("value", event.value)?,
    ])
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
