//! Tables written by other tools: every row is checked, and a bad value is named with its place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use formats::native::NativeReader;
use formats::read_all;
use parquet::column::reader::ColumnReader;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;

use super::sample::{sample, write};

/// A changed value.
enum Change {
    /// Another number, in a column that is never null.
    Number(i64),
    /// Another text, in a column that is never null.
    Text(&'static str),
    /// No value, in a column that may be null.
    Null,
}

macro_rules! copy {
    ($reader:ident, $writer:ident, $kind:ident, $rows:expr, $edit:expr) => {{
        let ColumnWriter::$kind(writer) = $writer else {
            panic!("the schema is the same");
        };
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        $reader
            .read_records($rows, Some(&mut levels), None, &mut values)
            .unwrap();
        let edit = $edit;
        edit(&mut values, &mut levels);
        let levels = (!levels.is_empty()).then_some(&levels[..]);
        writer.write_batch(&values, levels, None).unwrap();
    }};
}

/// Writes a table anew, in one row group, with one changed value, and removes the sums from the header.
fn rewrite(table: &Path, row: usize, column: &str, change: &Change) {
    let input = SerializedFileReader::new(File::open(table).unwrap()).unwrap();
    let schema = input.metadata().file_metadata().schema_descr().root_schema_ptr();
    let next = table.with_extension("next");
    let properties = Arc::new(WriterProperties::builder().build());
    let mut output = SerializedFileWriter::new(File::create(&next).unwrap(), schema, properties).unwrap();
    let mut first_row = 0;
    for index in 0..input.num_row_groups() {
        let group = input.get_row_group(index).unwrap();
        let rows = usize::try_from(group.metadata().num_rows()).unwrap();
        let mut new = output.next_row_group().unwrap();
        let mut at = 0;
        while let Some(mut writer) = new.next_column().unwrap() {
            let is_changed = group.metadata().column(at).column_path().string() == column
                && (first_row..first_row + rows).contains(&row);
            let row = row.wrapping_sub(first_row);
            let mut reader = group.get_column_reader(at).unwrap();
            let untyped = writer.untyped();
            match &mut reader {
                ColumnReader::BoolColumnReader(reader) => {
                    copy!(
                        reader,
                        untyped,
                        BoolColumnWriter,
                        rows,
                        |_: &mut Vec<bool>, _: &mut Vec<i16>| ()
                    );
                }
                ColumnReader::Int32ColumnReader(reader) => {
                    copy!(
                        reader,
                        untyped,
                        Int32ColumnWriter,
                        rows,
                        |_: &mut Vec<i32>, _: &mut Vec<i16>| ()
                    );
                }
                ColumnReader::Int64ColumnReader(reader) => {
                    copy!(reader, untyped, Int64ColumnWriter, rows, |values: &mut Vec<
                        i64,
                    >,
                                                                     levels: &mut Vec<
                        i16,
                    >| {
                        match change {
                            Change::Number(number) if is_changed => values[row] = *number,
                            Change::Null if is_changed => {
                                let before = levels[..row].iter().filter(|level| **level == 1).count();
                                values.remove(before);
                                levels[row] = 0;
                            }
                            _ => {}
                        }
                    });
                }
                ColumnReader::ByteArrayColumnReader(reader) => {
                    copy!(
                        reader,
                        untyped,
                        ByteArrayColumnWriter,
                        rows,
                        |values: &mut Vec<ByteArray>, _: &mut Vec<i16>| {
                            if let (Change::Text(text), true) = (change, is_changed) {
                                values[row] = ByteArray::from(*text);
                            }
                        }
                    );
                }
                _ => panic!("no column has another type"),
            }
            writer.close().unwrap();
            at += 1;
        }
        new.close().unwrap();
        first_row += rows;
    }
    output.close().unwrap();
    fs::rename(next, table).unwrap();
    let header = table.with_file_name("header.json");
    let text = fs::read_to_string(&header).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value.as_object_mut().unwrap().remove("tables");
    fs::write(header, value.to_string()).unwrap();
}

fn trace(folder: &Path) -> PathBuf {
    let path = folder.join("a.trace");
    write(&sample(200), &path);
    path
}

#[test]
fn a_bad_value_in_any_row_of_any_column_is_named_with_its_place_and_the_next_step() {
    let step = "; correct the tool that wrote the table, or take the trace from a copy";
    let cases = [
        (
            "requests.parquet",
            "bytes",
            Change::Number(-118_784),
            "expected a whole number from 0 to 4611686018427387903, found -118784",
        ),
        (
            "requests.parquet",
            "sector",
            Change::Number(1 << 54),
            "expected a whole number from 0 to 9007199254740991, found 18014398509481984",
        ),
        (
            "requests.parquet",
            "operation",
            Change::Text("scribble"),
            "scribble",
        ),
        (
            "requests.parquet",
            "trace_id",
            Change::Text("other"),
            "expected \"t-1\", as header.json says, found \"other\"",
        ),
        // Columns that only queries use.
        (
            "requests.parquet",
            "first_ns",
            Change::Number(-1),
            "expected a whole number from 0 to 9223372036854775807, found -1",
        ),
        ("runs.parquet", "class", Change::Text("paper"), "paper"),
        (
            "runs.parquet",
            "run_index",
            Change::Number(-1),
            "expected a whole number from 0 to 9223372036854775807, found -1",
        ),
    ];
    for (table, column, change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = trace(folder.path());
        rewrite(&path.join(table), 100, column, &change);
        // Texts are decoded with their batch, when the trace is opened.
        let checked = NativeReader::open(&path).and_then(|reader| reader.check_rows());
        let error = checked.unwrap_err().to_string();
        let place = format!("{table}: row 100, {column}: ");
        assert!(error.contains(&place) && error.contains(expected), "{error}");
        assert!(error.ends_with(step), "{error}");
    }
}

#[test]
fn a_table_written_anew_with_the_same_rows_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    for table in ["requests.parquet", "runs.parquet", "events.parquet"] {
        rewrite(&path.join(table), usize::MAX, "", &Change::Null);
    }
    let mut reader = NativeReader::open(&path).unwrap();
    reader.check_rows().unwrap();
    assert_eq!(read_all(&mut reader).unwrap(), sample(200));
    // A time that the source lacks is no error.
    rewrite(&path.join("requests.parquet"), 100, "first_ns", &Change::Null);
    NativeReader::open(&path).unwrap().check_rows().unwrap();
}

#[test]
fn a_place_beyond_63_bits_is_refused_by_readers_of_requests_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = trace(folder.path());
    rewrite(
        &path.join("requests.parquet"),
        100,
        "bytes",
        &Change::Number(i64::MAX),
    );
    let mut reader = NativeReader::open(&path).unwrap();
    let error = read_all(&mut reader).unwrap_err().to_string();
    assert!(
        error.contains("requests.parquet: row 100, bytes: expected at most 4611686018427387903, found"),
        "{error}"
    );
}
