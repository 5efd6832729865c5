//! `header.json`: the trace's header, its id, the number of rows in its tables, and their sums.
//!
//! It is replaced atomically, by a rename: whenever a writer dies, a header exists, and it matches the tables up to the
//! lengths that it names.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use results::block_trace::{READABLE_SCHEMAS, TraceHeader};
use serde::{Deserialize, Serialize};

use super::reader::folder_of;
use super::table_sum::TableSums;
use super::{HEADER_FILE, NativeReadError, NativeWriteError};

/// A larger header is considered damaged: it has a few lines per device.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// Name of the next header while it is written.
const NEXT_HEADER_FILE: &str = "header.json.next";

/// First field of the file.
pub const FORMAT: &str = "tidegate.block-trace";

/// Content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredHeader {
    /// [`FORMAT`].
    pub format: String,
    /// The id in each row of the trace, unique among traces.
    pub trace_id: String,
    /// Rows of the tables.
    pub counts: ItemCounts,
    /// Lengths and checksums of the tables. Absent in schema 1; a tool that rewrites a table may remove them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<TableSums>,
    /// Description of the trace; its fields are on the same level as those above.
    #[serde(flatten)]
    pub header: TraceHeader,
}

/// Number of rows in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCounts {
    /// Requests.
    pub requests: u64,
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
}

/// Whether a header must reach the medium before the writer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives the end of the process.
    Process,
    /// It survives a power cut.
    Power,
}

impl StoredHeader {
    /// The header of the trace in the folder `path`, or of the one that the table `path` belongs to. Does not check the
    /// tables.
    ///
    /// # Errors
    /// If there is no header, or it has another format or version.
    pub fn of(path: &Path) -> Result<Self, NativeReadError> {
        let folder = folder_of(path).ok_or_else(|| NativeReadError::NotATrace {
            path: path.to_owned(),
        })?;
        Self::read(&folder)
    }

    pub(super) fn read(folder: &Path) -> Result<Self, NativeReadError> {
        let path = folder.join(HEADER_FILE);
        let mut text = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(HEADER_BYTES_MAX).read_to_end(&mut text))
            .map_err(|source| NativeReadError::Io {
                path: path.clone(),
                source,
            })?;
        let wrong = |source| NativeReadError::Header {
            path: path.clone(),
            source,
        };
        // Check format and version first: anything else in the file depends on them.
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(wrong)?;
        let format = value
            .get("format")
            .and_then(serde_json::Value::as_str)
            .unwrap_or("no format");
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        let readable = schema
            .and_then(|schema| u32::try_from(schema).ok())
            .is_some_and(|schema| READABLE_SCHEMAS.contains(&schema));
        if format != FORMAT || !readable {
            let schema = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
            return Err(NativeReadError::Format {
                path,
                found: format!("{format} of schema {schema}"),
            });
        }
        serde_json::from_value(value).map_err(wrong)
    }

    /// Replaces the header in `folder`.
    pub(super) fn write(&self, folder: &Path, durability: Durability) -> Result<(), NativeWriteError> {
        let path = folder.join(HEADER_FILE);
        let next = folder.join(NEXT_HEADER_FILE);
        // Left by a killed writer.
        let _ = fs::remove_file(&next);
        let mut text = serde_json::to_vec_pretty(self).map_err(|source| NativeWriteError::Header {
            path: path.clone(),
            source,
        })?;
        text.push(b'\n');
        let written = File::create_new(&next).and_then(|mut file| {
            file.write_all(&text)?;
            match durability {
                Durability::Process => Ok(()),
                Durability::Power => file.sync_all(),
            }
        });
        let replaced = written.and_then(|()| fs::rename(&next, &path));
        replaced.map_err(|source| {
            // An incomplete header is useless; the one before it stays.
            let _ = fs::remove_file(&next);
            NativeWriteError::Io {
                operation: "write",
                path,
                source,
            }
        })
    }
}
