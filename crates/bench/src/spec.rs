//! The description of a file workload, and the checks that need no system call.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::BenchError;

/// Largest record: it is held in memory once for each thread.
const RECORD_BYTES_MAX: u64 = 1 << 30;

/// More threads than this are a mistyped number.
const THREADS_MAX: u32 = 1024;

/// O_DIRECT wants at least this alignment on every device.
const SECTOR_BYTES: u64 = 512;

/// A workload on files. There is no `Default`: every choice changes what the numbers mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// An existing directory; the run makes one of its own inside.
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
    /// How data reaches the file.
    pub mode: Mode,
    /// Whether writes allocate. Patterns that read always find existing files.
    pub write_target: WriteTarget,
    /// Whether the timed window ends with an fsync of each file. Ignored by patterns that only read.
    pub fsync_at_end: bool,
    /// What the page cache holds when the window begins.
    pub cache: Cache,
    /// What is written.
    pub data: DataPattern,
    /// Decides random orders and contents: the same seed gives the same run.
    pub seed: u64,
    /// Leaves the files where they are and reports where.
    pub keep_files: bool,
}

/// Order and kind of operations. Each record is visited once at most, also in random order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Writes from the beginning to the end.
    SequentialWrite,
    /// Writes each record once in shuffled order.
    RandomWrite,
    /// Reads from the beginning to the end.
    SequentialRead,
    /// Reads each record once in shuffled order.
    RandomRead,
    /// Visits each record once in shuffled order and reads this percentage of them.
    Mixed {
        /// 0 to 100.
        read_percent: u8,
    },
}

impl Pattern {
    /// True when some operation reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::SequentialRead | Self::RandomRead | Self::Mixed { .. })
    }

    /// True when some operation writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            Self::SequentialWrite | Self::RandomWrite | Self::Mixed { .. }
        )
    }

    /// True when records are visited from the beginning to the end.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(self, Self::SequentialWrite | Self::SequentialRead)
    }
}

/// How threads are spread over files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Each thread has a file of `file_bytes`.
    OneEach,
    /// One file of `file_bytes` times threads; each thread has its own part and its own descriptor.
    Shared,
}

/// How data reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Through the page cache.
    Buffered,
    /// `O_SYNC`.
    Sync,
    /// `O_DSYNC`.
    #[serde(rename = "dsync")]
    DataSync,
    /// `O_DIRECT`.
    Direct,
    /// `O_DIRECT` and `O_SYNC`.
    #[serde(rename = "direct-sync")]
    DirectSync,
    /// Through the page cache, `fsync` after each write.
    Fsync,
    /// Through the page cache, `fdatasync` after each write.
    Fdatasync,
    /// A shared mapping; one `msync` at the end of the window when something was written.
    Mmap,
    /// A shared mapping; `msync` after each write.
    #[serde(rename = "mmap-sync")]
    MmapSync,
}

impl Mode {
    /// Every mode, in the order of help texts.
    pub const ALL: [Self; 9] = [
        Self::Buffered,
        Self::Sync,
        Self::DataSync,
        Self::Direct,
        Self::DirectSync,
        Self::Fsync,
        Self::Fdatasync,
        Self::Mmap,
        Self::MmapSync,
    ];

    /// The name that [`FromStr`] takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Sync => "sync",
            Self::DataSync => "dsync",
            Self::Direct => "direct",
            Self::DirectSync => "direct-sync",
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Mmap => "mmap",
            Self::MmapSync => "mmap-sync",
        }
    }

    pub(crate) const fn is_mapped(self) -> bool {
        matches!(self, Self::Mmap | Self::MmapSync)
    }

    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::DirectSync)
    }

    const fn syncs_each_write_by_call(self) -> bool {
        matches!(self, Self::Fsync | Self::Fdatasync | Self::MmapSync)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is none of {names}")
        })
    }
}

/// Whether writes allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteTarget {
    /// Writes go to an empty file and allocate.
    NewFile,
    /// Writes go to a file of full length and overwrite.
    ExistingFile,
}

/// What the page cache holds of the test files when the timed window begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Nothing, as far as the system allows; the outcome says how it was tried and what was left.
    Cold,
    /// Everything that fits: each file is read once before.
    Warm,
    /// Whatever the preparation left.
    AsIs,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPattern {
    /// Zeros: devices that compress or detect zeros look too fast.
    Zero,
    /// One byte, repeated.
    Constant(u8),
    /// Incompressible, and different in every block of 4 KiB.
    Random,
}

impl FileSpec {
    /// Length of each file.
    #[must_use]
    pub fn bytes_in_a_file(&self) -> u64 {
        match self.sharing {
            Sharing::OneEach => self.file_bytes,
            Sharing::Shared => self.total_bytes(),
        }
    }

    /// Bytes that all threads move together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.file_bytes.saturating_mul(u64::from(self.threads))
    }

    /// Files that the run makes.
    #[must_use]
    pub const fn files(&self) -> u32 {
        match self.sharing {
            Sharing::OneEach => self.threads,
            Sharing::Shared => 1,
        }
    }

    /// Records of each thread.
    #[must_use]
    pub(crate) const fn records(&self) -> u64 {
        self.file_bytes / self.record_bytes
    }

    /// Records that each thread visits.
    #[must_use]
    pub(crate) fn visited_records(&self) -> u64 {
        self.records().min(self.records_max.unwrap_or(u64::MAX))
    }

    /// Bytes that all threads move in the timed window.
    #[must_use]
    pub(crate) fn visited_bytes(&self) -> u64 {
        self.visited_records()
            .saturating_mul(self.record_bytes)
            .saturating_mul(u64::from(self.threads))
    }

    /// True when the files have their full content before the window.
    #[must_use]
    pub(crate) fn starts_with_content(&self) -> bool {
        self.pattern.reads() || self.write_target == WriteTarget::ExistingFile
    }

    /// Checks everything that needs no system call.
    ///
    /// # Errors
    /// [`BenchError::Spec`], naming the field, what was expected and what was found.
    pub fn validate(&self) -> Result<(), BenchError> {
        self.validate_sizes()?;
        if let Pattern::Mixed { read_percent } = self.pattern
            && read_percent > 100
        {
            return Err(BenchError::spec(
                "pattern",
                format!("{read_percent} % reads, expected 0 to 100"),
            ));
        }
        if !self.pattern.writes() && self.mode.syncs_each_write_by_call() {
            let problem = format!(
                "`{}` syncs after each write, but the pattern writes nothing",
                self.mode
            );
            return Err(BenchError::spec("mode", problem));
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<(), BenchError> {
        let (record, file) = (self.record_bytes, self.file_bytes);
        if record == 0 || record > RECORD_BYTES_MAX {
            let problem = format!("{record} bytes, expected 1 to {RECORD_BYTES_MAX}");
            return Err(BenchError::spec("record size", problem));
        }
        if self.mode.is_direct() && record % SECTOR_BYTES != 0 {
            let problem = format!("{record} bytes, expected a multiple of {SECTOR_BYTES} for O_DIRECT");
            return Err(BenchError::spec("record size", problem));
        }
        if file == 0 || file % record != 0 {
            let nearest = file.div_ceil(record).max(1).saturating_mul(record);
            let problem =
                format!("{file} bytes, expected a multiple of the record size, such as {nearest} bytes");
            return Err(BenchError::spec("file size", problem));
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            let problem = format!("{}, expected 1 to {THREADS_MAX}", self.threads);
            return Err(BenchError::spec("threads", problem));
        }
        let total = file.checked_mul(u64::from(self.threads));
        if total.is_none_or(|total| i64::try_from(total).is_err()) {
            let problem = format!("{file} bytes times {} threads is above 2^63", self.threads);
            return Err(BenchError::spec("file size", problem));
        }
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        if self.mode.is_mapped() && self.sharing == Sharing::Shared && file % page != 0 {
            let problem =
                format!("{file} bytes, expected a multiple of the page size ({page} bytes) for parts");
            return Err(BenchError::spec("file size", problem + " of a shared mapping"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_one_name_on_the_command_line_and_in_records() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.name());
        }
        assert!(
            "turbo"
                .parse::<Mode>()
                .unwrap_err()
                .contains("none of buffered, sync, dsync")
        );
    }
}
