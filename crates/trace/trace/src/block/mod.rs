//! Block requests of a device, live: which file, which process and which kind of block is behind every sector.
//!
//! BPF programs on the block layer's tracepoints tell of bios and requests; others tell who makes pages dirty, of the
//! journal's transactions and of the life of files. All of it goes through one ring to a thread that only copies it out;
//! the caller's thread joins it to [`results::block_trace`] values and hands them to a [`Sink`] in the order of time.
//!
//! It writes no format, prints nothing, and changes nothing on the traced device. Requests that this process itself makes
//! are left out and counted.
//!
//! Threads: the ring's reader owns the ring and sends chunks through a channel of bounded size; everything else belongs to
//! the caller's thread. Nothing is locked.

mod attribution;
mod calls;
mod capture;
mod classify;
mod commands;
mod device;
mod error;
mod joiner;
mod layout;
mod names;
mod order;
mod owners;
mod privilege;
mod programs;
mod ranges;
mod record;
mod regions;
mod request_flags;
mod ring;
mod source;
mod tracefs;
mod writers;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use results::HostInfo;
use results::block_trace::{Event, Request, TraceHeader};

pub use capture::capture;
pub use device::{Target, disk_under};
pub use error::CaptureError;

/// Size of the ring when none is asked for.
pub const DEFAULT_RING_BYTES: u64 = 16 << 20;

/// What is traced, and how.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// Devices.
    pub targets: Vec<Target>,
    /// By which means.
    pub method: Method,
    /// Bytes of the ring between kernel and user space: a power of two.
    pub ring_bytes: u64,
    /// Whether system calls are counted; that costs every call of the system some 0.1 us.
    pub count_calls: bool,
    /// Whether the commands of eMMC and SD cards are traced.
    pub driver_commands: bool,
    /// A program that is run; the trace ends with it.
    pub command: Vec<OsString>,
    /// The trace ends after this long.
    pub duration: Option<Duration>,
    /// Whether everything dirty is written out before the end.
    pub sync_at_end: bool,
    /// The machine, as it is written to the header.
    pub host: Option<HostInfo>,
    /// What the header calls the source.
    pub source: String,
}

/// By which means a trace is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// BPF, and tracefs where that is forbidden.
    Best,
    /// BPF or nothing.
    Bpf,
    /// A tracefs instance.
    Tracefs,
}

/// Where a trace goes while it is taken.
pub trait Sink {
    /// Tracing is under way: what is known of the trace before its first item. Called once, before the command starts.
    ///
    /// # Errors
    /// When nothing can be written; the trace ends.
    fn started(&mut self, _header: &TraceHeader) -> io::Result<()> {
        Ok(())
    }

    /// Called some fifty times a second, also when nothing comes.
    ///
    /// # Errors
    /// When what is shown cannot be written; the trace ends.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The next request, in the order of their first times.
    ///
    /// # Errors
    /// When it cannot be written; the trace ends.
    fn request(&mut self, request: &Request) -> io::Result<()>;

    /// The next event, in the same order.
    ///
    /// # Errors
    /// When it cannot be written; the trace ends.
    fn event(&mut self, event: &Event) -> io::Result<()>;
}

/// A trace that was taken.
#[derive(Clone, Debug)]
pub struct Captured {
    /// What was traced, with losses and limitations as they are at the end.
    pub header: TraceHeader,
    /// Requests handed to the sink.
    pub requests: u64,
    /// Events handed to the sink.
    pub events: u64,
    /// Requests of this process itself, which are left out.
    pub own_requests: u64,
    /// How the command ended; `None` without one, or when it was still running.
    pub command_status: Option<std::process::ExitStatus>,
}
