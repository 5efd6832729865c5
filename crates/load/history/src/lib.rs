//! History of all runs in one SQLite file: store, list, tag, delete, export.
//!
//! A run is the result of one invocation of the program: one record, or all rounds and steps of a repetition. Ids are
//! never reused, even after a run was deleted. The file holds each record whole, as the JSON that the program
//! printed, and columns for searching, which can be rebuilt from the records.
//!
//! Invariants:
//! - A record is on the medium when [`History::append`] returns (write-ahead log, synced at each commit).
//! - Several programs may write at the same time; each waits for the others up to [`BUSY_TIMEOUT`].
//! - A file that is not a history, or has a later version, is refused and left unchanged.
//!
//! The crate measures nothing and prints nothing. The schema is in `schema.rs`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod export;
mod schema;
mod store;

pub use error::HistoryError;
pub use export::{csv, json_lines, markdown};
pub use store::{BUSY_TIMEOUT, Filter, History, RunId, RunSummary, StoredRun};
