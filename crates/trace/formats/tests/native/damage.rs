//! Damage is reported before any part of a table is decoded, and no damage makes a reader panic.

use std::fs;
use std::path::Path;

use formats::native::NativeReader;
use formats::read_all;

use super::sample::{read, sample, write};
use super::scan::{TABLES, scanned};

fn error_of(path: &Path) -> String {
    match NativeReader::open(path) {
        Err(error) => error.to_string(),
        Ok(mut reader) => read_all(&mut reader).unwrap_err().to_string(),
    }
}

#[test]
fn a_trace_that_is_none_or_not_whole_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    assert!(error_of(&path).contains("is no native trace: expected a folder with header.json"));
    write(&sample(5), &path);
    let header_path = path.join("header.json");
    let good = fs::read_to_string(&header_path).unwrap();

    fs::write(&header_path, good.replace("\"schema\": 2", "\"schema\": 9")).unwrap();
    let error = error_of(&path);
    assert!(
        error.contains("found tidegate.block-trace of schema 9"),
        "{error}"
    );
    fs::write(&header_path, "{").unwrap();
    assert!(error_of(&path).contains("no header of a trace"));
    fs::write(&header_path, good).unwrap();

    // A table of another trace: its runs belong to no request here, whatever the sums say.
    let other = folder.path().join("b.trace");
    write(&sample(9), &other);
    fs::copy(other.join("runs.parquet"), path.join("runs.parquet")).unwrap();
    without_sums(&path);
    let error = error_of(&path);
    assert!(
        error.contains("runs.parquet: row") && error.contains("request_id"),
        "{error}"
    );
}

/// Removes the sums from the header, and returns the original header.
pub fn without_sums(path: &Path) -> String {
    let header = path.join("header.json");
    let good = fs::read_to_string(&header).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&good).unwrap();
    value.as_object_mut().unwrap().remove("tables").unwrap();
    fs::write(&header, value.to_string()).unwrap();
    good
}

/// Distance of the damaged bytes: in full runs all bytes are damaged.
fn stride() -> usize {
    if testkit::is_full() { 1 } else { 29 }
}

#[test]
fn a_damaged_byte_anywhere_in_a_table_is_named_with_the_table_and_both_sums() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(3), &path);
    for (name, _) in TABLES {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let mut places: Vec<usize> = (0..good.len()).step_by(stride()).collect();
        places.push(good.len() - 1);
        for place in places {
            let mut bad = good.clone();
            bad[place] ^= 1 << (place % 8);
            fs::write(&file, &bad).unwrap();
            let error = error_of(&path);
            assert!(
                error.contains(name) && error.contains("damaged: expected CRC-32 0x"),
                "byte {place}: {error}"
            );
        }
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(read(&path), sample(3));
}

#[test]
fn a_table_that_is_cut_or_has_grown_is_named_with_both_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(3), &path);
    for (name, _) in TABLES {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let longer = [&good[..], b"x"].concat();
        for bad in [&good[..0], &good[..7], &good[..good.len() - 1], &longer] {
            fs::write(&file, bad).unwrap();
            let error = error_of(&path);
            let lengths = format!(
                "expected a table of {} bytes, as header.json says, found a file of {}",
                good.len(),
                bad.len()
            );
            assert!(error.contains(name) && error.contains(&lengths), "{error}");
        }
        fs::write(&file, &good).unwrap();
    }
}

/// A trace of schema 1 has no sums, and the reader must also handle fewer command columns.
#[test]
fn a_trace_of_schema_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(5), &path);
    without_sums(&path);
    let header = path.join("header.json");
    let text = fs::read_to_string(&header).unwrap();
    fs::write(&header, text.replace("\"schema\":2", "\"schema\":1")).unwrap();
    let mut old = read(&path);
    assert_eq!(old.header.schema, 1);
    old.header.schema = 2;
    assert_eq!(old, sample(5));
}

/// Without sums, the reader at least checks the ends of the tables carefully.
#[test]
fn damaged_headers_and_footers_without_sums_are_errors_or_other_values_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    write(&sample(3), &path);
    let with_sums = without_sums(&path);
    for name in ["requests.parquet", "runs.parquet", "header.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        let footer_bytes = match good.last_chunk::<8>() {
            Some([a, b, c, d, b'P', b'A', b'R', b'1']) => {
                usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap() + 8
            }
            _ => good.len(),
        };
        for place in (good.len() - footer_bytes..good.len()).step_by(stride()) {
            let mut bad = good.clone();
            bad[place] ^= 0x41;
            fs::write(&file, &bad).unwrap();
            if let Ok(mut reader) = NativeReader::open(&path) {
                for ((_, columns), table) in TABLES.into_iter().zip(reader.tables()) {
                    let _ = scanned(&table, columns, 100);
                    let _ = scanned(&table, &[], 100);
                }
                let _ = read_all(&mut reader);
            }
        }
        fs::write(&file, &good).unwrap();
    }
    fs::write(path.join("header.json"), with_sums).unwrap();
    assert_eq!(read(&path), sample(3));
}
