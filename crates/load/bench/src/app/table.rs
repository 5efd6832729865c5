//! The table of an application; each number is labelled with its origin.

use std::fmt;

use results::call_trace::Layer;
use serde::Deserialize;

use super::exact::{Bucket, Keep};
use super::load::{kept_list, kept_text};

/// A text of a table.
pub type Text = &'static str;

/// A list of a table.
pub type List<T> = &'static [T];

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Stated in the source.
    Published,
    /// Computed from published numbers.
    Derived,
    /// Not in the source; chosen for the reason given.
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

/// A number and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labelled<T> {
    /// The number.
    pub value: T,
    /// How the number is known.
    pub origin: Origin,
    /// The place in the source, or the reason for the choice.
    #[serde(deserialize_with = "kept_text")]
    pub reason: Text,
}

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// The distribution of sizes or gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Spread {
    pub(super) buckets: &'static [Bucket],
    pub(super) keep: Keep,
    pub(super) order: Order,
}

/// The order of sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Random.
    #[default]
    Shuffled,
    /// Runs of N requests of the largest size, as when large files are written; the other sizes between the runs.
    LargestInRuns(usize),
}

/// The target of a stream's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Existing files of a folder, each open from its first use to the end.
    Files {
        /// Name of the folder.
        #[serde(deserialize_with = "kept_text")]
        folder: Text,
        /// Number of files.
        count: u64,
        /// Total size of all files.
        bytes: u64,
    },
    /// A file that is created, written from its start, and synced before it is closed.
    NewFile {
        /// Its name.
        #[serde(deserialize_with = "kept_text")]
        name: Text,
    },
    /// A part of the partition, for block requests.
    Region {
        /// Start offset.
        start_bytes: u64,
        /// Length.
        bytes: u64,
    },
}

/// Requests of one kind. All counts are for the whole run at scale 1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// The stream's name.
    #[serde(deserialize_with = "kept_text")]
    pub name: Text,
    /// Whether the stream reads or writes.
    pub direction: Direction,
    /// Number of requests.
    pub requests: Labelled<u64>,
    /// Bytes transferred.
    pub bytes: Labelled<u64>,
    /// Request sizes in bytes.
    pub sizes: Labelled<Spread>,
    /// Requests per 1000 that begin at the end of the previous one.
    pub sequential_permille: Labelled<u64>,
    /// Requests per 1000 that are followed by a sync.
    pub synced_permille: Labelled<u64>,
    /// The target of the requests.
    pub place: Labelled<Place>,
}

/// A statement of the source about the whole application.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The statistic.
    pub statistic: Statistic,
    /// The number, in the unit of the statistic, at scale 1.
    pub value: f64,
    /// How the value is bounded.
    pub relation: Relation,
}

/// How the source bounds a value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The value, to this precision (half a unit of its last digit).
    Within(f64),
    /// The source says "over".
    AtLeast,
    /// The source says "at most".
    AtMost,
}

/// A statistic of a trace. Percentages are of the number of reads and writes unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// Number of reads and writes.
    Requests,
    /// From the first request to the last, seconds.
    DurationSeconds,
    /// Reads as a percentage of all requests.
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
    /// Writes above 256 KiB as a percentage of all writes.
    LargeWritePercent,
    /// Writes of 4 KiB or less as a percentage of all writes.
    SmallWritePercent,
    /// Sequential requests as a percentage of all requests.
    SequentialPercent,
    /// Non-sequential writes as a percentage of all writes.
    RandomWritePercent,
    /// Writes followed by a sync as a percentage of all writes.
    SyncedWritePercent,
    /// Requests not followed by a sync as a percentage of all requests.
    BufferedPercent,
    /// Writes to file data as a percentage of all requests.
    DataWritePercent,
    /// Writes to file data as a percentage of all writes.
    DataOfWritesPercent,
    /// Reads of file data as a percentage of all reads.
    DataOfReadsPercent,
}

impl Statistic {
    /// A short description with the unit.
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

    /// True for statistics that grow with the scale of a run.
    #[must_use]
    pub const fn scales(self) -> bool {
        matches!(
            self,
            Self::Requests | Self::DurationSeconds | Self::ReadMegabytes | Self::WrittenMegabytes
        )
    }
}

/// An application: its layer, its streams, the timing of its requests, and the claims of its source.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// The name on the command line.
    #[serde(deserialize_with = "kept_text")]
    pub name: Text,
    /// The user's activity.
    #[serde(deserialize_with = "kept_text")]
    pub title: Text,
    /// The layer at which the requests were recorded; the two layers are never mixed.
    pub layer: Layer,
    /// The publication.
    #[serde(deserialize_with = "kept_text")]
    pub source: Text,
    /// The source's statements.
    #[serde(deserialize_with = "kept_list")]
    pub claims: List<Claim>,
    /// Time from the first request to the last.
    pub duration_ms: Labelled<u64>,
    /// Times between requests, scaled by one factor to meet the duration.
    pub gaps: Labelled<Spread>,
    /// Whether block requests go through the page cache instead of direct I/O. System calls are always buffered.
    pub buffered: Labelled<bool>,
    /// The streams of requests.
    #[serde(deserialize_with = "kept_list")]
    pub streams: List<Stream>,
    /// The default scale of a run: under a minute at 50 MB/s.
    pub usual_scale_ppm: u64,
}

impl Application {
    /// Requests of all streams at scale 1.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.streams.iter().map(|stream| stream.requests.value).sum()
    }
}
