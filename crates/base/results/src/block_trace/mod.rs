//! Block traces: the file, process and block type behind every sector of every request, with times.
//!
//! This model is shared by recorders (`trace`: BPF, tracefs), readers and writers of foreign formats, simulators
//! (`emmc`: driver commands) and analysis. It holds values only: it reads no file and knows no tool. Spec of the
//! stored form: `docs/formats/block-trace.md`.
//!
//! There is one [`Request`] for each request seen by a device's queue (or driver), ordered by first known time. Its
//! sectors are split into [`Run`]s, each with one owner. Everything else (an fsync, an unlink, a journal commit, a
//! count of system calls) is an [`Event`]. The [`TraceHeader`] names devices, capture method and limitations.
//!
//! Invariants:
//! - Times are nanoseconds since the trace's start ([`TraceHeader::start_realtime_ns`] anchors them); a time unknown
//!   to the source is `None`, never 0.
//! - Sectors are 512 bytes and relative to the whole device named by [`Request::device`].
//! - The runs of a request are ordered by sector, do not overlap, and cover it completely if it moves data.
//! - Every attribution states its quality ([`CauseQuality`]); there is no silent guessing.
//! - A file is identified by file system device, inode and generation, never by inode alone; its path is the one at
//!   the time of the request.

mod event;
mod header;
mod request;
mod vocabulary;

pub use event::{Event, EventKind};
pub use header::{
    BLOCK_TRACE_SCHEMA, BlockTrace, CaptureMethod, Limitation, READABLE_SCHEMAS, TraceHeader, TracedDevice,
};
pub use request::{DriverCommand, FileIdentity, IoPriority, Process, Request, Run};
pub use vocabulary::{
    BlockClass, BlockType, CauseQuality, DeviceNumber, IoMode, Operation, ParseDeviceNumberError,
    RequestFlags, UnknownWord,
};
