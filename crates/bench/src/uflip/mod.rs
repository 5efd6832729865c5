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
mod steady;
mod suite;
mod target;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use results::LatencyHistogram;
use serde::{Deserialize, Serialize};

pub use self::pattern::{Baseline, Pattern};
pub use self::steady::{GranularitySteps, Steadiness, disturbed_ns, granularity_steps, steadiness};
pub use self::suite::{Counts, MicroBenchmark};
use self::suite::{Limits, Point, points};
use self::target::{Target, check_path, content};
use crate::data::AlignedMemory;
use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::prepare::check_bytes;
use crate::progress::{Phase, Progress};
use crate::random::Random;
use crate::scratch::Scratch;
use crate::spec::DeviceAccess;

/// IOs of the long runs that look for start-up and period.
const LONG_IOS: u64 = 20_480;

/// A sleeper looks at the stop flag at least so often.
const SLEEP_MAX: Duration = Duration::from_millis(50);

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

    fn validate(&self) -> Result<(), BenchError> {
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
    check_path(&spec.path, spec.device)?;
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

struct Session<'run> {
    spec: &'run UflipSpec,
    target: &'run Target,
    progress: &'run dyn Progress,
    stop: &'run AtomicBool,
    /// Where the next area for sequential writes begins.
    next_area: u64,
    areas_reused: u64,
    pause_ns: u64,
    counts: Counts,
    /// IOs done, and to be done by all runs together.
    done: AtomicU64,
    total: u64,
}

impl<'run> Session<'run> {
    fn new(
        spec: &'run UflipSpec,
        target: &'run Target,
        progress: &'run dyn Progress,
        stop: &'run AtomicBool,
    ) -> Self {
        Self {
            spec,
            target,
            progress,
            stop,
            next_area: 0,
            areas_reused: 0,
            pause_ns: spec.pause_ns,
            counts: spec.counts,
            done: AtomicU64::new(0),
            total: 0,
        }
    }

    fn measure(mut self) -> Result<UflipOutcome, BenchError> {
        let (spec, target) = (self.spec, self.target);
        match (spec.state, spec.device) {
            (State::RandomFormat, _) => target.random_format(spec.seed, self.progress, self.stop)?,
            (State::AsIs, DeviceAccess::Refused) => target.fill(spec.seed, self.progress, self.stop)?,
            (State::AsIs, DeviceAccess::Read | DeviceAccess::Destroy) => {}
        }
        let calibration = match spec.calibrate {
            Calibrate::Yes => Some(self.calibrate()?),
            Calibrate::No => None,
        };
        let limits = Limits {
            counts: self.counts,
            ..self.limits()
        };
        let all: Vec<Point> = spec
            .benchmarks
            .iter()
            .flat_map(|benchmark| points(*benchmark, &limits))
            .collect();
        self.done.store(0, Ordering::Relaxed);
        self.total = all.iter().map(|point| point.ios).sum::<u64>() * u64::from(spec.runs);
        let started_unix_ns = unix_ns();
        let mut found = Vec::new();
        for point in &all {
            if self.stopped() {
                break;
            }
            found.push(self.point(point)?);
        }
        Ok(UflipOutcome {
            spec: spec.clone(),
            complete: !self.stopped(),
            started_unix_ns,
            unit_bytes: target.unit_bytes,
            calibration,
            points: found,
            areas_reused: self.areas_reused,
            leftover: None,
        })
    }

    fn limits(&self) -> Limits<'run> {
        Limits {
            io_bytes: self.spec.io_bytes.max(self.target.unit_bytes),
            target_bytes: self.target.bytes,
            unit_bytes: self.target.unit_bytes,
            counts: self.spec.counts,
            baselines: &self.spec.baselines,
        }
    }

    /// SR, RW, SR for the pause; then a long run of each pattern for start-up and period.
    fn calibrate(&mut self) -> Result<Calibration, BenchError> {
        let long = |baseline: Baseline, ios: u64| {
            let counts = Counts {
                ios: [ios; 4],
                ignored: [0; 4],
            };
            let baselines = [baseline];
            let limits = Limits {
                counts,
                baselines: &baselines,
                ..self.limits()
            };
            points(MicroBenchmark::Parallelism, &limits).into_iter().next()
        };
        let runs = [
            (Baseline::SequentialRead, 1024),
            (Baseline::RandomWrite, 1024),
            (Baseline::SequentialRead, 5120),
        ];
        let around: Vec<Option<Point>> = runs.iter().map(|(baseline, ios)| long(*baseline, *ios)).collect();
        let steady: Vec<Option<Point>> = Baseline::ALL
            .iter()
            .map(|baseline| long(*baseline, LONG_IOS))
            .collect();
        self.total = around
            .iter()
            .chain(&steady)
            .flatten()
            .map(|point| point.ios)
            .sum();
        let mut series = Vec::new();
        for point in around.into_iter().flatten() {
            series.push(self.series(&point, 0)?.0);
        }
        let disturbed_ns = match series.as_slice() {
            [before, _, after] => disturbed_ns(before, after),
            _ => 0,
        };
        self.pause_ns = self.pause_ns.max(disturbed_ns);
        let mut patterns = Vec::new();
        for (place, point) in steady.into_iter().enumerate() {
            let Some(point) = point else { continue };
            self.sleep(self.pause_ns);
            let found = steadiness(&self.series(&point, 1)?.0);
            // Long enough to see the period three times after the start-up.
            let wanted = found.start_up_ios + 3 * found.period_ios.unwrap_or(0);
            self.counts.ios[place] = self.counts.ios[place].max(wanted);
            self.counts.ignored[place] = self.counts.ignored[place].max(found.start_up_ios);
            patterns.push((point.pattern.baseline, found));
        }
        Ok(Calibration {
            disturbed_ns,
            patterns,
        })
    }

    /// All runs of a point.
    fn point(&mut self, point: &Point) -> Result<PointOutcome, BenchError> {
        let mut outcome = PointOutcome {
            benchmark: point.benchmark,
            patterns: point.patterns(),
            name: point.name(),
            value: point.value,
            io_bytes: point.pattern.io_bytes,
            ios: 0,
            ignored: point.ignored,
            latency: LatencyHistogram::new(),
            busy_ns: 0,
            run_means_ns: Vec::new(),
        };
        for run in 0..self.spec.runs {
            if self.stopped() {
                break;
            }
            self.sleep(self.pause_ns);
            let (latencies, degree) = self.series(point, run)?;
            let counted = latencies
                .get(usize::try_from(point.ignored).unwrap_or(0)..)
                .unwrap_or_default();
            let sum: u64 = counted.iter().sum();
            let count = u64::try_from(counted.len()).unwrap_or(u64::MAX);
            outcome.ios += count;
            outcome.busy_ns += sum / degree;
            outcome.run_means_ns.extend(sum.checked_div(count));
            counted
                .iter()
                .for_each(|latency| outcome.latency.record(*latency));
        }
        Ok(outcome)
    }

    /// The response times of one run, and how many threads made it. Threads take turns in the list.
    fn series(&mut self, point: &Point, run: u32) -> Result<(Vec<u64>, u64), BenchError> {
        let base = self.area(point);
        let degree = u64::from(point.degree);
        let each = point.ios / degree;
        let part = point.pattern.target_bytes / degree / point.pattern.io_bytes * point.pattern.io_bytes;
        let this = &*self;
        let answers = thread::scope(|scope| {
            let workers: Vec<_> = (0..degree)
                .map(|number| {
                    let mut thread_point = *point;
                    if degree > 1 {
                        thread_point.pattern.target_bytes = part;
                    }
                    let seed = this.spec.seed ^ (u64::from(run) << 32) ^ number;
                    scope.spawn(move || this.ios(&thread_point, each, base + number * part, seed))
                })
                .collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().expect("a worker has no reason to panic")
            };
            workers
                .into_iter()
                .map(join)
                .collect::<Result<Vec<Vec<u64>>, BenchError>>()
        })?;
        let longest = answers.iter().map(Vec::len).max().unwrap_or(0);
        let turns =
            (0..longest).flat_map(|turn| answers.iter().filter_map(move |answer| answer.get(turn).copied()));
        self.progress
            .advance(Phase::Measure, self.done.load(Ordering::Relaxed), self.total);
        Ok((turns.collect(), degree))
    }

    /// Where a run begins: sequential writes that need a part of the target get one that was not written.
    fn area(&mut self, point: &Point) -> u64 {
        let bytes = point.pattern.target_bytes.next_multiple_of(128 << 10);
        if point.pattern.baseline != Baseline::SequentialWrite || bytes >= self.target.bytes {
            return 0;
        }
        if self.next_area + bytes > self.target.bytes {
            self.next_area = 0;
            self.areas_reused += 1;
        }
        let base = self.next_area;
        self.next_area += bytes;
        base
    }

    /// One thread's IOs.
    fn ios(&self, point: &Point, count: u64, base: u64, seed: u64) -> Result<Vec<u64>, BenchError> {
        let io_bytes = point.pattern.io_bytes;
        let mut random = Random::named(seed, "positions");
        let mut content = content(io_bytes, seed);
        let mut buffer = AlignedMemory::new(usize::try_from(io_bytes).expect("IOs are at most 8 MiB"), 0);
        let mut latencies = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        for number in 0..count {
            if self.stopped() {
                break;
            }
            let (pattern, index) = match point.other {
                Some((other, ratio)) if (number + 1).is_multiple_of(ratio + 1) => {
                    (other, number / (ratio + 1))
                }
                Some((_, ratio)) => (point.pattern, number - number / (ratio + 1)),
                None => (point.pattern, number),
            };
            let offset = base + pattern.address(index, &mut random);
            let latency_ns = if pattern.baseline.writes() {
                let data = content.at(offset, 0);
                let start = Instant::now();
                self.target.write(offset, data)?;
                elapsed_ns(start, Instant::now())
            } else {
                let start = Instant::now();
                self.target.read(offset, buffer.as_mut_slice())?;
                elapsed_ns(start, Instant::now())
            };
            latencies.push(latency_ns);
            self.done.fetch_add(1, Ordering::Relaxed);
            if point.pause_ns > 0 && (number + 1).is_multiple_of(point.burst_ios) {
                self.sleep(point.pause_ns);
            }
        }
        Ok(latencies)
    }

    fn sleep(&self, pause_ns: u64) {
        let end = Instant::now() + Duration::from_nanos(pause_ns);
        while !self.stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(SLEEP_MAX));
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
