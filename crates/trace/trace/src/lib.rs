//! Recorders. [`block`]: the requests that a device gets; [`top`]: who makes them right now. Here: the calls that a program and its children make on files ([`record`]).
//!
//! The program runs as this process's child under `ptrace`, with a seccomp filter that stops it at calls on files alone:
//! everything else runs at full speed. No privilege is needed. Forks, threads and execs are followed; descriptors are
//! told by `/proc/PID/fd`, so sockets and pipes are recognised however they came about, and left out with a count.
//!
//! It replays nothing, prints nothing, and knows no device. What it cannot see is said where it matters: memory that is
//! mapped is read and written without calls, an io_uring works without them, and 32-bit programs on a 64-bit kernel
//! pass the filter unseen.
//!
//! Response times hold the two stops of each call and so are some 10 us too long: they are for comparing calls of one
//! trace, not for judging a file system. The replayer measures that.
//!
//! JUSTIFICATION for `unsafe`: `fork`, `ptrace`, `waitpid` for tracees, the seccomp filter and reading a tracee's memory
//! have no safe form. All of it is in [`process`]. The map of a file system is asked for with an ioctl, in
//! `block::fsmap`. Nothing else in this crate is unsafe.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod block;
mod call;
mod error;
mod filter;
mod process;
mod recorder;
pub mod top;
mod tracee;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use std::collections::BTreeMap;

pub use error::RecordError;

/// What is recorded, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The trace (`docs/formats/syscalls.md`).
    pub output: PathBuf,
}

/// How the recorded program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A trace that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The file; a partial trace has another name than was asked for.
    pub path: PathBuf,
    /// Calls in it.
    pub calls: u64,
    /// What was left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Processes and threads that were followed.
    pub followed: u64,
    /// How the program ended.
    pub ending: Ending,
    /// False when `stop` was raised: the program was told to end, and the trace is partial.
    pub complete: bool,
}

/// Runs a program to its end, with all its children, and writes a trace of its calls on files.
///
/// When `stop` is raised, the program gets SIGTERM and, two seconds later, everything that is left gets SIGKILL: a
/// program that was recorded cannot go on alone, as its filter would make its calls fail.
///
/// # Errors
/// When the program cannot be started, the kernel refuses to trace it, or the trace cannot be written.
pub fn record(spec: &RecordSpec, stop: &AtomicBool) -> Result<Recorded, RecordError> {
    recorder::record(spec, stop)
}

#[cfg(test)]
mod tests;
