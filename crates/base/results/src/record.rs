//! The record of one run. Field names are the format: renaming one needs a new [`SCHEMA`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::histogram::LatencyHistogram;
use crate::statistics::nearest_f64;

/// Name and version of the format: the first field of every record.
pub const SCHEMA: &str = "tidegate.run/1";

/// Names of the counters that more than one crate uses; the unit is the last word.
pub mod counter {
    /// Writes that reached the file system behind a mount.
    pub const BACKING_WRITES: &str = "backing_writes_count";
    /// Voluntary context switches of the threads that did the work.
    pub const CONTEXT_SWITCHES_VOLUNTARY: &str = "context_switches_voluntary_count";
    /// Involuntary context switches of the threads that did the work.
    pub const CONTEXT_SWITCHES_INVOLUNTARY: &str = "context_switches_involuntary_count";
    /// Context switches of the whole machine during the timed window.
    pub const CONTEXT_SWITCHES_SYSTEM: &str = "context_switches_system_count";
    /// Share of the machine's processor time spent in user, nice, system and interrupts.
    pub const CPU_ACTIVE: &str = "cpu_active_percent";
    /// Share of the machine's processor time spent idle, without outstanding I/O.
    pub const CPU_IDLE: &str = "cpu_idle_percent";
    /// Share of the machine's processor time spent idle with outstanding I/O.
    pub const CPU_IOWAIT: &str = "cpu_iowait_percent";
    /// Share of the machine's processor time taken by its hypervisor.
    pub const CPU_STEAL: &str = "cpu_steal_percent";
    /// Processor time of the threads that did the work.
    pub const WORKER_CPU: &str = "worker_cpu_ns";
    /// User-mode part of [`WORKER_CPU`].
    pub const WORKER_CPU_USER: &str = "worker_cpu_user_ns";
    /// Time from the start of the slowest worker until its last sync returned.
    pub const LONGEST_WORKER: &str = "longest_worker_ns";
    /// Bytes of the test files that were in the page cache when the timed window began.
    pub const CACHED_BEFORE: &str = "cached_before_bytes";
    /// Reads completed by the block device below the file system, for all programs.
    pub const DEVICE_READS: &str = "device_reads_count";
    /// Bytes of [`DEVICE_READS`].
    pub const DEVICE_READ: &str = "device_read_bytes";
    /// Writes completed by the block device below the file system, for all programs.
    pub const DEVICE_WRITES: &str = "device_writes_count";
    /// Bytes of [`DEVICE_WRITES`].
    pub const DEVICE_WRITTEN: &str = "device_written_bytes";
    /// Discards completed by the block device.
    pub const DEVICE_DISCARDS: &str = "device_discards_count";
    /// Bytes of [`DEVICE_DISCARDS`].
    pub const DEVICE_DISCARDED: &str = "device_discarded_bytes";
    /// Cache flushes completed by the block device (not counted for partitions).
    pub const DEVICE_FLUSHES: &str = "device_flushes_count";
    /// Time during which the block device was busy.
    pub const DEVICE_BUSY: &str = "device_busy_ms";
    /// Bytes that reached the block device per byte that the workload wrote.
    pub const WRITE_AMPLIFICATION: &str = "write_amplification_ratio";
    /// Share of the bytes read that came from the page cache. Read-ahead counts as fetched from storage, so the true
    /// share may be higher.
    pub const PAGE_CACHE_HIT: &str = "page_cache_hit_percent";
    /// Read-family system calls of the process.
    pub const PROCESS_READ_CALLS: &str = "process_read_calls_count";
    /// Write-family system calls of the process.
    pub const PROCESS_WRITE_CALLS: &str = "process_write_calls_count";
    /// Bytes fetched from storage for the process.
    pub const PROCESS_STORAGE_READ: &str = "process_storage_read_bytes";
    /// Bytes of pages dirtied by the process, plus its direct writes.
    pub const PROCESS_STORAGE_WRITTEN: &str = "process_storage_written_bytes";
    /// System calls of the measuring threads in total; each kind has its own `system_calls_KIND_count`.
    pub const SYSTEM_CALLS: &str = "system_calls_count";
}

/// One run of one workload on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The command line that started the run, as given.
    pub command: Vec<String>,
    /// Version of the measuring program.
    pub tool_version: String,
    /// Start of the timed window in nanoseconds since 1970 (wall clock, for people).
    pub started_unix_ns: u64,
    /// The machine.
    pub host: HostInfo,
    /// The file system under test.
    pub target: TargetInfo,
    /// Name of the configuration in a comparison (`native`, `fuse-4k` ...).
    pub label: String,
    /// Round of an interleaved comparison, counted from 0; records of one round belong together.
    pub round: u32,
    /// Description of the workload, in the format of the crate that ran it.
    pub workload: serde_json::Value,
    /// One entry for each kind of operation.
    pub samples: Vec<Sample>,
    /// Other measured values; the last word of the name is the unit (see [`counter`]).
    pub counters: BTreeMap<String, f64>,
    /// False when the run was stopped early: its numbers are partial.
    pub complete: bool,
}

/// The parts of a record that are known before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunIdentity {
    /// The command line that started the run.
    pub command: Vec<String>,
    /// Version of the program.
    pub tool_version: String,
    /// Name of the configuration in a comparison.
    pub label: String,
    /// Round of the comparison, counted from 0.
    pub round: u32,
    /// The machine.
    pub host: HostInfo,
    /// The file system under test.
    pub target: TargetInfo,
}

impl RunRecord {
    /// Bytes moved by all samples over the longest window, in MB/s (10^6 bytes per second).
    ///
    /// `None` when no bytes were moved or no time passed.
    #[must_use]
    pub fn mb_per_s(&self) -> Option<f64> {
        let bytes = self
            .samples
            .iter()
            .map(|sample| sample.bytes)
            .fold(0, u64::saturating_add);
        let elapsed_ns = self.samples.iter().map(|sample| sample.elapsed_ns).max()?;
        rate(bytes, elapsed_ns).map(|per_second| per_second / 1e6)
    }

    /// The sample of one kind of operation.
    #[must_use]
    pub fn sample(&self, operation: &str) -> Option<&Sample> {
        self.samples.iter().find(|sample| sample.operation == operation)
    }
}

/// The machine of a run. Fields added later are missing in older records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Kernel name and release (`Linux 6.12.1`).
    pub kernel: String,
    /// Hardware architecture (`x86_64`).
    pub machine: String,
    /// Processor model, if the kernel reports it.
    pub processor: Option<String>,
    /// Processors this process may use.
    pub cpus: u32,
    /// Main memory.
    pub memory_bytes: u64,
    /// CPU frequency governor (`schedutil`), if frequency scaling is available.
    #[serde(default)]
    pub governor: Option<String>,
    /// Load average over the minute before the run: threads running or waiting for storage.
    #[serde(default)]
    pub load_average: Option<f64>,
}

/// The file system under test. Values that the system does not report are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// The given directory as an absolute path.
    pub path: String,
    /// Type as the mount table spells it (`ext4`, `fuse.tidegate`).
    pub file_system_type: Option<String>,
    /// Source as the mount table spells it (`/dev/sda1`).
    pub mount_source: Option<String>,
    /// Options of the mount and of the file system, comma-separated.
    pub mount_options: Option<String>,
    /// Kernel name of the block device below (`sda1`).
    pub block_device: Option<String>,
    /// Active I/O scheduler of that device.
    pub scheduler: Option<String>,
    /// Free space available to this user before the run.
    pub free_bytes: Option<u64>,
    /// Model of that device, or the file behind a loop device.
    #[serde(default)]
    pub device_model: Option<String>,
    /// True if the kernel classifies the device as rotational.
    #[serde(default)]
    pub rotational: Option<bool>,
    /// Read-ahead size of that device.
    #[serde(default)]
    pub read_ahead_bytes: Option<u64>,
    /// `write back` when the device has a volatile cache, else `write through`.
    #[serde(default)]
    pub write_cache: Option<String>,
}

/// Results of one kind of operation in the timed window.
///
/// Invariant: no latency exceeds the window plus the time outside it (`elapsed_ns + outside_ns`). [`Sample::new`] and
/// the record reader enforce it; records written before `outside_ns` existed are not checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredSample")]
#[non_exhaustive]
pub struct Sample {
    /// `read`, `write`, `sync`, `create`, `list`, `stat` or `remove`.
    pub operation: String,
    /// Number of completed operations.
    pub operations_count: u64,
    /// Bytes actually moved.
    pub bytes: u64,
    /// Length of the timed window, including final sync and close.
    pub elapsed_ns: u64,
    /// Part of `elapsed_ns` after the last operation, until every final sync had returned.
    pub sync_ns: u64,
    /// Part of `elapsed_ns` after the last final sync, until every file was closed.
    pub close_ns: u64,
    /// Time before and after the timed window in which counted operations may have run: the ramp, because an
    /// operation that ends in the window may begin there, and a final sync that is not timed.
    pub outside_ns: u64,
    /// Latencies of the operations.
    pub latency: LatencyHistogram,
}

/// The length of a timed window and its parts, as in the fields of [`Sample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is that of `Sample`")]
pub struct TimedWindow {
    pub elapsed_ns: u64,
    pub sync_ns: u64,
    pub close_ns: u64,
    pub outside_ns: u64,
}

impl TimedWindow {
    /// A window without final sync or close.
    #[must_use]
    pub const fn of(elapsed_ns: u64) -> Self {
        Self {
            elapsed_ns,
            sync_ns: 0,
            close_ns: 0,
            outside_ns: 0,
        }
    }
}

/// A latency longer than the time available to its operation. This is a measurement error, not a slow device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{operation}: a latency of {latency_ns} ns in a window of {window_ns} ns, which cannot be: the measurement is wrong; \
     please report it with the command that measured"
)]
pub struct ImpossibleLatency {
    /// Name of the operation.
    pub operation: String,
    /// The longest latency.
    pub latency_ns: u64,
    /// Length of the timed window plus the time outside it.
    pub window_ns: u64,
}

impl Sample {
    /// A sample of operations that moved `bytes` in total.
    ///
    /// # Errors
    /// When a latency exceeds the window and the time outside it.
    pub fn new(
        operation: impl Into<String>,
        (operations_count, bytes): (u64, u64),
        window: TimedWindow,
        latency: LatencyHistogram,
    ) -> Result<Self, ImpossibleLatency> {
        let operation = operation.into();
        let window_ns = window.elapsed_ns.saturating_add(window.outside_ns);
        match latency.summary() {
            Some(summary) if summary.max_ns > window_ns => Err(ImpossibleLatency {
                operation,
                latency_ns: summary.max_ns,
                window_ns,
            }),
            _ => Ok(Self {
                operation,
                operations_count,
                bytes,
                elapsed_ns: window.elapsed_ns,
                sync_ns: window.sync_ns,
                close_ns: window.close_ns,
                outside_ns: window.outside_ns,
                latency,
            }),
        }
    }

    /// Throughput in MB/s (10^6 bytes per second); `None` when no time passed or no bytes moved.
    #[must_use]
    pub fn mb_per_s(&self) -> Option<f64> {
        rate(self.bytes, self.elapsed_ns).map(|per_second| per_second / 1e6)
    }

    /// Operations per second; `None` when no time passed or nothing was done.
    #[must_use]
    pub fn operations_per_s(&self) -> Option<f64> {
        rate(self.operations_count, self.elapsed_ns)
    }
}

/// The stored form of a sample.
#[derive(Deserialize)]
struct StoredSample {
    operation: String,
    operations_count: u64,
    bytes: u64,
    elapsed_ns: u64,
    sync_ns: u64,
    close_ns: u64,
    outside_ns: Option<u64>,
    latency: LatencyHistogram,
}

impl TryFrom<StoredSample> for Sample {
    type Error = ImpossibleLatency;

    fn try_from(stored: StoredSample) -> Result<Self, Self::Error> {
        let window = TimedWindow {
            elapsed_ns: stored.elapsed_ns,
            sync_ns: stored.sync_ns,
            close_ns: stored.close_ns,
            outside_ns: stored.outside_ns.unwrap_or(u64::MAX),
        };
        let amounts = (stored.operations_count, stored.bytes);
        let mut sample = Self::new(stored.operation, amounts, window, stored.latency)?;
        sample.outside_ns = stored.outside_ns.unwrap_or(0);
        Ok(sample)
    }
}

fn rate(amount: u64, elapsed_ns: u64) -> Option<f64> {
    (amount > 0 && elapsed_ns > 0).then(|| nearest_f64(amount) * 1e9 / nearest_f64(elapsed_ns))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(label: &str, round: u32, bytes: u64, elapsed_ns: u64) -> RunRecord {
        let mut latency = LatencyHistogram::new();
        latency.record(elapsed_ns);
        RunRecord {
            schema: SCHEMA.to_owned(),
            command: vec!["tidegate".to_owned(), "demo".to_owned()],
            tool_version: "0.1.0".to_owned(),
            started_unix_ns: 1,
            host: HostInfo::default(),
            target: TargetInfo::default(),
            label: label.to_owned(),
            round,
            workload: serde_json::json!({ "record_bytes": 4096 }),
            samples: vec![Sample::new("write", (1, bytes), TimedWindow::of(elapsed_ns), latency).unwrap()],
            counters: BTreeMap::from([(counter::BACKING_WRITES.to_owned(), 7.0)]),
            complete: true,
        }
    }

    #[test]
    fn throughput_counts_bytes_really_moved_over_the_whole_window() {
        assert_eq!(
            record("native", 0, 512_000_000, 2_000_000_000).mb_per_s(),
            Some(256.0)
        );
    }

    #[test]
    fn a_latency_longer_than_its_window_is_no_sample() {
        let mut latency = LatencyHistogram::new();
        latency.record(1_001);
        let window = TimedWindow::of(1_000);
        let error = Sample::new("write", (1, 1), window, latency.clone()).unwrap_err();
        let expected = ImpossibleLatency {
            operation: "write".to_owned(),
            latency_ns: 1_001,
            window_ns: 1_000,
        };
        assert_eq!(error, expected);
        assert!(
            error
                .to_string()
                .starts_with("write: a latency of 1001 ns in a window of 1000 ns")
        );
        let with_a_ramp = TimedWindow {
            outside_ns: 1,
            ..window
        };
        assert_eq!(
            Sample::new("write", (1, 1), with_a_ramp, latency)
                .unwrap()
                .elapsed_ns,
            1_000
        );
    }

    #[test]
    fn a_record_with_an_impossible_latency_is_refused_unless_it_is_older_than_the_rule() {
        let written = serde_json::to_value(record("native", 0, 10, 20)).unwrap();
        let mut wrong = written.clone();
        wrong["samples"][0]["latency"]["max_ns"] = 21.into();
        let error = serde_json::from_value::<RunRecord>(wrong.clone())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("a latency of 21 ns in a window of 20 ns"),
            "{error}"
        );
        wrong["samples"][0]
            .as_object_mut()
            .unwrap()
            .remove("outside_ns")
            .unwrap();
        let old: RunRecord = serde_json::from_value(wrong).unwrap();
        assert_eq!((old.samples[0].outside_ns, old.samples[0].elapsed_ns), (0, 20));
        assert_eq!(
            serde_json::from_value::<RunRecord>(written).unwrap(),
            record("native", 0, 10, 20)
        );
    }

    #[test]
    fn a_window_without_bytes_or_time_has_no_rate() {
        assert_eq!(record("native", 0, 0, 5).mb_per_s(), None);
        assert_eq!(record("native", 0, 5, 0).mb_per_s(), None);
        let mut empty = record("native", 0, 5, 5);
        empty.samples.clear();
        assert_eq!(empty.mb_per_s(), None);
    }
}
