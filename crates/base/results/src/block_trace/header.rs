//! What was traced, by what means, and what those could not see.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::event::Event;
use super::request::Request;
use super::vocabulary::DeviceNumber;
use crate::HostInfo;

/// Version of the stored form, as it is written.
pub const BLOCK_TRACE_SCHEMA: u32 = 2;

/// Versions that are read. Schema 1 had no sums of its tables, and told less of a driver's commands.
pub const READABLE_SCHEMAS: RangeInclusive<u32> = 1..=BLOCK_TRACE_SCHEMA;

/// A whole trace in memory: small ones, and tests. Large ones go through readers and writers request by request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockTrace {
    /// What was traced.
    pub header: TraceHeader,
    /// In the order of [`Request::id`].
    pub requests: Vec<Request>,
    /// In the order of their times.
    pub events: Vec<Event>,
}

/// What a trace is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// One of [`READABLE_SCHEMAS`].
    pub schema: u32,
    /// The command or the file that it came from.
    pub source: String,
    /// By what means.
    pub method: CaptureMethod,
    /// The machine, where known.
    pub host: Option<HostInfo>,
    /// Wall-clock time of the trace's start, ns since 1970-01-01 UTC, where known.
    pub start_realtime_ns: Option<u64>,
    /// How long was traced, ns.
    pub duration_ns: u64,
    /// Devices in the trace.
    pub devices: Vec<TracedDevice>,
    /// What is missing, each with its reason.
    pub limitations: Vec<Limitation>,
    /// Records that were lost on their way from the kernel.
    pub lost_records: u64,
    /// Whether the ring was ever over half full.
    pub ring_was_tight: bool,
    /// Whether the trace ended as asked; an interrupted one is kept and marked.
    pub complete: bool,
}

/// A traced device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDevice {
    /// Its number.
    pub device: DeviceNumber,
    /// Its name (`sda`), where known.
    pub name: String,
    /// Size in sectors of 512 bytes, where known.
    pub sectors: Option<u64>,
    /// File system on it and where that is mounted, where known: `("ext4", "/data")`.
    pub file_system: Option<(String, String)>,
    /// I/O scheduler, where known.
    pub scheduler: Option<String>,
}

/// By what means a trace was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureMethod {
    /// BPF programs on tracepoints.
    Bpf,
    /// Events of a tracefs instance.
    Tracefs,
    /// Read from another tool's file.
    Import,
    /// A model of a device.
    Simulation,
}

/// Something that this trace cannot tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limitation {
    /// What is missing: a tracepoint, a field, a time.
    pub what: String,
    /// Why, in words for the user.
    pub why: String,
}
