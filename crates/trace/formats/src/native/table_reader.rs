//! Reads one table row by row, decoded in batches.
//!
//! The Parquet decoder assumes well-formed tables. Sums detect damage; where there are none, or where a table was
//! crafted to do harm, offsets and numbers of rows are checked here, and a panic of the decoder becomes an error.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use parquet::errors::ParquetError;
use parquet::file::metadata::{FooterTail, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};

use super::decode::{Processes, Rows};
use super::reader::{NativeReadError, TableProblem};
use super::table_sum::{Behind, TableSum, verify};

/// Rows that are decoded at once.
pub const BATCH_ROWS: usize = 4 << 10;

/// One table, row by row.
pub struct Table<R> {
    path: PathBuf,
    file: Arc<File>,
    /// Row groups that have not been opened.
    groups: vec::IntoIter<RowGroupMetaData>,
    /// The open row group.
    group: Option<R>,
    /// Rows of the open row group behind the current batch.
    rows_left: usize,
    batch_rows: usize,
    row_in_batch: usize,
    /// Number of rows before the current batch.
    rows_before: u64,
    pub rows: u64,
    pub bytes_behind: u64,
    processes: Processes,
}

impl<R> fmt::Debug for Table<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("Table");
        table.field("path", &self.path).field("rows", &self.rows);
        table.finish_non_exhaustive()
    }
}

impl<R: Rows> Table<R> {
    /// Opens the table, after verifying its sum if it has one.
    pub fn open(path: PathBuf, sum: Option<(TableSum, Behind)>) -> Result<Self, NativeReadError> {
        let (file, footer, bytes_behind) = open(&path, sum)?;
        Ok(Self {
            path,
            file: Arc::new(file),
            rows: u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0),
            groups: footer.row_groups().to_vec().into_iter(),
            group: None,
            rows_left: 0,
            batch_rows: 0,
            row_in_batch: 0,
            rows_before: 0,
            bytes_behind,
            processes: Processes::default(),
        })
    }

    pub fn next(&mut self) -> Result<Option<R::Row>, NativeReadError> {
        let next = self.next_row();
        if next.is_err() {
            // Columns may be at different rows.
            (self.group, self.rows_left, self.batch_rows) = (None, 0, 0);
            self.groups = Vec::new().into_iter();
        }
        next.map_err(|mut problem| {
            if let TableProblem::Value { row, .. } = &mut problem {
                *row += self.rows_before;
            }
            self.malformed(problem)
        })
    }

    fn next_row(&mut self) -> Result<Option<R::Row>, TableProblem> {
        while self.row_in_batch == self.batch_rows {
            if self.rows_left == 0 {
                let Some(group) = self.groups.next() else {
                    return Ok(None);
                };
                self.rows_left = usize::try_from(group.num_rows()).unwrap_or(0);
                if self.rows_left > 0 {
                    self.group = Some(contained(|| R::open(&self.file, &group))?);
                }
            }
            self.rows_before += u64::try_from(self.batch_rows).unwrap_or(u64::MAX);
            (self.batch_rows, self.row_in_batch) = (0, 0);
            let rows = self.rows_left.min(BATCH_ROWS);
            if let Some(group) = &mut self.group {
                contained(|| group.read(rows))?;
            }
            self.rows_left -= rows;
            self.batch_rows = rows;
        }
        let Some(group) = &self.group else {
            return Ok(None);
        };
        let row = group.row(self.row_in_batch, &mut self.processes)?;
        self.row_in_batch += 1;
        Ok(Some(row))
    }

    fn malformed(&self, problem: TableProblem) -> NativeReadError {
        let path = self.path.clone();
        NativeReadError::Table { path, problem }
    }

    /// An error at the last row read.
    pub fn wrong(&self, column: &'static str, problem: String) -> NativeReadError {
        let row = u64::try_from(self.row_in_batch).unwrap_or(u64::MAX) + self.rows_before;
        let row = row.saturating_sub(1);
        self.malformed(TableProblem::Value { row, column, problem })
    }
}

/// Opens a table, after verifying its sum if it has one; also returns its footer and the number of bytes behind it.
pub fn open(
    path: &Path,
    sum: Option<(TableSum, Behind)>,
) -> Result<(File, ParquetMetaData, u64), NativeReadError> {
    let unreadable = |source| NativeReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let (bytes, bytes_behind) = match sum {
        Some((sum, behind)) => (sum.bytes, verify(path, &file, sum, behind)?),
        None => (file.metadata().map_err(unreadable)?.len(), 0),
    };
    let footer = contained(|| {
        let footer = footer(&file, bytes)?;
        check_columns(bytes, &footer)?;
        Ok(footer)
    });
    match footer {
        Ok(footer) => Ok((file, footer, bytes_behind)),
        Err(problem) => Err(NativeReadError::Table {
            path: path.to_owned(),
            problem,
        }),
    }
}

/// Runs a step of the decoder, and reports a panic in it as an error.
pub fn contained<T>(step: impl FnOnce() -> Result<T, TableProblem>) -> Result<T, TableProblem> {
    let panicked = "the decoder panicked: the table is not well-formed";
    catch_unwind(AssertUnwindSafe(step))
        .unwrap_or_else(|_| Err(ParquetError::General(panicked.to_owned()).into()))
}

/// Decodes the footer of a table that is the first `bytes` of its file.
fn footer(file: &File, bytes: u64) -> Result<ParquetMetaData, ParquetError> {
    let short = || ParquetError::EOF(format!("a table of {bytes} bytes has no footer"));
    let mut tail = [0; 8];
    let tail_at = bytes.checked_sub(8).ok_or_else(short)?;
    file.read_exact_at(&mut tail, tail_at)?;
    let length = FooterTail::try_new(&tail)?.metadata_length();
    let start = u64::try_from(length)
        .ok()
        .and_then(|length| tail_at.checked_sub(length))
        .ok_or_else(short)?;
    let mut footer = vec![0; length];
    file.read_exact_at(&mut footer, start)?;
    ParquetMetaDataReader::decode_metadata(&footer)
}

/// Checks that columns lie within the table and have as many values as their row group has rows, because the decoder
/// trusts the footer.
fn check_columns(bytes: u64, metadata: &ParquetMetaData) -> Result<(), ParquetError> {
    let table_bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    for group in metadata.row_groups() {
        for column in group.columns() {
            let start = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            let end = start.checked_add(column.compressed_size());
            let is_inside = start >= 0
                && column.data_page_offset() >= start
                && column.compressed_size() >= 0
                && end.is_some_and(|end| end <= table_bytes);
            if !is_inside {
                return Err(ParquetError::General(format!(
                    "column {} is said to have {} bytes at {start} of a table of {table_bytes}",
                    column.column_path(),
                    column.compressed_size()
                )));
            }
        }
    }
    Ok(())
}
