//! Analyses of block traces: named analyses in SQL over stored traces, run in-process by DataFusion.
//!
//! A [`Session`] is opened over the folders of one or more traces (`docs/formats/block-trace.md`) and runs the analyses
//! of [`named`]: files in `sql/`, which run unchanged on Apache Spark over the same folders. Each returns a [`Table`];
//! [`Report`] contains all of them with density pictures of the device, and is rendered as a page, a text or a
//! document.
//!
//! This crate is the only one that knows DataFusion. It captures nothing, reads no foreign format (crate `formats`),
//! and writes no file; it starts threads only inside a session, for its queries.
//!
//! Invariants:
//! - The same traces give the same report, to the byte: every analysis has a total order of rows.
//! - Memory is bounded by the session's limits, not by the trace or the result; larger sorts use the disk.
//! - Every row is checked before it is queried, by its table's sum or by itself; a sum that overflows is an error.
//! - Queries only read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod checked_sum;
mod comparison;
mod density;
mod error;
mod json_document;
pub mod named;
mod page;
mod query_text;
mod report;
mod session;
mod table;
mod text;
mod trace_folder;
mod trace_table;

pub use comparison::{ComparedRow, ComparedTable, ComparedValue, Comparison};
pub use density::{DensityGrid, SERIES, Vertical};
pub use error::AnalysisError;
pub use report::{Pictures, Report, Step};
pub use session::{Limits, Query, Session};
pub use table::{Column, Table, Unit, Value};
pub use trace_folder::{StoredTrace, find_traces};
