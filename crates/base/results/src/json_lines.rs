//! Record files: one JSON object per line.
//!
//! A new file is written as `NAME.partial`, synced, and renamed to `NAME` when it is finished (see `outfile`). A run
//! that dies leaves a readable partial file, marked by its name; it never leaves half a file under the requested
//! name. A history file is appended to, one synced line at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use outfile::{OutFile, Readers, Unfinished, partial_name};
use serde::Deserialize;
use thiserror::Error;

use crate::record::{RunRecord, SCHEMA};

/// Errors of writing records.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A system call failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// Failed operation (`create`, `write`, `sync`, `finish`).
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A counter is not finite. JSON has no such number; written as `null`, it could not be read back.
    #[error("run `{label}` round {round}: counter {counter} is {value}, expected a finite number")]
    NotFinite {
        /// Label of the record.
        label: String,
        /// Round of the record.
        round: u32,
        /// Name of the counter.
        counter: String,
        /// The value that is not finite.
        value: f64,
    },
    /// The workload value cannot be expressed in JSON.
    #[error("run `{label}` round {round} cannot be written as JSON: {source}")]
    Encode {
        /// Label of the record.
        label: String,
        /// Round of the record.
        round: u32,
        /// The encoder's error.
        #[source]
        source: serde_json::Error,
    },
}

/// Errors of reading records.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A system call failed.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The line is not a JSON object with a schema.
    #[error("{}, line {line}: expected a run record as one JSON object, found `{found}`: {source}", path.display())]
    NotARecord {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// Beginning of the line.
        found: String,
        /// The decoder's error.
        #[source]
        source: serde_json::Error,
    },
    /// The record has another schema.
    #[error("{}, line {line}: expected schema {SCHEMA}, found `{found}`; \
             read it with the version of tidegate that wrote it", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// The schema named by the record.
        found: String,
    },
    /// The schema matches, but a field is missing or invalid.
    #[error("{}, line {line}: not a valid {SCHEMA} record: {source}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: u64,
        /// The decoder's error, which names the field.
        #[source]
        source: serde_json::Error,
    },
}

/// Writes a new file of records. The file gets its final name only in [`RecordWriter::finish`].
#[derive(Debug)]
pub struct RecordWriter {
    output: OutFile,
}

impl RecordWriter {
    /// Starts `path`. Replaces an earlier partial file of that name; `path` itself is not touched yet.
    ///
    /// # Errors
    /// When the partial file cannot be created.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        let created = OutFile::create(path, Unfinished::Keep);
        let output = created.map_err(|source| failed("create", &partial_name(path), source))?;
        Ok(Self { output })
    }

    /// Appends one record. After an error the partial file may end in half a line.
    ///
    /// # Errors
    /// When a counter is not finite or the file cannot be written.
    pub fn write(&mut self, record: &RunRecord) -> Result<(), WriteError> {
        let line = encode(record)?;
        let written = self.output.write_all(&line);
        written.map_err(|source| failed("write", self.output.path(), source))
    }

    /// Syncs the file and renames it to its final name. After an error the records remain in the partial file.
    ///
    /// # Errors
    /// When the file cannot be synced or renamed.
    pub fn finish(self) -> Result<(), WriteError> {
        let path = self.output.path().to_owned();
        let finished = self.output.finish();
        finished
            .map(drop)
            .map_err(|source| failed("finish", &path, source))
    }
}

/// Appends one record to a history file and syncs it. Creates the file if it does not exist.
///
/// # Errors
/// When a counter is not finite or the file cannot be written.
pub fn append_record(path: &Path, record: &RunRecord) -> Result<(), WriteError> {
    let line = encode(record)?;
    let opened = outfile::append(path, Readers::Umask);
    let mut file = opened.map_err(|source| failed("open", path, source))?;
    file.write_all(&line)
        .map_err(|source| failed("write", path, source))?;
    file.sync_all().map_err(|source| failed("sync", path, source))
}

/// Reads all records of a file. Empty lines are skipped.
///
/// # Errors
/// At the first line that is not a record of this schema; the error gives its number.
pub fn read_records(path: &Path) -> Result<Vec<RunRecord>, ReadError> {
    let unreadable = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut records = Vec::new();
    for (line, text) in (1..).zip(BufReader::new(file).lines()) {
        let text = text.map_err(unreadable)?;
        if !text.trim().is_empty() {
            records.push(decode(path, line, &text)?);
        }
    }
    Ok(records)
}

#[derive(Deserialize)]
struct SchemaOnly {
    schema: String,
}

/// Checks the schema before any other field, so that a record of another version is reported as such.
fn decode(path: &Path, line: u64, text: &str) -> Result<RunRecord, ReadError> {
    let path = path.to_owned();
    match serde_json::from_str::<SchemaOnly>(text) {
        Err(source) => {
            let found = text.chars().take(60).collect();
            Err(ReadError::NotARecord {
                path,
                line,
                found,
                source,
            })
        }
        Ok(found) if found.schema != SCHEMA => Err(ReadError::Schema {
            path,
            line,
            found: found.schema,
        }),
        Ok(_) => serde_json::from_str(text).map_err(|source| ReadError::Field { path, line, source }),
    }
}

fn encode(record: &RunRecord) -> Result<Vec<u8>, WriteError> {
    if let Some((counter, &value)) = record.counters.iter().find(|(_, value)| !value.is_finite()) {
        return Err(WriteError::NotFinite {
            label: record.label.clone(),
            round: record.round,
            counter: counter.clone(),
            value,
        });
    }
    let mut line = serde_json::to_vec(record).map_err(|source| WriteError::Encode {
        label: record.label.clone(),
        round: record.round,
        source,
    })?;
    line.push(b'\n');
    Ok(line)
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> WriteError {
    WriteError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn records_read_back_equal_those_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let records = [record("native", 0, 10, 20), record("fuse-4k", 0, 10, 90)];
        let mut writer = RecordWriter::create(&path).unwrap();
        for record in &records {
            writer.write(record).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(read_records(&path).unwrap(), records);
        assert!(!partial_name(&path).exists());
    }

    #[test]
    fn an_unfinished_file_leaves_the_old_one_and_a_readable_partial_one() {
        let (_directory, path) = written("");
        let mut writer = RecordWriter::create(&path).unwrap();
        writer.write(&record("native", 0, 10, 20)).unwrap();
        drop(writer);
        assert_eq!(read_records(&path).unwrap(), []);
        assert_eq!(read_records(&partial_name(&path)).unwrap().len(), 1);
    }

    #[test]
    fn a_history_grows_by_one_line_a_record() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.jsonl");
        append_record(&path, &record("native", 0, 10, 20)).unwrap();
        append_record(&path, &record("native", 1, 10, 20)).unwrap();
        let rounds: Vec<u32> = read_records(&path)
            .unwrap()
            .iter()
            .map(|record| record.round)
            .collect();
        assert_eq!(rounds, [0, 1]);
    }

    #[test]
    fn another_schema_is_named_with_file_and_line() {
        let (_directory, path) = written("\n{\"schema\":\"tidegate.run/9\",\"label\":3}\n");
        let message = read_records(&path).unwrap_err().to_string();
        let expected = "runs.jsonl, line 2: expected schema tidegate.run/1, found `tidegate.run/9`";
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn a_line_cut_short_is_named_with_what_was_found() {
        let (_directory, path) = written("{\"schema\":\"tidegate.ru");
        let message = read_records(&path).unwrap_err().to_string();
        assert!(message.contains("line 1: expected a run record"), "{message}");
        assert!(message.contains("found `{\"schema\":\"tidegate.ru`"), "{message}");
    }

    #[test]
    fn a_missing_field_is_named() {
        let (_directory, path) = written("{\"schema\":\"tidegate.run/1\"}\n");
        let message = read_records(&path).unwrap_err().to_string();
        assert!(message.contains("missing field `command`"), "{message}");
    }

    #[test]
    fn a_counter_that_json_cannot_hold_is_refused() {
        let mut bad = record("native", 2, 1, 1);
        bad.counters.insert("cpu_active_percent".to_owned(), f64::NAN);
        let message = encode(&bad).unwrap_err().to_string();
        let expected = "run `native` round 2: counter cpu_active_percent is NaN, expected a finite number";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_missing_file_is_named() {
        let message = read_records(Path::new("/nowhere/runs.jsonl"))
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("/nowhere/runs.jsonl: cannot read: "),
            "{message}"
        );
    }
}
