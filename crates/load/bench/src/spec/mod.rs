//! The specification of a file workload.

mod check;
mod kinds;
mod mode;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::operation_log::LogLimits;
use crate::placement::FilePlacement;

pub use self::kinds::{
    AccessAdvice, Cache, DataPattern, DeviceAccess, Engine, FinalSync, Order, Pattern, Rate, Sharing,
    TimeLimit, WriteTarget,
};
pub use self::mode::{CachePath, Mode, SyncKind};

/// A file workload. There is no `Default`: every choice changes the meaning of the results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// An existing directory; the run creates its own directory inside. With `device`, a block device.
    pub directory: PathBuf,
    /// Access pattern.
    pub pattern: Pattern,
    /// Size of each operation (fio: `bs`).
    pub record_bytes: u64,
    /// Bytes per thread; a multiple of `record_bytes`.
    pub file_bytes: u64,
    /// Largest number of records that each thread visits, in the pattern's order; `None` visits all.
    #[serde(default)]
    pub records_max: Option<u64>,
    /// Threads, each with its own region.
    pub threads: u32,
    /// Whether threads share a file.
    pub sharing: Sharing,
    /// How operations are submitted to the kernel.
    #[serde(default)]
    pub engine: Engine,
    /// I/O mode: page cache, direct I/O, mapping, and the kind of sync.
    pub mode: Mode,
    /// Whether writes allocate. Patterns that read always use existing files.
    pub write_target: WriteTarget,
    /// The order in which a random pattern visits records.
    #[serde(default)]
    pub order: Order,
    /// Percentage of the operations of a random pattern that repeat the record of another one, 0 to 99.
    #[serde(default)]
    pub overlap_percent: u8,
    /// Rate limit for all threads together.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Think time: pause after each operation, inside the timed window.
    #[serde(default)]
    pub think_ns: u64,
    /// Number of files per thread, which share its bytes: the order goes through them in sequence.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub files_of_each: u32,
    /// Number of passes over the order. Between passes, the files are synced if the final sync is timed, and their
    /// pages dropped if a cold cache is requested.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub passes: u32,
    /// Sync after every N writes of a worker (fio: `fsync=N`).
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub sync_every: u32,
    /// Makes the run time-based instead of ending with the last record.
    #[serde(default)]
    pub time: Option<TimeLimit>,
    /// The final sync. Ignored by patterns that only read.
    #[serde(default)]
    pub final_sync: FinalSync,
    /// State of the page cache at the start of the window.
    pub cache: Cache,
    /// Fails the run if `Cache::Cold` was requested and is not proven.
    #[serde(default)]
    pub cold_or_fail: bool,
    /// Advice to the kernel about the access pattern.
    #[serde(default)]
    pub advice: AccessAdvice,
    /// The written data.
    pub data: DataPattern,
    /// Compares each read, and after the window all written data, with the expected content.
    #[serde(default)]
    pub verify: bool,
    /// Whether `directory` is a block device.
    #[serde(default)]
    pub device: DeviceAccess,
    /// Counts system calls by kind, as root or with `CAP_PERFMON`; slows each of them down.
    #[serde(default)]
    pub count_calls: bool,
    /// Seed of random orders and contents: the same seed gives the same run.
    pub seed: u64,
    /// Keeps the files and reports their location.
    pub keep_files: bool,
    /// Whether the files are private to the run or persist under names.
    #[serde(default)]
    pub files: FilePlacement,
    /// Capacity of the log of single operations, in addition to the histograms.
    #[serde(default)]
    pub log: LogLimits,
}

impl FileSpec {
    /// The simplest workload, for callers to modify: one thread, buffered I/O with the cache as it is, random data
    /// into a new file, no final sync.
    #[must_use]
    pub const fn plain(directory: PathBuf, pattern: Pattern, record_bytes: u64, file_bytes: u64) -> Self {
        Self {
            directory,
            pattern,
            record_bytes,
            file_bytes,
            records_max: None,
            threads: 1,
            sharing: Sharing::OneEach,
            engine: Engine::Psync,
            mode: Mode::BUFFERED,
            write_target: WriteTarget::NewFile,
            order: Order::EachOnce,
            overlap_percent: 0,
            rate: None,
            think_ns: 0,
            files_of_each: 1,
            passes: 1,
            sync_every: 1,
            time: None,
            final_sync: FinalSync::None,
            cache: Cache::AsIs,
            cold_or_fail: false,
            advice: AccessAdvice::None,
            data: DataPattern::Random,
            verify: false,
            device: DeviceAccess::Refused,
            count_calls: false,
            seed: 1,
            keep_files: false,
            files: FilePlacement::OwnDirectory,
            log: LogLimits::NOTHING,
        }
    }

    /// Length of each file at the end of the run.
    #[must_use]
    pub fn bytes_in_a_file(&self) -> u64 {
        let part = match self.sharing {
            Sharing::OneEach => self.file_bytes / u64::from(self.files_of_each.max(1)),
            Sharing::Shared => self.total_bytes(),
        };
        part.saturating_add(self.prepared_before_append())
    }

    /// Total size of all threads' regions.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.threads))
    }

    /// Number of files that the run creates.
    #[must_use]
    pub const fn files(&self) -> u32 {
        match self.sharing {
            Sharing::OneEach => self.threads.saturating_mul(self.files_of_each),
            Sharing::Shared => 1,
        }
    }

    /// Records in each thread's region.
    #[must_use]
    pub(crate) const fn records(&self) -> u64 {
        self.file_bytes / self.record_bytes
    }

    /// Records that each thread visits in one pass.
    #[must_use]
    pub(crate) fn visited_records(&self) -> u64 {
        self.records().min(self.records_max.unwrap_or(u64::MAX))
    }

    /// Bytes transferred by all threads in all passes.
    #[must_use]
    pub(crate) fn visited_bytes(&self) -> u64 {
        self.visited_records()
            .saturating_mul(u64::from(self.passes))
            .saturating_mul(self.record_bytes)
            .saturating_mul(u64::from(self.threads))
    }

    /// True if the files have content before the window.
    #[must_use]
    pub(crate) fn starts_with_content(&self) -> bool {
        self.pattern.reads() || self.write_target == WriteTarget::ExistingFile
    }

    /// Content of each file before the window, in bytes.
    #[must_use]
    pub(crate) fn prepared_bytes_in_a_file(&self) -> u64 {
        match (self.starts_with_content(), self.pattern) {
            (false, _) => 0,
            (true, Pattern::Append) => self.prepared_before_append(),
            (true, _) => self.bytes_in_a_file(),
        }
    }

    /// Number of the first file of a thread.
    #[must_use]
    pub(crate) const fn file_of(&self, index: u32) -> u32 {
        match self.sharing {
            Sharing::OneEach => index * self.files_of_each,
            Sharing::Shared => 0,
        }
    }

    /// Start offset of a thread's region in its file.
    #[must_use]
    pub(crate) fn base_of(&self, index: u32) -> u64 {
        match self.sharing {
            Sharing::OneEach => self.prepared_before_append(),
            Sharing::Shared => u64::from(index).saturating_mul(self.file_bytes),
        }
    }

    /// Content of a file before an append, in bytes.
    fn prepared_before_append(&self) -> u64 {
        match (self.pattern, self.write_target) {
            (Pattern::Append, WriteTarget::ExistingFile) => self.file_bytes,
            _ => 0,
        }
    }
}

const fn once() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
const fn is_once(times: &u32) -> bool {
    *times == 1
}
