//! The values of a column in a batch of rows, in the layout of Apache Arrow, so that an engine takes them without a copy.

use std::sync::Arc;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;

use super::column::{Column, Number, next_values, wrong_value};
use super::reader::TableProblem;
use super::text_column::{TextDecoder, utf8};

/// A bit for each row, from the lowest of the first byte on.
pub type Bits = Vec<u8>;

/// The values of one column in a batch of rows. A null has a value of its type that means nothing, and a cleared bit in
/// `known`, which is `None` if there are no nulls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "named like the parts of an array of Arrow, which the type describes"
)]
pub enum ColumnValues {
    /// A [`super::schema::ColumnKind::Boolean`].
    Booleans {
        values: Bits,
        rows: usize,
        known: Option<Bits>,
    },
    /// A [`super::schema::ColumnKind::Int32`].
    Int32 { values: Vec<i32>, known: Option<Bits> },
    /// A [`super::schema::ColumnKind::Int64`].
    Int64 { values: Vec<i64>, known: Option<Bits> },
    /// A [`super::schema::ColumnKind::Text`]: row `n` is bytes `offsets[n]..offsets[n + 1]`.
    Texts {
        offsets: Vec<i32>,
        bytes: Vec<u8>,
        known: Option<Bits>,
    },
}

fn bits(rows: usize, mut is_set: impl FnMut(usize) -> bool) -> Bits {
    let mut bits = vec![0; rows.div_ceil(8)];
    for row in 0..rows {
        bits[row / 8] |= u8::from(is_set(row)) << (row % 8);
    }
    bits
}

/// Which rows have a value, by their definition levels.
fn known(levels: &[i16]) -> Option<Bits> {
    let all = levels.iter().all(|level| *level == 1);
    (!all).then(|| bits(levels.len(), |row| levels[row] == 1))
}

/// A value for each row, those of nulls made up.
fn by_rows<V: Copy + Default>(values: Vec<V>, levels: &[i16], known: Option<&Bits>) -> Vec<V> {
    if known.is_none() {
        return values;
    }
    let mut values = values.into_iter();
    let by_row = |level: &i16| match level {
        1 => values.next().unwrap_or_default(),
        _ => V::default(),
    };
    levels.iter().map(by_row).collect()
}

/// The next values of a column with its nulls.
fn next<T: DataType<T: Copy + Default>>(
    reader: &mut ColumnReaderImpl<T>,
    name: &'static str,
    rows: usize,
) -> Result<(Vec<T::T>, Option<Bits>), TableProblem> {
    let (values, levels) = next_values(reader, name, rows)?;
    let known = known(&levels);
    Ok((by_rows(values, &levels, known.as_ref()), known))
}

fn nulls(rows: usize) -> Option<Bits> {
    Some(vec![0; rows.div_ceil(8)])
}

pub(super) fn booleans(column: &mut Column<bool>, rows: usize) -> Result<ColumnValues, TableProblem> {
    let (name, decoder) = column.decoder();
    let (values, known) = match decoder {
        Some(reader) => next(reader, name, rows)?,
        None => (vec![false; rows], nulls(rows)),
    };
    let values = bits(rows, |row| values[row]);
    Ok(ColumnValues::Booleans { values, rows, known })
}

pub(super) fn int64(column: &mut Number, rows: usize) -> Result<ColumnValues, TableProblem> {
    let (name, decoder) = column.decoder();
    let (values, known) = match decoder {
        Some(ColumnReader::Int64ColumnReader(reader)) => next(reader, name, rows)?,
        Some(ColumnReader::Int32ColumnReader(reader)) => {
            let (values, known) = next(reader, name, rows)?;
            (values.into_iter().map(i64::from).collect(), known)
        }
        Some(_) => unreachable!("a column was opened as one of another type"),
        None => (vec![0; rows], nulls(rows)),
    };
    Ok(ColumnValues::Int64 { values, known })
}

pub(super) fn int32(column: &mut Number, rows: usize) -> Result<ColumnValues, TableProblem> {
    let (name, decoder) = column.decoder();
    let (values, known) = match decoder {
        Some(ColumnReader::Int32ColumnReader(reader)) => next(reader, name, rows)?,
        Some(ColumnReader::Int64ColumnReader(reader)) => {
            let (values, known) = next(reader, name, rows)?;
            let narrow = |(row, value): (usize, i64)| {
                let beyond =
                    |_| wrong_value(name, row, format!("expected a number of 32 bits, found {value}"));
                i32::try_from(value).map_err(beyond)
            };
            let values = values.into_iter().enumerate().map(narrow);
            (values.collect::<Result<_, _>>()?, known)
        }
        Some(_) => unreachable!("a column was opened as one of another type"),
        None => (vec![0; rows], nulls(rows)),
    };
    Ok(ColumnValues::Int32 { values, known })
}

/// Calls `append` for each row that is not null, and returns the offsets behind what it has appended to `bytes`.
fn text_offsets(
    name: &'static str,
    (rows, levels): (usize, &[i16]),
    bytes: &mut Vec<u8>,
    mut append: impl FnMut(&mut Vec<u8>) -> Result<(), String>,
) -> Result<Vec<i32>, TableProblem> {
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    for row in 0..rows {
        if levels.get(row).is_none_or(|level| *level == 1) {
            append(bytes).map_err(|problem| wrong_value(name, row, problem))?;
        }
        let beyond = |_| {
            wrong_value(
                name,
                row,
                "expected less than 2 GiB of text in a batch".to_owned(),
            )
        };
        offsets.push(i32::try_from(bytes.len()).map_err(beyond)?);
    }
    Ok(offsets)
}

pub(super) fn texts(column: &mut Column<Arc<str>>, rows: usize) -> Result<ColumnValues, TableProblem> {
    let (name, decoder) = column.decoder();
    let mut bytes = Vec::new();
    let (offsets, known) = match decoder {
        Some(TextDecoder::Indices(reader, distinct)) => {
            let (indices, levels) = next_values(reader, name, rows)?;
            let mut indices = indices.into_iter();
            let append = |bytes: &mut Vec<u8>| {
                let index = indices.next().unwrap_or(-1);
                let text = usize::try_from(index).ok().and_then(|index| distinct.get(index));
                match text {
                    Some(Ok(text)) => bytes.extend_from_slice(text.as_bytes()),
                    Some(Err(problem)) => return Err(problem.clone()),
                    None => {
                        return Err(format!(
                            "expected an index below {}, found {index}",
                            distinct.len()
                        ));
                    }
                }
                Ok(())
            };
            let offsets = text_offsets(name, (rows, &levels), &mut bytes, append)?;
            (offsets, known(&levels))
        }
        Some(TextDecoder::Texts(reader, _)) => {
            let (found, levels) = next_values(reader, name, rows)?;
            let mut found = found.into_iter();
            let append = |bytes: &mut Vec<u8>| {
                let text = found.next().unwrap_or_default();
                bytes.extend_from_slice(utf8(text.data())?.as_bytes());
                Ok(())
            };
            let offsets = text_offsets(name, (rows, &levels), &mut bytes, append)?;
            (offsets, known(&levels))
        }
        None => (vec![0; rows + 1], nulls(rows)),
    };
    Ok(ColumnValues::Texts {
        offsets,
        bytes,
        known,
    })
}
