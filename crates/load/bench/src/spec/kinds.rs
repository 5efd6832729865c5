//! The choices of a file workload: pattern, order, engine, pace, cache, advice and data.
//!
//! Each has one name, the same on the command line and in job files; the serialised form is that of the records.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::words::{unknown, words};

/// Order and kind of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Writes from the beginning to the end.
    SequentialWrite,
    /// Writes records in random order.
    RandomWrite,
    /// Reads from the beginning to the end.
    SequentialRead,
    /// Reads records in random order.
    RandomRead,
    /// Writes at the end of the file, which grows by each record: the write allocates.
    Append,
    /// Visits records in random order and reads this percentage of them.
    Mixed {
        /// 0 to 100.
        read_percent: u8,
    },
    /// Visits records from the beginning to the end and reads this percentage of them.
    SequentialMixed {
        /// 0 to 100.
        read_percent: u8,
    },
}

impl Pattern {
    /// True when some operation reads.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(
            self,
            Self::SequentialRead | Self::RandomRead | Self::Mixed { .. } | Self::SequentialMixed { .. }
        )
    }

    /// True when some operation writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::SequentialRead | Self::RandomRead)
    }

    /// True when records are visited from the beginning to the end.
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

/// Takes the names of fio (`--rw`) too; its mixed patterns read half of the records.
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
            _ => Err(unknown(text, &PATTERNS)),
        }
    }
}

words! {
    /// Which records a random pattern visits. Patterns from the beginning to the end know one order.
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    Order {
        /// A permutation: each record once, without a table in memory.
        #[default]
        EachOnce = "each-once",
        /// Each operation draws a record by itself; some come twice and some never.
        WithReplacement = "with-replacement",
        /// The order of the original Mobibench, bit for bit; a table of eight bytes for each record.
        Mobibench = "mobibench",
    }
}

/// How operations are given to the kernel. Mapped modes copy memory, with `Psync` alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// `pread` and `pwrite`, one at a time in each thread.
    #[default]
    Psync,
    /// io_uring, one ring in each thread.
    #[serde(rename = "io_uring")]
    IoUring {
        /// Operations in flight in each thread.
        depth: u32,
    },
}

impl Engine {
    /// Operations that a thread has in flight, and so buffers that it needs.
    #[must_use]
    pub const fn depth(self) -> u32 {
        match self {
            Self::Psync => 1,
            Self::IoUring { depth } => depth,
        }
    }
}

words! {
    /// The sync when all is written: `fsync` of each file, or `msync` of each mapping.
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    FinalSync {
        /// There is none: data may be in memory when the run ends.
        #[default]
        None = "none",
        /// The last part of the timed window, before the close.
        Timed = "timed",
        /// Done and measured, but not part of the timed window.
        Untimed = "untimed",
    }
}

/// A limit that all threads keep together. Deadlines are absolute: what came late is caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Bytes a second.
    BytesPerSecond(u64),
    /// Operations a second.
    OperationsPerSecond(u64),
}

/// A run that ends by the clock; the order begins again when it is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeLimit {
    /// Worked before the timed window, and not measured.
    pub ramp_ns: u64,
    /// Length of the timed window, final sync and close not included.
    pub run_ns: u64,
}

words! {
    /// What the kernel is told about accesses to come (`posix_fadvise`, `madvise`).
    #[derive(Default)]
    #[serde(rename_all = "snake_case")]
    AccessAdvice {
        /// Nothing.
        #[default]
        None = "none",
        /// Accesses will be sequential.
        Sequential = "sequential",
        /// Accesses will be random: no read-ahead.
        Random = "random",
    }
}

/// What may be done with a block device that stands where a directory is expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceAccess {
    /// Block devices are refused.
    #[default]
    Refused,
    /// The path is a block device, which is read.
    Read,
    /// The path is a block device, and what it holds may be lost.
    Destroy,
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

/// Whether writes allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteTarget {
    /// Writes go to an empty file and allocate.
    NewFile,
    /// Writes go to a file of full length and overwrite; an append goes behind its end.
    ExistingFile,
}

words! {
    /// What the page cache holds of the test files when the timed window begins.
    #[serde(rename_all = "snake_case")]
    Cache {
        /// Nothing, as far as the system allows; the outcome says how it was tried and what was left.
        Cold = "cold",
        /// Everything that fits: each file is read once before.
        Warm = "warm",
        /// Whatever the preparation left.
        AsIs = "as-is",
    }
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
    /// Different in every block of 4 KiB; this percentage of each is zeros, the rest incompressible.
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
            "`colder` is none of cold, warm, as-is; did you mean `cold`?"
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
