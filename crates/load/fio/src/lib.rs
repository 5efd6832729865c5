//! fio interoperability: imports and exports job files, and writes results in fio's JSON layout.
//!
//! Import takes the common subset of fio 3 job files and turns each section into a step of a [`jobs::Job`], so
//! that the run is that of any other job. No option is dropped silently: each is taken, approximated or ignored with
//! a [`Note`], or refused with its section, line and the missing feature. Export writes a job equivalent to one of
//! our workloads, with the flags that make the two comparable. The JSON has the layout of fio 3.
//!
//! This crate does not run fio or read the environment (fio expands `${NAME}` in job files; here that is refused).
//!
//! Facts about fio come from its documentation and from the output of fio 3.33.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
pub mod export;
mod import;
mod ini;
mod options;
mod quantity;
pub mod report;

pub use error::FioError;
pub use import::{Imported, Note, Treatment, import};
