//! Chosen columns of a table, batch by batch, for engines that compute on columns.
//!
//! Like the reader of rows it trusts the header's sums, which are verified elsewhere once, and the offsets in the footer
//! after a check; values only have the types of their columns ([`super::NativeReader::check_rows`]).

use std::fs::File;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::file::metadata::RowGroupMetaData;

use super::column::{Column as Decoded, Number};
use super::decode::Columns;
use super::reader::{NativeReadError, TableProblem};
use super::schema::{Column, ColumnKind};
use super::table_reader::{Batches, open_first};
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
}

impl Columns for Chosen {
    type Choice = Vec<Column>;

    fn open(choice: &Vec<Column>, file: &Arc<File>, group: &RowGroupMetaData) -> Result<Self, TableProblem> {
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
        Ok(())
    }
}

/// Rows of chosen columns.
#[derive(Debug)]
pub struct TableScan(Batches<Chosen>);

impl TableScan {
    /// Opens the table of a trace at `path`, of which the first `bytes` are the table, or all if they are not known.
    ///
    /// # Errors
    /// If the file can't be read or is not a table.
    pub fn open(path: PathBuf, bytes: Option<u64>, columns: Vec<Column>) -> Result<Self, NativeReadError> {
        let (file, footer) = open_first(&path, bytes)?;
        Ok(Self(Batches::new(path, file, &footer, columns)))
    }

    /// Decodes the next batch of at most `rows_max` rows: its number of rows, and the values of each column in the order
    /// chosen. `None` behind the last row.
    ///
    /// # Errors
    /// If it can't be decoded, or a column is missing or has another type.
    pub fn next(&mut self, rows_max: usize) -> Result<Option<(usize, Vec<ColumnValues>)>, NativeReadError> {
        let rows = self.0.advance(rows_max)?;
        let columns = self.0.columns_mut().filter(|_| rows > 0);
        Ok(columns.map(|columns| (rows, mem::take(&mut columns.values))))
    }
}
