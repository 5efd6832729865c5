//! The header of a block trace: devices, capture method and known limitations.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::request::Request;
use super::vocabulary::DeviceNumber;
use crate::HostInfo;

/// Schema version written by this build.
pub const BLOCK_TRACE_SCHEMA: u32 = 2;

/// Schema versions that can be read. Schema 1 has no table checksums and fewer fields of driver commands.
pub const READABLE_SCHEMAS: RangeInclusive<u32> = 1..=BLOCK_TRACE_SCHEMA;

/// A whole trace in memory, for small traces and tests. Large traces are streamed request by request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockTrace {
    /// Header of the trace.
    pub header: TraceHeader,
    /// Ordered by [`Request::id`].
    pub requests: Vec<Request>,
    /// Ordered by time.
    pub events: Vec<Event>,
}

/// Metadata of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// One of [`READABLE_SCHEMAS`].
    pub schema: u32,
    /// The command or file that the trace came from.
    pub source: String,
    /// Capture method.
    pub method: CaptureMethod,
    /// The machine, if known.
    pub host: Option<HostInfo>,
    /// Wall-clock time of the trace's start, ns since 1970-01-01 UTC, if known.
    pub start_realtime_ns: Option<u64>,
    /// Length of the trace, ns.
    pub duration_ns: u64,
    /// Devices in the trace.
    pub devices: Vec<TracedDevice>,
    /// Missing information, with reasons.
    pub limitations: Vec<Limitation>,
    /// Records lost between the kernel and the recorder.
    pub lost_records: u64,
    /// I/Os that ended without a request and moved nothing: refused because the queue was full (`REQ_NOWAIT`).
    #[serde(default)]
    pub refused: u64,
    /// Whether the ring buffer was ever more than half full.
    pub ring_was_tight: bool,
    /// Whether the trace ended as requested; an interrupted one is kept and marked.
    pub complete: bool,
}

/// A traced device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDevice {
    /// Device number.
    pub device: DeviceNumber,
    /// Device name (`sda`); empty if unknown.
    pub name: String,
    /// Size in sectors of 512 bytes, if known.
    pub sectors: Option<u64>,
    /// File system type and mount point, if known: `("ext4", "/data")`.
    pub file_system: Option<(String, String)>,
    /// I/O scheduler, if known.
    pub scheduler: Option<String>,
}

impl TracedDevice {
    /// A device of which only the name is known; an empty name is unknown, too.
    #[must_use]
    pub const fn named(device: DeviceNumber, name: String) -> Self {
        Self {
            device,
            name,
            sectors: None,
            file_system: None,
            scheduler: None,
        }
    }
}

/// Capture method of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMethod {
    /// BPF programs attached to tracepoints.
    Bpf,
    /// Events of a tracefs instance.
    Tracefs,
    /// Imported from a file of another tool.
    Import,
    /// Produced by a device model.
    Simulation,
}

/// A limitation of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limitation {
    /// The missing tracepoint, field or time.
    pub what: String,
    /// The reason, in words for the user.
    pub why: String,
}
