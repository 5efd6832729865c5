//! Creates databases, tables and rows before a workload. None of this is timed.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::PathOf;
use super::connection::{Bind, Connection};
use super::library::Library;
use super::plan::{ValueStream, thread_seed};
use super::spec::{Journal, PAGE_BYTES, SqliteSpec, Synchronous, TransactionShape, VALUE_BYTES};
use crate::error::BenchError;
use crate::progress::{Phase, Progress};

/// Rows per transaction of the preparation.
const ROWS_AT_ONCE: u64 = 1000;

/// The schema name of a thread's database: `main` is the one it opened, the others are attached.
pub fn schema(database: u32) -> String {
    if database == 0 {
        "main".to_owned()
    } else {
        format!("database_{database}")
    }
}

/// A table's name in statements; tables of the main database without a schema, as in the original.
pub fn table(database: u32, table: u32) -> String {
    if database == 0 {
        format!("list_{table}")
    } else {
        format!("{}.list_{table}", schema(database))
    }
}

/// The databases of one thread, ready for measurement.
pub struct Databases {
    /// Dropped first: the locks must be released before the files are closed.
    pub connection: Connection,
    /// Keeps the files open; see [`settle`].
    _files: Vec<File>,
}

/// Creates the databases of one thread. `None` if the run was stopped before they were filled.
pub fn databases(
    spec: &SqliteSpec,
    library: &'static Library,
    index: u32,
    path_of: &PathOf<'_>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Option<Databases>, BenchError> {
    let path = |database: u32| path_of(index, database);
    let connection = Connection::open(library, &path(0))?;
    let attached_max = connection.attached_max();
    if u64::from(spec.databases) > attached_max + 1 {
        let problem = format!(
            "{}, expected at most {}: this SQLite library attaches {attached_max}",
            spec.databases,
            attached_max + 1
        );
        return Err(BenchError::spec("databases", problem));
    }
    for database in 0..spec.databases {
        if database > 0 {
            let statement = format!("ATTACH DATABASE ?1 AS {}", schema(database));
            let path = path(database);
            connection
                .prepare(&statement)?
                .run(&[Bind::Text(path.as_os_str().as_bytes())])?;
        }
        configure(spec, &connection, database, &path(database))?;
        for number in 0..spec.tables {
            connection.execute_text(&create(spec.shape, &table(database, number)))?;
        }
    }
    for database in 0..spec.databases {
        if !fill(spec, &connection, index, database, progress, stop)? {
            return Ok(None);
        }
    }
    let files = settle(spec, &connection, &path)?;
    Ok(Some(Databases {
        connection,
        _files: files,
    }))
}

/// Sets the pragmas of one database and checks that they took effect.
fn configure(
    spec: &SqliteSpec,
    connection: &Connection,
    database: u32,
    path: &Path,
) -> Result<(), BenchError> {
    let schema = schema(database);
    let check = |pragma: &'static str, asked: &str, found: Option<String>, advice| {
        let found = found.unwrap_or_else(|| "nothing".to_owned());
        if found.eq_ignore_ascii_case(asked) {
            return Ok(());
        }
        Err(BenchError::Pragma {
            path: path.to_owned(),
            pragma,
            asked: asked.to_owned(),
            found,
            advice,
        })
    };
    connection.execute_text(&format!("PRAGMA {schema}.page_size = {PAGE_BYTES}"))?;
    let journal = connection.value(&format!("PRAGMA {schema}.journal_mode = {}", spec.journal))?;
    let advice =
        "a write-ahead log needs a file system with shared memory maps, as is not every one in user space";
    check("journal_mode", spec.journal.name(), journal, advice)?;
    connection.execute_text(&format!("PRAGMA {schema}.synchronous = {}", spec.synchronous))?;
    let number = match spec.synchronous {
        Synchronous::Off => "0",
        Synchronous::Normal => "1",
        Synchronous::Full => "2",
        Synchronous::Extra => "3",
    };
    let synchronous = connection.value(&format!("PRAGMA {schema}.synchronous"))?;
    check(
        "synchronous",
        number,
        synchronous,
        "EXTRA needs SQLite 3.12 or later",
    )
}

fn create(shape: TransactionShape, table: &str) -> String {
    let key = match shape {
        TransactionShape::Autocommit => "INTEGER PRIMARY KEY AUTOINCREMENT",
        TransactionShape::Explicit => "INTEGER PRIMARY KEY",
    };
    format!("CREATE TABLE {table} (id {key}, value TEXT NOT NULL, creation_date LONG)")
}

/// Inserts the initial rows; returns false if the run was stopped.
fn fill(
    spec: &SqliteSpec,
    connection: &Connection,
    index: u32,
    database: u32,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<bool, BenchError> {
    let rows = spec.rows_before();
    let first_key = match spec.shape {
        TransactionShape::Autocommit => 1,
        TransactionShape::Explicit => 0,
    };
    let values = ValueStream::of_preparation(spec.values, thread_seed(spec, index) ^ u64::from(database));
    let mut value = [0; VALUE_BYTES];
    let total = rows * spec.statements() * u64::from(spec.threads);
    let before =
        rows * u64::from(spec.tables) * (u64::from(index) * u64::from(spec.databases) + u64::from(database));
    for number in 0..spec.tables {
        let statement = format!(
            "INSERT INTO {} (id, value) VALUES (?1, ?2)",
            table(database, number)
        );
        let mut insert = connection.prepare(&statement)?;
        let mut done = 0;
        while done < rows {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let end = rows.min(done + ROWS_AT_ONCE);
            connection.execute(c"BEGIN")?;
            for row in done..end {
                values.fill(u64::from(number) * rows + row, &mut value);
                let key = i64::try_from(first_key + row).expect("rows are checked to be below 2^41");
                insert.run(&[Bind::Integer(key), Bind::Text(&value)])?;
            }
            connection.execute(c"COMMIT")?;
            done = end;
            progress.advance(Phase::Prepare, before + u64::from(number) * rows + done, total);
        }
    }
    Ok(true)
}

/// Writes back all data of the preparation, so that only the run's writes remain. The files stay open as long as the
/// connection: closing any descriptor of a file drops all locks that this process holds on it, including SQLite's.
fn settle(
    spec: &SqliteSpec,
    connection: &Connection,
    path_of: &dyn Fn(u32) -> PathBuf,
) -> Result<Vec<File>, BenchError> {
    let mut files = Vec::new();
    for database in 0..spec.databases {
        if spec.journal == Journal::Wal {
            connection.checkpoint(&schema(database))?;
        }
        for suffix in ["", "-wal"] {
            let mut path = path_of(database).into_os_string();
            path.push(suffix);
            let path = PathBuf::from(path);
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(BenchError::io("open", &path, error)),
            };
            rustix::fs::fsync(&file).map_err(|errno| BenchError::io("fsync", &path, errno))?;
            files.push(file);
        }
    }
    Ok(files)
}
