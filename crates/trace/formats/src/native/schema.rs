//! The schema of a table: types and nullability of its columns, as Parquet expresses them.
//!
//! Texts are plain UTF-8 columns; Parquet itself stores each distinct text once.

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
