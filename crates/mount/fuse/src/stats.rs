//! Counters of a session: requests by kind and size, errors, context switches.

use serde::Serialize;

/// Number of requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OperationCount {
    /// Name of the request in lower case (`lookup`, `write` ...).
    pub operation: &'static str,
    /// Requests served.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// Number of read and write requests of one size class.
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
    /// Requests by kind; kinds that occurred.
    pub operations: Vec<OperationCount>,
    /// Requests by size; classes that occurred.
    pub sizes: Vec<SizeCount>,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Bytes written by requests.
    pub written_bytes: u64,
    /// Requests that failed because the daemon had run out of descriptors.
    pub descriptor_shortages: u64,
    /// Requests found by polling for them.
    pub polls_found: u64,
    /// Times that polling found no request.
    pub polls_missed: u64,
    /// Cached names invalidated, as they changed behind the mount.
    pub names_invalidated: u64,
    /// Inodes invalidated, as they changed behind the mount.
    pub inodes_invalidated: u64,
    /// Times that everything cached was invalidated, as reports of changes were lost.
    pub everything_invalidated: u64,
    /// Voluntary context switches of the whole process.
    pub context_switches_voluntary: u64,
    /// Involuntary context switches of the whole process.
    pub context_switches_involuntary: u64,
}
