//! Runs of the eMMC model: named loads, applications and traces as tasks ([`load`]), the record and the summary of a run
//! ([`report`]), and the study's exhibits and claims ([`paper`]).
//!
//! Times are virtual: the same options give the same numbers on every machine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
pub mod load;
pub mod paper;
pub mod report;

pub use self::error::RunError;
