//! Run records: what ran, on which machine and file system, every sample, and how two runs compare.
//!
//! This crate is the contract between the measuring crates (`bench`, `trace`), the planning crate (`study`) and the
//! reporting crate (`report`). [`call_trace`] holds traces of calls, which `trace` records and `bench` replays;
//! [`block_trace`] holds traces of block requests; [`shown`] escapes text for terminals and pages. The crate measures
//! nothing and knows no workload: the description of a workload is an opaque JSON value.
//!
//! Invariants:
//! - A record has everything needed to judge its numbers: command, version, kernel, file system, device.
//! - Units are in the names (`elapsed_ns`, `backing_writes_count`); numbers are as measured, never rounded.
//! - A record of an interrupted run has `complete: false`, and comparisons skip it.
//! - The schema is versioned; the reader rejects any other version and names the version found.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod block_trace;
pub mod calendar;
pub mod call_trace;
mod histogram;
mod interval;
mod json_lines;
mod rate;
mod record;
mod record_comparison;
pub mod shown;
mod statistics;
pub mod words;

pub use histogram::{LatencyHistogram, LatencySummary};
pub use interval::{
    CLAIM_COVERAGE, Estimate, NOISY_LOAD_PERCENT, NOISY_STEAL_PERCENT, NOISY_WIDTH, Noise, RatioVerdict,
    WANTED_COVERAGE,
};
pub use json_lines::{ReadError, RecordWriter, WriteError, append_record, read_records};
pub use rate::{Headline, RateUnit, has_own_speed};
pub use record::{
    HostInfo, ImpossibleLatency, RunIdentity, RunRecord, SCHEMA, Sample, TargetInfo, TimedWindow, counter,
};
pub use record_comparison::{
    ComparedOperation, ComparisonError, RecordComparison, noise_by_workload, target_title, workload_title,
};
pub use statistics::{PairedRatio, RoundValue, Summary, median, nearest_f64, paired_ratio, values_by_round};
