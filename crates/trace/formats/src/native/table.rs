//! Writes one table to a Parquet file: collects rows, and writes them batch by batch.
//!
//! It knows columns and cells, but not their meaning. Memory is bounded: a batch of rows, and the pages of one row
//! group, which are compressed as they fill.
//!
//! A Parquet file is read from its end, so that one without a footer is lost. A checkpoint therefore writes a footer
//! behind the existing row groups, and the file continues behind it: up to each such position it is a complete table,
//! and readers of the finished one never look at the bytes between its row groups.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::schema::{Column, ColumnKind, schema_of};
use super::table_sum::{SummedFile, TableSum};
use super::writer::NativeWriteError;

/// Rows that are collected before they go to the Parquet writer.
const BATCH_ROWS: usize = 8 << 10;

/// Rows of a row group: a reader holds this many values of a column at once, and can skip this many by statistics.
pub const ROW_GROUP_ROWS: usize = 256 << 10;

const CREATED_BY: &str = "tidegate";

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    Boolean(bool),
    Int32(i32),
    Int64(i64),
    Text(&'a str),
}

/// The values of one column that have not been written yet.
#[derive(Debug)]
enum Gathered {
    Boolean(BooleanBuilder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Text(StringBuilder),
}

impl Gathered {
    fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Boolean => Self::Boolean(BooleanBuilder::new()),
            ColumnKind::Int32 => Self::Int32(Int32Builder::new()),
            ColumnKind::Int64 => Self::Int64(Int64Builder::new()),
            ColumnKind::Text => Self::Text(StringBuilder::new()),
        }
    }

    fn push(&mut self, cell: Cell<'_>) {
        match (self, cell) {
            (Self::Boolean(builder), Cell::Boolean(value)) => builder.append_value(value),
            (Self::Boolean(builder), Cell::Null) => builder.append_null(),
            (Self::Int32(builder), Cell::Int32(value)) => builder.append_value(value),
            (Self::Int32(builder), Cell::Null) => builder.append_null(),
            (Self::Int64(builder), Cell::Int64(value)) => builder.append_value(value),
            (Self::Int64(builder), Cell::Null) => builder.append_null(),
            (Self::Text(builder), Cell::Text(value)) => builder.append_value(value),
            (Self::Text(builder), Cell::Null) => builder.append_null(),
            (column, cell) => panic!("{cell:?} is not of its column's type: {column:?}"),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(builder) => Arc::new(builder.finish()),
            Self::Int32(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
        }
    }
}

/// A table being written.
#[derive(Debug)]
pub struct TableWriter {
    path: PathBuf,
    schema: SchemaRef,
    columns: Vec<Gathered>,
    gathered_rows: usize,
    rows: u64,
    writer: ArrowWriter<SummedFile>,
}

impl TableWriter {
    pub fn create(path: &Path, columns: &[Column]) -> Result<Self, NativeWriteError> {
        let schema = schema_of(columns);
        let file = File::create_new(path).map_err(|source| NativeWriteError::Io {
            operation: "create",
            path: path.to_owned(),
            source,
        })?;
        // The Arrow schema would add nothing to the Parquet one, and differs between versions.
        let options = ArrowWriterOptions::new()
            .with_properties(properties(columns))
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(SummedFile::new(file), Arc::clone(&schema), options)
            .map_err(|source| failed("begin", path, source))?;
        Ok(Self {
            path: path.to_owned(),
            schema,
            columns: columns.iter().map(|column| Gathered::new(column.kind)).collect(),
            gathered_rows: 0,
            rows: 0,
            writer,
        })
    }

    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row; `cells` are in the order of the columns.
    pub fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), NativeWriteError> {
        assert_eq!(cells.len(), self.columns.len(), "a row of another table");
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(*cell);
        }
        self.rows += 1;
        self.gathered_rows += 1;
        if self.gathered_rows == BATCH_ROWS {
            self.flush_rows()?;
        }
        Ok(())
    }

    fn flush_rows(&mut self) -> Result<(), NativeWriteError> {
        if self.gathered_rows == 0 {
            return Ok(());
        }
        let arrays = self.columns.iter_mut().map(Gathered::finish).collect();
        self.gathered_rows = 0;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays).expect(
            "every row has one cell of the right type for each column, and no empty one where none may be",
        );
        self.writer
            .write(&batch)
            .map_err(|source| failed("write", &self.path, source))
    }

    /// Ends the row group and writes a footer behind it: the returned sum covers a complete table, whatever follows.
    pub fn checkpoint(&mut self) -> Result<TableSum, NativeWriteError> {
        self.flush_rows()?;
        self.writer
            .flush()
            .and_then(|()| self.end_of_file())
            .and_then(|end| {
                self.writer.write_all(&end)?;
                self.writer.sync()?;
                Ok(())
            })
            .map_err(|source| failed("write", &self.path, source))?;
        Ok(self.writer.inner().sum())
    }

    /// The footer of a file with the row groups so far.
    fn end_of_file(&self) -> Result<Vec<u8>, ParquetError> {
        let row_groups = self.writer.flushed_row_groups().to_vec();
        let rows = row_groups.iter().map(|group| group.num_rows()).sum();
        let columns = Arc::new(ArrowSchemaConverter::new().convert(&self.schema)?);
        let file = FileMetaData::new(1, rows, Some(CREATED_BY.to_owned()), None, columns, None);
        let metadata = ParquetMetaDataBuilder::new(file)
            .set_row_groups(row_groups)
            .build();
        let mut end = Vec::new();
        ParquetMetaDataWriter::new(&mut end, &metadata).finish()?;
        Ok(end)
    }

    /// Writes collected rows and the footer, and syncs the file.
    pub fn close(mut self) -> Result<TableSum, NativeWriteError> {
        self.flush_rows()?;
        let path = self.path;
        let file = self
            .writer
            .into_inner()
            .map_err(|source| failed("finish", &path, source))?;
        file.sync().map_err(|source| NativeWriteError::Io {
            operation: "sync",
            path,
            source,
        })?;
        Ok(file.sum())
    }
}

fn properties(columns: &[Column]) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(CREATED_BY.to_owned());
    for column in columns.iter().filter(|column| column.kind == ColumnKind::Int64) {
        // Numbers that grow slowly or rarely repeat: a dictionary of them would be as large as the column.
        if column.name.ends_with("_ns") || ["id", "request_id", "event_index"].contains(&column.name) {
            let path = ColumnPath::from(column.name);
            builder = builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    builder.build()
}

fn failed(operation: &'static str, path: &Path, source: ParquetError) -> NativeWriteError {
    NativeWriteError::Parquet {
        operation,
        path: path.to_owned(),
        source,
    }
}
