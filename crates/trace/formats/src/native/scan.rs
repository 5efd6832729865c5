//! Chosen columns of a table, batch by batch, for engines that compute on columns.
//!
//! Values have the types of their columns; [`super::NativeReader::check_rows`] checks more.

use std::mem;
use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;

use super::column::{Column as Decoded, Number};
use super::decode::Columns;
use super::reader::{NativeReadError, TableProblem};
use super::schema::{Column, ColumnKind, Presence};
use super::table_file::TableFile;
use super::table_reader::{Batches, OpenTable};
use super::values::{self, ColumnValues};

enum AnyColumn {
    Booleans(Decoded<bool>),
    Int32(Number),
    Int64(Number),
    Texts(Decoded<Arc<str>>),
}

/// The chosen columns of a row group, and their values in the current batch.
struct Chosen {
    columns: Vec<AnyColumn>,
    values: Vec<ColumnValues>,
    /// Decoded to count the rows if the others could be columns of nulls: a footer may claim any number.
    counted: Option<Decoded<Arc<str>>>,
}

impl Columns for Chosen {
    type Choice = Vec<Column>;

    fn open(
        choice: &Vec<Column>,
        file: &Arc<TableFile>,
        group: &RowGroupMetaData,
    ) -> Result<Self, TableProblem> {
        let open = |column: &Column| -> Result<_, TableProblem> {
            Ok(match column.kind {
                ColumnKind::Boolean => AnyColumn::Booleans(Decoded::of(file, group, column)?),
                ColumnKind::Int32 => AnyColumn::Int32(Decoded::of(file, group, column)?),
                ColumnKind::Int64 => AnyColumn::Int64(Decoded::of(file, group, column)?),
                ColumnKind::Text => AnyColumn::Texts(Decoded::of(file, group, column)?),
            })
        };
        Ok(Self {
            columns: choice.iter().map(open).collect::<Result<_, _>>()?,
            values: Vec::new(),
            counted: match choice.iter().any(|column| column.presence == Presence::Always) {
                true => None,
                false => Some(Decoded::open(file, group, "trace_id")?),
            },
        })
    }

    fn read(&mut self, rows: usize) -> Result<(), TableProblem> {
        let values = self.columns.iter_mut().map(|column| match column {
            AnyColumn::Booleans(column) => values::booleans(column, rows),
            AnyColumn::Int32(column) => values::int32(column, rows),
            AnyColumn::Int64(column) => values::int64(column, rows),
            AnyColumn::Texts(column) => values::texts(column, rows),
        });
        self.values = values.collect::<Result<_, _>>()?;
        self.counted.as_mut().map_or(Ok(()), |counted| counted.read(rows))
    }
}

/// Rows of chosen columns.
#[derive(Debug)]
pub struct TableScan(Batches<Chosen>);

impl OpenTable {
    /// Reads these columns from the first row on.
    #[must_use]
    pub fn scan(&self, columns: Vec<Column>) -> TableScan {
        TableScan(Batches::new(self.clone(), columns))
    }
}

impl TableScan {
    /// Decodes the next batch of at most `rows_max` rows: its number of rows, and the values of each column in the order
    /// chosen. `None` behind the last row.
    ///
    /// # Errors
    /// If it can't be decoded, or a column is missing or has another type.
    pub fn next(&mut self, rows_max: usize) -> Result<Option<(usize, Vec<ColumnValues>)>, NativeReadError> {
        let rows = self.0.advance(rows_max)?;
        let columns = self.0.columns().filter(|_| rows > 0);
        Ok(columns.map(|columns| (rows, mem::take(&mut columns.values))))
    }
}
