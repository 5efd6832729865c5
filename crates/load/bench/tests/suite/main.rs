//! The tests of the crate but for the bounds on speed, in one program.

mod applications;
mod file_faults;
mod file_passes;
mod file_workload;
mod loops;
mod metadata_workload;
mod postmark;
mod ring_latencies;
mod sqlite_workload;
#[path = "../stopping/mod.rs"]
mod stopping;
mod tio;
mod uflip;
