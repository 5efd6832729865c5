//! The choices of a file workload: pattern, order, engine, pace, cache, advice and data.
//!
//! Each has one name, the same on the command line and in job files; the serialised form is that of the records.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sequential-write" => Ok(Self::SequentialWrite),
            "random-write" => Ok(Self::RandomWrite),
            "sequential-read" => Ok(Self::SequentialRead),
            "random-read" => Ok(Self::RandomRead),
            "append" => Ok(Self::Append),
            _ => {
                let percent = |prefix| match text.strip_prefix(prefix).map(str::parse) {
                    Some(Ok(read_percent @ 0..=100)) => Some(read_percent),
                    _ => None,
                };
                let random = percent("mixed:").map(|read_percent| Self::Mixed { read_percent });
                let sequential = || {
                    percent("sequential-mixed:").map(|read_percent| Self::SequentialMixed { read_percent })
                };
                random.or_else(sequential).ok_or_else(|| {
                    format!(
                        "`{text}` is none of sequential-write, random-write, sequential-read, random-read, append, \
                         mixed:0 to mixed:100, sequential-mixed:0 to sequential-mixed:100"
                    )
                })
            }
        }
    }
}

/// Which records a random pattern visits. Patterns from the beginning to the end know one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A permutation: each record once, without a table in memory.
    #[default]
    EachOnce,
    /// Each operation draws a record by itself; some come twice and some never.
    WithReplacement,
    /// The order of the original Mobibench, bit for bit; a table of eight bytes for each record.
    Mobibench,
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "each-once" => Ok(Self::EachOnce),
            "with-replacement" => Ok(Self::WithReplacement),
            "mobibench" => Ok(Self::Mobibench),
            _ => Err(format!(
                "`{text}` is none of each-once, with-replacement, mobibench"
            )),
        }
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

/// The sync when all is written: `fsync` of each file, or `msync` of each mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalSync {
    /// There is none: data may be in memory when the run ends.
    #[default]
    None,
    /// The last part of the timed window, before the close.
    Timed,
    /// Done and measured, but not part of the timed window.
    Untimed,
}

impl FromStr for FinalSync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "timed" => Ok(Self::Timed),
            "untimed" => Ok(Self::Untimed),
            _ => Err(format!("`{text}` is none of none, timed, untimed")),
        }
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

/// What the kernel is told about accesses to come (`posix_fadvise`, `madvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessAdvice {
    /// Nothing.
    #[default]
    None,
    /// Accesses will be sequential.
    Sequential,
    /// Accesses will be random: no read-ahead.
    Random,
}

impl FromStr for AccessAdvice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "sequential" => Ok(Self::Sequential),
            "random" => Ok(Self::Random),
            _ => Err(format!("`{text}` is none of none, sequential, random")),
        }
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

impl FromStr for Cache {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "cold" => Ok(Self::Cold),
            "warm" => Ok(Self::Warm),
            "as-is" => Ok(Self::AsIs),
            other => Err(format!("`{other}` is none of cold, warm, as-is")),
        }
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
        for text in ["mixed", "mixed:101", "write", ""] {
            text.parse::<Pattern>().expect_err(text);
        }
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
