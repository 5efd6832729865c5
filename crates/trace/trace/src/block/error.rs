//! Why block requests could not be traced.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why block requests could not be traced.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// What was named is no device and no mountpoint.
    #[error("{}: {reason}", what.display())]
    Target {
        /// What was named.
        what: PathBuf,
        /// What it is instead, and what to name.
        reason: String,
    },
    /// More devices than the programs hold.
    #[error("{named} devices named; at most {most} can be traced at once")]
    TooManyDevices {
        /// How many were named.
        named: usize,
        /// How many fit.
        most: usize,
    },
    /// The ring's size is none that the kernel takes.
    #[error("a ring of {bytes} bytes; expected a power of two between 64 KiB and 1 GiB")]
    Ring {
        /// What was asked for.
        bytes: u64,
    },
    /// Neither BPF nor tracefs may be used.
    #[error("block requests can't be traced: {reason}")]
    Forbidden {
        /// What forbids it, and what to do.
        reason: String,
    },
    /// The kernel refused a step that it should allow.
    #[error("{step} failed: {source}")]
    Refused {
        /// Which step.
        step: String,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// The command could not be started.
    #[error("{command}: cannot be started: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The trace could not be written.
    #[error("the trace can't be written: {source}")]
    Write {
        /// The sink's answer.
        #[source]
        source: io::Error,
    },
}
