//! Traces of block requests: which file, which process and which kind of block is behind every sector, and when.
//!
//! This is the meeting point of those who record (`trace`: BPF, tracefs), those who read and write foreign formats,
//! those who simulate (`emmc`: commands of a driver), and those who analyse. It is values only: it reads no file and
//! knows no tool. Spec of the stored form: `docs/formats/block-trace.md`.
//!
//! The shape: one [`Request`] for each request that a device's queue (or driver) saw, in the order of its first known
//! time; its sectors are split into [`Run`]s, each with one owner. What is no request (an fsync, an unlink, a commit of
//! the journal, a count of system calls) is an [`Event`]. A [`TraceHeader`] says what was traced, by what, and what it
//! could not see.
//!
//! Invariants:
//! - Times are nanoseconds since the trace's start ([`TraceHeader::start_realtime_ns`] anchors them); a time that the
//!   source does not tell is `None`, never 0.
//! - Sectors are of 512 bytes and relative to the whole device that [`Request::device`] names.
//! - Runs of a request are in the order of their sectors, do not overlap, and cover it wholly when it moves data.
//! - Every attribution says how it was found ([`CauseQuality`]); nothing is guessed in silence.
//! - A file is its file system's device, inode and generation, never the inode alone; its path is the one that it had
//!   when the request was made.

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
