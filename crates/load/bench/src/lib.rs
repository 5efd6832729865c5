//! Workloads that measure any directory through system calls.
//!
//! The crate knows no file system and no device of this project: it measures the file system mounted at the given
//! path. It prints nothing; progress goes to a [`Progress`], results come back as an [`Outcome`] that converts to a
//! [`results::RunRecord`]. Each workload is a specification that implements [`Workload`].
//!
//! The timed window of every file workload contains:
//! - each operation and each per-record sync;
//! - the final sync, if requested;
//! - the close of every file, because a file system in user space may flush there.
//!
//! The three parts are reported separately. Preparation is not included: files are created, synced, opened (and
//! mapped) and the cache is prepared before the window. Rates use the bytes actually transferred and a monotonic
//! clock. An error fails the run, with operation, file and offset.
//!
//! Each run works in its own directory inside the given one and always removes it, even if the `stop` flag is raised;
//! a stopped run returns its partial results, marked as incomplete.
//!
//! JUSTIFICATION for `unsafe`: memory maps are a workload (a mapping needs `mmap`, `msync`, `mincore`), `close`
//! reports a failed flush that dropping a `File` would hide, a ring shares memory with the kernel, and some calls
//! have no safe form. Each module with such blocks states its reason.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access;
pub mod app;
mod bus_fault;
mod cache;
mod clock;
mod data;
mod descriptors;
mod engine;
mod error;
mod file;
mod file_calls;
mod file_outcome;
mod file_set;
mod fileserver;
mod latencies;
mod loops;
mod mapping;
pub mod mersenne;
pub mod metadata;
mod operation_log;
mod order;
mod placement;
pub mod postmark;
mod prepare;
mod processor;
mod progress;
mod random;
mod rate_limiter;
pub mod replay;
mod ring;
mod scratch;
mod spec;
pub mod sqlite;
mod start_barrier;
mod threads;
pub mod tio;
mod together;
pub mod uflip;
mod varmail;
mod verify;
mod webproxy;
pub mod window;
mod words;
mod worker;
mod workload;

pub use cache::{CacheMethod, CacheOutcome};
pub use error::BenchError;
pub use file::run;
pub use file_outcome::{FileOutcome, OperationOutcome};
pub use fileserver::Fileserver;
pub use loops::{FileLoop, Loops, LoopsSpec, UsualLoops};
pub use operation_log::{LogLimits, OperationLog};
pub use order::{Permutation, offsets};
pub use placement::FilePlacement;
pub use prepare::check_path;
pub use processor::{ProcessorUse, WorkerUse};
pub use progress::{NoProgress, Phase, Progress};
pub use spec::{
    AccessAdvice, Cache, CachePath, DataPattern, DeviceAccess, Engine, FileSpec, FinalSync, Mode, Order,
    Pattern, Rate, Sharing, SyncKind, TimeLimit, WriteTarget,
};
pub use together::run_together;
pub use varmail::Varmail;
pub use verify::ReadBack;
pub use webproxy::Webproxy;
pub use workload::{Measurement, Outcome, TextForm, Workload};
