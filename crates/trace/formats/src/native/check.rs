//! Checks every row of a trace's tables, for readers that trust them, such as queries in SQL.
//!
//! Tables whose sums are right have been written by this crate, which checks rows before it writes them. Only tables
//! without sums, of other tools, are decoded here: column by column, so that memory is bounded by a batch of values.
//! Each value is compared with its column's type, nullability, range and vocabulary. Rows are not compared with each
//! other: [`super::NativeReader`] does that while it joins requests and runs.

use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;
use results::block_trace::{BlockClass, BlockType, CauseQuality, DeviceNumber, EventKind, IoMode, Operation};

use super::column::{Column as Values, Value, wrong_value};
use super::columns::most_of;
use super::reader::{NativeReadError, TableProblem};
use super::schema::{Column, ColumnKind, Presence};
use super::table_file::TableFile;
use super::table_reader::{BATCH_ROWS, OpenTable, contained};

/// Checks all rows of a table.
pub fn check_rows(table: &OpenTable, columns: &[Column], trace_id: &str) -> Result<(), NativeReadError> {
    let mut rows_before = 0;
    for group in table.groups().iter().filter(|group| group.num_rows() > 0) {
        for column in columns {
            let checked = contained(|| check(table.file(), group, column, trace_id));
            checked.map_err(|problem| table.malformed(behind(problem, rows_before)))?;
        }
        rows_before += u64::try_from(group.num_rows()).unwrap_or(0);
    }
    Ok(())
}

/// A problem with the rows before it counted.
fn behind(mut problem: TableProblem, rows_before: u64) -> TableProblem {
    if let TableProblem::Value { row, .. } = &mut problem {
        *row += rows_before;
    }
    problem
}

/// Checks one column of one row group.
fn check(
    file: &Arc<TableFile>,
    group: &RowGroupMetaData,
    column: &Column,
    trace_id: &str,
) -> Result<(), TableProblem> {
    match (column.kind, column.name) {
        (ColumnKind::Boolean, _) => each::<bool>(file, group, column, |_| Ok(())),
        (ColumnKind::Int32 | ColumnKind::Int64, name) => {
            let (least, most) = range(name, column.kind);
            each::<i64>(file, group, column, |value| {
                if (least..=most).contains(value) {
                    return Ok(());
                }
                Err(format!(
                    "expected a whole number from {least} to {most}, found {value}"
                ))
            })
        }
        (ColumnKind::Text, "trace_id") => each::<Arc<str>>(file, group, column, |value| {
            if **value == *trace_id {
                return Ok(());
            }
            Err(format!(
                "expected {trace_id:?}, as header.json says, found {value:?}"
            ))
        }),
        (ColumnKind::Text, "device" | "file_system") => any::<DeviceNumber>(file, group, column),
        (ColumnKind::Text, "operation") => any::<Operation>(file, group, column),
        (ColumnKind::Text, "mode") => any::<IoMode>(file, group, column),
        (ColumnKind::Text, "block_type") => any::<BlockType>(file, group, column),
        (ColumnKind::Text, "class") => any::<BlockClass>(file, group, column),
        (ColumnKind::Text, "cause_quality") => any::<CauseQuality>(file, group, column),
        (ColumnKind::Text, "kind") => any::<EventKind>(file, group, column),
        (ColumnKind::Text, _) => any::<Arc<str>>(file, group, column),
    }
}

/// The smallest and largest value of a column of numbers.
fn range(name: &str, kind: ColumnKind) -> (i64, i64) {
    let up_to = |most: u64| (0, i64::try_from(most).unwrap_or(i64::MAX));
    match name {
        "status" | "command_status" => (i64::from(i32::MIN), i64::from(i32::MAX)),
        "flags" | "in_flight" | "generation" | "command_argument" | "command_bytes" | "submitter_pid"
        | "submitter_tid" | "cause_pid" | "cause_tid" | "pid" | "tid" => up_to(u64::from(u32::MAX)),
        "priority_class" => up_to(u64::from(u8::MAX)),
        _ if kind == ColumnKind::Int32 => up_to(u64::from(u16::MAX)),
        _ => up_to(most_of(name)),
    }
}

/// Checks a column that may have any value of its type.
fn any<V: Value>(
    file: &Arc<TableFile>,
    group: &RowGroupMetaData,
    column: &Column,
) -> Result<(), TableProblem> {
    each::<V>(file, group, column, |_| Ok(()))
}

/// Decodes all values of a column of a row group; rows in errors are those of the group.
fn each<V: Value>(
    file: &Arc<TableFile>,
    group: &RowGroupMetaData,
    column: &Column,
    accept: impl Fn(&V) -> Result<(), String>,
) -> Result<(), TableProblem> {
    let name = column.name;
    let mut values = Values::<V>::of(file, group, column)?;
    let rows = usize::try_from(group.num_rows()).unwrap_or(0);
    let mut before = 0;
    while before < rows {
        let batch = (rows - before).min(BATCH_ROWS);
        let rows_before = u64::try_from(before).unwrap_or(u64::MAX);
        values
            .read(batch)
            .map_err(|problem| behind(problem, rows_before))?;
        for row in 0..batch {
            let problem = match values.where_known(row) {
                Some(value) => accept(value).err(),
                None if column.presence == Presence::Always => {
                    Some("expected a value, found none".to_owned())
                }
                None => None,
            };
            if let Some(problem) = problem {
                return Err(wrong_value(name, before + row, problem));
            }
        }
        before += batch;
    }
    Ok(())
}
