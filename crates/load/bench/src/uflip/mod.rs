//! uFLIP: characterizes the internals of a flash device by nine micro-benchmarks of simple IO patterns.
//!
//! Each varies one parameter ([`MicroBenchmark::parameter`]) over powers of two for the patterns sequential and
//! random, read and write. IOs are issued one at a time (except if parallelism is the parameter), with direct I/O and
//! write-through to the medium; each is timed. The method of its authors:
//! - the state of the device is reset first, by a random format (every byte once, at random, in shrinking sizes);
//! - the pause required between runs is measured, by reads before and after random writes;
//! - start-up and period of each pattern are determined in long runs, and the start-up is not counted;
//! - sequential writes use each area of the target once, as long as there are unused areas.
//!
//! On a file, the file system below is measured too; on a device other than flash, the steps are meaningless. No run
//! writes more than the size of the target: counts are limited to that.

mod pattern;
mod report;
mod session;
mod steady;
mod suite;
mod target;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use results::LatencyHistogram;
use serde::{Deserialize, Serialize};

pub use self::pattern::{Baseline, Pattern};
use self::session::Session;
pub use self::steady::{
    GranularitySteps, Steadiness, agreed_steps, disturbed_ns, granularity_steps, steadiness,
};
pub use self::suite::{Counts, MicroBenchmark};
use self::target::Target;
use crate::error::BenchError;
use crate::prepare::{check_bytes, check_kind};
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::spec::DeviceAccess;

/// Smallest target: eight of the largest IOs.
const TARGET_BYTES_MIN: u64 = 1 << 20;

/// The caches between IOs and the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caching {
    /// Direct I/O with write-through of the device's cache, as uFLIP specifies.
    None,
    /// Direct I/O only: writes may stay in the device's cache.
    Device,
    /// Buffered I/O: for file systems without direct I/O; the results do not characterize a device.
    Page,
}

impl Caching {
    const fn flags(self) -> i32 {
        match self {
            Self::None => libc::O_DIRECT | libc::O_DSYNC,
            Self::Device => libc::O_DIRECT,
            Self::Page => 0,
        }
    }
}

/// Whether a calibration precedes the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calibrate {
    /// Uses the given pause and number of ignored IOs.
    No,
    /// Measures pause, start-up and period, and uses them if they exceed the given values.
    Yes,
}

/// State of the target before the first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As found; a file is written once from start to end.
    AsIs,
    /// After a random format.
    RandomFormat,
}

/// The specification of a uFLIP run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UflipSpec {
    /// An existing directory, in which the run creates a directory with one file; or a block device, with `device`.
    pub path: PathBuf,
    /// Whether `path` is a block device. `Read` permits no pattern that writes.
    pub device: DeviceAccess,
    /// Size of the file, or of the region at the start of the device, that IOs stay in.
    pub target_bytes: u64,
    /// The caches between IOs and the medium.
    pub caching: Caching,
    /// The benchmarks, in execution order.
    pub benchmarks: Vec<MicroBenchmark>,
    /// The patterns.
    pub baselines: Vec<Baseline>,
    /// IO size, unless it is the parameter.
    pub io_bytes: u64,
    /// IOs per run.
    pub counts: Counts,
    /// Runs per point.
    pub runs: u32,
    /// Pause between runs.
    pub pause_ns: u64,
    /// State of the target before the first run.
    pub state: State,
    /// Whether a calibration precedes the runs.
    pub calibrate: Calibrate,
    /// Seed of positions and contents.
    pub seed: u64,
}

impl UflipSpec {
    /// The settings of the authors' program, for random writes of growing size, which reveal pages and super-pages.
    #[must_use]
    pub fn granularity(path: PathBuf, target_bytes: u64) -> Self {
        Self {
            path,
            device: DeviceAccess::Refused,
            target_bytes,
            caching: Caching::None,
            benchmarks: vec![MicroBenchmark::Granularity],
            baselines: vec![Baseline::RandomWrite],
            io_bytes: 32 << 10,
            counts: Counts::USUAL,
            runs: 3,
            pause_ns: 100_000_000,
            state: State::RandomFormat,
            calibrate: Calibrate::No,
            seed: 1,
        }
    }

    fn writes(&self) -> bool {
        self.state == State::RandomFormat
            || self.calibrate == Calibrate::Yes
            || self.baselines.iter().any(|baseline| baseline.writes())
    }

    /// Checks the specification, without touching anything.
    ///
    /// # Errors
    /// [`BenchError::Spec`] with the field, and the expected and found values.
    pub fn validate(&self) -> Result<(), BenchError> {
        let largest = self.target_bytes / 8;
        if self.target_bytes < TARGET_BYTES_MIN || !self.target_bytes.is_multiple_of(TARGET_BYTES_MIN) {
            let problem = format!(
                "{} bytes, expected a multiple of {TARGET_BYTES_MIN}",
                self.target_bytes
            );
            return Err(BenchError::spec("size", problem));
        }
        if !self.io_bytes.is_power_of_two() || self.io_bytes < 512 || self.io_bytes > largest {
            let problem = format!(
                "{} bytes, expected a power of two from 512 to {largest}",
                self.io_bytes
            );
            return Err(BenchError::spec("IO size", problem));
        }
        for (field, is_empty) in [
            ("benchmarks", self.benchmarks.is_empty()),
            ("patterns", self.baselines.is_empty()),
            ("runs", self.runs == 0),
            ("IOs", self.counts.ios.contains(&0)),
        ] {
            if is_empty {
                return Err(BenchError::spec(field, "none, expected at least one"));
            }
        }
        if self.device == DeviceAccess::Read && self.writes() {
            let problem = "writes to a device that may only be read, expected patterns SR and RR alone, \
                           without a format and calibration";
            return Err(BenchError::spec("patterns", problem));
        }
        Ok(())
    }
}

/// The outcome of one point.
#[derive(Clone, Debug, PartialEq)]
pub struct PointOutcome {
    /// The benchmark.
    pub benchmark: MicroBenchmark,
    /// `RW`, or `SR-RW` for a mix.
    pub patterns: String,
    /// `granularity/RW/io_bytes=4096`.
    pub name: String,
    /// Value of the parameter.
    pub value: i64,
    /// Size of the point's IOs.
    pub io_bytes: u64,
    /// IOs counted, over all runs.
    pub ios: u64,
    /// IOs at the start of each run that are not counted.
    pub ignored: u64,
    /// Response times of all runs.
    pub latency: LatencyHistogram,
    /// Time with an IO in flight: response times divided by threads.
    pub busy_ns: u64,
    /// Duration of all runs, including pauses between IOs and uncounted IOs.
    pub runs_ns: u64,
    /// Mean response time of each run, in run order.
    pub run_means_ns: Vec<u64>,
}

impl PointOutcome {
    /// 10^6 bytes per second while an IO was in flight; `None` if no IO was counted.
    #[must_use]
    pub fn mb_per_s(&self) -> Option<f64> {
        let bytes = results::nearest_f64(self.ios.saturating_mul(self.io_bytes));
        (self.busy_ns > 0 && self.ios > 0).then(|| bytes * 1e3 / results::nearest_f64(self.busy_ns))
    }
}

/// The result of the calibration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// Duration for which reads are slowed down after random writes.
    pub disturbed_ns: u64,
    /// Start-up and period of each pattern.
    pub patterns: Vec<(Baseline, Steadiness)>,
}

/// The outcome of a uFLIP run.
#[derive(Clone, Debug, PartialEq)]
pub struct UflipOutcome {
    /// The specification of the run.
    pub spec: UflipSpec,
    /// False if the run was stopped: points are missing.
    pub complete: bool,
    /// Start of the first point (wall clock).
    pub started_unix_ns: u64,
    /// Smallest IO that the target supports.
    pub unit_bytes: u64,
    /// The result of the calibration.
    pub calibration: Option<Calibration>,
    /// The outcome of every point.
    pub points: Vec<PointOutcome>,
    /// Number of times that sequential writes had to restart at the start of the target.
    pub areas_reused: u64,
    /// Why the test directory could not be removed.
    pub leftover: Option<String>,
}

/// Runs uFLIP. Raising `stop` ends it early with the points measured so far; the file is always removed.
///
/// # Errors
/// Before anything is touched: a contradiction, a path of the wrong type, too little space. Later: any IO that
/// failed.
pub fn run(spec: &UflipSpec, progress: &dyn Progress, stop: &AtomicBool) -> Result<UflipOutcome, BenchError> {
    spec.validate()?;
    check_kind(&spec.path, spec.device)?;
    if spec.device != DeviceAccess::Refused {
        let target = Target::open(&spec.path, spec.target_bytes, spec.device, spec.caching)?;
        return Session::new(spec, &target, progress, stop).measure();
    }
    check_bytes(&spec.path, spec.target_bytes)?;
    let scratch = Scratch::create(&spec.path)?;
    let path = scratch.path().join("target");
    let target = Target::open(&path, spec.target_bytes, spec.device, spec.caching)?;
    let mut outcome = Session::new(spec, &target, progress, stop).measure()?;
    drop(target);
    outcome.leftover = scratch.remove();
    Ok(outcome)
}
