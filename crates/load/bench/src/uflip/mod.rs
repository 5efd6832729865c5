//! uFLIP: what a flash device is like inside, found by nine micro-benchmarks of simple IO patterns.
//!
//! Each varies one parameter ([`MicroBenchmark::parameter`]) over powers of two for the patterns sequential and random,
//! read and write. IOs are one at a time (except where parallelism is the parameter), past the page cache and through
//! the device's cache; each is timed. The method of its authors:
//! - the state of the device is reset first, by a random format (every byte once, at random, in shrinking sizes);
//! - the pause that runs need between them is measured, by reads before and after random writes;
//! - start-up and period of each pattern are looked for in long runs, and a start-up is not counted;
//! - sequential writes use each area of the target once, as long as there are areas.
//!
//! On a file the file system below is measured too, and on a device that is not flash the steps mean nothing.
//! No run writes more than the target holds: counts are cut to that.

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

/// What stands between IOs and the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caching {
    /// Past the page cache and through the device's cache, as uFLIP means it.
    None,
    /// Past the page cache alone: writes may stay in the device's cache.
    Device,
    /// Through the page cache: for file systems that know no other way; says nothing about a device.
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

/// Whether runs are calibrated first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calibrate {
    /// Pause and ignored IOs as given.
    No,
    /// Pause, start-up and period are measured, and used where they ask for more than was given.
    Yes,
}

/// What the target holds before the first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Whatever is there; a file is written once from its start to its end.
    AsIs,
    /// After a random format.
    RandomFormat,
}

/// A uFLIP run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UflipSpec {
    /// An existing directory, in which the run makes a directory with one file; or a block device, with `device`.
    pub path: PathBuf,
    /// Whether `path` is a block device. `Read` allows no pattern that writes.
    pub device: DeviceAccess,
    /// Bytes of the file, or of the device from its start, that IOs stay in.
    pub target_bytes: u64,
    /// What stands between IOs and the medium.
    pub caching: Caching,
    /// Which benchmarks, in this order.
    pub benchmarks: Vec<MicroBenchmark>,
    /// Which patterns.
    pub baselines: Vec<Baseline>,
    /// Size of IOs where it is not the parameter.
    pub io_bytes: u64,
    /// IOs of each run.
    pub counts: Counts,
    /// Runs of each point.
    pub runs: u32,
    /// Pause between runs.
    pub pause_ns: u64,
    /// What the target holds before the first run.
    pub state: State,
    /// Whether runs are calibrated first.
    pub calibrate: Calibrate,
    /// Decides positions and contents.
    pub seed: u64,
}

impl UflipSpec {
    /// The settings of the authors' program, for random writes of growing size: what shows pages and super-pages.
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

    /// Checks it, and touches nothing.
    ///
    /// # Errors
    /// [`BenchError::Spec`] naming the field, what was found and what is expected.
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

/// What a point showed.
#[derive(Clone, Debug, PartialEq)]
pub struct PointOutcome {
    /// Which benchmark.
    pub benchmark: MicroBenchmark,
    /// `RW`, or `SR-RW` for a mix.
    pub patterns: String,
    /// `granularity/RW/io_bytes=4096`.
    pub name: String,
    /// Value of the parameter.
    pub value: i64,
    /// Size of its IOs.
    pub io_bytes: u64,
    /// IOs counted, of all runs.
    pub ios: u64,
    /// IOs at the start of each run that were not counted.
    pub ignored: u64,
    /// Response times of all runs together.
    pub latency: LatencyHistogram,
    /// Time with an IO under way: response times divided by threads.
    pub busy_ns: u64,
    /// Length of all runs, pauses between IOs and IOs that were not counted included.
    pub runs_ns: u64,
    /// Mean response time of each run, in the order of the runs.
    pub run_means_ns: Vec<u64>,
}

impl PointOutcome {
    /// 10^6 bytes a second while an IO was under way; `None` when nothing was counted.
    #[must_use]
    pub fn mb_per_s(&self) -> Option<f64> {
        let bytes = results::nearest_f64(self.ios.saturating_mul(self.io_bytes));
        (self.busy_ns > 0 && self.ios > 0).then(|| bytes * 1e3 / results::nearest_f64(self.busy_ns))
    }
}

/// What calibration found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// For how long reads suffer after random writes.
    pub disturbed_ns: u64,
    /// Start-up and period of each pattern.
    pub patterns: Vec<(Baseline, Steadiness)>,
}

/// What a uFLIP run did.
#[derive(Clone, Debug, PartialEq)]
pub struct UflipOutcome {
    /// The run.
    pub spec: UflipSpec,
    /// False when the run was stopped: points are missing.
    pub complete: bool,
    /// When the first point began (wall clock).
    pub started_unix_ns: u64,
    /// Smallest IO that the target takes.
    pub unit_bytes: u64,
    /// What calibration found.
    pub calibration: Option<Calibration>,
    /// Every point.
    pub points: Vec<PointOutcome>,
    /// How often sequential writes had to begin again at the start of the target.
    pub areas_reused: u64,
    /// Why the test directory is still there, when removing it failed.
    pub leftover: Option<String>,
}

/// Runs uFLIP. Raising `stop` ends it early with the points it has; the file is removed in every case.
///
/// # Errors
/// Before anything is touched: a contradiction, a path of another kind, too little space. Later: any IO that failed.
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
    outcome.leftover = scratch.remove().err().map(|error| error.to_string());
    Ok(outcome)
}
