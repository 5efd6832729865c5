//! `header.json`: the trace's header, its own text, and how many rows its tables have.

use results::block_trace::TraceHeader;
use serde::{Deserialize, Serialize};

/// First field of the file.
pub const FORMAT: &str = "tidegate.block-trace";

/// What the file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredHeader {
    /// [`FORMAT`].
    pub format: String,
    /// The text that each row of the trace bears, unlike that of any other trace.
    pub trace_id: String,
    /// Rows of the tables.
    pub counts: ItemCounts,
    /// What the trace is of; its fields stand beside those above.
    #[serde(flatten)]
    pub header: TraceHeader,
}

/// Rows of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCounts {
    /// Of requests.
    pub requests: u64,
    /// Of runs.
    pub runs: u64,
    /// Of events.
    pub events: u64,
}
