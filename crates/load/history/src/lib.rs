//! All runs in one SQLite file: stored, listed, tagged, deleted, exported.
//!
//! A run is what one call of the program measured: one record, or all rounds and steps of a repetition. Its id is given
//! once and never again, also after it was deleted. The file holds each record whole, as the JSON that the program
//! printed, and beside it the columns by which runs are looked for; these can be made again from the records.
//!
//! Invariants:
//! - A record is on the medium when [`History::append`] returns (write-ahead log, synced at each commit).
//! - Several programs may write at the same time; each waits for the others up to [`BUSY_TIMEOUT`].
//! - A file that is not a history, or one of a later version, is refused and left as it is.
//!
//! It measures nothing and prints nothing. The schema is in `schema.rs`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod export;
mod schema;
mod store;

pub use error::HistoryError;
pub use export::{csv, json_lines, markdown};
pub use store::{BUSY_TIMEOUT, Filter, History, RunId, RunSummary, StoredRun};
