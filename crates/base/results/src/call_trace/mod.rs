//! Call traces: file system calls of programs, or block layer requests to a device, with times.
//!
//! This model is shared by the recorder (`trace`), readers of foreign formats, workload generators and the replayer
//! (`bench`). A trace never mixes the two layers: a read served from the page cache appears in a system call trace
//! and not in a block trace.
//!
//! File names are relative to a root chosen by the replayer: absolute names, `..` and `.` are resolved textually
//! against that root, so no name escapes it. Descriptors have handles, numbered by the trace and never reused. Calls
//! are ordered by start time; a call takes about 80 bytes in memory.

mod descriptors;
mod flags;
mod format;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use descriptors::{Closed, Descriptor, DescriptorTables, ProcessId};
pub use flags::{Access, OpenFlags, UnknownFlag};
pub use format::{
    CALL_TRACE_SCHEMA, CallTraceError, CallTraceWriter, Header, read_call_trace, starts_like_call_trace,
};

/// Layer at which the calls of a trace were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Between programs and the kernel: above the page cache.
    SystemCalls,
    /// Between the file system and its device: below the page cache.
    Block,
}

impl Layer {
    /// Short description for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::SystemCalls => "system calls, above the page cache",
            Self::Block => "block requests, below the page cache",
        }
    }
}

/// A file name of a trace: index into the trace's table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(pub u32);

/// A descriptor of a trace. Handles are numbered from 0 and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(pub u32);

/// Operation of a call. Sizes and offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "fields are named as the arguments of the system call that the variant is named for"
)]
pub enum Action {
    /// `open` or `openat`; the new descriptor is `handle`, even when the call failed.
    Open {
        name: Name,
        handle: Handle,
        flags: OpenFlags,
    },
    /// `close`.
    Close { handle: Handle },
    /// `dup` and similar: `copy` shares the file position of `handle`.
    Duplicate { handle: Handle, copy: Handle },
    /// `read` or `readv` at the file position.
    Read { handle: Handle, bytes: u64 },
    /// `write` or `writev` at the file position.
    Write { handle: Handle, bytes: u64 },
    /// `pread` or `preadv`.
    ReadAt { handle: Handle, bytes: u64, offset: u64 },
    /// `pwrite` or `pwritev`.
    WriteAt { handle: Handle, bytes: u64, offset: u64 },
    /// `sendfile` or `copy_file_range` between two files, at their file positions.
    Copy { from: Handle, to: Handle, bytes: u64 },
    /// `fsync`.
    Fsync { handle: Handle },
    /// `fdatasync`.
    Fdatasync { handle: Handle },
    /// `sync_file_range` with all three of its flags; `bytes` 0 means to the end of the file.
    SyncRange { handle: Handle, offset: u64, bytes: u64 },
    /// `lseek`.
    Seek {
        handle: Handle,
        offset: i64,
        whence: Whence,
    },
    /// `ftruncate`.
    TruncateHandle { handle: Handle, bytes: u64 },
    /// `truncate`.
    Truncate { name: Name, bytes: u64 },
    /// `fallocate` with Linux flag numbers.
    Allocate {
        handle: Handle,
        mode: u32,
        offset: u64,
        bytes: u64,
    },
    /// `stat` and similar by name, without following symbolic links.
    Stat { name: Name },
    /// `fstat`.
    StatHandle { handle: Handle },
    /// `access` with `F_OK`.
    Access { name: Name },
    /// `getdents`, once.
    List { handle: Handle },
    /// `unlink`.
    Unlink { name: Name },
    /// `rename`.
    Rename { from: Name, to: Name },
    /// `link`.
    Link { from: Name, to: Name },
    /// `mkdir`.
    MakeDirectory { name: Name },
    /// `rmdir`.
    RemoveDirectory { name: Name },
    /// A read request of the block layer.
    BlockRead { offset: u64, bytes: u64 },
    /// A write request of the block layer.
    BlockWrite { offset: u64, bytes: u64 },
    /// A discard (trim) of the block layer.
    BlockDiscard { offset: u64, bytes: u64 },
    /// A cache flush of the block layer.
    BlockFlush,
}

/// Reference point of a seek offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whence {
    /// The start of the file.
    Start,
    /// The file position.
    Current,
    /// The end of the file.
    End,
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset.
    Hole,
}

impl Action {
    /// Lower-case name of the call in results.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Close { .. } => "close",
            Self::Duplicate { .. } => "dup",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::ReadAt { .. } => "pread",
            Self::WriteAt { .. } => "pwrite",
            Self::Copy { .. } => "copy",
            Self::Fsync { .. } => "fsync",
            Self::Fdatasync { .. } => "fdatasync",
            Self::SyncRange { .. } => "sync_file_range",
            Self::Seek { .. } => "lseek",
            Self::TruncateHandle { .. } => "ftruncate",
            Self::Truncate { .. } => "truncate",
            Self::Allocate { .. } => "fallocate",
            Self::Stat { .. } => "stat",
            Self::StatHandle { .. } => "fstat",
            Self::Access { .. } => "access",
            Self::List { .. } => "getdents",
            Self::Unlink { .. } => "unlink",
            Self::Rename { .. } => "rename",
            Self::Link { .. } => "link",
            Self::MakeDirectory { .. } => "mkdir",
            Self::RemoveDirectory { .. } => "rmdir",
            Self::BlockRead { .. } => "block-read",
            Self::BlockWrite { .. } => "block-write",
            Self::BlockDiscard { .. } => "block-discard",
            Self::BlockFlush => "block-flush",
        }
    }

    /// The layer of the action.
    #[must_use]
    pub const fn layer(&self) -> Layer {
        match self {
            Self::BlockRead { .. }
            | Self::BlockWrite { .. }
            | Self::BlockDiscard { .. }
            | Self::BlockFlush => Layer::Block,
            _ => Layer::SystemCalls,
        }
    }
}

/// Recorded result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Not recorded; success is assumed.
    #[default]
    Unknown,
    /// Success with its return value: bytes moved, or a file position. 0 for calls without a value.
    Done(u64),
    /// Failure with its Linux errno.
    Failed(i32),
}

impl Outcome {
    /// False only if the call was recorded as failed.
    #[must_use]
    pub const fn is_success(self) -> bool {
        !matches!(self, Self::Failed(_))
    }

    /// The recorded return value of a successful call.
    #[must_use]
    pub const fn value(self) -> Option<u64> {
        match self {
            Self::Done(value) => Some(value),
            Self::Unknown | Self::Failed(_) => None,
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Calling thread: any number that is unique per thread.
    #[serde(rename = "t")]
    pub thread: u32,
    /// Start, ns since the start of the trace.
    #[serde(rename = "at")]
    pub at_ns: u64,
    /// Recorded duration.
    #[serde(rename = "ns", default, skip_serializing_if = "Option::is_none")]
    pub recorded_duration_ns: Option<u64>,
    /// Recorded result.
    #[serde(rename = "r", default)]
    pub outcome: Outcome,
    /// Operation of the call.
    #[serde(flatten)]
    pub action: Action,
}

/// A trace in memory: one layer, its names, and its calls ordered by start time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Layer at which the calls were recorded.
    pub layer: Layer,
    /// Source of the trace, for people (`strace`, `fio iolog version 3`, `generator angry-bird`).
    pub origin: String,
    /// The calls, ascending by `at_ns`.
    pub calls: Vec<Call>,
    /// Items omitted from the source, counted by reason.
    pub skipped: BTreeMap<String, u64>,
    /// False when the source says that it ends before the recorded program did.
    pub complete: bool,
    names: Vec<PathBuf>,
    numbers: HashMap<PathBuf, Name>,
    handles: u32,
}

impl Trace {
    /// A trace without calls.
    #[must_use]
    pub fn new(layer: Layer, origin: impl Into<String>) -> Self {
        Self {
            layer,
            origin: origin.into(),
            calls: Vec::new(),
            skipped: BTreeMap::new(),
            complete: true,
            names: Vec::new(),
            numbers: HashMap::new(),
            handles: 0,
        }
    }

    /// Returns the name of a path; all spellings of a path inside the root share one name.
    ///
    /// # Panics
    /// After 2^32 names, which do not fit into memory.
    pub fn name(&mut self, path: &Path) -> Name {
        let inside = inside_root(path);
        if let Some(name) = self.numbers.get(&inside) {
            return *name;
        }
        let name = Name(u32::try_from(self.names.len()).expect("2^32 names do not fit into memory"));
        self.names.push(inside.clone());
        self.numbers.insert(inside, name);
        name
    }

    /// The path of a name, relative to the root; `.` is the root. `None` for a name of another trace.
    #[must_use]
    pub fn path(&self, name: Name) -> Option<&Path> {
        let path = self.names.get(usize::try_from(name.0).ok()?)?;
        Some(if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        })
    }

    /// All names, ordered by number.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.names.iter().map(PathBuf::as_path)
    }

    /// Allocates an unused handle.
    ///
    /// # Panics
    /// After 2^32 handles, whose calls do not fit into memory.
    pub fn new_handle(&mut self) -> Handle {
        let handle = Handle(self.handles);
        self.handles = self
            .handles
            .checked_add(1)
            .expect("the calls of 2^32 handles do not fit into memory");
        handle
    }

    /// Upper bound of the handles in use.
    #[must_use]
    pub const fn handle_count(&self) -> u32 {
        self.handles
    }

    /// Adds a call with unknown duration and result.
    pub fn push(&mut self, thread: u32, at_ns: u64, action: Action) {
        self.calls.push(Call {
            thread,
            at_ns,
            recorded_duration_ns: None,
            outcome: Outcome::Unknown,
            action,
        });
    }

    /// Counts an omitted item.
    pub fn skip(&mut self, reason: &str) {
        self.skip_many(reason, 1);
    }

    /// Counts `count` omitted items.
    pub fn skip_many(&mut self, reason: &str, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(counted) = self.skipped.get_mut(reason) {
            *counted = counted.saturating_add(count);
        } else {
            self.skipped.insert(reason.to_owned(), count);
        }
    }

    /// Sorts the calls by start time; calls with equal times keep their order.
    pub fn sort(&mut self) {
        self.calls.sort_by_key(|call| call.at_ns);
    }
}

/// Normalises a path inside a root as text: relative, without `.`, `..` and doubled slashes.
fn inside_root(path: &Path) -> PathBuf {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.as_os_str().as_bytes().split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    PathBuf::from(OsStr::from_bytes(&parts.join(&b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_root() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        for (path, inside) in [
            ("/data/a", "data/a"),
            ("../../etc/passwd", "etc/passwd"),
            ("/a/b/../c//./d", "a/c/d"),
            ("a/../../../..", "."),
            ("/", "."),
            ("...", "..."),
        ] {
            let name = trace.name(Path::new(path));
            assert_eq!(trace.path(name), Some(Path::new(inside)), "{path}");
        }
    }

    #[test]
    fn spellings_of_one_path_are_one_name() {
        let mut trace = Trace::new(Layer::SystemCalls, "test");
        let name = trace.name(Path::new("/data/a"));
        assert_eq!(trace.name(Path::new("data/./b/../a")), name);
        assert_ne!(trace.name(Path::new("/data/b")), name);
        assert_eq!(trace.names().len(), 2);
        assert_eq!(trace.path(Name(2)), None);
    }

    #[test]
    fn a_call_takes_at_most_eighty_bytes() {
        assert!(size_of::<Call>() <= 80, "{}", size_of::<Call>());
    }

    #[test]
    fn equal_reasons_are_counted_together() {
        let mut trace = Trace::new(Layer::Block, "test");
        trace.skip("mmap");
        trace.skip_many("mmap", 2);
        trace.skip_many("none", 0);
        assert_eq!(trace.skipped, BTreeMap::from([("mmap".to_owned(), 3)]));
    }
}
