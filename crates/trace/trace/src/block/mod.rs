//! Captures block requests of a device live, with the file, process and type of block of every sector.
//!
//! BPF programs on the block layer's tracepoints report bios and requests; others report processes that dirty pages,
//! the journal's transactions, and creation and deletion of files. All records go through one ring to a thread that
//! only copies them; the caller's thread joins them into [`results::block_trace`] values and passes them to a [`Sink`]
//! in chronological order.
//!
//! It writes no format, prints nothing, and changes nothing on the traced device. Requests of this process itself are
//! left out and counted.
//!
//! Without the feature `bpf` there are no programs, and tracefs is the only source.
//!
//! Threads: the ring's reader owns the ring and sends chunks through a channel of bounded size; everything else belongs
//! to the caller's thread. There are no locks but that of libbpf's messages while programs are loaded.

mod attribution;
mod calls;
mod capture;
mod chunk;
mod classify;
mod commands;
mod device;
mod error;
mod fanotify;
mod joiner;
mod layout;
mod names;
mod order;
mod owners;
mod privilege;
#[cfg_attr(not(feature = "bpf"), path = "without_bpf.rs")]
mod programs;
mod record;
mod regions;
mod renames;
mod request_flags;
#[cfg(feature = "bpf")]
mod ring;
mod setup;
mod source;
mod tracefs;
mod transactions;
#[cfg(feature = "bpf")]
mod types;
#[cfg(feature = "bpf")]
mod verifier;
mod writers;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use results::HostInfo;
use results::block_trace::{Event, Request, TraceHeader};

pub use capture::capture;
pub use device::{Target, disk_under};
pub use error::CaptureError;

/// Number of the machine's own namespace of processes, as `/proc/self/ns/pid` shows it (`PROC_PID_INIT_INO`).
const MACHINE_NAMESPACE: &str = "pid:[4026531836]";

/// Whether this process is in a namespace of processes. The kernel's programs tell the machine's numbers of processes.
pub(crate) fn is_in_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() != MACHINE_NAMESPACE)
}

/// The number by which the kernel's programs know this process; one that none has, if it is not known.
pub(crate) fn own_pid() -> u32 {
    if is_in_namespace() {
        u32::MAX
    } else {
        std::process::id()
    }
}

/// Default size of the ring.
pub const DEFAULT_RING_BYTES: u64 = 16 << 20;

/// Options of a capture.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// Devices.
    pub targets: Vec<Target>,
    /// Capture method.
    pub method: Method,
    /// Bytes of the ring between kernel and user space: a power of two.
    pub ring_bytes: u64,
    /// Whether system calls are counted, which costs about 0.1 us per call of any process.
    pub count_calls: bool,
    /// Whether the commands of eMMC and SD cards are traced.
    pub driver_commands: bool,
    /// A program to run; the trace ends with it.
    pub command: Vec<OsString>,
    /// Target of the program's standard output.
    pub command_output: CommandOutput,
    /// Maximum duration of the trace.
    pub duration: Option<Duration>,
    /// Whether all dirty data is written before the end.
    pub sync_at_end: bool,
    /// Order in which the sink gets requests and events.
    pub order: ItemOrder,
    /// The machine, for the header.
    pub host: Option<HostInfo>,
    /// Name of the source, for the header.
    pub source: String,
}

/// Capture method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// BPF, or tracefs if BPF is forbidden.
    Best,
    /// Only BPF.
    Bpf,
    /// A tracefs instance.
    Tracefs,
}

/// Target of a traced program's standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// To that of this process.
    Inherited,
    /// To the standard error of this process, whose standard output has the trace.
    StandardError,
}

/// Order in which a sink gets requests and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOrder {
    /// By their first times: each waits for all earlier ones, but for none longer than 10 s. A request that takes longer
    /// comes after later ones.
    ByTime,
    /// As they complete: none waits for another.
    AsCompleted,
}

/// Receiver of a trace during the capture.
pub trait Sink {
    /// Tracing has started: passes the information known before the first item. Called once, before the command starts.
    ///
    /// # Errors
    /// If nothing can be written; the trace ends.
    fn started(&mut self, _header: &TraceHeader) -> io::Result<()> {
        Ok(())
    }

    /// Called about fifty times a second, even if no items arrive.
    ///
    /// # Errors
    /// If output cannot be written; the trace ends.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The next request, in the order that [`CaptureSpec::order`] asks for.
    ///
    /// # Errors
    /// If it cannot be written; the trace ends.
    fn request(&mut self, request: &Request) -> io::Result<()>;

    /// The next event, in the same order.
    ///
    /// # Errors
    /// If it cannot be written; the trace ends.
    fn event(&mut self, event: &Event) -> io::Result<()>;
}

/// Result of a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Description of the trace, with its losses and limitations.
    pub header: TraceHeader,
    /// Number of requests passed to the sink.
    pub requests: u64,
    /// Number of events passed to the sink.
    pub events: u64,
    /// Number of requests of this process itself, which are left out.
    pub own_requests: u64,
    /// Exit status of the command; `None` without a command, or if it was still running.
    pub command_status: Option<std::process::ExitStatus>,
}
