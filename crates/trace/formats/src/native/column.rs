//! Decodes the columns of a table batch by batch, each found by its name.
//!
//! It knows no table's columns. [`super::text_column`] decodes texts.

use std::fmt::Display;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{BoolType, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

use super::reader::TableProblem;
use super::schema::{self, Presence};
use super::table_file::TableFile;

/// Values of a batch of rows; a row in an error is one of the batch.
pub type Values<V> = Result<Vec<Option<V>>, TableProblem>;

/// A type of values in columns.
pub trait Value: Sized {
    /// Its name in messages.
    const EXPECTED: &'static str;
    /// Decodes the values of one row group.
    type Decoder;

    /// Whether a column has this type.
    fn is_type_of(column: &ColumnDescriptor) -> bool;

    /// Opens a column of this type.
    fn open(descriptor: ColumnDescPtr, pages: Pages) -> Result<Self::Decoder, ParquetError>;

    /// The next `rows` values of the column `name`.
    fn decode(decoder: &mut Self::Decoder, name: &'static str, rows: usize) -> Values<Self>;
}

/// The pages of a column in one row group.
pub struct Pages {
    pub reader: SerializedPageReader<TableFile>,
    /// Whether all values are indices into a dictionary, which is the first page.
    pub are_indices: bool,
}

/// A column of the current row group.
pub struct Column<V: Value> {
    name: &'static str,
    /// `None` if the table has no such column, and need not have it.
    decoder: Option<V::Decoder>,
    /// Values of the current batch.
    values: Vec<Option<V>>,
}

/// Integers of 32 or 64 bits, converted to their field's type.
pub type Number = Column<i64>;

fn find<'a>(group: &'a RowGroupMetaData, name: &str) -> Option<&'a ColumnChunkMetaData> {
    let is_named = |path: &[String]| path.len() == 1 && path[0] == name;
    let mut columns = group.columns().iter();
    columns.find(|column| is_named(column.column_path().parts()))
}

impl<V: Value> Column<V> {
    /// The column `name` of a row group.
    pub fn open(
        file: &Arc<TableFile>,
        group: &RowGroupMetaData,
        name: &'static str,
    ) -> Result<Self, TableProblem> {
        let wrong = |found| TableProblem::Column {
            column: name,
            expected: V::EXPECTED,
            found,
        };
        let column = find(group, name).ok_or_else(|| wrong("none".to_owned()))?;
        let descriptor = column.column_descr_ptr();
        if descriptor.max_rep_level() > 0 || !V::is_type_of(&descriptor) {
            let logical = descriptor.logical_type_ref();
            let logical = logical.map_or_else(String::new, |logical| format!(" ({logical:?})"));
            return Err(wrong(format!("{}{logical}", descriptor.physical_type())));
        }
        let codec = column.compression();
        if !matches!(
            codec,
            Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::ZSTD(_)
        ) {
            return Err(undecodable(
                name,
                &format!(
                    "expected zstd, Snappy or no compression, found {codec}; write the table anew with one of them"
                ),
            ));
        }
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let decoder = SerializedPageReader::new(Arc::clone(file), column, rows, None).and_then(|reader| {
            let encodings = column.page_encoding_stats_mask();
            let are_indices = column.dictionary_page_offset().is_some()
                && encodings.is_some_and(|encodings| encodings.is_only(Encoding::RLE_DICTIONARY));
            V::open(descriptor, Pages { reader, are_indices })
        });
        Ok(Self {
            name,
            decoder: Some(decoder.map_err(|error| undecodable(name, &error))?),
            values: Vec::new(),
        })
    }

    /// The column `name`, or one of nulls if the table does not have it.
    pub fn open_or_null(
        file: &Arc<TableFile>,
        group: &RowGroupMetaData,
        name: &'static str,
    ) -> Result<Self, TableProblem> {
        if find(group, name).is_some() {
            return Self::open(file, group, name);
        }
        Ok(Self {
            name,
            decoder: None,
            values: Vec::new(),
        })
    }

    /// The column that the schema describes, or one of nulls: tables of schema 1 lack some.
    pub fn of(
        file: &Arc<TableFile>,
        group: &RowGroupMetaData,
        column: &schema::Column,
    ) -> Result<Self, TableProblem> {
        match column.presence {
            Presence::Always => Self::open(file, group, column.name),
            Presence::WhereKnown => Self::open_or_null(file, group, column.name),
        }
    }

    /// Decodes the next `rows` values: the next batch.
    pub fn read(&mut self, rows: usize) -> Result<(), TableProblem> {
        self.values = match &mut self.decoder {
            Some(decoder) => V::decode(decoder, self.name, rows)?,
            None => (0..rows).map(|_| None).collect(),
        };
        Ok(())
    }

    /// Its name and decoder, if it is no column of nulls.
    pub const fn decoder(&mut self) -> (&'static str, Option<&mut V::Decoder>) {
        (self.name, self.decoder.as_mut())
    }

    /// The value in a row of the batch, if it is not null.
    pub fn where_known(&self, row: usize) -> Option<&V> {
        self.values[row].as_ref()
    }

    /// The value in a row of the batch.
    pub fn at(&self, row: usize) -> Result<&V, TableProblem> {
        self.where_known(row).ok_or_else(|| self.empty(row))
    }

    fn empty(&self, row: usize) -> TableProblem {
        self.wrong(row, "expected a value, found none".to_owned())
    }

    fn wrong(&self, row: usize, problem: String) -> TableProblem {
        wrong_value(self.name, row, problem)
    }
}

impl Number {
    /// The number in a row of the batch, if it is not null.
    pub fn number_where_known<T: TryFrom<i64>>(&self, row: usize) -> Result<Option<T>, TableProblem> {
        let Some(value) = self.values[row] else {
            return Ok(None);
        };
        T::try_from(value).map(Some).map_err(|_| {
            let expected = std::any::type_name::<T>();
            self.wrong(row, format!("expected {expected}, found {value}"))
        })
    }

    /// The number in a row of the batch.
    pub fn number<T: TryFrom<i64>>(&self, row: usize) -> Result<T, TableProblem> {
        self.number_where_known(row)?.ok_or_else(|| self.empty(row))
    }
}

impl Number {
    /// The number in a row of the batch, if it is not null; at most `most`.
    pub fn up_to_where_known(&self, row: usize, most: u64) -> Result<Option<u64>, TableProblem> {
        let value = self.number_where_known(row)?;
        if let Some(value) = value.filter(|value| *value > most) {
            return Err(self.wrong(row, format!("expected at most {most}, found {value}")));
        }
        Ok(value)
    }

    /// The number in a row of the batch; at most `most`.
    pub fn number_up_to(&self, row: usize, most: u64) -> Result<u64, TableProblem> {
        self.up_to_where_known(row, most)?.ok_or_else(|| self.empty(row))
    }
}

pub fn wrong_value(column: &'static str, row: usize, problem: String) -> TableProblem {
    let row = u64::try_from(row).unwrap_or(u64::MAX);
    TableProblem::Value { row, column, problem }
}

fn undecodable(name: &str, problem: &dyn Display) -> TableProblem {
    TableProblem::Parquet(ParquetError::General(format!("column {name}: {problem}")))
}

/// The next values of the column `name`, without nulls, and their definition levels unless it has no nulls.
pub fn next_values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    name: &'static str,
    rows: usize,
) -> Result<(Vec<T::T>, Vec<i16>), TableProblem> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    match reader.read_records(rows, Some(&mut levels), None, &mut values) {
        Ok((found, _, _)) if found == rows => Ok((values, levels)),
        Ok((found, _, _)) => Err(undecodable(
            name,
            &format!("expected {rows} more values, found {found}"),
        )),
        Err(error) => Err(undecodable(name, &error)),
    }
}

/// The value of each of `rows` rows.
pub fn by_rows<V>(
    rows: usize,
    mut values: impl Iterator<Item = V>,
    levels: &[i16],
) -> impl Iterator<Item = Option<V>> {
    (0..rows).map(move |row| match levels.get(row) {
        None | Some(1) => values.next(),
        Some(_) => None,
    })
}

impl Value for bool {
    const EXPECTED: &'static str = "boolean";
    type Decoder = ColumnReaderImpl<BoolType>;

    fn is_type_of(column: &ColumnDescriptor) -> bool {
        column.physical_type() == Type::BOOLEAN
    }

    fn open(descriptor: ColumnDescPtr, pages: Pages) -> Result<Self::Decoder, ParquetError> {
        Ok(ColumnReaderImpl::new(descriptor, Box::new(pages.reader)))
    }

    fn decode(decoder: &mut Self::Decoder, name: &'static str, rows: usize) -> Values<Self> {
        let (values, levels) = next_values(decoder, name, rows)?;
        Ok(by_rows(rows, values.into_iter(), &levels).collect())
    }
}

impl Value for i64 {
    const EXPECTED: &'static str = "int32 or int64";
    type Decoder = ColumnReader;

    fn is_type_of(column: &ColumnDescriptor) -> bool {
        use ConvertedType::{INT_8, INT_16, INT_32, INT_64, NONE};
        let is_signed = match column.logical_type_ref() {
            Some(LogicalType::Integer(integer)) => integer.is_signed,
            Some(_) => false,
            None => [NONE, INT_8, INT_16, INT_32, INT_64].contains(&column.converted_type()),
        };
        is_signed && [Type::INT32, Type::INT64].contains(&column.physical_type())
    }

    fn open(descriptor: ColumnDescPtr, pages: Pages) -> Result<Self::Decoder, ParquetError> {
        Ok(get_column_reader(descriptor, Box::new(pages.reader)))
    }

    fn decode(decoder: &mut Self::Decoder, name: &'static str, rows: usize) -> Values<Self> {
        match decoder {
            ColumnReader::Int32ColumnReader(reader) => {
                let (values, levels) = next_values(reader, name, rows)?;
                Ok(by_rows(rows, values.into_iter().map(i64::from), &levels).collect())
            }
            ColumnReader::Int64ColumnReader(reader) => {
                let (values, levels) = next_values(reader, name, rows)?;
                Ok(by_rows(rows, values.into_iter(), &levels).collect())
            }
            _ => unreachable!("a column was opened as one of another type"),
        }
    }
}
