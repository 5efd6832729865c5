//! Errors of workloads.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// The error of a workload. Nothing is left behind on the file system under test.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The specification contradicts itself; nothing was touched.
    #[error("{field}: {problem}")]
    Spec {
        /// The field of the specification.
        field: &'static str,
        /// Expected and found.
        problem: String,
    },
    /// The files would not fit; nothing was touched.
    #[error(
        "{}: the workload needs {needed_bytes} bytes (margin included), {free_bytes} bytes are free; \
         choose a smaller file size or another directory",
        directory.display()
    )]
    NoSpace {
        /// The given directory.
        directory: PathBuf,
        /// Bytes written by the workload, plus a margin.
        needed_bytes: u64,
        /// Free bytes of the file system.
        free_bytes: u64,
    },
    /// The file system has too few free inodes; nothing was touched.
    #[error("{}: the workload needs {needed} inodes, {free} are free", directory.display())]
    NoInodes {
        /// The given directory.
        directory: PathBuf,
        /// Files created by the workload.
        needed: u64,
        /// Free inodes of the file system.
        free: u64,
    },
    /// A system call failed.
    #[error("{operation} of {}{} failed: {source}", path.display(), at(*offset_bytes))]
    Io {
        /// The system call (`write`, `fsync`, `open`).
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// File offset, for data.
        offset_bytes: Option<u64>,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// A latency longer than the window.
    #[error(transparent)]
    ImpossibleLatency(#[from] results::ImpossibleLatency),
    /// A read met the end of a file that the workload had made longer.
    #[error(
        "read of {} at byte {offset_bytes} met the end of the file: {missing_bytes} bytes are missing",
        path.display()
    )]
    ShortRead {
        /// The file.
        path: PathBuf,
        /// File offset of the missing bytes.
        offset_bytes: u64,
        /// Number of missing bytes.
        missing_bytes: u64,
    },
    /// A directory does not list the files that were created in it.
    #[error("{}: the directory lists {found} files, expected {expected}", directory.display())]
    WrongListing {
        /// The test directory.
        directory: PathBuf,
        /// Files created.
        expected: u64,
        /// Files listed.
        found: u64,
    },
    /// The path is not a directory.
    #[error("{}: it is {kind}, expected a directory", path.display())]
    NotADirectory {
        /// The given path.
        path: PathBuf,
        /// The type of the file found there.
        kind: &'static str,
    },
    /// A test file's path is taken by something that is not a regular file.
    #[error("{}: it is {kind}, expected a file; remove it or choose another directory", path.display())]
    NotAFile {
        /// The test file's path.
        path: PathBuf,
        /// The type of the file found there.
        kind: &'static str,
    },
    /// The path is a block device, and access to devices was not requested.
    #[error(
        "{}: it is a block device; name a directory, or add --device to read the device itself (and --destroy-data \
         to overwrite it)",
        path.display()
    )]
    BlockDevice {
        /// The given path.
        path: PathBuf,
    },
    /// A device was requested, but the path is not one.
    #[error("{}: it is {kind}, expected a block device", path.display())]
    NotADevice {
        /// The given path.
        path: PathBuf,
        /// The type of the file found there.
        kind: &'static str,
    },
    /// A device to be overwritten is in use; nothing was touched.
    #[error("{}: it is in use (mounted, or held by another program); unmount it first", path.display())]
    DeviceInUse {
        /// The device.
        path: PathBuf,
    },
    /// The device is smaller than the regions of all threads; nothing was touched.
    #[error("{}: the workload needs {needed_bytes} bytes, the device has {device_bytes}", path.display())]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Total size of the regions of all threads.
        needed_bytes: u64,
        /// Size of the device.
        device_bytes: u64,
    },
    /// A cold run was requested, but could not be proven cold.
    #[error("the page cache is not cold: {state}; use the direct mode, a larger file, or run as root")]
    NotCold {
        /// The cache method, and the bytes found in memory.
        state: String,
    },
    /// Data read differs from data written.
    #[error(
        "verification of {} at byte {offset_bytes} failed: expected {expected} (hex, from there on), found {found}",
        path.display()
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// First byte that differs.
        offset_bytes: u64,
        /// The expected bytes, up to eight.
        expected: String,
        /// The bytes found.
        found: String,
    },
    /// The kernel refused to create an io_uring.
    #[error(
        "io_uring can't be used: {source}; {}, or choose the engine psync",
        ring_advice(source)
    )]
    Ring {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// SQLite refused a statement.
    #[error("{}: SQLite error {code} ({message}) in: {statement}", path.display())]
    Sql {
        /// The connection's main database.
        path: PathBuf,
        /// The statement, or the operation if it was not a statement.
        statement: String,
        /// Extended result code.
        code: i32,
        /// SQLite's message.
        message: String,
    },
    /// An SQLite library cannot be used; nothing was touched.
    #[error("SQLite library {library} can't be used: {reason}")]
    Library {
        /// Name or path.
        library: String,
        /// Expected and found.
        reason: String,
    },
    /// A pragma did not take effect.
    #[error("{}: asked for {pragma} = {asked}, SQLite stays at {found}; {advice}", path.display())]
    Pragma {
        /// The database.
        path: PathBuf,
        /// Name.
        pragma: &'static str,
        /// The requested value.
        asked: String,
        /// The value in force.
        found: String,
        /// The next step.
        advice: &'static str,
    },
    /// A table's row count is wrong after the run.
    #[error("{}: table {table} has {found} rows after the run, expected {expected}", path.display())]
    WrongRows {
        /// The connection's main database.
        path: PathBuf,
        /// Schema and table.
        table: String,
        /// Rows before the run, plus rows inserted, minus rows deleted.
        expected: u64,
        /// Rows counted.
        found: u64,
    },
    /// The system refused to start a thread.
    #[error("cannot start worker {worker}: {source}")]
    Thread {
        /// Worker number, counted from 0.
        worker: u32,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl BenchError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            offset_bytes: None,
            source: source.into(),
        }
    }

    pub(crate) fn data(operation: &'static str, path: &Path, offset_bytes: u64, source: Errno) -> Self {
        let source = source.into();
        Self::Io {
            operation,
            path: path.to_owned(),
            offset_bytes: Some(offset_bytes),
            source,
        }
    }

    pub(crate) fn spec(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Spec {
            field,
            problem: problem.into(),
        }
    }
}

fn ring_advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has none or a filter hides it: use Linux 5.6 or later",
        Some(libc::EPERM | libc::EACCES) => {
            "it is not allowed here: see the setting kernel.io_uring_disabled and the filters of this container"
        }
        Some(libc::ENOMEM) => {
            "memory that may be locked is too small: raise `ulimit -l` or lower the queue depth"
        }
        _ => "lower the queue depth or the number of threads",
    }
}

fn at(offset_bytes: Option<u64>) -> String {
    offset_bytes.map_or_else(String::new, |offset| format!(" at byte {offset}"))
}
