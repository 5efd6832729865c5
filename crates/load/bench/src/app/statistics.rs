//! Statistics of a trace: of a generated one, or of the calls that strace recorded at a file system.
//!
//! A request is sequential if it begins at the end of one of the last eight requests of its direction in the same
//! file: interleaved streams do not make each other random. A request is synchronous if the next call is a sync.

use std::collections::{HashMap, VecDeque};

use results::call_trace::{Action, Handle, Trace};
use results::nearest_f64;

use super::generate::Scale;
use super::table::{Application, Claim, Direction, Relation, Statistic};

/// Number of interleaved streams that are recognized in one file.
const STREAMS: usize = 8;

/// File data of the partition of `apps/blocks.toml` starts here.
const DATA_START_BYTES: u64 = 48 << 20;

const LARGE_BYTES: u64 = 256 << 10;
const SMALL_BYTES: u64 = 4096;

/// Counts over the reads and writes of a trace; opens, closes and syncs are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the count that it is named for")]
pub struct Statistics {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub largest_bytes: u64,
    /// From the first request to the last.
    pub duration_ns: u64,
    /// Writes above 256 KiB.
    pub large_writes: u64,
    /// Writes of 4 KiB or less.
    pub small_writes: u64,
    pub sequential_reads: u64,
    pub sequential_writes: u64,
    pub synced_writes: u64,
    /// Reads in the partition's file data area.
    pub data_reads: u64,
    /// Writes in the partition's file data area.
    pub data_writes: u64,
}

impl Statistics {
    /// Computes the statistics of a trace of either layer.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut found = Self::default();
        let mut ends: HashMap<(Direction, Option<Handle>), VecDeque<u64>> = HashMap::new();
        let mut first_ns = None;
        for (place, call) in trace.calls.iter().enumerate() {
            let (direction, handle, offset, bytes) = match call.action {
                Action::ReadAt {
                    handle,
                    bytes,
                    offset,
                } => (Direction::Read, Some(handle), offset, bytes),
                Action::WriteAt {
                    handle,
                    bytes,
                    offset,
                } => (Direction::Write, Some(handle), offset, bytes),
                Action::BlockRead { offset, bytes } => (Direction::Read, None, offset, bytes),
                Action::BlockWrite { offset, bytes } => (Direction::Write, None, offset, bytes),
                _ => continue,
            };
            let first_ns = *first_ns.get_or_insert(call.at_ns);
            found.duration_ns = call.at_ns - first_ns;
            let ends = ends.entry((direction, handle)).or_default();
            let is_sequential = ends.contains(&offset);
            ends.retain(|end| *end != offset);
            ends.push_back(offset + bytes);
            if ends.len() > STREAMS {
                ends.pop_front();
            }
            let is_synced = trace
                .calls
                .get(place + 1)
                .is_some_and(|next| is_sync(&next.action));
            found.add(direction, offset, bytes, is_sequential, is_synced);
        }
        found
    }

    fn add(&mut self, direction: Direction, offset: u64, bytes: u64, is_sequential: bool, is_synced: bool) {
        let is_data = u64::from(offset >= DATA_START_BYTES);
        self.largest_bytes = self.largest_bytes.max(bytes);
        match direction {
            Direction::Read => {
                self.reads += 1;
                self.read_bytes += bytes;
                self.sequential_reads += u64::from(is_sequential);
                self.data_reads += is_data;
            }
            Direction::Write => {
                self.writes += 1;
                self.written_bytes += bytes;
                self.sequential_writes += u64::from(is_sequential);
                self.large_writes += u64::from(bytes > LARGE_BYTES);
                self.small_writes += u64::from(bytes <= SMALL_BYTES);
                self.synced_writes += u64::from(is_synced);
                self.data_writes += is_data;
            }
        }
    }

    /// Reads and writes.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// The value of one statistic; not finite if it is undefined.
    #[must_use]
    pub fn value(&self, statistic: Statistic) -> f64 {
        let percent = |part: u64, whole: u64| 100.0 * nearest_f64(part) / nearest_f64(whole);
        let requests = self.requests();
        match statistic {
            Statistic::Requests => nearest_f64(requests),
            Statistic::DurationSeconds => nearest_f64(self.duration_ns) / 1e9,
            Statistic::ReadPercent => percent(self.reads, requests),
            Statistic::ReadMegabytes => nearest_f64(self.read_bytes) / 1e6,
            Statistic::WrittenMegabytes => nearest_f64(self.written_bytes) / 1e6,
            Statistic::ReadToWritten => nearest_f64(self.read_bytes) / nearest_f64(self.written_bytes),
            Statistic::MeanBytes => nearest_f64(self.read_bytes + self.written_bytes) / nearest_f64(requests),
            Statistic::LargestBytes => nearest_f64(self.largest_bytes),
            Statistic::MeanGapMilliseconds => {
                nearest_f64(self.duration_ns) / 1e6 / nearest_f64(requests.saturating_sub(1))
            }
            Statistic::LargeWritePercent => percent(self.large_writes, self.writes),
            Statistic::SmallWritePercent => percent(self.small_writes, self.writes),
            Statistic::SequentialPercent => percent(self.sequential_reads + self.sequential_writes, requests),
            Statistic::RandomWritePercent => percent(self.writes - self.sequential_writes, self.writes),
            Statistic::SyncedWritePercent => percent(self.synced_writes, self.writes),
            Statistic::BufferedPercent => percent(requests - self.synced_writes, requests),
            Statistic::DataWritePercent => percent(self.data_writes, requests),
            Statistic::DataOfWritesPercent => percent(self.data_writes, self.writes),
            Statistic::DataOfReadsPercent => percent(self.data_reads, self.reads),
        }
    }
}

const fn is_sync(action: &Action) -> bool {
    matches!(
        action,
        Action::Fsync { .. } | Action::Fdatasync { .. } | Action::BlockFlush
    )
}

/// A claim of the source beside the measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    /// The source's claim, at scale 1.
    pub claim: Claim,
    /// The expected value at the scale of the run.
    pub expected: f64,
    /// The measured value.
    pub found: f64,
    /// Whether they agree, to the precision of the source; a scaled run may be off by the rounding of its counts.
    pub agrees: bool,
}

impl Application {
    /// Compares the statistics of a run at `scale` with all claims of the source.
    #[must_use]
    pub fn check(&self, measured: &Statistics, scale: Scale) -> Vec<Checked> {
        let factor = nearest_f64(scale.ppm) / 1e6;
        self.claims
            .iter()
            .map(|&claim| {
                let grows = if claim.statistic.scales() { factor } else { 1.0 };
                let expected = claim.value * grows;
                let found = measured.value(claim.statistic);
                let slack = if scale == Scale::WHOLE {
                    0.0
                } else {
                    self.rounding(claim.statistic, measured)
                };
                let agrees = match claim.relation {
                    Relation::Within(precision) => (found - expected).abs() <= precision * grows + slack,
                    Relation::AtLeast => found >= expected - slack,
                    Relation::AtMost => found <= expected,
                };
                Checked {
                    claim,
                    expected,
                    found,
                    agrees,
                }
            })
            .collect()
    }

    /// The largest error that rounding the counts of each stream causes in a statistic.
    fn rounding(&self, statistic: Statistic, measured: &Statistics) -> f64 {
        let streams = u64::try_from(self.streams.len()).unwrap_or(u64::MAX);
        let requests = match statistic {
            Statistic::Requests => return nearest_f64(streams),
            Statistic::DurationSeconds | Statistic::ReadMegabytes | Statistic::WrittenMegabytes => {
                return 0.01;
            }
            Statistic::MeanBytes | Statistic::LargestBytes => return 0.0,
            Statistic::LargeWritePercent
            | Statistic::SmallWritePercent
            | Statistic::RandomWritePercent
            | Statistic::SyncedWritePercent
            | Statistic::DataOfWritesPercent => measured.writes,
            Statistic::DataOfReadsPercent => measured.reads,
            Statistic::ReadPercent
            | Statistic::ReadToWritten
            | Statistic::MeanGapMilliseconds
            | Statistic::SequentialPercent
            | Statistic::BufferedPercent
            | Statistic::DataWritePercent => measured.requests(),
        };
        100.0 * nearest_f64(streams) / nearest_f64(requests.max(1))
    }
}
