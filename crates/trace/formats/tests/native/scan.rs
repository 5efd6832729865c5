//! Columns read by themselves have the values that the decoder's own reader of rows finds.

use std::fs::File;

use formats::native::columns::{EVENT_COLUMNS, REQUEST_COLUMNS, RUN_COLUMNS};
use formats::native::schema::{Column, ColumnKind};
use formats::native::{Bits, ColumnValues, NativeReadError, NativeReader, OpenTable};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::sample::{sample, write};

/// The tables of a trace, with their columns.
pub const TABLES: [(&str, &[Column]); 3] = [
    ("requests.parquet", &REQUEST_COLUMNS),
    ("runs.parquet", &RUN_COLUMNS),
    ("events.parquet", &EVENT_COLUMNS),
];

/// All values of these columns, row by row, read in batches of at most `rows_max`.
pub fn scanned(
    table: &OpenTable,
    columns: &[Column],
    rows_max: usize,
) -> Result<Vec<Vec<Option<Field>>>, NativeReadError> {
    let mut scan = table.scan(columns.to_vec());
    let mut rows: Vec<Vec<_>> = Vec::new();
    while let Some((count, columns)) = scan.next(rows_max)? {
        assert!(count <= rows_max);
        let first = rows.len();
        rows.resize_with(first + count, Vec::new);
        for values in columns {
            for (row, cells) in rows[first..].iter_mut().enumerate() {
                cells.push(cell(&values, row));
            }
        }
    }
    assert!(scan.next(rows_max)?.is_none(), "it stays at its end");
    Ok(rows)
}

/// The value of a row, if it is not null.
fn cell(values: &ColumnValues, row: usize) -> Option<Field> {
    let is_set = |bits: &Bits| bits[row / 8] & (1 << (row % 8)) != 0;
    let (field, known) = match values {
        ColumnValues::Booleans { values, known, .. } => (Field::Bool(is_set(values)), known),
        ColumnValues::Int32 { values, known } => (Field::Int(values[row]), known),
        ColumnValues::Int64 { values, known } => (Field::Long(values[row]), known),
        ColumnValues::Texts {
            offsets,
            bytes,
            known,
        } => {
            let at = |row: usize| usize::try_from(offsets[row]).unwrap();
            let text = str::from_utf8(&bytes[at(row)..at(row + 1)]).unwrap();
            (Field::Str(text.to_owned()), known)
        }
    };
    known.as_ref().is_none_or(is_set).then_some(field)
}

#[test]
fn columns_are_those_of_the_decoders_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(9_000), &path);
    let open = NativeReader::open(&path).unwrap().tables();
    for ((name, columns), table) in TABLES.into_iter().zip(open) {
        let reader = SerializedFileReader::new(File::open(path.join(name)).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| {
            let fields = row.unwrap().into_columns().into_iter();
            let known = |(_, field): (String, Field)| (field != Field::Null).then_some(field);
            fields.map(known).collect::<Vec<_>>()
        });
        let rows: Vec<_> = rows.collect();
        assert!(rows.len() >= 9_000 || name == "events.parquet");
        for rows_max in [7, 8192, usize::MAX] {
            assert!(scanned(&table, columns, rows_max).unwrap() == rows, "{name}");
        }
        // Some, in another order.
        let some: Vec<_> = columns.iter().rev().step_by(3).copied().collect();
        let indices = (0..columns.len()).rev().step_by(3);
        let indices: Vec<_> = indices.collect();
        let expected = rows.iter().map(|row| {
            indices
                .iter()
                .map(|index| row[*index].clone())
                .collect::<Vec<_>>()
        });
        assert!(scanned(&table, &some, 1000).unwrap() == expected.collect::<Vec<_>>());
        assert_eq!(
            scanned(&table, &[], 1000).unwrap().len(),
            rows.len(),
            "rows are counted without columns"
        );
    }
}

#[test]
fn a_column_of_another_type_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(10), &path);
    let as_text = Column {
        kind: ColumnKind::Text,
        ..REQUEST_COLUMNS[1]
    };
    let [requests, ..] = NativeReader::open(&path).unwrap().tables();
    let error = scanned(&requests, &[as_text], 100).unwrap_err();
    let text = error.to_string();
    assert!(
        text.ends_with("requests.parquet: expected a column id of type text, found INT64"),
        "{text}"
    );
}

#[test]
fn readers_of_one_open_table_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(9_000), &path);
    let [requests, ..] = NativeReader::open(&path).unwrap().tables();
    let expected = scanned(&requests, &REQUEST_COLUMNS, 8192).unwrap();
    std::thread::scope(|scope| {
        for rows_max in [500, 1000, 2000, 4000] {
            let (requests, expected) = (&requests, &expected);
            scope.spawn(move || {
                for _ in 0..3 {
                    assert!(scanned(requests, &REQUEST_COLUMNS, rows_max).unwrap() == *expected);
                }
            });
        }
    });
}
