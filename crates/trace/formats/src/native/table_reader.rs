//! Reads one table row by row, decoded in batches.
//!
//! The Parquet decoder assumes well-formed tables. Sums detect damage; where there are none, or where a table was
//! crafted to do harm, the footer is checked before, and a panic of the decoder becomes an error.

use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;

use super::decode::{Columns, Processes, Rows};
use super::footer;
use super::reader::{NativeReadError, TableProblem};
use super::table_file::TableFile;
use super::table_sum::{Behind, TableSum, verify};

/// Rows that are decoded at once.
pub const BATCH_ROWS: usize = 4 << 10;

/// A table of a trace, open, with checked offsets. Its file stays open, so that it is the one that was verified, whatever
/// becomes of its name.
#[derive(Clone)]
pub struct OpenTable {
    path: PathBuf,
    file: Arc<TableFile>,
    groups: Arc<[RowGroupMetaData]>,
    rows: u64,
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("OpenTable");
        table.field("path", &self.path).field("rows", &self.rows);
        table.finish_non_exhaustive()
    }
}

impl OpenTable {
    /// The table in this file, after verifying its sum if it has one; also returns the number of bytes behind it.
    pub(super) fn open(
        (path, file): (PathBuf, File),
        sum: Option<(TableSum, Behind)>,
    ) -> Result<(Self, u64), NativeReadError> {
        let unreadable = |source| NativeReadError::Io {
            path: path.clone(),
            source,
        };
        let (bytes, bytes_behind) = match sum {
            Some((sum, behind)) => (sum.bytes, verify(&path, &file, sum, behind)?),
            None => (file.metadata().map_err(unreadable)?.len(), 0),
        };
        let file = TableFile::new(file, bytes);
        match contained(|| Ok(footer::read(&file)?)) {
            Ok(footer) => {
                let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
                let table = Self {
                    file: Arc::new(file),
                    groups: footer.into_builder().take_row_groups().into(),
                    rows,
                    path,
                };
                Ok((table, bytes_behind))
            }
            Err(problem) => Err(NativeReadError::Table { path, problem }),
        }
    }

    /// Its file.
    pub(super) fn file(&self) -> &Arc<TableFile> {
        &self.file
    }

    /// Its row groups.
    pub(super) fn groups(&self) -> &[RowGroupMetaData] {
        &self.groups
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// An error in this table.
    pub(super) fn malformed(&self, problem: TableProblem) -> NativeReadError {
        let path = self.path.clone();
        NativeReadError::Table { path, problem }
    }
}

/// The row groups of a table, one after the other, decoded in batches.
pub struct Batches<C: Columns> {
    table: OpenTable,
    choice: C::Choice,
    /// Number of row groups that have been opened.
    opened: usize,
    /// The open row group.
    group: Option<C>,
    /// Rows of the open row group behind the current batch.
    rows_left: usize,
    /// Rows of the current batch.
    rows: usize,
    /// Number of rows before the current batch.
    rows_before: u64,
}

impl<C: Columns> fmt::Debug for Batches<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut batches = f.debug_struct("Batches");
        batches
            .field("table", &self.table)
            .field("rows_before", &self.rows_before);
        batches.finish_non_exhaustive()
    }
}

impl<C: Columns> Batches<C> {
    /// Decodes the columns `choice` of a table.
    pub const fn new(table: OpenTable, choice: C::Choice) -> Self {
        Self {
            table,
            choice,
            opened: 0,
            group: None,
            rows_left: 0,
            rows: 0,
            rows_before: 0,
        }
    }

    /// Decodes the next batch of at most `rows_max` rows; returns its number of rows, 0 behind the last.
    pub fn advance(&mut self, rows_max: usize) -> Result<usize, NativeReadError> {
        self.rows_before += u64::try_from(self.rows).unwrap_or(u64::MAX);
        self.rows = 0;
        match self.decode(rows_max) {
            Ok(()) => Ok(self.rows),
            Err(problem) => Err(self.stop(problem)),
        }
    }

    fn decode(&mut self, rows_max: usize) -> Result<(), TableProblem> {
        while self.rows_left == 0 {
            let Some(group) = self.table.groups().get(self.opened) else {
                return Ok(());
            };
            self.opened += 1;
            self.rows_left = usize::try_from(group.num_rows()).unwrap_or(0);
            if self.rows_left > 0 {
                self.group = Some(contained(|| C::open(&self.choice, self.table.file(), group))?);
            }
        }
        let rows = self.rows_left.min(rows_max);
        if let Some(group) = &mut self.group {
            contained(|| group.read(rows))?;
            self.rows_left -= rows;
            self.rows = rows;
        }
        Ok(())
    }

    /// The columns of the current batch.
    pub const fn columns(&mut self) -> Option<&mut C> {
        self.group.as_mut()
    }

    /// Ends the table with an error in the current batch: columns may be at different rows.
    fn stop(&mut self, mut problem: TableProblem) -> NativeReadError {
        (self.group, self.rows_left, self.rows) = (None, 0, 0);
        self.opened = usize::MAX;
        if let TableProblem::Value { row, .. } = &mut problem {
            *row += self.rows_before;
        }
        self.table.malformed(problem)
    }
}

/// One table, row by row.
pub struct Table<R: Columns> {
    batches: Batches<R>,
    row_in_batch: usize,
    pub bytes_behind: u64,
    processes: Processes,
}

impl<R: Columns> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batches.fmt(f)
    }
}

impl<R: Rows> Table<R> {
    /// Reads the table in this file, after verifying its sum if it has one.
    pub fn open(file: (PathBuf, File), sum: Option<(TableSum, Behind)>) -> Result<Self, NativeReadError> {
        let (table, bytes_behind) = OpenTable::open(file, sum)?;
        Ok(Self {
            batches: Batches::new(table, ()),
            row_in_batch: 0,
            bytes_behind,
            processes: Processes::default(),
        })
    }

    /// The table itself.
    pub const fn table(&self) -> &OpenTable {
        &self.batches.table
    }

    pub fn next(&mut self) -> Result<Option<R::Row>, NativeReadError> {
        if self.row_in_batch == self.batches.rows {
            self.row_in_batch = 0;
            if self.batches.advance(BATCH_ROWS)? == 0 {
                return Ok(None);
            }
        }
        let Some(columns) = self.batches.columns() else {
            return Ok(None);
        };
        match columns.row(self.row_in_batch, &mut self.processes) {
            Ok(row) => {
                self.row_in_batch += 1;
                Ok(Some(row))
            }
            Err(problem) => {
                self.row_in_batch = 0;
                Err(self.batches.stop(problem))
            }
        }
    }

    /// An error at the last row read.
    pub fn wrong(&self, column: &'static str, problem: String) -> NativeReadError {
        let row = u64::try_from(self.row_in_batch).unwrap_or(u64::MAX) + self.batches.rows_before;
        let row = row.saturating_sub(1);
        self.table()
            .malformed(TableProblem::Value { row, column, problem })
    }
}

/// Runs a step of the decoder, and reports a panic in it as an error.
pub fn contained<T>(step: impl FnOnce() -> Result<T, TableProblem>) -> Result<T, TableProblem> {
    let panicked = "the decoder panicked: the table is not well-formed";
    catch_unwind(AssertUnwindSafe(step))
        .unwrap_or_else(|_| Err(ParquetError::General(panicked.to_owned()).into()))
}
