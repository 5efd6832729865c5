//! Queries and traces that are too much: bad rows, deep expressions, results beyond the memory, sums beyond 64 bits.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod generator;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use analysis::{AnalysisError, Limits, Query, Session, Value};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use generator::{Spec, write_trace};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

const LIMITS: Limits = Limits {
    memory_bytes: 128 << 20,
    threads: 2,
};

fn generated(folder: &TempDir, requests: u64) -> PathBuf {
    let path = folder.path().join("phone.trace");
    let spec = Spec {
        seed: 7,
        requests,
        name: "phone",
    };
    write_trace(&path, spec).expect("the temporary folder takes a trace");
    path
}

fn session(path: &Path, memory_bytes: usize) -> Result<Session, AnalysisError> {
    let limits = Limits {
        memory_bytes,
        ..LIMITS
    };
    Session::open(&[path.to_owned()], limits)
}

/// Writes the requests anew, as another tool would, with other numbers in a column.
fn rewrite(trace: &Path, column: &str, change: impl Fn(usize, i64) -> i64) {
    let table = trace.join("requests.parquet");
    let next = trace.join("next.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&table).unwrap()).unwrap();
    let mut writer =
        ArrowWriter::try_new(File::create(&next).unwrap(), reader.schema().clone(), None).unwrap();
    let mut first = 0;
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let at = batch.schema().index_of(column).unwrap();
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let numbers = columns[at].as_any().downcast_ref::<Int64Array>().unwrap();
        let numbers = numbers.values().iter().enumerate();
        let changed: Int64Array = numbers
            .map(|(row, number)| Some(change(first + row, *number)))
            .collect();
        columns[at] = Arc::new(changed);
        first += batch.num_rows();
        writer
            .write(&RecordBatch::try_new(batch.schema(), columns).unwrap())
            .unwrap();
    }
    writer.close().unwrap();
    fs::rename(next, table).unwrap();
    let header = trace.join("header.json");
    let mut value: serde_json::Value = serde_json::from_str(&fs::read_to_string(&header).unwrap()).unwrap();
    value.as_object_mut().unwrap().remove("tables");
    fs::write(header, value.to_string()).unwrap();
}

#[test]
fn a_bad_row_of_a_table_written_by_others_is_named_before_any_query() {
    let folder = TempDir::new().unwrap();
    let path = generated(&folder, 500);
    rewrite(
        &path,
        "bytes",
        |row, bytes| if row == 100 { -118_784 } else { bytes },
    );
    let error = session(&path, LIMITS.memory_bytes).err().unwrap().to_string();
    let expected = "requests.parquet: row 100, bytes: expected a whole number from 0 to 4611686018427387903, found -118784; \
                    correct the tool that wrote the table, or take the trace from a copy";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_sum_beyond_64_bits_is_an_error_and_no_negative_number() {
    let folder = TempDir::new().unwrap();
    let path = generated(&folder, 500);
    let large = (1_i64 << 62) - 1;
    rewrite(&path, "bytes", |row, bytes| if row < 3 { large } else { bytes });
    let session = session(&path, LIMITS.memory_bytes).unwrap();
    for sql in [
        "SELECT SUM(bytes) AS bytes FROM requests",
        "SELECT trace_id, SUM(bytes) AS bytes FROM requests GROUP BY trace_id",
        "SELECT id, SUM(bytes) OVER (ORDER BY id) AS bytes FROM requests ORDER BY id",
        "SELECT id, SUM(bytes) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS bytes FROM requests",
        "SELECT SUM(DISTINCT bytes + id) AS bytes FROM requests WHERE id < 3",
    ] {
        let error = session.query(sql).expect_err(sql).to_string();
        assert!(
            error.contains("SUM is ")
                && error.contains("exceeds 64 bits: expected at most 9223372036854775807"),
            "{sql}: {error}"
        );
    }
    // Only the final sum counts, and sums of other types are those of the engine.
    let table = session
        .query(
            "SELECT SUM(CASE WHEN id < 3 THEN bytes WHEN id < 6 THEN -4611686018427387903 ELSE 0 END) AS nothing, \
             SUM(CAST(id AS DOUBLE)) AS real, SUM(DISTINCT id) AS distinct_ids, SUM(NULL + id) AS none, \
             SUM(priority_level) AS short FROM requests WHERE id < 6",
        )
        .unwrap();
    assert_eq!(table.value(0, "nothing"), Some(&Value::Integer(0)));
    assert_eq!(table.value(0, "real"), Some(&Value::Real(15.0)));
    assert_eq!(table.value(0, "distinct_ids"), Some(&Value::Integer(15)));
    assert_eq!(table.value(0, "none"), Some(&Value::Null));
    let table = session
        .query(
            "SELECT id % 2 AS odd, SUM(CASE WHEN id < 2 THEN -id END) AS first, SUM(id) FILTER (WHERE id > 2) AS late, \
             SUM(CASE WHEN id = 1 THEN id END) AS one FROM requests WHERE id < 6 GROUP BY id % 2 ORDER BY odd",
        )
        .unwrap();
    let integers = |row: [i64; 3]| row.map(Value::Integer);
    assert_eq!(table.rows[0][..3], integers([0, 0, 4]));
    assert_eq!(table.rows[0][3], Value::Null, "no number in this group");
    assert_eq!(table.rows[1][..], [1, -1, 8, 1].map(Value::Integer));
}

/// A chain of additions with this number of terms.
fn chain(terms: usize) -> String {
    format!(
        "SELECT {} AS sum FROM requests LIMIT 1",
        vec!["id"; terms].join(" + ")
    )
}

#[test]
fn a_deep_query_is_refused_or_runs_and_never_overflows_the_stack() {
    let folder = TempDir::new().unwrap();
    let session = session(&generated(&folder, 100), LIMITS.memory_bytes).unwrap();
    let error = session.query(&chain(20_000)).unwrap_err();
    assert!(matches!(error, AnalysisError::QueryTooLong { .. }), "{error}");
    let nested = format!("SELECT {}1{}", "(".repeat(20_000), ")".repeat(20_000));
    let error = session.query(&nested).unwrap_err();
    assert!(matches!(error, AnalysisError::QueryTooDeep), "{error}");
    // The deepest ones within the bounds.
    let sum = session.query(&chain(490)).unwrap();
    assert_eq!(sum.rows.len(), 1);
    let unions = vec!["SELECT 1 AS a"; 200].join(" UNION ALL ");
    assert_eq!(session.query(&unions).unwrap().rows.len(), 200);
    let list = (0..20_000)
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join(", ");
    let sql = format!("SELECT COUNT(*) AS requests FROM requests WHERE id IN ({list})");
    assert_eq!(session.query(&sql).unwrap().rows.len(), 1);
}

#[test]
fn a_result_beyond_the_memory_is_an_error_and_a_document_has_all_rows() {
    let folder = TempDir::new().unwrap();
    let path = generated(&folder, 2_000);
    let session = session(&path, 8 << 20).unwrap();
    let rows = "SELECT a.id AS first, b.id AS second FROM (SELECT id FROM requests WHERE id < 500) AS a \
                CROSS JOIN (SELECT id FROM requests WHERE id < 500) AS b";
    let error = session.query(rows).unwrap_err();
    assert!(
        matches!(&error, AnalysisError::ResultTooLarge { rows, memory_bytes: 8_388_608, .. } if *rows > 0),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("LIMIT") && text.contains("--memory") && text.contains("--json"),
        "{text}"
    );
    // The failed result holds no memory any more.
    let few = format!("{rows} LIMIT 1000");
    let table = session.query(&few).unwrap();
    assert_eq!(table.rows.len(), 1000);

    let mut lengths = Vec::new();
    let mut text = String::new();
    session
        .json(&Query::of_user(rows), |part| {
            lengths.push(part.len());
            text += part;
            ControlFlow::Continue(())
        })
        .unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["rows"].as_array().unwrap().len(), 250_000);
    assert!(
        lengths.iter().max().unwrap() * 10 < text.len(),
        "it comes in pieces"
    );

    let mut text = String::new();
    let emit = |part: &str| {
        text += part;
        ControlFlow::Continue(())
    };
    session.json(&Query::of_user(&few), emit).unwrap();
    let whole = serde_json::to_string(&table).unwrap() + "\n";
    assert!(
        text == whole,
        "the document is another one than that of the table"
    );
    let mut empty = String::new();
    let none = "SELECT id FROM requests WHERE id < 0";
    session
        .json(&Query::of_user(none), |part| {
            empty += part;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(
        empty,
        serde_json::to_string(&session.query(none).unwrap()).unwrap() + "\n"
    );
    let mut parts = 0;
    session
        .json(&Query::of_user(rows), |_| {
            parts += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(parts, 1, "a reader that has enough gets no more");
}

#[test]
fn a_query_that_needs_more_memory_says_which_option_gives_it() {
    let folder = TempDir::new().unwrap();
    let session = session(&generated(&folder, 5_000), 16 << 10).unwrap();
    let error = session
        .query("SELECT COUNT(DISTINCT id * 1000 + run_count) AS a, COUNT(DISTINCT sector) AS b FROM requests")
        .unwrap_err();
    assert!(matches!(&error, AnalysisError::Memory { .. }), "{error}");
    assert!(error.to_string().contains("--memory"), "{error}");
}
