//! Writes one table to a Parquet file: collects rows, and writes them batch by batch.
//!
//! It knows columns and cells, but not their meaning. Memory is bounded: a batch of rows, and the pages of one row
//! group, which are compressed as they fill.
//!
//! A Parquet file is read from its end, so that one without a footer is lost. A checkpoint therefore writes a footer
//! behind the existing row groups, and the file continues behind it: up to each such position it is a complete table,
//! and readers of the finished one never look at the bytes between its row groups.

use std::fmt;
use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnCloseResult, ColumnWriterImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder, ParquetMetaDataWriter};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::{ColumnDescPtr, ColumnPath, SchemaDescPtr};

use super::schema::{Column, ColumnKind, Presence, schema_of};
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
    /// A text that need not be copied.
    Word(&'static str),
}

/// The encoded pages of a column. Its writer owns them as long as the row group is open, hence the lock.
#[derive(Clone)]
struct Pages(Arc<Mutex<TrackedWrite<Vec<u8>>>>);

impl PageWriter for Pages {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec, ParquetError> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        SerializedPageWriter::new(&mut pages).write_page(page)
    }

    fn close(&mut self) -> Result<(), ParquetError> {
        Ok(())
    }
}

/// The encoder of a column, and the values that it has not encoded yet, without absent ones.
enum Encoder {
    Boolean(ColumnWriterImpl<'static, BoolType>, Vec<bool>),
    Int32(ColumnWriterImpl<'static, Int32Type>, Vec<i32>),
    Int64(ColumnWriterImpl<'static, Int64Type>, Vec<i64>),
    Text(ColumnWriterImpl<'static, ByteArrayType>, Texts),
}

/// Texts of a column, copied to one buffer: an allocation for each would take longer than to encode it.
#[derive(Default)]
struct Texts {
    buffer: Vec<u8>,
    rows: Vec<Text>,
}

enum Text {
    Word(&'static str),
    /// A text in the buffer, after the one before; ends at this byte.
    Copied(usize),
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
        self.rows.push(Text::Copied(self.buffer.len()));
    }

    fn take(&mut self) -> Vec<ByteArray> {
        let buffer = Bytes::from(mem::take(&mut self.buffer));
        let mut start = 0;
        let texts = self.rows.drain(..).map(|text| match text {
            Text::Word(word) => Bytes::from_static(word.as_bytes()),
            Text::Copied(end) => buffer.slice(mem::replace(&mut start, end)..end),
        });
        texts.map(ByteArray::from).collect()
    }
}

fn writer<T: DataType>(
    descriptor: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    pages: &Pages,
) -> ColumnWriterImpl<'static, T> {
    ColumnWriterImpl::new(
        Arc::clone(descriptor),
        Arc::clone(properties),
        Box::new(pages.clone()),
    )
}

fn encode<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &mut Vec<T::T>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.write_batch(values, levels, None)?;
    values.clear();
    Ok(())
}

/// One column of the open row group.
struct ColumnChunk {
    encoder: Encoder,
    /// Definition levels of the gathered rows, if the column may be null: 0 for null; 1 for a value, and for later rows.
    levels: Option<Vec<i16>>,
    pages: Pages,
}

impl ColumnChunk {
    fn new(column: &Column, descriptor: &ColumnDescPtr, properties: &WriterPropertiesPtr) -> Self {
        let pages = Pages(Arc::new(Mutex::new(TrackedWrite::new(Vec::new()))));
        Self {
            encoder: match column.kind {
                ColumnKind::Boolean => Encoder::Boolean(writer(descriptor, properties, &pages), Vec::new()),
                ColumnKind::Int32 => Encoder::Int32(writer(descriptor, properties, &pages), Vec::new()),
                ColumnKind::Int64 => Encoder::Int64(writer(descriptor, properties, &pages), Vec::new()),
                ColumnKind::Text => Encoder::Text(writer(descriptor, properties, &pages), Texts::default()),
            },
            levels: (column.presence == Presence::WhereKnown).then(|| vec![1; BATCH_ROWS]),
            pages,
        }
    }

    /// Adds a cell of the gathered row `row`.
    fn push(&mut self, row: usize, cell: Cell<'_>) {
        match (&mut self.encoder, cell) {
            (_, Cell::Null) => self.levels.as_mut().expect("the column is never null")[row] = 0,
            (Encoder::Boolean(_, values), Cell::Boolean(value)) => values.push(value),
            (Encoder::Int32(_, values), Cell::Int32(value)) => values.push(value),
            (Encoder::Int64(_, values), Cell::Int64(value)) => values.push(value),
            (Encoder::Text(_, texts), Cell::Text(text)) => texts.push(text),
            (Encoder::Text(_, texts), Cell::Word(word)) => texts.rows.push(Text::Word(word)),
            _ => panic!("{cell:?} is not of its column's type"),
        }
    }

    fn encode(&mut self, rows: usize) -> Result<(), ParquetError> {
        let levels = self.levels.as_ref().map(|levels| &levels[..rows]);
        match &mut self.encoder {
            Encoder::Boolean(writer, values) => encode(writer, values, levels),
            Encoder::Int32(writer, values) => encode(writer, values, levels),
            Encoder::Int64(writer, values) => encode(writer, values, levels),
            Encoder::Text(writer, texts) => encode(writer, &mut texts.take(), levels),
        }?;
        self.levels.iter_mut().for_each(|levels| levels.fill(1));
        Ok(())
    }

    /// The pages, and their description.
    fn close(self) -> Result<(Bytes, ColumnCloseResult), ParquetError> {
        let description = match self.encoder {
            Encoder::Boolean(writer, _) => writer.close(),
            Encoder::Int32(writer, _) => writer.close(),
            Encoder::Int64(writer, _) => writer.close(),
            Encoder::Text(writer, _) => writer.close(),
        }?;
        let mut pages = self.pages.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = mem::replace(&mut *pages, TrackedWrite::new(Vec::new())).into_inner()?;
        Ok((Bytes::from(pages), description))
    }
}

/// A table being written.
pub struct TableWriter {
    path: PathBuf,
    columns: &'static [Column],
    schema: SchemaDescPtr,
    writer: SerializedFileWriter<SummedFile>,
    /// The open row group.
    chunks: Vec<ColumnChunk>,
    gathered_rows: usize,
    group_rows: usize,
    rows: u64,
}

impl fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableWriter")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl TableWriter {
    pub fn create(path: &Path, columns: &'static [Column]) -> Result<Self, NativeWriteError> {
        let schema = schema_of(columns);
        let file = File::create_new(path).map_err(|source| NativeWriteError::Io {
            operation: "create",
            path: path.to_owned(),
            source,
        })?;
        let file = SummedFile::new(file);
        let writer = SerializedFileWriter::new(file, schema.root_schema_ptr(), Arc::new(properties(columns)))
            .map_err(|source| failed("begin", path, source))?;
        let mut table = Self {
            path: path.to_owned(),
            columns,
            schema,
            writer,
            chunks: Vec::new(),
            gathered_rows: 0,
            group_rows: 0,
            rows: 0,
        };
        table.chunks = table.new_chunks();
        Ok(table)
    }

    fn new_chunks(&self) -> Vec<ColumnChunk> {
        let properties = self.writer.properties();
        let columns = self.schema.columns().iter().zip(self.columns);
        columns
            .map(|(descriptor, column)| ColumnChunk::new(column, descriptor, properties))
            .collect()
    }

    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row; `cells` are in the order of the columns.
    pub fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), NativeWriteError> {
        assert_eq!(cells.len(), self.chunks.len(), "a row of another table");
        for (chunk, cell) in self.chunks.iter_mut().zip(cells) {
            chunk.push(self.gathered_rows, *cell);
        }
        self.rows += 1;
        self.gathered_rows += 1;
        self.group_rows += 1;
        if self.group_rows == ROW_GROUP_ROWS {
            self.end_row_group()
        } else if self.gathered_rows == BATCH_ROWS {
            self.encode_rows()
        } else {
            return Ok(());
        }
        .map_err(|source| failed("write", &self.path, source))
    }

    fn encode_rows(&mut self) -> Result<(), ParquetError> {
        let rows = mem::take(&mut self.gathered_rows);
        self.chunks.iter_mut().try_for_each(|chunk| chunk.encode(rows))
    }

    /// Writes the open row group to the file, if it has rows, and opens the next one.
    fn end_row_group(&mut self) -> Result<(), ParquetError> {
        if self.group_rows == 0 {
            return Ok(());
        }
        self.encode_rows()?;
        self.group_rows = 0;
        let next = self.new_chunks();
        let mut group = self.writer.next_row_group()?;
        for chunk in mem::replace(&mut self.chunks, next) {
            let (pages, description) = chunk.close()?;
            group.append_column(&pages, description)?;
        }
        group.close()?;
        Ok(())
    }

    /// Ends the row group and writes a footer behind it: the returned sum covers a complete table, whatever follows.
    pub fn checkpoint(&mut self) -> Result<TableSum, NativeWriteError> {
        self.end_row_group()
            .and_then(|()| self.end_of_file())
            .and_then(|end| {
                self.writer.write_all(&end)?;
                self.writer.flush()?;
                Ok(())
            })
            .map_err(|source| failed("write", &self.path, source))?;
        Ok(self.writer.inner().sum())
    }

    /// The footer of a file with the row groups so far.
    fn end_of_file(&self) -> Result<Vec<u8>, ParquetError> {
        let row_groups = self.writer.flushed_row_groups().to_vec();
        let rows = row_groups.iter().map(|group| group.num_rows()).sum();
        let schema = Arc::clone(&self.schema);
        let file = FileMetaData::new(1, rows, Some(CREATED_BY.to_owned()), None, schema, None);
        let metadata = ParquetMetaDataBuilder::new(file)
            .set_row_groups(row_groups)
            .build();
        let mut end = Vec::new();
        ParquetMetaDataWriter::new(&mut end, &metadata).finish()?;
        Ok(end)
    }

    /// Writes collected rows and the footer, and syncs the file.
    pub fn close(mut self) -> Result<TableSum, NativeWriteError> {
        let ended = self.end_row_group();
        let path = self.path;
        let file = ended
            .and_then(|()| self.writer.into_inner())
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
        .set_write_batch_size(BATCH_ROWS)
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
