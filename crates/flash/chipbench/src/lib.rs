//! The speed of UBIFS and of arrays on simulated chips, beside the figures of seeds/001 for MA-UBIFS.
//!
//! - [`throughput`]: the workloads of the study on one file, by number of devices, kind of chip and record size.
//! - [`mounting`]: the time to attach and mount, by content.
//! - [`application`]: mean response times of the study's applications.
//! - [`array_throughput`]: records on a volume without a file system, by design of the array; [`array_table`] shows them.
//! - [`promise`]: the promised figures, and [`promise::Verdict`]s on measured ones.
//!
//! Everything runs in this process through the file-system layer, without FUSE and its page cache. In virtual time results
//! are the same on every machine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod application;
pub mod array_table;
pub mod array_throughput;
mod error;
pub mod mounting;
mod paper;
pub mod promise;
mod simulated_chips;
pub mod throughput;
pub mod workload;

pub use error::MeasureError;
