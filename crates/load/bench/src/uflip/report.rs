//! A uFLIP run as a human-readable table, and as a run record with one sample per point.

use std::sync::atomic::AtomicBool;

use results::{ImpossibleLatency, Sample, TimedWindow, nearest_f64};
use serde_json::{Value, json};

use super::{
    Baseline, GranularitySteps, MicroBenchmark, PointOutcome, UflipOutcome, UflipSpec, agreed_steps,
};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::spec::DeviceAccess;
use crate::workload::{Measurement, Outcome, TextForm, Workload};

impl UflipOutcome {
    /// Steps in the bandwidth of aligned random writes on which the runs agree; `None` if they were not measured.
    #[must_use]
    pub fn granularity_steps(&self) -> Option<GranularitySteps> {
        let is_measured = |point: &&PointOutcome| {
            point.benchmark == MicroBenchmark::Granularity && point.patterns == Baseline::RandomWrite.name()
        };
        let points: Vec<&PointOutcome> = self.points.iter().filter(is_measured).collect();
        let runs = points.iter().map(|point| point.run_means_ns.len()).min()?;
        // One IO at a time: the bandwidth of a run is its IO size over its mean response time.
        let curve = |run: usize| {
            let bandwidth = |point: &&PointOutcome| {
                let mean_ns = nearest_f64(point.run_means_ns[run].max(1));
                (point.io_bytes, nearest_f64(point.io_bytes) / mean_ns)
            };
            points.iter().map(bandwidth).collect()
        };
        let curves: Vec<Vec<(u64, f64)>> = (0..runs).map(curve).collect();
        (points.len() >= 3).then(|| agreed_steps(&curves))
    }

    /// The points as a table, followed by the conclusions.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for point in &self.points {
            if last != Some(point.benchmark) {
                last = Some(point.benchmark);
                text.push_str(&format!(
                    "{}\n  pattern {:>14}     IOs       MB/s     mean us      p50 us      p99 us      max us\n",
                    point.benchmark.name(),
                    point.benchmark.parameter()
                ));
            }
            text.push_str(&line(point));
        }
        if let Some(calibration) = &self.calibration {
            let milliseconds = nearest_f64(calibration.disturbed_ns) / 1e6;
            text.push_str(&format!(
                "reads suffer for {milliseconds:.1} ms after random writes\n"
            ));
            for (baseline, found) in &calibration.patterns {
                let period = found
                    .period_ios
                    .map_or_else(|| "none".to_owned(), |period| format!("{period} IOs"));
                text.push_str(&format!(
                    "{}: start-up {} IOs, period {period}\n",
                    baseline.name(),
                    found.start_up_ios
                ));
            }
        }
        if let Some(steps) = self.granularity_steps() {
            let shown = |step: Option<u64>| {
                step.map_or_else(
                    || "no step that the runs agree on".to_owned(),
                    |bytes| format!("{bytes} bytes"),
                )
            };
            text.push_str(&format!(
                "page size from random writes: {}\nsuper-page size from random writes: {}\n",
                shown(steps.page_bytes),
                shown(steps.super_page_bytes)
            ));
        }
        text
    }

    /// One sample per point.
    pub(super) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let sample = |point: &PointOutcome| {
            let bytes = point.ios.saturating_mul(point.io_bytes);
            let window = TimedWindow {
                outside_ns: point.runs_ns.saturating_sub(point.busy_ns),
                ..TimedWindow::of(point.busy_ns)
            };
            Sample::new(&point.name, (point.ios, bytes), window, point.latency.clone())
        };
        self.points.iter().map(sample).collect()
    }
}

impl Measurement for UflipOutcome {
    /// Each point is a sample, named after benchmark, pattern and value.
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("uflip", &self.spec, &self.spec.path);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        let is_file = self.spec.device == DeviceAccess::Refused;
        outcome.fact("layer", if is_file { "system_calls" } else { "block" });
        outcome.fact("unit_bytes", self.unit_bytes);
        outcome.fact("areas_reused", self.areas_reused);
        outcome.fact("calibration", &self.calibration);
        outcome.fact("granularity_steps", self.granularity_steps());
        outcome.fact("points", self.points.iter().map(shown).collect::<Vec<Value>>());
        if self.areas_reused > 0 {
            outcome.notes.push(format!(
                "sequential writes began again at the start of the target {} times; a larger size gives each its own area",
                self.areas_reused
            ));
        }
        outcome.leftover(self.leftover.as_ref());
        outcome.text = self.describe() + "\n";
        outcome.text_form = TextForm::Curve;
        Ok(outcome)
    }
}

impl Workload for UflipSpec {
    fn check(&self) -> Result<(), BenchError> {
        self.validate()
    }

    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = Self { seed, ..self.clone() };
        Ok(super::run(&spec, progress, stop)?.outcome()?)
    }
}

fn shown(point: &PointOutcome) -> Value {
    json!({
        "name": point.name,
        "benchmark": point.benchmark,
        "patterns": point.patterns,
        "parameter": point.benchmark.parameter(),
        "value": point.value,
        "io_bytes": point.io_bytes,
        "ios": point.ios,
        "ignored": point.ignored,
        "mb_per_s": point.mb_per_s(),
        "run_means_ns": point.run_means_ns,
    })
}

fn line(point: &PointOutcome) -> String {
    let summary = point.latency.summary();
    let microseconds = |pick: fn(&results::LatencySummary) -> f64| {
        summary
            .as_ref()
            .map_or_else(|| "-".to_owned(), |summary| format!("{:.1}", pick(summary) / 1e3))
    };
    format!(
        "  {:<7} {:>14} {:>7} {:>10.2} {:>11} {:>11} {:>11} {:>11}\n",
        point.patterns,
        point.value,
        point.ios,
        point.mb_per_s().unwrap_or(0.0),
        microseconds(|summary| summary.mean_ns),
        microseconds(|summary| nearest_f64(summary.p50_ns)),
        microseconds(|summary| nearest_f64(summary.p99_ns)),
        microseconds(|summary| nearest_f64(summary.max_ns)),
    )
}
