//! Recorders. [`block`]: the requests of a device; [`top`]: their current sources. Here: the calls on files of a
//! program and its children ([`record`]).
//!
//! The program runs as a child of this process under `ptrace`, with a seccomp filter that stops it only at calls on
//! files: everything else runs at full speed. No privilege is needed. Forks, threads and execs are followed;
//! descriptors are looked up in `/proc/PID/fd`, so sockets and pipes are recognised however they were created, and left
//! out with a count.
//!
//! It replays nothing, prints nothing, and knows no device. Its blind spots are documented where they matter: mapped
//! memory is accessed without calls, an io_uring works without them, and 32-bit programs on a 64-bit kernel pass the
//! filter unseen.
//!
//! Response times include the two stops of each call and so are about 10 us too long: they are for comparing calls of
//! one trace, not for judging a file system. The replayer measures that.
//!
//! JUSTIFICATION for `unsafe`: `fork`, `ptrace`, `waitpid` for tracees, the seccomp filter and reading a tracee's
//! memory have no safe form. All of it is in [`process`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![cfg_attr(
    not(feature = "bpf"),
    expect(dead_code, reason = "parameters of the BPF programs, which this build lacks")
)]

pub mod block;
mod call;
pub mod destination;
mod error;
mod filter;
mod process;
mod recorder;
pub mod recording;
pub mod top;
pub mod top_table;
mod tracee;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use std::collections::BTreeMap;

pub use error::RecordError;

/// Options of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace file (`docs/formats/syscalls.md`).
    pub output: PathBuf,
}

/// End of the recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(i32),
}

/// Result of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The file; a partial trace has another name than the requested one.
    pub path: PathBuf,
    /// Number of calls in it.
    pub calls: u64,
    /// Numbers of calls left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Number of processes and threads followed.
    pub followed: u64,
    /// End of the program.
    pub ending: Ending,
    /// False if `stop` was set: the program was told to end, and the trace is partial.
    pub complete: bool,
}

/// Runs a program to its end, with all its children, and writes a trace of its calls on files.
///
/// If `stop` is set, the program gets SIGTERM and, two seconds later, all remaining processes get SIGKILL: a recorded
/// program cannot continue without the tracer, as its filter would make its calls fail.
///
/// # Errors
/// If the program cannot be started, the kernel refuses to trace it, or the trace cannot be written.
pub fn record(spec: &RecordSpec, stop: &AtomicBool) -> Result<Recorded, RecordError> {
    recorder::record(spec, stop)
}

#[cfg(test)]
mod tests;
