//! A uFLIP run as a table for people and as a run record with one sample for each point.

use std::collections::BTreeMap;

use results::{ImpossibleLatency, RunRecord, Sample, TimedWindow, nearest_f64};
use serde_json::{Value, json};

use super::{Baseline, GranularitySteps, MicroBenchmark, PointOutcome, UflipOutcome, agreed_steps};
use crate::record::{RunIdentity, described, finished};
use crate::spec::DeviceAccess;

impl UflipOutcome {
    /// Steps in the bandwidth of aligned random writes, where the runs agree; `None` when they were not measured.
    #[must_use]
    pub fn granularity_steps(&self) -> Option<GranularitySteps> {
        let is_measured = |point: &&PointOutcome| {
            point.benchmark == MicroBenchmark::Granularity && point.patterns == Baseline::RandomWrite.name()
        };
        let points: Vec<&PointOutcome> = self.points.iter().filter(is_measured).collect();
        let runs = points.iter().map(|point| point.run_means_ns.len()).min()?;
        // One IO at a time: the bandwidth of a run is its size over its mean response time.
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

    /// The points as a table, then what follows from them.
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

    /// What is not as the authors mean it; each is a line for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.areas_reused > 0 {
            notes.push(format!(
                "sequential writes began again at the start of the target {} times; a larger size gives each its own area",
                self.areas_reused
            ));
        }
        notes.extend(
            self.leftover
                .as_ref()
                .map(|reason| format!("files were left behind: {reason}")),
        );
        notes
    }

    /// The outcome as a record: each point is a sample, named for benchmark, pattern and value.
    ///
    /// # Errors
    /// When a response took longer than the runs of its point.
    pub fn into_record(self, identity: RunIdentity) -> Result<RunRecord, ImpossibleLatency> {
        let samples = self.samples()?;
        let mut workload = described("uflip", &self.spec, &self.spec.path);
        let is_file = self.spec.device == DeviceAccess::Refused;
        workload["layer"] = json!(if is_file { "system_calls" } else { "block" });
        workload["unit_bytes"] = json!(self.unit_bytes);
        workload["areas_reused"] = json!(self.areas_reused);
        workload["calibration"] = json!(self.calibration);
        workload["granularity_steps"] = json!(self.granularity_steps());
        let points: Vec<Value> = self.points.iter().map(shown).collect();
        workload["points"] = json!(points);
        Ok(finished(
            identity,
            self.started_unix_ns,
            workload,
            samples,
            BTreeMap::new(),
            self.complete,
        ))
    }

    /// What each point showed.
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
