//! Tables of the history, and migration from earlier versions.
//!
//! | table    | row                                                                                   |
//! |----------|---------------------------------------------------------------------------------------|
//! | `run`    | one invocation of the program; the columns repeat the fields of its first record      |
//! | `record` | one record of a run, whole in `json`; `workload` is its title, `rate` its first speed |
//! | `tag`    | a tag given to a run by the user                                                      |
//!
//! `application_id` in the file header is [`APPLICATION_ID`] (`TGHS`), `user_version` the number of migrations
//! applied. A change of the tables is a new migration; existing ones are never edited.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::error::HistoryError;

/// `TGHS` in ASCII.
const APPLICATION_ID: i64 = 0x5447_4853;

/// Each migrates a file from the version equal to its index to the next.
const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE run (
        id               INTEGER PRIMARY KEY AUTOINCREMENT,
        started_unix_ns  INTEGER NOT NULL,
        label            TEXT NOT NULL,
        command          TEXT NOT NULL,
        workload         TEXT NOT NULL,
        workloads_count  INTEGER NOT NULL,
        path             TEXT NOT NULL,
        file_system_type TEXT,
        device           TEXT,
        kernel           TEXT NOT NULL,
        operation        TEXT,
        rate             REAL,
        unit             TEXT,
        records_count    INTEGER NOT NULL,
        complete         INTEGER NOT NULL
    );
    CREATE TABLE record (
        run_id   INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        round    INTEGER NOT NULL,
        kind     TEXT NOT NULL,
        workload TEXT NOT NULL,
        rate     REAL,
        json     TEXT NOT NULL,
        PRIMARY KEY (run_id, position)
    ) WITHOUT ROWID;
    CREATE INDEX run_by_start ON run (started_unix_ns);
    CREATE INDEX run_by_path ON run (path);",
    "CREATE TABLE tag (
        run_id INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        name   TEXT NOT NULL,
        PRIMARY KEY (name, run_id)
    ) WITHOUT ROWID;
    CREATE INDEX tag_by_run ON tag (run_id);",
];

/// Creates the tables, or migrates them to this version. A file that is refused is left unchanged.
pub fn prepare(connection: &mut Connection, path: &Path) -> Result<(), HistoryError> {
    let failed = |source| HistoryError::of("open", path, source);
    if version(connection, path)? == Some(MIGRATIONS.len()) {
        return Ok(());
    }
    // Another program may have migrated the file in the meantime: check again under the lock.
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(failed)?;
    let done = version(&transaction, path)?.unwrap_or(0);
    for migration in &MIGRATIONS[done..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    let latest = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    transaction
        .pragma_update(None, "user_version", latest)
        .map_err(failed)?;
    transaction
        .pragma_update(None, "application_id", APPLICATION_ID)
        .map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Number of migrations applied; `None` for an empty file.
fn version(connection: &Connection, path: &Path) -> Result<Option<usize>, HistoryError> {
    let pragma = |name: &str| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|source| HistoryError::of("open", path, source))
    };
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|source| HistoryError::of("open", path, source))?;
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    if tables == 0 && application == 0 {
        return Ok(None);
    }
    if application != APPLICATION_ID {
        return Err(HistoryError::Foreign {
            path: path.to_owned(),
            found: format!("a database of another program ({tables} tables)"),
        });
    }
    match usize::try_from(version) {
        Ok(done) if done <= MIGRATIONS.len() => Ok(Some(done)),
        _ => Err(HistoryError::Later {
            path: path.to_owned(),
            found: version,
            supported: i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_version_gets_what_came_later_and_keeps_its_runs() {
        let path = Path::new("in memory");
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        connection
            .pragma_update(None, "application_id", APPLICATION_ID)
            .unwrap();
        connection
            .execute(
                "INSERT INTO run VALUES (7, 1, 'a', '[]', 'w', 1, '/', NULL, NULL, 'k', NULL, NULL, NULL, 0, 1)",
                [],
            )
            .unwrap();
        prepare(&mut connection, path).unwrap();
        connection
            .execute("INSERT INTO tag VALUES (7, 'kept')", [])
            .unwrap();
        assert_eq!(version(&connection, path).unwrap(), Some(MIGRATIONS.len()));
    }

    #[test]
    fn a_later_version_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("in memory");
        prepare(&mut connection, path).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = prepare(&mut connection, path).unwrap_err().to_string();
        assert!(
            error.contains("schema 99") && error.contains("up to 2"),
            "{error}"
        );
    }
}
