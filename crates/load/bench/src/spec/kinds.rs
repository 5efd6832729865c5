//! The choices of a file workload: pattern, order, engine, rate, cache, advice and data.
//!
//! Each has one name, the same on the command line and in job files; the serialized form is that of the records.

use std::str::FromStr;

use results::words::{nearest, unknown};
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Access pattern: direction and order of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Sequential writes.
    SequentialWrite,
    /// Random writes.
    RandomWrite,
    /// Sequential reads.
    SequentialRead,
    /// Random reads.
    RandomRead,
    /// Writes at the end of the file, which grows with each record: the writes allocate.
    Append,
    /// Random mix of reads and writes, with this percentage of reads.
    Mixed {
        /// 0 to 100.
        read_percent: u8,
    },
    /// Sequential mix of reads and writes, with this percentage of reads.
    SequentialMixed {
        /// 0 to 100.
        read_percent: u8,
    },
}

impl Pattern {
    /// True if any operation reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::SequentialRead | Self::RandomRead | Self::Mixed { .. } | Self::SequentialMixed { .. }
        )
    }

    /// True if any operation writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::SequentialRead | Self::RandomRead)
    }

    /// True if records are visited sequentially.
    #[must_use]
    pub const fn is_sequential(self) -> bool {
        matches!(
            self,
            Self::SequentialWrite | Self::SequentialRead | Self::Append | Self::SequentialMixed { .. }
        )
    }
}

/// The names of patterns, in the order of help texts.
const PATTERNS: [&str; 7] = [
    "sequential-write",
    "random-write",
    "sequential-read",
    "random-read",
    "append",
    "mixed:0 to mixed:100",
    "sequential-mixed:0 to sequential-mixed:100",
];

/// fio's names of patterns.
const FIO_PATTERNS: [&str; 5] = ["randwrite", "randread", "randrw", "readwrite", "write"];

/// Also accepts fio's names (`--rw`); its mixed patterns read half of the records.
impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent = |prefix| match text.strip_prefix(prefix).map(str::parse) {
            Some(Ok(read_percent @ 0..=100)) => Some(read_percent),
            _ => None,
        };
        if let Some(read_percent) = percent("mixed:") {
            return Ok(Self::Mixed { read_percent });
        }
        if let Some(read_percent) = percent("sequential-mixed:") {
            return Ok(Self::SequentialMixed { read_percent });
        }
        match text {
            "sequential-write" | "write" => Ok(Self::SequentialWrite),
            "random-write" | "randwrite" => Ok(Self::RandomWrite),
            "sequential-read" | "read" => Ok(Self::SequentialRead),
            "random-read" | "randread" => Ok(Self::RandomRead),
            "append" => Ok(Self::Append),
            "randrw" => Ok(Self::Mixed { read_percent: 50 }),
            "rw" | "readwrite" => Ok(Self::SequentialMixed { read_percent: 50 }),
            _ => {
                let fio = nearest(text, &FIO_PATTERNS).filter(|_| nearest(text, &PATTERNS).is_none());
                let hint = fio.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
                Err(unknown(text, &PATTERNS) + &hint)
            }
        }
    }
}

words! {
    /// The order in which a random pattern visits records. Sequential patterns have only one order.
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    Order {
        /// A permutation: each record once, without a table in memory.
        #[default]
        EachOnce = "each-once",
        /// Each operation draws a record independently; some are visited twice and some never.
        WithReplacement = "with-replacement",
        /// The exact order of the original Mobibench; needs a table of eight bytes per record.
        Mobibench = "mobibench",
    }
}

/// How operations are submitted to the kernel. Mapped modes copy memory and require `Psync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// `pread` and `pwrite`, one at a time per thread.
    #[default]
    Psync,
    /// io_uring, one ring per thread.
    #[serde(rename = "io_uring")]
    IoUring {
        /// Queue depth: operations in flight per thread.
        depth: u32,
    },
}

impl Engine {
    /// Operations in flight per thread, and therefore the number of its buffers.
    #[must_use]
    pub const fn depth(self) -> u32 {
        match self {
            Self::Psync => 1,
            Self::IoUring { depth } => depth,
        }
    }
}

words! {
    /// The final sync, after the last write: `fsync` of each file, or `msync` of each mapping.
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    FinalSync {
        /// No final sync: data may still be in memory when the run ends.
        #[default]
        None = "none",
        /// Timed: the last part of the window, before the close.
        Timed = "timed",
        /// Performed and measured, but not part of the timed window.
        Untimed = "untimed",
    }
}

/// A rate limit for all threads together. Deadlines are absolute: late operations are caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Bytes per second.
    BytesPerSecond(u64),
    /// Operations per second.
    OperationsPerSecond(u64),
}

/// A time-based run; the order restarts when it is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// Ramp time before the timed window, not measured.
    pub ramp_ns: u64,
    /// Length of the timed window, without final sync and close.
    pub run_ns: u64,
}

words! {
    /// Advice to the kernel about the access pattern (`posix_fadvise`, `madvise`).
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    AccessAdvice {
        /// No advice.
        #[default]
        None = "none",
        /// Sequential access.
        Sequential = "sequential",
        /// Random access: no read-ahead.
        Random = "random",
    }
}

/// Permitted access to a block device in place of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceAccess {
    /// Block devices are refused.
    #[default]
    Refused,
    /// The path is a block device, opened for reading.
    Read,
    /// The path is a block device whose content may be overwritten.
    Destroy,
}

/// Distribution of threads over files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Each thread has its own file of `file_bytes`.
    OneEach,
    /// One file of `file_bytes` times the number of threads; each thread has its own region and descriptor.
    Shared,
}

/// Whether writes allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteTarget {
    /// An empty file: writes allocate.
    NewFile,
    /// A file of full length: writes overwrite; an append goes beyond its end.
    ExistingFile,
}

words! {
    /// State of the page cache, for the test files, at the start of the timed window.
    #[serde(rename_all = "snake_case")]
    Cache {
        /// Empty, as far as the system allows; the outcome names the method and the bytes still cached.
        Cold = "cold",
        /// Everything that fits: each file is read once before the window, through its last open.
        Warm = "warm",
        /// Each file is read once, then opened again. As warm on file systems of the kernel; many mounts in user space
        /// drop the pages of a file at each open.
        Reopened = "reopened",
        /// As the preparation left it.
        AsIs = "as-is",
    }
}

impl Cache {
    /// True if the files are read before the window.
    #[must_use]
    pub const fn reads_files(self) -> bool {
        matches!(self, Self::Warm | Self::Reopened)
    }
}

/// The written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataPattern {
    /// Zeros: devices that compress or detect zeros appear too fast.
    Zero,
    /// One byte, repeated.
    Constant(u8),
    /// Incompressible, and different in every 4 KiB block.
    Random,
    /// Different in every 4 KiB block; this percentage of each block is zeros, the rest incompressible.
    Compressible(u8),
}

impl FromStr for DataPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |prefix: &str| text.strip_prefix(prefix).map(str::parse::<u8>);
        match (text, number("constant:"), number("compressible:")) {
            ("random", ..) => Ok(Self::Random),
            ("zero", ..) => Ok(Self::Zero),
            (_, Some(Ok(byte)), _) => Ok(Self::Constant(byte)),
            (_, _, Some(Ok(percent @ 0..=100))) => Ok(Self::Compressible(percent)),
            _ => Err(format!(
                "`{text}` is none of random, zero, constant:0 to constant:255, compressible:0 to compressible:100"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_know_their_percentage() {
        assert_eq!("mixed:70".parse(), Ok(Pattern::Mixed { read_percent: 70 }));
        let sequential = Pattern::SequentialMixed { read_percent: 0 };
        assert_eq!("sequential-mixed:0".parse(), Ok(sequential));
        assert!(sequential.is_sequential() && sequential.reads() && sequential.writes());
        assert_eq!("append".parse(), Ok(Pattern::Append));
        for text in ["mixed", "mixed:101", "writes", ""] {
            text.parse::<Pattern>().expect_err(text);
        }
    }

    #[test]
    fn a_slip_in_a_name_of_fio_finds_it() {
        let message = "randwrit".parse::<Pattern>().expect_err("a slip");
        assert!(message.ends_with("; did you mean `randwrite`?"), "{message}");
        let message = "sequential-wrte".parse::<Pattern>().expect_err("a slip");
        assert!(message.ends_with("did you mean `sequential-write`?"), "{message}");
    }

    #[test]
    fn patterns_have_the_names_of_fio_too() {
        for (fio, ours) in [
            ("write", "sequential-write"),
            ("randwrite", "random-write"),
            ("read", "sequential-read"),
            ("randread", "random-read"),
            ("randrw", "mixed:50"),
            ("rw", "sequential-mixed:50"),
        ] {
            assert_eq!(fio.parse::<Pattern>(), ours.parse(), "{fio}");
        }
    }

    #[test]
    fn a_mistyped_word_is_answered_with_the_one_that_was_meant() {
        for (word, meant) in [("random-wirte", "random-write"), ("appnd", "append")] {
            let message = word.parse::<Pattern>().unwrap_err();
            assert!(
                message.ends_with(&format!("; did you mean `{meant}`?")),
                "{message}"
            );
        }
        let message = "colder".parse::<Cache>().unwrap_err();
        assert_eq!(
            message,
            "`colder` is none of cold, warm, reopened, as-is; did you mean `cold`?"
        );
    }

    #[test]
    fn data_knows_its_byte_or_percentage() {
        assert_eq!("constant:7".parse(), Ok(DataPattern::Constant(7)));
        assert_eq!("compressible:100".parse(), Ok(DataPattern::Compressible(100)));
        for text in ["constant:256", "compressible:101", "constant", ""] {
            text.parse::<DataPattern>().expect_err(text);
        }
    }
}
