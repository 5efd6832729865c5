//! A connection and its prepared statements, with errors that name the failed statement and its database.
//!
//! Only the interface that the workload needs: queries return single values, not rows.

use std::ffi::{CStr, CString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rusqlite::ffi;

use super::library::{Library, text};
use crate::error::BenchError;

/// An open database, and those attached to it. Used by one thread at a time.
pub struct Connection {
    library: &'static Library,
    handle: *mut ffi::sqlite3,
    path: PathBuf,
}

// SAFETY: a library that is not built for a single thread (checked when it is opened) lets a connection move between
// threads, as long as one thread at a time uses it, which `&mut` and the missing `Sync` ensure.
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
        // SAFETY: the name ends with a zero byte and lives during the call; the handle is our own variable.
        let status = unsafe {
            (library.functions.open)(
                name.as_ptr(),
                &raw mut connection.handle,
                flags,
                library.vfs.name(),
            )
        };
        // A connection that failed to open also has a handle, with the reason, and is closed when dropped.
        connection.check(status, "open")?;
        Ok(connection)
    }

    /// Path of the main database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs statements whose rows, if any, are ignored.
    pub fn execute(&self, statements: &CStr) -> Result<(), BenchError> {
        // SAFETY: the connection is open; without a callback, SQLite calls none of our code.
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

    /// Like [`Self::execute`], for text composed here.
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
                // SAFETY: the statement has a row, and its text lives until the statement is stepped, reset or
                // closed.
                let value = unsafe { (self.library.functions.column_text)(statement.handle, 0) };
                // SAFETY: as above; SQLite terminates it with a zero byte.
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
        // SAFETY: the text ends with a zero byte (so -1 is valid as its length) and lives during the call.
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

    /// Largest number of attached databases.
    pub fn attached_max(&self) -> u64 {
        // SAFETY: the connection is open; -1 queries the limit without changing it.
        let limit = unsafe { (self.library.functions.limit)(self.handle, ffi::SQLITE_LIMIT_ATTACHED, -1) };
        u64::try_from(limit).unwrap_or(0)
    }

    /// Writes the log of a database back, as far as other connections permit (a passive checkpoint).
    pub fn checkpoint(&self, database: &str) -> Result<(), BenchError> {
        let name = c_text(database);
        // SAFETY: the connection is open, and the name ends with a zero byte and lives during the call.
        let status = unsafe { (self.library.functions.wal_checkpoint)(self.handle, name.as_ptr()) };
        self.check(status, &format!("checkpoint of {database}"))
    }

    /// Closes the connection and returns any error.
    pub fn close(mut self) -> Result<(), BenchError> {
        // SAFETY: no statement is left, because statements borrow the connection.
        let status = unsafe { (self.library.functions.close)(self.handle) };
        self.check(status, "close")?;
        self.handle = ptr::null_mut();
        Ok(())
    }

    fn check(&self, status: c_int, statement: &str) -> Result<(), BenchError> {
        if status == ffi::SQLITE_OK {
            return Ok(());
        }
        // SAFETY: both functions accept an open connection, and null, which is the handle if memory ran out.
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
            // A misuse that the library detects before it accesses the connection is not stored there.
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
        // SAFETY: no statement is left; closing null does nothing. Errors have been reported by earlier calls.
        unsafe { (self.library.functions.close)(self.handle) };
    }
}

/// A prepared statement.
pub struct Statement<'connection> {
    connection: &'connection Connection,
    handle: *mut ffi::sqlite3_stmt,
    text: String,
}

/// A value for a statement parameter.
#[derive(Clone, Copy, Debug)]
pub enum Bind<'value> {
    /// An integer.
    Integer(i64),
    /// Text without a terminating zero byte.
    Text(&'value [u8]),
}

impl Statement<'_> {
    /// Binds all parameters, runs the statement to completion and resets it.
    pub fn run(&mut self, values: &[Bind<'_>]) -> Result<(), BenchError> {
        let functions = &self.connection.library.functions;
        for (place, value) in (1..).zip(values) {
            let status = match *value {
                // SAFETY: the statement is open.
                Bind::Integer(value) => unsafe { (functions.bind_int64)(self.handle, place, value) },
                Bind::Text(value) => {
                    let length = c_int::try_from(value.len()).expect("values are 100 bytes");
                    // SAFETY: without a destructor the library keeps the pointer and reads it while the statement is
                    // stepped, which happens only below, after every parameter was bound anew, while `values` lives.
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
        // SAFETY: as above. After a failed step, reset returns the same error again.
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
        // SAFETY: the statement is open and this value owns its handle; the error of its last run was reported then.
        unsafe { (self.connection.library.functions.finalize)(self.handle) };
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("statements are put together here, without zero bytes")
}
