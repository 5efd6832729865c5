//! Block traces analysed: named analyses in SQL over stored traces, run in-process by DataFusion.
//!
//! A [`Session`] is opened over the folders of one or more traces (`docs/formats/block-trace.md`) and runs the analyses of
//! [`named`]: files in `sql/`, which run unchanged on Apache Spark over the same folders. Each gives a [`Table`];
//! [`Report`] holds all of them with a picture of where and when the device was used, and becomes a page, a text or a
//! document.
//!
//! This crate is the only one that knows DataFusion. It captures nothing, reads no foreign format (crate `formats`),
//! and writes no file; it starts threads only inside a session, for its queries.
//!
//! Invariants:
//! - The same traces give the same report, to the byte: every analysis orders its rows wholly.
//! - Memory is bounded by the session's limits, not by the trace; what does not fit is sorted on disk.
//! - Queries only read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod comparison;
mod density;
mod error;
pub mod named;
mod page;
mod report;
mod session;
mod table;
mod text;
mod trace_folder;

pub use comparison::{ComparedRow, ComparedTable, ComparedValue, Comparison};
pub use density::{DensityGrid, SERIES, Vertical};
pub use error::AnalysisError;
pub use report::{Pictures, Report, Step};
pub use session::{Limits, Session};
pub use table::{Column, Table, Unit, Value};
pub use trace_folder::{StoredTrace, find_traces};
