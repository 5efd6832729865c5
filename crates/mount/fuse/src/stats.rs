//! Counters of a session: requests by kind and size, errors, context switches.

use serde::Serialize;

/// How often one kind of request was served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// Name of the request in lower case (`lookup`, `write` ...).
    pub operation: &'static str,
    /// Requests served.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// How many read or write requests had a size up to a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// Upper bound of the class in bytes (a power of two).
    pub bytes_max: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
}

/// Counters since the mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionStats {
    /// By kind, those that occurred.
    pub operations: Vec<OperationCount>,
    /// By size, those that occurred.
    pub sizes: Vec<SizeCount>,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Bytes written by requests.
    pub written_bytes: u64,
    /// Requests refused because the daemon had no descriptor left for them.
    pub descriptor_shortages: u64,
    /// Voluntary context switches of the whole process.
    pub context_switches_voluntary: u64,
    /// Involuntary context switches of the whole process.
    pub context_switches_involuntary: u64,
}
