//! Converts rows of the tables to requests, runs and events.
//!
//! Only the columns that these are made of are read: others repeat them for queries. An impossible value is reported
//! with its column and row; the caller adds the file.

use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;
use results::block_trace::{
    BlockType, CauseQuality, DeviceNumber, DriverCommand, Event, EventKind, FileIdentity, IoMode, IoPriority,
    Operation, Process, Request, RequestFlags, Run,
};

use super::column::{Column, Number};
use super::columns::{BYTES_MAX, SECTOR_MAX};
use super::reader::TableProblem;
use super::table_file::TableFile;

/// The columns of a table that its items are made of.
pub trait Columns: Sized {
    /// Names them, unless they are always the same.
    type Choice;

    /// Opens the columns of a row group.
    fn open(
        choice: &Self::Choice,
        file: &Arc<TableFile>,
        group: &RowGroupMetaData,
    ) -> Result<Self, TableProblem>;
    /// Decodes the next batch of rows.
    fn read(&mut self, rows: usize) -> Result<(), TableProblem>;
}

/// Rows made of these columns.
pub trait Rows: Columns<Choice = ()> {
    /// Type of a row.
    type Row;

    /// A row of the batch.
    fn row(&self, row: usize, processes: &mut Processes) -> Result<Self::Row, TableProblem>;
}

/// Processes shared between rows: the last one of each slot.
#[derive(Debug)]
pub struct Processes(Vec<Option<Arc<Process>>>);

impl Default for Processes {
    fn default() -> Self {
        Self(vec![None; Self::SLOTS])
    }
}

impl Processes {
    const SLOTS: usize = 1 << 12;

    fn share(&mut self, process: Process) -> Arc<Process> {
        let slot = usize::try_from(process.tid).unwrap_or(0) % Self::SLOTS;
        let slot = &mut self.0[slot];
        match slot {
            Some(known) if **known == process => Arc::clone(known),
            _ => Arc::clone(slot.insert(Arc::new(process))),
        }
    }
}

type Text = Column<Arc<str>>;

/// Defines the columns of a table; each field has its column's name. Older tables lack some.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident {
        $($kind:ty: $($column:ident)*;)*
    } since schema 2 {
        $($added_kind:ty: $($added:ident)*;)*
    }) => {
        $(#[$doc])*
        pub struct $name {
            $($($column: $kind,)*)*
            $($($added: $added_kind,)*)*
        }

        impl Columns for $name {
            type Choice = ();

            fn open((): &(), file: &Arc<TableFile>, group: &RowGroupMetaData) -> Result<Self, TableProblem> {
                Ok(Self {
                    $($($column: Column::open(file, group, stringify!($column))?,)*)*
                    $($($added: Column::open_or_null(file, group, stringify!($added))?,)*)*
                })
            }

            fn read(&mut self, rows: usize) -> Result<(), TableProblem> {
                $($(self.$column.read(rows)?;)*)*
                $($(self.$added.read(rows)?;)*)*
                Ok(())
            }
        }
    };
}

fn process(
    [pid, tid]: [&Number; 2],
    [name, package]: [&Text; 2],
    row: usize,
    processes: &mut Processes,
) -> Result<Option<Arc<Process>>, TableProblem> {
    let Some(pid) = pid.number_where_known(row)? else {
        return Ok(None);
    };
    Ok(Some(processes.share(Process {
        pid,
        tid: tid.number(row)?,
        name: Arc::clone(name.at(row)?),
        package: package.where_known(row).cloned(),
    })))
}

fn file(
    file_system: &Column<DeviceNumber>,
    inode: &Number,
    generation: &Number,
    row: usize,
) -> Result<Option<FileIdentity>, TableProblem> {
    let Some(file_system) = file_system.where_known(row) else {
        return Ok(None);
    };
    Ok(Some(FileIdentity {
        file_system: *file_system,
        inode: inode.number(row)?,
        generation: generation.number(row)?,
    }))
}

columns! {
    /// Columns of `requests.parquet`. A row is a request without its runs, and their number.
    RequestRows {
        Number: id sector bytes flags priority_class priority_level queued_ns inserted_ns issued_ns completed_ns
                status in_flight hardware_queue submitter_pid submitter_tid command_code command_argument
                command_packed_requests command_retries command_interrupts run_count;
        Text: submitter_name submitter_package;
        Column<DeviceNumber>: device;
        Column<Operation>: operation;
        Column<IoMode>: mode;
    } since schema 2 {
        Number: command_bytes command_tag command_issued_ns command_completed_ns command_status;
        Column<bool>: command_waits_busy;
    }
}

impl Rows for RequestRows {
    type Row = (Request, u64);

    fn row(&self, row: usize, processes: &mut Processes) -> Result<(Request, u64), TableProblem> {
        let priority = match self.priority_class.number_where_known(row)? {
            None => None,
            Some(class) => Some(IoPriority {
                class,
                level: self.priority_level.number(row)?,
            }),
        };
        let request = Request {
            id: self.id.number(row)?,
            device: *self.device.at(row)?,
            sector: self.sector.number_up_to(row, SECTOR_MAX)?,
            bytes: self.bytes.number_up_to(row, BYTES_MAX)?,
            operation: *self.operation.at(row)?,
            flags: RequestFlags(self.flags.number(row)?),
            priority,
            queued_ns: self.queued_ns.number_where_known(row)?,
            inserted_ns: self.inserted_ns.number_where_known(row)?,
            issued_ns: self.issued_ns.number_where_known(row)?,
            completed_ns: self.completed_ns.number_where_known(row)?,
            status: self.status.number_where_known(row)?,
            in_flight: self.in_flight.number_where_known(row)?,
            hardware_queue: self.hardware_queue.number_where_known(row)?,
            submitter: process(
                [&self.submitter_pid, &self.submitter_tid],
                [&self.submitter_name, &self.submitter_package],
                row,
                processes,
            )?,
            mode: *self.mode.at(row)?,
            command: self.command(row)?,
            runs: Vec::new(),
        };
        Ok((request, self.run_count.number(row)?))
    }
}

impl RequestRows {
    fn command(&self, row: usize) -> Result<Option<DriverCommand>, TableProblem> {
        let Some(code) = self.command_code.number_where_known(row)? else {
            return Ok(None);
        };
        Ok(Some(DriverCommand {
            code,
            argument: self.command_argument.number(row)?,
            packed_requests: self.command_packed_requests.number(row)?,
            retries: self.command_retries.number(row)?,
            interrupts: self.command_interrupts.number(row)?,
            bytes: self.command_bytes.number_where_known(row)?,
            tag: self.command_tag.number_where_known(row)?,
            waits_busy: self
                .command_waits_busy
                .where_known(row)
                .is_some_and(|waits| *waits),
            issued_ns: self.command_issued_ns.number_where_known(row)?,
            completed_ns: self.command_completed_ns.number_where_known(row)?,
            status: self.command_status.number_where_known(row)?,
        }))
    }
}

/// A run with the number of its request.
#[derive(Debug)]
pub struct NumberedRun {
    pub request_id: u64,
    pub run: Run,
}

columns! {
    /// Columns of `runs.parquet`.
    RunRows {
        Number: request_id sector bytes inode generation file_offset home_sector transaction_id cause_pid cause_tid
                dirtied_ns;
        Text: detail path cause_name cause_package;
        Column<bool>: deleted;
        Column<BlockType>: block_type;
        Column<DeviceNumber>: file_system;
        Column<CauseQuality>: cause_quality;
    } since schema 2 {
        Column<bool>: one_of_names;
    }
}

impl Rows for RunRows {
    type Row = NumberedRun;

    fn row(&self, row: usize, processes: &mut Processes) -> Result<NumberedRun, TableProblem> {
        Ok(NumberedRun {
            request_id: self.request_id.number(row)?,
            run: Run {
                sector: self.sector.number_up_to(row, SECTOR_MAX)?,
                bytes: self.bytes.number_up_to(row, BYTES_MAX)?,
                block_type: *self.block_type.at(row)?,
                detail: self.detail.where_known(row).cloned(),
                file: file(&self.file_system, &self.inode, &self.generation, row)?,
                path: self.path.where_known(row).cloned(),
                one_of_names: self.one_of_names.where_known(row).is_some_and(|is_one| *is_one),
                deleted: *self.deleted.at(row)?,
                file_offset: self.file_offset.number_where_known(row)?,
                home_sector: self.home_sector.up_to_where_known(row, SECTOR_MAX)?,
                transaction: self.transaction_id.number_where_known(row)?,
                cause: process(
                    [&self.cause_pid, &self.cause_tid],
                    [&self.cause_name, &self.cause_package],
                    row,
                    processes,
                )?,
                cause_quality: *self.cause_quality.at(row)?,
                dirtied_ns: self.dirtied_ns.number_where_known(row)?,
            },
        })
    }
}

columns! {
    /// Columns of `events.parquet`.
    EventRows {
        Number: time_ns pid tid inode generation value;
        Text: process_name package path name;
        Column<EventKind>: kind;
        Column<DeviceNumber>: file_system;
    } since schema 2 {}
}

impl Rows for EventRows {
    type Row = Event;

    fn row(&self, row: usize, processes: &mut Processes) -> Result<Event, TableProblem> {
        Ok(Event {
            time_ns: self.time_ns.number(row)?,
            kind: *self.kind.at(row)?,
            process: process(
                [&self.pid, &self.tid],
                [&self.process_name, &self.package],
                row,
                processes,
            )?,
            file: file(&self.file_system, &self.inode, &self.generation, row)?,
            path: self.path.where_known(row).cloned(),
            name: self.name.where_known(row).cloned(),
            value: self.value.number(row)?,
        })
    }
}
