//! Tables in `traces` were written by earlier versions and other tools: they are read as ever, and written the same.
//!
//! `schema-2.trace` is `sample(5)` as written through arrow 59. `rewritten.trace` is the same, of schema 1, by pyarrow
//! 26: columns reversed, one more, all nullable; row groups of 4 rows; texts without dictionary, in pages of version 2
//! and in delta encodings; Snappy or uncompressed; no sums.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use formats::native::{NativeReadError, NativeReader};
use formats::read_all;
use parquet::column::writer::ColumnWriter;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader};
use parquet::file::metadata::{ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use results::block_trace::BlockTrace;

use super::sample::{full_request, read, sample, write};

const TABLES: [&str; 3] = ["requests.parquet", "runs.parquet", "events.parquet"];

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/native/traces")
        .join(name)
}

fn footer(table: &Path) -> ParquetMetaData {
    let file = File::open(table).unwrap();
    ParquetMetaDataReader::new().parse_and_finish(&file).unwrap()
}

/// Places of pages left out: they depend on the compressor.
fn description(table: &Path) -> Vec<String> {
    let footer = footer(table);
    let file = footer.file_metadata();
    let keys = file.key_value_metadata();
    let mut lines = vec![format!(
        "{:?} {keys:?} {}",
        file.created_by(),
        file.schema().name()
    )];
    let is_added = |name: &str| ADDED.contains(&name);
    let fields = file
        .schema()
        .get_fields()
        .iter()
        .filter(|field| !is_added(field.name()));
    lines.extend(fields.map(|field| format!("{field:?}")));
    for group in footer.row_groups() {
        let columns = group.columns().iter();
        for column in columns.filter(|column| !is_added(&column.column_path().string())) {
            lines.push(format!(
                "{} of {} rows: {:?} {} {:?} {:?} {:?}",
                column.column_path(),
                group.num_rows(),
                column.compression(),
                column.dictionary_page_offset().is_some(),
                column.encodings_mask(),
                column.page_encoding_stats_mask(),
                column.statistics(),
            ));
        }
    }
    lines
}

/// Columns that were added after the stored traces were written.
const ADDED: [&str; 1] = ["one_of_names"];

fn sample_before_additions() -> BlockTrace {
    let mut trace = sample(5);
    for run in trace.requests.iter_mut().flat_map(|request| &mut request.runs) {
        run.one_of_names = false;
    }
    trace
}

#[test]
fn a_trace_written_through_arrow_is_read_and_its_tables_are_written_the_same() {
    let old = stored("schema-2.trace");
    assert_eq!(read(&old), sample_before_additions());
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("a.trace");
    write(&sample(5), &new);
    for table in TABLES {
        assert_eq!(description(&new.join(table)), description(&old.join(table)));
    }
}

#[test]
fn a_trace_rewritten_by_another_tool_is_read() {
    let mut expected = sample_before_additions();
    expected.header.schema = 1;
    for command in expected
        .requests
        .iter_mut()
        .filter_map(|request| request.command.as_mut())
    {
        command.bytes = None;
        command.tag = None;
        command.waits_busy = false;
        command.issued_ns = None;
        command.completed_ns = None;
        command.status = None;
    }
    assert_eq!(read(&stored("rewritten.trace")), expected);
}

#[test]
fn texts_too_many_for_a_dictionary_are_written_and_read() {
    let mut trace = sample(0);
    trace.requests = (0..20_000)
        .map(|id| {
            let mut request = full_request(id);
            request.runs[0].path = Some(format!("/{id:0>80}").into());
            request
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&trace, &path);
    assert!(read(&path) == trace, "paths differ");
    let footer = footer(&path.join("runs.parquet"));
    let columns = footer.row_group(0).columns();
    let column = columns
        .iter()
        .find(|column| column.column_path().string() == "path");
    let encodings = column.unwrap().page_encoding_stats_mask();
    assert!(
        encodings.unwrap().encodings().count() > 1,
        "the dictionary was large enough: {encodings:?}"
    );
}

/// A copy of the rewritten trace, which has no sums, to be damaged.
fn without_sums() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    fs::create_dir(&path).unwrap();
    for name in TABLES.into_iter().chain(["header.json"]) {
        fs::copy(stored("rewritten.trace").join(name), path.join(name)).unwrap();
    }
    (folder, path)
}

fn error_of(path: &Path) -> String {
    match NativeReader::open(path) {
        Err(error) => error.to_string(),
        Ok(mut reader) => read_all(&mut reader).unwrap_err().to_string(),
    }
}

/// Adds a footer that claims this many rows for each row group, and as many values of its columns if `of_columns`.
fn claim_rows(table: &Path, rows: i64, of_columns: bool) {
    let footer = footer(table);
    let claims = |group: &RowGroupMetaData| {
        let columns = group.columns().iter().map(|column| match of_columns {
            true => {
                let column = column.clone().into_builder().set_num_values(rows);
                column.build().unwrap()
            }
            false => column.clone(),
        });
        let group = group.clone().into_builder().set_num_rows(rows);
        group.set_column_metadata(columns.collect()).build().unwrap()
    };
    let footer = ParquetMetaDataBuilder::new(footer.file_metadata().clone())
        .set_row_groups(footer.row_groups().iter().map(claims).collect())
        .build();
    let mut bytes = fs::read(table).unwrap();
    ParquetMetaDataWriter::new(&mut bytes, &footer).finish().unwrap();
    fs::write(table, bytes).unwrap();
}

#[test]
fn a_footer_that_claims_more_rows_than_there_are_is_an_error_with_the_column() {
    let (_folder, path) = without_sums();
    claim_rows(&path.join("runs.parquet"), i64::MAX / 8, false);
    let error = error_of(&path);
    assert!(
        error.contains("\" is said to have 4 values in a row group of 1152921504606846975 rows"),
        "{error}"
    );

    let (_folder, path) = without_sums();
    claim_rows(&path.join("runs.parquet"), i64::MAX / 8, true);
    let error = error_of(&path);
    assert!(
        error.ends_with(
            "runs.parquet: cannot read the table: Parquet error: column request_id: expected 4096 more values, found 4"
        ),
        "{error}"
    );
}

/// Otherwise counting them would not end.
#[test]
fn rows_are_counted_by_decoding_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(5_000), &path);
    super::damage::without_sums(&path);
    let count = |path: &Path| {
        let [requests, ..] = NativeReader::open(path).unwrap().tables();
        let mut scan = requests.scan(Vec::new());
        let mut rows = 0;
        for _ in 0..100 {
            rows += scan.next(1000)?.map_or(0, |(rows, _)| rows);
        }
        Ok::<_, NativeReadError>(rows)
    };
    assert_eq!(count(&path).unwrap(), 5_000);
    claim_rows(&path.join("requests.parquet"), i64::MAX / 8, true);
    let error = count(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("column trace_id: expected 1000 more values, found 0"),
        "{error}"
    );
}

#[test]
fn a_column_that_is_missing_or_of_another_type_is_named() {
    let (_folder, path) = without_sums();
    let events = path.join("events.parquet");
    for (column, found) in [
        ("required double time_ns;", "DOUBLE"),
        ("required int64 time_ns (INTEGER(64,false));", "INT64 (Integer("),
        (
            "required int64 time_ns (TIMESTAMP(NANOS,true));",
            "INT64 (Timestamp(",
        ),
        ("repeated int64 time_ns;", "INT64"),
        ("required group time_ns { required int64 time_ns; }", "none"),
        ("required int64 time;", "none"),
    ] {
        let schema = Arc::new(parse_message_type(&format!("message m {{ {column} }}")).unwrap());
        let file = File::create(&events).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column_writer = group.next_column().unwrap().unwrap();
        match column_writer.untyped() {
            ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(&[1], Some(&[1]), Some(&[0])),
            ColumnWriter::DoubleColumnWriter(writer) => writer.write_batch(&[1.0], None, None),
            _ => unreachable!("no column has another type"),
        }
        .unwrap();
        column_writer.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let error = error_of(&path);
        let expected = "events.parquet: expected a column time_ns of type int32 or int64, found ";
        assert!(error.contains(&format!("{expected}{found}")), "{column}: {error}");
    }
}

#[test]
fn an_unknown_word_is_an_error_with_its_row_and_column() {
    let (_folder, path) = without_sums();
    let events = path.join("events.parquet");
    let mut bytes = fs::read(&events).unwrap();
    for at in 0..bytes.len() - 4 {
        if bytes[at..].starts_with(b"lost") {
            bytes[at..at + 4].copy_from_slice(b"lust");
        }
    }
    fs::write(&events, bytes).unwrap();
    let error = error_of(&path);
    assert!(
        error.contains("events.parquet: row 1, kind: \"lust\" is no kind of event"),
        "{error}"
    );
}
