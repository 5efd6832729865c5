//! The native form of a trace: a folder `NAME.trace/` with `header.json` and three tables in Parquet.
//!
//! Spec: `docs/formats/block-trace.md`. Columns are only listed in [`columns`]. Every row contains the trace's id in
//! `trace_id`, so that any number of traces can be queried together.

mod check;
mod column;
pub mod columns;
mod decode;
mod footer;
mod footer_walk;
mod reader;
mod scan;
pub mod schema;
mod stored_header;
mod table;
mod table_file;
mod table_reader;
mod table_sum;
mod text_column;
mod values;
mod writer;

pub use reader::{NativeReadError, NativeReader};
pub use scan::TableScan;
pub use stored_header::{FORMAT, ItemCounts, StoredHeader};
pub use table_reader::OpenTable;
pub use table_sum::{TableSum, TableSums};
pub use values::{Bits, ColumnValues};
pub use writer::{Existing, NativeWriteError, NativeWriter, TraceId};

/// Name of the file with the header.
pub const HEADER_FILE: &str = "header.json";
/// Name of the table of requests.
pub const REQUESTS_FILE: &str = "requests.parquet";
/// Name of the table of runs.
pub const RUNS_FILE: &str = "runs.parquet";
/// Name of the table of events.
pub const EVENTS_FILE: &str = "events.parquet";
/// Extension of native traces.
pub const EXTENSION: &str = "trace";

/// Whether `path` is the folder of a native trace, or a table in one.
#[must_use]
pub fn is_native(path: &std::path::Path) -> bool {
    reader::folder_of(path).is_some()
}
