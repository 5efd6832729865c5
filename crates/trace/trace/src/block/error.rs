//! Errors of tracing block requests.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Error of tracing block requests.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The target is neither a device nor a mountpoint.
    #[error("{}: {reason}", what.display())]
    Target {
        /// The target.
        what: PathBuf,
        /// Its actual type, and valid alternatives.
        reason: String,
    },
    /// More devices than the programs support.
    #[error("{named} devices named; at most {most} can be traced at once")]
    TooManyDevices {
        /// Number of devices named.
        named: usize,
        /// Maximum number.
        most: usize,
    },
    /// The kernel does not accept this ring size.
    #[error("a ring of {bytes} bytes; expected a power of two between 64 KiB and 1 GiB")]
    Ring {
        /// Requested size.
        bytes: u64,
    },
    /// Neither BPF nor tracefs may be used.
    #[error("block requests can't be traced: {reason}")]
    Forbidden {
        /// The reason, and the user's next step.
        reason: String,
    },
    /// The kernel's verifier refused the BPF programs, although the kernel is new enough for them.
    #[error(
        "the kernel's verifier refused the BPF programs, which this kernel should accept; it says of {reason}; \
         `--method tracefs` needs no programs and tells less"
    )]
    Verifier {
        /// The program's name, and the verifier's reason.
        reason: String,
    },
    /// The kernel refused a step that it should allow.
    #[error("{step} failed: {source}")]
    Refused {
        /// The step.
        step: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The command could not be started.
    #[error("{command}: cannot be started: {source}")]
    Start {
        /// The program.
        command: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The trace could not be written.
    #[error("the trace can't be written: {source}")]
    Write {
        /// The sink's error.
        #[source]
        source: io::Error,
    },
}
