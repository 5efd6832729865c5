//! What an application is made of, every number with a label that says where it comes from.

use std::fmt;

use results::call_trace::Layer;

use super::exact::{Bucket, Keep};

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It stands in the source.
    Published,
    /// It follows from published numbers by arithmetic.
    Derived,
    /// The source does not say; it was chosen, for the reason given.
    Assumed,
}

impl Origin {
    /// One lower-case word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A number and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labelled<T> {
    /// The number.
    pub value: T,
    /// How it is known.
    pub origin: Origin,
    /// From where, or for what reason.
    pub reason: &'static str,
}

pub(super) const fn published<T: Copy>(value: T, reason: &'static str) -> Labelled<T> {
    Labelled {
        value,
        origin: Origin::Published,
        reason,
    }
}

pub(super) const fn derived<T: Copy>(value: T, reason: &'static str) -> Labelled<T> {
    Labelled {
        value,
        origin: Origin::Derived,
        reason,
    }
}

pub(super) const fn assumed<T: Copy>(value: T, reason: &'static str) -> Labelled<T> {
    Labelled {
        value,
        origin: Origin::Assumed,
        reason,
    }
}

/// Whether requests read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// They read.
    Read,
    /// They write.
    Write,
}

/// How sizes or gaps are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    pub(super) buckets: &'static [Bucket],
    pub(super) keep: Keep,
    pub(super) order: Order,
}

/// In which order sizes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any.
    Shuffled,
    /// So many of the largest size one after the other, as large files are written; the others between these.
    LargestInRuns(usize),
}

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Existing files of a folder, open from their first use to the end.
    Files {
        /// Name of the folder.
        folder: &'static str,
        /// How many files.
        count: u64,
        /// Bytes of all together.
        bytes: u64,
    },
    /// A file that is made, written from its start, and synced before it is closed.
    NewFile {
        /// Its name.
        name: &'static str,
    },
    /// A part of the partition, for block requests.
    Region {
        /// First byte.
        start_bytes: u64,
        /// Its length.
        bytes: u64,
    },
}

/// Requests of one kind. All counts are for the whole run, at scale 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// What it is.
    pub name: &'static str,
    /// Whether it reads.
    pub direction: Direction,
    /// Requests.
    pub requests: Labelled<u64>,
    /// Bytes that they move.
    pub bytes: Labelled<u64>,
    /// Sizes of requests, bytes.
    pub sizes: Labelled<Spread>,
    /// Of 1000 requests, those that begin where the one before ended.
    pub sequential_permille: Labelled<u64>,
    /// Of 1000 requests, those that are followed by a sync.
    pub synced_permille: Labelled<u64>,
    /// Where they go.
    pub place: Labelled<Place>,
}

/// Something that the source states about the whole application.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// What is stated.
    pub statistic: Statistic,
    /// The number, in the unit of the statistic, at scale 1.
    pub value: f64,
    /// How it is stated.
    pub relation: Relation,
}

/// How a source states a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relation {
    /// The number, with this precision (half of its last digit).
    Within(f64),
    /// "Over" the number.
    AtLeast,
    /// "At most" the number.
    AtMost,
}

/// What can be stated about a trace. Percentages are of counts of reads and writes, if nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Reads and writes.
    Requests,
    /// From the first request to the last, seconds.
    DurationSeconds,
    /// Reads of all requests, percent.
    ReadPercent,
    /// Bytes read, 10^6.
    ReadMegabytes,
    /// Bytes written, 10^6.
    WrittenMegabytes,
    /// Bytes read over bytes written.
    ReadToWritten,
    /// Mean size, bytes.
    MeanBytes,
    /// Largest request, bytes.
    LargestBytes,
    /// Mean time between requests, milliseconds.
    MeanGapMilliseconds,
    /// Writes above 256 KiB of all writes, percent.
    LargeWritePercent,
    /// Writes of 4 KiB of all writes, percent.
    SmallWritePercent,
    /// Sequential of all requests, percent.
    SequentialPercent,
    /// Not sequential of all writes, percent.
    RandomWritePercent,
    /// Followed by a sync, of all writes, percent.
    SyncedWritePercent,
    /// Not followed by a sync, of all requests, percent.
    BufferedPercent,
    /// Writes to file data of all requests, percent.
    DataWritePercent,
    /// Writes to file data of all writes, percent.
    DataOfWritesPercent,
    /// Reads of file data of all reads, percent.
    DataOfReadsPercent,
}

impl Statistic {
    /// A few words with the unit.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::DurationSeconds => "duration, s",
            Self::ReadPercent => "reads of requests, %",
            Self::ReadMegabytes => "read, MB",
            Self::WrittenMegabytes => "written, MB",
            Self::ReadToWritten => "bytes read over written",
            Self::MeanBytes => "mean size, bytes",
            Self::LargestBytes => "largest request, bytes",
            Self::MeanGapMilliseconds => "mean gap, ms",
            Self::LargeWritePercent => "writes above 256 KiB, %",
            Self::SmallWritePercent => "writes of 4 KiB, %",
            Self::SequentialPercent => "sequential requests, %",
            Self::RandomWritePercent => "writes not sequential, %",
            Self::SyncedWritePercent => "writes synchronous, %",
            Self::BufferedPercent => "requests buffered, %",
            Self::DataWritePercent => "data writes of requests, %",
            Self::DataOfWritesPercent => "data of writes, %",
            Self::DataOfReadsPercent => "data of reads, %",
        }
    }

    /// True for what grows with the scale of a run.
    #[must_use]
    pub const fn scales(self) -> bool {
        matches!(
            self,
            Self::Requests | Self::DurationSeconds | Self::ReadMegabytes | Self::WrittenMegabytes
        )
    }
}

/// An application: its layer, its streams, when requests come, and what the source states of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Application {
    /// How it is called on the command line.
    pub name: &'static str,
    /// What its user did.
    pub title: &'static str,
    /// Where its requests were seen: the two layers are never mixed.
    pub layer: Layer,
    /// Who published it.
    pub source: &'static str,
    /// What the source states.
    pub claims: &'static [Claim],
    /// From the first request to the last.
    pub duration_ms: Labelled<u64>,
    /// Times between requests; one factor makes them meet the duration.
    pub gaps: Labelled<Spread>,
    /// Block requests through the page cache instead of past it. System calls are always buffered.
    pub buffered: Labelled<bool>,
    /// What it does.
    pub streams: &'static [Stream],
    /// The scale of a run that does not ask for another: under a minute at 50 MB/s.
    pub usual_scale_ppm: u64,
}

impl Application {
    /// Requests of all streams at scale 1.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.streams.iter().map(|stream| stream.requests.value).sum()
    }
}
