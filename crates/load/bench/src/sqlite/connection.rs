//! A connection and its prepared statements, with errors that say which statement failed on which database.
//!
//! Only what the workload needs: there are no rows to read but single values.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rusqlite::ffi;

use super::library::{Library, text};
use crate::error::BenchError;

/// An open database, and those attached to it. One thread at a time uses it.
pub struct Connection {
    library: &'static Library,
    handle: *mut ffi::sqlite3,
    path: PathBuf,
}

// SAFETY: a library that is not built for a single thread (checked when it is opened) lets a connection move between
// threads, as long as one at a time uses it, which `&mut` and the missing `Sync` hold.
unsafe impl Send for Connection {}

impl Connection {
    /// Opens or creates a database file.
    pub fn open(library: &'static Library, path: &Path) -> Result<Self, BenchError> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| BenchError::spec("directory", "the path contains a zero byte"))?;
        let mut connection = Self {
            library,
            handle: ptr::null_mut(),
            path: path.to_owned(),
        };
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_NOMUTEX;
        // SAFETY: the name ends with a zero byte and lives during the call; the handle is a place of our own.
        let status = unsafe {
            (library.functions.open)(
                name.as_ptr(),
                &raw mut connection.handle,
                flags,
                library.vfs.name(),
            )
        };
        // Also a connection that failed to open has a handle, with the reason, and is closed when dropped.
        connection.check(status, "open")?;
        Ok(connection)
    }

    /// The main database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs statements that give no rows that matter.
    pub fn execute(&self, statements: &CStr) -> Result<(), BenchError> {
        // SAFETY: the connection is open; without a callback nothing of ours is called.
        let status = unsafe {
            (self.library.functions.exec)(
                self.handle,
                statements.as_ptr(),
                None,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if status == ffi::SQLITE_OK {
            return Ok(());
        }
        self.check(status, &statements.to_string_lossy())
    }

    /// The same, for text that is put together here.
    pub fn execute_text(&self, statements: &str) -> Result<(), BenchError> {
        self.execute(&c_text(statements))
    }

    /// The first value of the first row, as text.
    pub fn value(&self, query: &str) -> Result<Option<String>, BenchError> {
        let statement = self.prepare(query)?;
        // SAFETY: the statement is open.
        let status = unsafe { (self.library.functions.step)(statement.handle) };
        match status {
            ffi::SQLITE_ROW => {
                // SAFETY: the statement has a row, and its text lives until the statement is stepped, reset or closed.
                let value = unsafe { (self.library.functions.column_text)(statement.handle, 0) };
                // SAFETY: as above; SQLite ends it with a zero byte.
                Ok((!value.is_null()).then(|| unsafe { text(value.cast()) }))
            }
            ffi::SQLITE_DONE => Ok(None),
            status => self.check(status, query).map(|()| None),
        }
    }

    /// Prepares one statement.
    pub fn prepare(&self, statement: &str) -> Result<Statement<'_>, BenchError> {
        let mut handle = ptr::null_mut();
        let c_statement = c_text(statement);
        // SAFETY: the text ends with a zero byte (so that -1 may stand for its length) and lives during the call.
        let status = unsafe {
            (self.library.functions.prepare)(
                self.handle,
                c_statement.as_ptr(),
                -1,
                &raw mut handle,
                ptr::null_mut(),
            )
        };
        self.check(status, statement)?;
        Ok(Statement {
            connection: self,
            handle,
            text: statement.to_owned(),
        })
    }

    /// Rows that all statements so far have inserted, changed or removed.
    pub fn changes(&self) -> u64 {
        // SAFETY: the connection is open.
        let changes = unsafe { (self.library.functions.total_changes)(self.handle) };
        u64::try_from(changes).unwrap_or(0)
    }

    /// How many databases may be attached.
    pub fn attached_max(&self) -> u64 {
        // SAFETY: the connection is open; -1 asks without changing.
        let limit = unsafe { (self.library.functions.limit)(self.handle, ffi::SQLITE_LIMIT_ATTACHED, -1) };
        u64::try_from(limit).unwrap_or(0)
    }

    /// Writes the log of a database back, as far as nobody is in the way.
    pub fn checkpoint(&self, database: &str) -> Result<(), BenchError> {
        let name = c_text(database);
        // SAFETY: the connection is open, and the name ends with a zero byte and lives during the call.
        let status = unsafe { (self.library.functions.wal_checkpoint)(self.handle, name.as_ptr()) };
        self.check(status, &format!("checkpoint of {database}"))
    }

    /// Closes the connection and says when that fails.
    pub fn close(mut self) -> Result<(), BenchError> {
        // SAFETY: no statement is left, as statements borrow the connection.
        let status = unsafe { (self.library.functions.close)(self.handle) };
        self.check(status, "close")?;
        self.handle = ptr::null_mut();
        Ok(())
    }

    fn check(&self, status: c_int, statement: &str) -> Result<(), BenchError> {
        if status == ffi::SQLITE_OK {
            return Ok(());
        }
        // SAFETY: both take an open connection, and null, which is what is left when memory ran out.
        let (code, message) = unsafe {
            let functions = &self.library.functions;
            (
                (functions.extended_errcode)(self.handle),
                text((functions.errmsg)(self.handle)),
            )
        };
        Err(BenchError::Sql {
            path: self.path.clone(),
            statement: statement.to_owned(),
            // A misuse that the library finds before it looks at the connection is not kept there.
            code: if code & 0xFF == status & 0xFF {
                code
            } else {
                status
            },
            message,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: no statement is left; closing null does nothing. An error has been reported by what came before.
        unsafe { (self.library.functions.close)(self.handle) };
    }
}

/// A prepared statement.
pub struct Statement<'connection> {
    connection: &'connection Connection,
    handle: *mut ffi::sqlite3_stmt,
    text: String,
}

/// A value for a statement's parameter.
#[derive(Clone, Copy, Debug)]
pub enum Bind<'value> {
    /// An integer.
    Integer(i64),
    /// Text without a zero byte at its end.
    Text(&'value [u8]),
}

impl Statement<'_> {
    /// Binds all parameters, runs the statement to its end and makes it ready for the next time.
    pub fn run(&mut self, values: &[Bind<'_>]) -> Result<(), BenchError> {
        let functions = &self.connection.library.functions;
        for (place, value) in (1..).zip(values) {
            let status = match *value {
                // SAFETY: the statement is open.
                Bind::Integer(value) => unsafe { (functions.bind_int64)(self.handle, place, value) },
                Bind::Text(value) => {
                    let length = c_int::try_from(value.len()).expect("values are 100 bytes");
                    // SAFETY: without a destructor the library keeps the pointer and reads it while the statement is
                    // stepped, which happens below alone, after every parameter was bound anew, while `values` lives.
                    unsafe {
                        (functions.bind_text)(
                            self.handle,
                            place,
                            value.as_ptr().cast(),
                            length,
                            ffi::SQLITE_STATIC(),
                        )
                    }
                }
            };
            self.connection.check(status, &self.text)?;
        }
        // SAFETY: the statement is open.
        let stepped = unsafe { (functions.step)(self.handle) };
        // SAFETY: as above. After a failed step it gives the same error again.
        let reset = unsafe { (functions.reset)(self.handle) };
        if stepped == ffi::SQLITE_DONE && reset == ffi::SQLITE_OK {
            return Ok(());
        }
        let status = if reset == ffi::SQLITE_OK { stepped } else { reset };
        self.connection.check(status, &self.text)
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: the statement is open and nobody else has its handle; the error of its last run was reported then.
        unsafe { (self.connection.library.functions.finalize)(self.handle) };
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("statements are put together here, without zero bytes")
}
