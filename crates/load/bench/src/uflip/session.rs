//! Runs all points, with their IOs, pauses and areas.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use results::LatencyHistogram;

use super::pattern::Baseline;
use super::steady::{disturbed_ns, steadiness};
use super::suite::{Counts, Limits, MicroBenchmark, Point, points};
use super::target::{Target, content};
use super::{Calibrate, Calibration, PointOutcome, State, UflipOutcome, UflipSpec};
use crate::data::AlignedMemory;
use crate::error::BenchError;
use crate::file::{elapsed_ns, unix_ns};
use crate::progress::{Phase, Progress};
use crate::random::Random;
use crate::spec::DeviceAccess;
use crate::threads::{PROGRESS_EVERY, STACK_BYTES, Shared};

/// IOs in the long runs that determine start-up and period.
const LONG_IOS: u64 = 20_480;

/// Largest interval at which a sleeping thread checks the stop flag.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A run in progress.
pub(super) struct Session<'run> {
    spec: &'run UflipSpec,
    target: &'run Target,
    progress: &'run dyn Progress,
    stop: &'run AtomicBool,
    /// Start of the next area for sequential writes.
    next_area: u64,
    areas_reused: u64,
    pause_ns: u64,
    counts: Counts,
    /// Completed IOs; `total` is the number for all runs together.
    done: AtomicU64,
    total: u64,
}

impl<'run> Session<'run> {
    pub fn new(
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

    /// Resets the state, calibrates, and measures every point.
    pub fn measure(mut self) -> Result<UflipOutcome, BenchError> {
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
        let outcome = UflipOutcome {
            spec: spec.clone(),
            complete: !self.stopped(),
            started_unix_ns,
            unit_bytes: target.unit_bytes,
            calibration,
            points: found,
            areas_reused: self.areas_reused,
            leftover: None,
        };
        outcome.samples()?;
        Ok(outcome)
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
            // Long enough to observe three periods after the start-up.
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

    /// Performs all runs of a point.
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
            runs_ns: 0,
            run_means_ns: Vec::new(),
        };
        for run in 0..self.spec.runs {
            if self.stopped() {
                break;
            }
            self.sleep(self.pause_ns);
            let began = Instant::now();
            let (latencies, degree) = self.series(point, run)?;
            outcome.runs_ns += elapsed_ns(began, Instant::now());
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

    /// The response times of one run, interleaved by thread, and the number of threads.
    fn series(&mut self, point: &Point, run: u32) -> Result<(Vec<u64>, u64), BenchError> {
        let base = self.area(point);
        let degree = u64::from(point.degree);
        let each = point.ios / degree;
        let part = point.pattern.target_bytes / degree / point.pattern.io_bytes * point.pattern.io_bytes;
        let this = &*self;
        let shared = &Shared::new(usize::try_from(degree).unwrap_or(usize::MAX), self.stop);
        let work = (0..degree).map(|number| {
            let mut thread_point = *point;
            if degree > 1 {
                thread_point.pattern.target_bytes = part;
            }
            let seed = this.spec.seed ^ (u64::from(run) << 32) ^ number;
            move || this.ios(&thread_point, each, base + number * part, seed, shared)
        });
        let watch = |(): &mut ()| PROGRESS_EVERY;
        let ((), answers) = shared.run(("uflip", STACK_BYTES), work.collect(), || (), watch)?;
        let longest = answers.iter().map(Vec::len).max().unwrap_or(0);
        let turns =
            (0..longest).flat_map(|turn| answers.iter().filter_map(move |answer| answer.get(turn).copied()));
        self.progress
            .advance(Phase::Measure, self.done.load(Ordering::Relaxed), self.total);
        Ok((turns.collect(), degree))
    }

    /// Start address of a run: sequential writes that need a part of the target get an unused one.
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

    /// The IOs of one thread.
    fn ios(
        &self,
        point: &Point,
        count: u64,
        base: u64,
        seed: u64,
        shared: &Shared<'_>,
    ) -> Result<Option<Vec<u64>>, BenchError> {
        let io_bytes = point.pattern.io_bytes;
        let mut random = Random::named(seed, "positions");
        let mut content = content(io_bytes, seed);
        let mut buffer = AlignedMemory::new(usize::try_from(io_bytes).expect("IOs are at most 8 MiB"), 0);
        let mut latencies = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        if !shared.wait() {
            return Ok(None);
        }
        for number in 0..count {
            if shared.is_over() {
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
        Ok(Some(latencies))
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
