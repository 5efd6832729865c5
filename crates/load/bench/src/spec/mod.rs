//! The description of a file workload.

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
pub use self::mode::Mode;

/// A workload on files. There is no `Default`: every choice changes what the numbers mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// An existing directory; the run makes one of its own inside. With `device` a block device.
    pub directory: PathBuf,
    /// Order and kind of operations.
    pub pattern: Pattern,
    /// Size of each operation.
    pub record_bytes: u64,
    /// Bytes that each thread moves; a multiple of `record_bytes`.
    pub file_bytes: u64,
    /// Records that each thread visits at most, of the order that the pattern gives; `None` visits all.
    #[serde(default)]
    pub records_max: Option<u64>,
    /// Threads, each with its own part of the work.
    pub threads: u32,
    /// Whether threads share a file.
    pub sharing: Sharing,
    /// How operations are given to the kernel.
    #[serde(default)]
    pub engine: Engine,
    /// How data reaches the file.
    pub mode: Mode,
    /// Whether writes allocate. Patterns that read always find existing files.
    pub write_target: WriteTarget,
    /// Which records a random pattern visits.
    #[serde(default)]
    pub order: Order,
    /// Share of the operations of a random pattern that repeat the record of another one, 0 to 99.
    #[serde(default)]
    pub overlap_percent: u8,
    /// A limit that all threads keep together.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Pause after each operation, inside the timed window.
    #[serde(default)]
    pub think_ns: u64,
    /// Files of each thread, which share its bytes: the order goes through them one after the other.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub files_of_each: u32,
    /// How often the order is gone through. Between two passes the files are synced where the final sync is timed,
    /// and their pages given up where the cache is to be cold.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub passes: u32,
    /// The mode's sync follows each so many writes of a worker.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub sync_every: u32,
    /// Ends by the clock instead of with the last record.
    #[serde(default)]
    pub time: Option<TimeLimit>,
    /// The sync when all is written. Ignored by patterns that only read.
    #[serde(default)]
    pub final_sync: FinalSync,
    /// What the page cache holds when the window begins.
    pub cache: Cache,
    /// Refuses to measure when `Cache::Cold` was asked for and is not proven.
    #[serde(default)]
    pub cold_or_fail: bool,
    /// What the kernel is told about accesses to come.
    #[serde(default)]
    pub advice: AccessAdvice,
    /// What is written.
    pub data: DataPattern,
    /// Compares each read, and after the window everything written, with what it must be.
    #[serde(default)]
    pub verify: bool,
    /// Whether `directory` is a block device.
    #[serde(default)]
    pub device: DeviceAccess,
    /// Counts system calls by kind, as root or with `CAP_PERFMON`; makes each of them slower.
    #[serde(default)]
    pub count_calls: bool,
    /// Decides random orders and contents: the same seed gives the same run.
    pub seed: u64,
    /// Leaves the files where they are and reports where.
    pub keep_files: bool,
    /// Whether files are the run's own or stay under names.
    #[serde(default)]
    pub files: FilePlacement,
    /// What is kept of single operations, beside the histograms.
    #[serde(default)]
    pub log: LogLimits,
}

impl FileSpec {
    /// One thread, through the page cache as it is, random data into a new file, no final sync: the least that a
    /// workload can be, for callers that change what they mean.
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
            mode: Mode::Buffered,
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

    /// Length of each file when the run is over.
    #[must_use]
    pub fn bytes_in_a_file(&self) -> u64 {
        let part = match self.sharing {
            Sharing::OneEach => self.file_bytes / u64::from(self.files_of_each.max(1)),
            Sharing::Shared => self.total_bytes(),
        };
        part.saturating_add(self.prepared_before_append())
    }

    /// Bytes of all the parts that threads work in.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.threads))
    }

    /// Files that the run makes.
    #[must_use]
    pub const fn files(&self) -> u32 {
        match self.sharing {
            Sharing::OneEach => self.threads.saturating_mul(self.files_of_each),
            Sharing::Shared => 1,
        }
    }

    /// Records in the part of each thread.
    #[must_use]
    pub(crate) const fn records(&self) -> u64 {
        self.file_bytes / self.record_bytes
    }

    /// Records that each thread visits in one pass.
    #[must_use]
    pub(crate) fn visited_records(&self) -> u64 {
        self.records().min(self.records_max.unwrap_or(u64::MAX))
    }

    /// Bytes that all threads move in all passes.
    #[must_use]
    pub(crate) fn visited_bytes(&self) -> u64 {
        self.visited_records()
            .saturating_mul(u64::from(self.passes))
            .saturating_mul(self.record_bytes)
            .saturating_mul(u64::from(self.threads))
    }

    /// True when the files have content before the window.
    #[must_use]
    pub(crate) fn starts_with_content(&self) -> bool {
        self.pattern.reads() || self.write_target == WriteTarget::ExistingFile
    }

    /// Content of each file before the window.
    #[must_use]
    pub(crate) fn prepared_bytes_in_a_file(&self) -> u64 {
        match (self.starts_with_content(), self.pattern) {
            (false, _) => 0,
            (true, Pattern::Append) => self.prepared_before_append(),
            (true, _) => self.bytes_in_a_file(),
        }
    }

    /// Number of the first file that a thread works in.
    #[must_use]
    pub(crate) const fn file_of(&self, index: u32) -> u32 {
        match self.sharing {
            Sharing::OneEach => index * self.files_of_each,
            Sharing::Shared => 0,
        }
    }

    /// Where the part of a thread begins in its file.
    #[must_use]
    pub(crate) fn base_of(&self, index: u32) -> u64 {
        match self.sharing {
            Sharing::OneEach => self.prepared_before_append(),
            Sharing::Shared => u64::from(index).saturating_mul(self.file_bytes),
        }
    }

    /// Content that an append finds.
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
