//! Reads and writes the history file.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use results::{Headline, RunRecord, median, workload_title};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use serde::Serialize;

use crate::error::HistoryError;
use crate::schema;

/// Time to wait for another writer.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum length of a tag in characters.
const TAG_LETTERS_MAX: usize = 64;

/// The columns of a summary, in the order of [`summary_of`].
const SUMMARY: &str =
    "SELECT id, started_unix_ns, label, workload, workloads_count, path, file_system_type, device,
    kernel, operation, rate, unit, records_count, complete,
    (SELECT group_concat(name, ' ') FROM (SELECT name FROM tag WHERE run_id = run.id ORDER BY name)),
    command
    FROM run";

/// Number of a run; never reused within a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunId(pub i64);

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for RunId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(Self(id)),
            _ => Err(format!(
                "`{text}` is no id; ids are the numbers that `list` shows"
            )),
        }
    }
}

/// Summary of a run, for lists.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Its number.
    pub id: RunId,
    /// Start of the first record, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Name of the configuration.
    pub label: String,
    /// Short description of the first workload.
    pub workload: String,
    /// Number of different workloads in the run.
    pub workloads_count: u32,
    /// The measured directory.
    pub path: String,
    /// Type of its file system.
    pub file_system_type: Option<String>,
    /// Block device below it.
    pub device: Option<String>,
    /// Kernel of the host.
    pub kernel: String,
    /// Operation of the headline.
    pub operation: Option<String>,
    /// Median speed of the first workload.
    pub rate: Option<f64>,
    /// Unit of that speed.
    pub unit: Option<String>,
    /// Number of records.
    pub records_count: u32,
    /// False when at least one record was stopped early.
    pub complete: bool,
    /// Tags of the run.
    pub tags: Vec<String>,
    /// Command line that started it.
    pub command: Vec<String>,
}

/// A run with all its records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRun {
    /// Summary of the run.
    #[serde(flatten)]
    pub summary: RunSummary,
    /// All records, in the order measured.
    pub records: Vec<RunRecord>,
}

/// Filter of a list; `None` means no restriction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Substring of a workload's title or kind.
    pub workload: Option<String>,
    /// The measured directory, or a parent of it.
    pub path: Option<String>,
    /// Earliest start, nanoseconds since 1970.
    pub since_unix_ns: Option<u64>,
    /// Tag of the run.
    pub tag: Option<String>,
    /// Maximum number of runs, latest first.
    pub limit: Option<u32>,
}

/// An open history.
#[derive(Debug)]
pub struct History {
    connection: Connection,
    path: PathBuf,
}

impl History {
    /// Opens a history. Creates it and its directory if they do not exist.
    ///
    /// # Errors
    /// When the file is not a history, has a later version, is damaged, or cannot be written.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let made = std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder);
            made.map_err(|source| HistoryError::Folder {
                path: folder.to_owned(),
                source,
            })?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open_with(path, flags)
    }

    /// Opens an existing history; `None` when there is no such file.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn open_existing(path: &Path) -> Result<Option<Self>, HistoryError> {
        if !path.exists() {
            return Ok(None);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::open_with(path, flags).map(Some)
    }

    fn open_with(path: &Path, flags: OpenFlags) -> Result<Self, HistoryError> {
        let failed = |source| HistoryError::of("open", path, source);
        let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // Checked before any write, because the file may belong to another program.
        schema::prepare(&mut connection, path)?;
        // If the file system can't share memory, SQLite keeps another mode, which is as safe. A program that has the
        // file open at this moment prevents the change; the next open retries it.
        let _ = connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()));
        connection
            .pragma_update(None, "synchronous", "full")
            .map_err(failed)?;
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(failed)?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record to a run, or starts a run with it. The record is on the medium when this returns.
    ///
    /// # Errors
    /// When the run does not exist any more, or the file cannot be written.
    pub fn append(&mut self, run: Option<RunId>, record: &RunRecord) -> Result<RunId, HistoryError> {
        let json = serde_json::to_string(record).map_err(|source| HistoryError::Encode {
            label: record.label.clone(),
            source,
        })?;
        let path = self.path.clone();
        let failed = |source| HistoryError::of("write", &path, source);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(failed)?;
        let id = match run {
            Some(id) => id,
            None => insert_run(&transaction, record).map_err(failed)?,
        };
        if insert_record(&transaction, id, record, &json).map_err(failed)? == 0 {
            return Err(HistoryError::NoSuchRun { path, run: id });
        }
        refresh(&transaction, id, record).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(id)
    }

    /// Lists runs, latest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunSummary>, HistoryError> {
        let (conditions, values) = conditions(filter);
        let query = format!("{SUMMARY} WHERE {conditions} ORDER BY id DESC LIMIT ?");
        self.read(|connection| {
            let mut statement = connection.prepare(&query)?;
            let limit = Value::Integer(filter.limit.map_or(-1, i64::from));
            let rows = statement.query_map(
                rusqlite::params_from_iter(values.iter().chain([&limit])),
                summary_of,
            )?;
            rows.collect()
        })
    }

    /// Reads a run with its records.
    ///
    /// # Errors
    /// When the run does not exist, or the file cannot be read.
    pub fn get(&self, run: RunId) -> Result<StoredRun, HistoryError> {
        let summary: Option<RunSummary> = self.read(|connection| {
            connection
                .query_row(&format!("{SUMMARY} WHERE id = ?"), [run.0], summary_of)
                .optional()
        })?;
        let summary = summary.ok_or_else(|| HistoryError::NoSuchRun {
            path: self.path.clone(),
            run,
        })?;
        let texts: Vec<String> = self.read(|connection| {
            let mut statement =
                connection.prepare("SELECT json FROM record WHERE run_id = ? ORDER BY position")?;
            let rows = statement.query_map([run.0], |row| row.get(0))?;
            rows.collect()
        })?;
        let records = texts.iter().map(|text| serde_json::from_str(text));
        let records = records
            .collect::<Result<_, _>>()
            .map_err(|source| HistoryError::Record {
                path: self.path.clone(),
                run,
                source,
            })?;
        Ok(StoredRun { summary, records })
    }

    /// Adds a tag to a run. Several runs may share a tag; adding it twice has no effect.
    ///
    /// # Errors
    /// When the tag could be mistaken for an id, the run does not exist, or the file cannot be written.
    pub fn tag(&mut self, run: RunId, tag: &str) -> Result<(), HistoryError> {
        let is_tag = tag.chars().any(char::is_alphabetic)
            && tag.chars().count() <= TAG_LETTERS_MAX
            && !tag
                .chars()
                .any(|letter| letter.is_whitespace() || letter.is_control());
        if !is_tag {
            return Err(HistoryError::BadTag { tag: tag.to_owned() });
        }
        self.get(run)?;
        self.write(
            "INSERT OR IGNORE INTO tag (run_id, name) VALUES (?, ?)",
            params![run.0, tag],
        )?;
        Ok(())
    }

    /// Removes a tag from a run; false when the run did not have it.
    ///
    /// # Errors
    /// When the run does not exist, or the file cannot be written.
    pub fn untag(&mut self, run: RunId, tag: &str) -> Result<bool, HistoryError> {
        self.get(run)?;
        let removed = self.write(
            "DELETE FROM tag WHERE run_id = ? AND name = ?",
            params![run.0, tag],
        )?;
        Ok(removed > 0)
    }

    /// Deletes a run with its records and tags. Its id is not reused.
    ///
    /// # Errors
    /// When the run does not exist, or the file cannot be written.
    pub fn delete(&mut self, run: RunId) -> Result<(), HistoryError> {
        if self.write("DELETE FROM run WHERE id = ?", params![run.0])? == 0 {
            return Err(HistoryError::NoSuchRun {
                path: self.path.clone(),
                run,
            });
        }
        Ok(())
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, HistoryError> {
        work(&self.connection).map_err(|source| HistoryError::of("read", &self.path, source))
    }

    fn write(&self, statement: &str, values: impl rusqlite::Params) -> Result<usize, HistoryError> {
        self.connection
            .execute(statement, values)
            .map_err(|source| HistoryError::of("write", &self.path, source))
    }
}

fn insert_run(transaction: &Transaction<'_>, record: &RunRecord) -> Result<RunId, rusqlite::Error> {
    let command = serde_json::to_string(&record.command).unwrap_or_else(|_| "[]".to_owned());
    transaction.execute(
        "INSERT INTO run (started_unix_ns, label, command, workload, workloads_count, path, file_system_type, device,
            kernel, records_count, complete) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, 0, 1)",
        params![
            i64::try_from(record.started_unix_ns).unwrap_or(i64::MAX),
            record.label,
            command,
            workload_title(&record.workload),
            record.target.path,
            record.target.file_system_type,
            record.target.block_device,
            record.host.kernel,
        ],
    )?;
    Ok(RunId(transaction.last_insert_rowid()))
}

/// Returns the number of rows added: 0 when the run does not exist.
fn insert_record(
    transaction: &Transaction<'_>,
    run: RunId,
    record: &RunRecord,
    json: &str,
) -> Result<usize, rusqlite::Error> {
    let kind = record
        .workload
        .get("kind")
        .and_then(serde_json::Value::as_str)
        .unwrap_or_default();
    transaction.execute(
        "INSERT INTO record (run_id, position, round, kind, workload, rate, json)
            SELECT id, records_count, ?, ?, ?, ?, ? FROM run WHERE id = ?",
        params![
            record.round,
            kind,
            workload_title(&record.workload),
            Headline::of(record).map(|headline| headline.value),
            json,
            run.0
        ],
    )
}

/// Updates the columns of the run from its records.
fn refresh(transaction: &Transaction<'_>, run: RunId, added: &RunRecord) -> Result<(), rusqlite::Error> {
    let mut statement = transaction.prepare(
        "SELECT record.rate FROM record JOIN run ON run.id = record.run_id
            WHERE run.id = ? AND record.workload = run.workload AND record.rate IS NOT NULL",
    )?;
    let rates: Vec<f64> = statement
        .query_map([run.0], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let headline = Headline::of(added);
    transaction.execute(
        "UPDATE run SET records_count = records_count + 1, complete = min(complete, ?), rate = ?,
            operation = coalesce(operation, ?), unit = coalesce(unit, ?),
            workloads_count = (SELECT count(DISTINCT workload) FROM record WHERE run_id = run.id)
            WHERE id = ?",
        params![
            added.complete,
            median(&rates),
            headline.as_ref().map(|headline| &headline.operation),
            headline.as_ref().map(|headline| headline.unit.to_string()),
            run.0
        ],
    )?;
    Ok(())
}

/// The SQL condition of a filter, and its values in order.
fn conditions(filter: &Filter) -> (String, Vec<Value>) {
    let mut conditions = vec!["1".to_owned()];
    let mut values = Vec::new();
    if let Some(workload) = &filter.workload {
        conditions.push(
            "EXISTS (SELECT 1 FROM record WHERE run_id = run.id
                AND (instr(lower(workload), lower(?)) > 0 OR lower(kind) = lower(?)))"
                .to_owned(),
        );
        values.extend([Value::Text(workload.clone()), Value::Text(workload.clone())]);
    }
    if let Some(path) = &filter.path {
        let folder = path.trim_end_matches('/');
        let below = format!("{folder}/");
        conditions.push("(path = ? OR substr(path, 1, ?) = ?)".to_owned());
        let length = i64::try_from(below.chars().count()).unwrap_or(i64::MAX);
        values.extend([
            Value::Text(folder.to_owned()),
            Value::Integer(length),
            Value::Text(below),
        ]);
    }
    if let Some(since) = filter.since_unix_ns {
        conditions.push("started_unix_ns >= ?".to_owned());
        values.push(Value::Integer(i64::try_from(since).unwrap_or(i64::MAX)));
    }
    if let Some(tag) = &filter.tag {
        conditions.push("EXISTS (SELECT 1 FROM tag WHERE run_id = run.id AND name = ?)".to_owned());
        values.push(Value::Text(tag.clone()));
    }
    (conditions.join(" AND "), values)
}

fn summary_of(row: &Row<'_>) -> Result<RunSummary, rusqlite::Error> {
    let count = |index: usize| -> Result<u32, rusqlite::Error> {
        Ok(u32::try_from(row.get::<_, i64>(index)?).unwrap_or(u32::MAX))
    };
    let tags: Option<String> = row.get(14)?;
    let command: String = row.get(15)?;
    Ok(RunSummary {
        id: RunId(row.get(0)?),
        started_unix_ns: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
        label: row.get(2)?,
        workload: row.get(3)?,
        workloads_count: count(4)?,
        path: row.get(5)?,
        file_system_type: row.get(6)?,
        device: row.get(7)?,
        kernel: row.get(8)?,
        operation: row.get(9)?,
        rate: row.get(10)?,
        unit: row.get(11)?,
        records_count: count(12)?,
        complete: row.get(13)?,
        tags: tags
            .map(|tags| tags.split(' ').map(str::to_owned).collect())
            .unwrap_or_default(),
        command: serde_json::from_str(&command).unwrap_or_default(),
    })
}
