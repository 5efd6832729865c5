//! Reasons why the demo has no result.

use std::io;
use std::path::PathBuf;

use media::quantity::show_bytes;
use mounted::document::ReadError;
use thiserror::Error;

use crate::RECORD_BYTES;

/// Error of the demo.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The file does not consist of whole records.
    #[error("a size of {found} bytes is not a multiple of {}", show_bytes(RECORD_BYTES), found = .0)]
    Size(u64),
    /// A signal arrived before the rounds.
    #[error("stopped; its files are removed")]
    Stopped,
    /// A signal arrived before the first record.
    #[error("stopped before the end of the first run; its files are removed")]
    NoRun,
    /// A folder can't be made or used.
    #[error("{} can't be {verb}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The failed action.
        verb: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// A disk or folder for the demo can't be made.
    #[error("{0}")]
    Disk(String),
    /// The file system has no statistics.
    #[error("free space can't be found")]
    Space(#[source] io::Error),
    /// A file system of its own does not fit.
    #[error("{} free are too few for files of {}", show_bytes(*free_bytes), show_bytes(*size_bytes))]
    TooSmall {
        /// Free space of the folder.
        free_bytes: u64,
        /// Size of a file.
        size_bytes: u64,
    },
    /// FUSE is not available.
    #[error("/dev/fuse can't be opened: {0}")]
    NoFuse(io::Error),
    /// This program can't be run again.
    #[error("the path of this program can't be found; is /proc mounted?")]
    NoProgram(#[source] io::Error),
    /// A child process can't be started.
    #[error("the {0} process can't be started")]
    Start(&'static str, #[source] io::Error),
    /// A mount failed.
    #[error("{0}")]
    Mount(String),
    /// The mount's report has another form.
    #[error("the mount reported nonsense")]
    MountReport(#[source] serde_json::Error),
    /// A daemon does not tell its counters.
    #[error(transparent)]
    Statistics(#[from] ReadError),
    /// A measurement failed.
    #[error("measuring {label} failed: {message}")]
    Measure {
        /// The configuration.
        label: &'static str,
        /// Message of the child process.
        message: String,
    },
    /// The child process printed something else.
    #[error("the measuring process printed no run record")]
    NoRecord(#[source] serde_json::Error),
    /// A record can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}
