//! Why a workload could not be run to its end.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

/// Why a workload could not be run to its end. Nothing is left behind on the file system under test.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The workload contradicts itself; nothing was touched.
    #[error("{field}: {problem}")]
    Spec {
        /// Which part of the description.
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
        /// The directory given.
        directory: PathBuf,
        /// What the workload writes, and a margin.
        needed_bytes: u64,
        /// What the file system offers.
        free_bytes: u64,
    },
    /// The file system has too few free inodes; nothing was touched.
    #[error("{}: the workload needs {needed} inodes, {free} are free", directory.display())]
    NoInodes {
        /// The directory given.
        directory: PathBuf,
        /// Files that the workload makes.
        needed: u64,
        /// What the file system offers.
        free: u64,
    },
    /// A system call failed.
    #[error("{operation} of {}{} failed: {source}", path.display(), at(*offset_bytes))]
    Io {
        /// The call, as the field names it (`write`, `fsync`, `open`).
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Where in the file, for data.
        offset_bytes: Option<u64>,
        /// The system's answer, with its errno.
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
        /// Where the missing bytes should be.
        offset_bytes: u64,
        /// How many.
        missing_bytes: u64,
    },
    /// A directory does not list the files that were made in it.
    #[error("{}: the directory lists {found} files, expected {expected}", directory.display())]
    WrongListing {
        /// The test directory.
        directory: PathBuf,
        /// Files made.
        expected: u64,
        /// Files listed.
        found: u64,
    },
    /// The path names something that is no directory.
    #[error("{}: it is {kind}, expected a directory", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Something else stands where a test file belongs.
    #[error("{}: it is {kind}, expected a file; remove it or choose another directory", path.display())]
    NotAFile {
        /// Where the file belongs.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The path is a block device and nobody said that this is meant.
    #[error(
        "{}: it is a block device; name a directory, or add --device to read the device itself (and --destroy-data \
         to overwrite it)",
        path.display()
    )]
    BlockDevice {
        /// The path given.
        path: PathBuf,
    },
    /// A device was asked for and the path is none.
    #[error("{}: it is {kind}, expected a block device", path.display())]
    NotADevice {
        /// The path given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// A device that may be overwritten is in use; nothing was touched.
    #[error("{}: it is in use (mounted, or held by another program); unmount it first", path.display())]
    DeviceInUse {
        /// The device.
        path: PathBuf,
    },
    /// The device is smaller than the parts of all threads; nothing was touched.
    #[error("{}: the workload needs {needed_bytes} bytes, the device has {device_bytes}", path.display())]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Parts of all threads.
        needed_bytes: u64,
        /// Size of the device.
        device_bytes: u64,
    },
    /// A cold run was asked for, and it could not be shown to be one.
    #[error("the page cache is not cold: {state}; use the direct mode, a larger file, or run as root")]
    NotCold {
        /// What was done, and what was found in memory.
        state: String,
    },
    /// Data is not what was written.
    #[error(
        "verification of {} at byte {offset_bytes} failed: expected {expected} (hex, from there on), found {found}",
        path.display()
    )]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// First byte that differs.
        offset_bytes: u64,
        /// What should be there, up to eight bytes.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The kernel refused a ring.
    #[error(
        "io_uring can't be used: {source}; {}, or choose the engine psync",
        ring_advice(source)
    )]
    Ring {
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// SQLite refused a statement.
    #[error("{}: SQLite error {code} ({message}) in: {statement}", path.display())]
    Sql {
        /// The connection's main database.
        path: PathBuf,
        /// The statement, or what was done instead of one.
        statement: String,
        /// Extended result code.
        code: i32,
        /// SQLite's words.
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
    /// A pragma was not taken.
    #[error("{}: asked for {pragma} = {asked}, SQLite stays at {found}; {advice}", path.display())]
    Pragma {
        /// The database.
        path: PathBuf,
        /// Name.
        pragma: &'static str,
        /// The value asked for.
        asked: String,
        /// The value in force.
        found: String,
        /// What can be done.
        advice: &'static str,
    },
    /// A table has not the rows that it should have after the run.
    #[error("{}: table {table} has {found} rows after the run, expected {expected}", path.display())]
    WrongRows {
        /// The connection's main database.
        path: PathBuf,
        /// Schema and table.
        table: String,
        /// Rows before, and inserted, without those deleted.
        expected: u64,
        /// Rows counted.
        found: u64,
    },
    /// The machine refused a thread.
    #[error("cannot start worker {worker}: {source}")]
    Thread {
        /// Number of the worker, counted from 0.
        worker: u32,
        /// The system's answer.
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
