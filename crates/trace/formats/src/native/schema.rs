//! The columns of the three tables of a stored trace: names, types and nullability.
//!
//! This is the only place that lists them; writer and reader follow it, and a test compares it with
//! `docs/formats/block-trace.md`. It holds no values and touches no file.
//!
//! Invariants:
//! - Integers are signed, of 32 or 64 bits: Spark has no unsigned ones. Larger values are refused on writing.
//! - Texts are plain UTF-8 columns; Parquet itself stores each distinct text once.
//! - A value that the source lacks is null, never 0.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether it may be null.
    pub presence: Presence,
}

/// Types of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// `true` or `false`.
    Boolean,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// UTF-8.
    Text,
}

/// Nullability of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Never null.
    Always,
    /// Null if the source lacks the value.
    WhereKnown,
}

use ColumnKind::{Boolean, Int32, Int64, Text};
use Presence::{Always, WhereKnown};

const fn column(name: &'static str, kind: ColumnKind, presence: Presence) -> Column {
    Column { name, kind, presence }
}

/// Columns of `requests.parquet`, in order.
pub const REQUEST_COLUMNS: [Column; 40] = [
    column("trace_id", Text, Always),
    column("id", Int64, Always),
    column("device", Text, Always),
    column("sector", Int64, Always),
    column("bytes", Int64, Always),
    column("operation", Text, Always),
    column("flags", Int64, Always),
    column("sync", Boolean, Always),
    column("meta", Boolean, Always),
    column("fua", Boolean, Always),
    column("preflush", Boolean, Always),
    column("readahead", Boolean, Always),
    column("moves_data", Boolean, Always),
    column("priority_class", Int32, WhereKnown),
    column("priority_level", Int32, WhereKnown),
    column("first_ns", Int64, WhereKnown),
    column("queued_ns", Int64, WhereKnown),
    column("inserted_ns", Int64, WhereKnown),
    column("issued_ns", Int64, WhereKnown),
    column("completed_ns", Int64, WhereKnown),
    column("status", Int32, WhereKnown),
    column("in_flight", Int64, WhereKnown),
    column("hardware_queue", Int32, WhereKnown),
    column("submitter_pid", Int64, WhereKnown),
    column("submitter_tid", Int64, WhereKnown),
    column("submitter_name", Text, WhereKnown),
    column("submitter_package", Text, WhereKnown),
    column("mode", Text, Always),
    column("command_code", Int32, WhereKnown),
    column("command_argument", Int64, WhereKnown),
    column("command_packed_requests", Int32, WhereKnown),
    column("command_retries", Int32, WhereKnown),
    column("command_interrupts", Int32, WhereKnown),
    column("command_bytes", Int64, WhereKnown),
    column("command_tag", Int32, WhereKnown),
    column("command_waits_busy", Boolean, WhereKnown),
    column("command_issued_ns", Int64, WhereKnown),
    column("command_completed_ns", Int64, WhereKnown),
    column("command_status", Int32, WhereKnown),
    column("run_count", Int64, Always),
];

/// Columns of `runs.parquet`, in order.
pub const RUN_COLUMNS: [Column; 28] = [
    column("trace_id", Text, Always),
    column("request_id", Int64, Always),
    column("run_index", Int64, Always),
    column("device", Text, Always),
    column("operation", Text, Always),
    column("mode", Text, Always),
    column("sync", Boolean, Always),
    column("first_ns", Int64, WhereKnown),
    column("sector", Int64, Always),
    column("bytes", Int64, Always),
    column("block_type", Text, Always),
    column("class", Text, Always),
    column("detail", Text, WhereKnown),
    column("file_system", Text, WhereKnown),
    column("inode", Int64, WhereKnown),
    column("generation", Int64, WhereKnown),
    column("path", Text, WhereKnown),
    column("deleted", Boolean, Always),
    column("file_offset", Int64, WhereKnown),
    column("home_sector", Int64, WhereKnown),
    column("transaction_id", Int64, WhereKnown),
    column("cause_pid", Int64, WhereKnown),
    column("cause_tid", Int64, WhereKnown),
    column("cause_name", Text, WhereKnown),
    column("cause_package", Text, WhereKnown),
    column("cause_quality", Text, Always),
    column("dirtied_ns", Int64, WhereKnown),
    column("one_of_names", Boolean, WhereKnown),
];

/// Columns of `events.parquet`, in order.
pub const EVENT_COLUMNS: [Column; 14] = [
    column("trace_id", Text, Always),
    column("event_index", Int64, Always),
    column("time_ns", Int64, Always),
    column("kind", Text, Always),
    column("pid", Int64, WhereKnown),
    column("tid", Int64, WhereKnown),
    column("process_name", Text, WhereKnown),
    column("package", Text, WhereKnown),
    column("file_system", Text, WhereKnown),
    column("inode", Int64, WhereKnown),
    column("generation", Int64, WhereKnown),
    column("path", Text, WhereKnown),
    column("name", Text, WhereKnown),
    column("value", Int64, Always),
];

/// The Parquet schema of a table: a flat group.
pub(super) fn schema_of(columns: &[Column]) -> SchemaDescPtr {
    let field = |column: &Column| {
        let (physical, logical) = match column.kind {
            Boolean => (PhysicalType::BOOLEAN, None),
            Int32 => (PhysicalType::INT32, None),
            Int64 => (PhysicalType::INT64, None),
            Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = match column.presence {
            Always => Repetition::REQUIRED,
            WhereKnown => Repetition::OPTIONAL,
        };
        let field = Type::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build();
        Arc::new(field.expect("the logical type belongs to its physical one"))
    };
    // No reader uses the root's name; this one keeps tables identical to those that arrow wrote.
    let root = Type::group_type_builder("arrow_schema").with_fields(columns.iter().map(field).collect());
    let root = root.build().expect("a group of columns is a schema");
    Arc::new(SchemaDescriptor::new(Arc::new(root)))
}
