//! The measurements of a replay, and their record.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use results::call_trace::{Layer, Trace};
use results::{ImpossibleLatency, LatencyHistogram, Sample, TimedWindow, nearest_f64};
use serde::Serialize;
use serde_json::json;

use super::plan::Plan;
use super::replay_thread::ThreadOutcome;
use super::{ReplaySpec, Speed, layer_name};
use crate::cache::CacheMethod;
use crate::error::BenchError;
use crate::processor::WorkerUse;
use crate::progress::Progress;
use crate::window::WindowOutcome;
use crate::workload::{Measurement, Outcome, Workload, usage_counters};

/// The outcome of one kind of call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindOutcome {
    /// Number of calls, including failed ones.
    pub count: u64,
    /// Bytes actually transferred.
    pub bytes: u64,
    /// Response time of each call.
    pub latency: LatencyHistogram,
    /// Sum of the response times recorded in the trace.
    pub recorded_ns: u64,
    /// Number of calls with a recorded response time.
    pub recorded_count: u64,
}

/// Calls of one kind that failed with the same error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CallError {
    /// Kind of call.
    pub call: &'static str,
    /// The system's error with its number; or that the call succeeded although it failed in the trace.
    pub answer: String,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayOutcome {
    /// The specification of the replay.
    pub spec: ReplaySpec,
    /// Layer of the trace and of the numbers.
    pub layer: Layer,
    /// The trace's source.
    pub origin: String,
    /// Number of calls in the trace.
    pub trace_calls: u64,
    /// Length of the trace, from the start of its first call to the start of its last.
    pub trace_ns: u64,
    /// Threads of the trace.
    pub traced_threads: u64,
    /// Threads of the replay.
    pub threads: u64,
    /// Entries that the trace's reader skipped, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Calls that the replay skipped or changed, by reason.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Calls whose result differs from the trace.
    pub unexpected: BTreeMap<CallError, u64>,
    /// Calls that failed as they did in the trace.
    pub expected_errors: u64,
    /// Reads and writes that transferred less than in the trace.
    pub short_transfers: u64,
    /// Bytes of data in the prepared files.
    pub prepared_bytes: u64,
    /// Number of prepared files.
    pub prepared_files: u64,
    /// The method used to drop the caches.
    pub cache_method: CacheMethod,
    /// False if the run was stopped, or the trace itself is incomplete.
    pub complete: bool,
    /// Start of the window (wall clock).
    pub started_unix_ns: u64,
    /// From the start of the window to the end of the last call.
    pub elapsed_ns: u64,
    /// Outcomes by kind of call.
    pub kinds: BTreeMap<&'static str, KindOutcome>,
    /// Delay of each call after its due time; empty if the calls are made as fast as possible.
    pub lateness: LatencyHistogram,
    /// Processor use of all replay threads together.
    pub workers: WorkerUse,
    /// The system's counters.
    pub window: WindowOutcome,
    /// The directory of the files, if they were kept.
    pub kept_directory: Option<PathBuf>,
    /// Why the directory could not be removed.
    pub leftover: Option<String>,
}

impl ReplayOutcome {
    pub(super) fn new(trace: &Trace, spec: &ReplaySpec, plan: &Plan, cache_method: CacheMethod) -> Self {
        let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
        let ends = trace.calls.first().zip(trace.calls.last());
        Self {
            spec: spec.clone(),
            layer: trace.layer,
            origin: trace.origin.clone(),
            trace_calls: count(trace.calls.len()),
            trace_ns: ends.map_or(0, |(first, last)| last.at_ns - first.at_ns),
            traced_threads: plan.traced_threads,
            threads: count(plan.replay_threads.len()),
            skipped: trace.skipped.clone(),
            left_out: BTreeMap::new(),
            unexpected: BTreeMap::new(),
            expected_errors: 0,
            short_transfers: 0,
            prepared_bytes: plan.initial.filled_bytes(),
            prepared_files: count(plan.initial.files.len()),
            cache_method,
            complete: false,
            started_unix_ns: 0,
            elapsed_ns: 0,
            kinds: BTreeMap::new(),
            lateness: LatencyHistogram::new(),
            workers: WorkerUse::default(),
            window: WindowOutcome::default(),
            kept_directory: None,
            leftover: None,
        }
    }

    pub(super) fn merge(&mut self, replay_thread: ThreadOutcome) {
        for (kind, done) in replay_thread.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.count += done.count;
            sum.bytes += done.bytes;
            sum.latency.merge(&done.latency);
            sum.recorded_ns = sum.recorded_ns.saturating_add(done.recorded_ns);
            sum.recorded_count += done.recorded_count;
        }
        for (reason, count) in replay_thread.left_out {
            *self.left_out.entry(reason).or_default() += count;
        }
        for (error, count) in replay_thread.unexpected {
            *self.unexpected.entry(error).or_default() += count;
        }
        self.expected_errors += replay_thread.expected_errors;
        self.short_transfers += replay_thread.short_transfers;
        self.lateness.merge(&replay_thread.lateness);
        self.elapsed_ns = self.elapsed_ns.max(replay_thread.elapsed_ns);
        if let Some(usage) = replay_thread.usage {
            let workers = &mut self.workers;
            workers.cpu_ns += usage.cpu_ns;
            workers.context_switches_voluntary_count += usage.context_switches_voluntary_count;
            workers.context_switches_involuntary_count += usage.context_switches_involuntary_count;
        }
    }

    /// Bytes read and written by the calls.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        let sum = |kinds: &[&str]| {
            let done = kinds.iter().filter_map(|kind| self.kinds.get(kind));
            done.map(|kind| kind.bytes).fold(0, u64::saturating_add)
        };
        (
            sum(&["read", "pread", "copy", "block-read"]),
            sum(&["write", "pwrite", "copy", "block-write"]),
        )
    }

    /// Response times of all calls together.
    #[must_use]
    pub fn response(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::new();
        for kind in self.kinds.values() {
            all.merge(&kind.latency);
        }
        all
    }

    /// Caveats for people, one per line: entries skipped by the trace's reader, and differences from the trace.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let skipped = self.skipped.iter();
        let mut notes: Vec<String> = skipped
            .map(|(reason, count)| format!("{count} entries of the trace left out: {reason}"))
            .collect();
        notes.extend(self.differences());
        notes
    }

    /// Differences from the trace, one human-readable line each.
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (reason, count) in &self.left_out {
            notes.push(format!("{count} calls not as in the trace: {reason}"));
        }
        for (error, count) in &self.unexpected {
            notes.push(format!(
                "{count} {} answered otherwise than in the trace: {}",
                error.call, error.answer
            ));
        }
        if self.short_transfers > 0 {
            let count = self.short_transfers;
            notes.push(format!("{count} reads or writes moved less than in the trace"));
        }
        notes
    }

    /// One sample per kind of call.
    pub(super) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let window = TimedWindow::of(self.elapsed_ns);
        let kinds = self.kinds.iter();
        kinds
            .map(|(kind, done)| Sample::new(*kind, (done.count, done.bytes), window, done.latency.clone()))
            .collect()
    }

    /// The timing of the calls, in words.
    #[must_use]
    pub fn pace(&self) -> String {
        match self.spec.speed {
            Speed::AsFastAsPossible => "as fast as possible".to_owned(),
            Speed::Scaled(1.0) => "real time".to_owned(),
            Speed::Scaled(factor) => format!("{factor} times the speed of the trace"),
        }
    }
}

impl Measurement for ReplayOutcome {
    fn outcome(self) -> Result<Outcome, ImpossibleLatency> {
        let mut outcome = Outcome::new("replay", &self.spec, &self.spec.directory);
        outcome.complete = self.complete;
        outcome.started_unix_ns = self.started_unix_ns;
        outcome.samples = self.samples()?;
        outcome.counters = usage_counters(self.window.processor, Some(self.workers));
        outcome.counters.extend(self.window.counters.clone());
        self.count(&mut outcome);
        self.facts(&mut outcome);
        outcome.notes = self.differences();
        outcome.leftover(self.leftover.as_ref());
        outcome.text = self.describe();
        outcome.kept_directory = self.kept_directory;
        Ok(outcome)
    }
}

impl ReplayOutcome {
    fn count(&self, outcome: &mut Outcome) {
        let response = self.response().summary();
        for (name, summary) in [("response", response), ("lateness", self.lateness.summary())] {
            if let Some(summary) = summary {
                outcome.count(&format!("{name}_p50_ns"), summary.p50_ns);
                outcome.count(&format!("{name}_p99_ns"), summary.p99_ns);
                outcome.count(&format!("{name}_max_ns"), summary.max_ns);
                outcome
                    .counters
                    .insert(format!("{name}_mean_ns"), summary.mean_ns);
            }
        }
        if let Some(summary) = response {
            let in_calls = summary.mean_ns * nearest_f64(summary.count);
            outcome.counters.insert("in_calls_ns".to_owned(), in_calls);
        }
        outcome.count("skipped_count", self.skipped.values().sum());
        outcome.count("left_out_count", self.left_out.values().sum());
        outcome.count("errors_unexpected_count", self.unexpected.values().sum());
        outcome.count("errors_expected_count", self.expected_errors);
        outcome.count("short_transfers_count", self.short_transfers);
        outcome.count("prepared_bytes", self.prepared_bytes);
    }

    fn facts(&self, outcome: &mut Outcome) {
        let mean_ns = |done: &KindOutcome| nearest_f64(done.recorded_ns) / nearest_f64(done.recorded_count);
        let recorded: BTreeMap<&str, f64> = self
            .kinds
            .iter()
            .filter(|(_, done)| done.recorded_count > 0)
            .map(|(kind, done)| (*kind, mean_ns(done)))
            .collect();
        let unexpected: Vec<_> = self
            .unexpected
            .iter()
            .map(|(error, count)| json!({"call": error.call, "answer": error.answer, "count": count}))
            .collect();
        outcome.fact("layer", layer_name(self.layer));
        outcome.fact("layer_description", self.layer.describe());
        outcome.fact("origin", &self.origin);
        outcome.fact("pace", self.pace());
        outcome.fact("trace_calls", self.trace_calls);
        outcome.fact("trace_ns", self.trace_ns);
        outcome.fact("traced_threads", self.traced_threads);
        outcome.fact("threads", self.threads);
        outcome.fact("prepared_files", self.prepared_files);
        outcome.fact("cache_method", self.cache_method);
        outcome.fact("skipped", &self.skipped);
        outcome.fact("left_out", &self.left_out);
        outcome.fact("unexpected", unexpected);
        outcome.fact("recorded_mean_ns", recorded);
        outcome.fact("absent", &self.window.absent);
    }

    /// Human-readable summary: duration, response times and lateness.
    fn describe(&self) -> String {
        let us = |ns: u64| nearest_f64(ns) / 1e3;
        let mut text = format!(
            "replay of {} ({}), {}, {} threads for {} of the trace\n",
            self.origin,
            self.layer.describe(),
            self.pace(),
            self.threads,
            self.traced_threads
        );
        if let Some(summary) = self.response().summary() {
            text.push_str(&format!(
                "  {} calls in {:.3} s (trace: {:.3} s), {:.3} s inside calls, mean response {:.1} us, p99 {:.1} us\n",
                summary.count,
                nearest_f64(self.elapsed_ns) / 1e9,
                nearest_f64(self.trace_ns) / 1e9,
                summary.mean_ns * nearest_f64(summary.count) / 1e9,
                summary.mean_ns / 1e3,
                us(summary.p99_ns),
            ));
        }
        if let Some(late) = self.lateness.summary() {
            text.push_str(&format!(
                "  calls were late by p50 {:.1} us, p99 {:.1} us, at most {:.1} us\n",
                us(late.p50_ns),
                us(late.p99_ns),
                us(late.max_ns),
            ));
        }
        text
    }
}

/// A trace to replay on a directory.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The trace.
    pub trace: Trace,
    /// Notes about the trace for the outcome.
    pub trace_notes: Vec<String>,
    /// The specification.
    pub spec: ReplaySpec,
}

impl Workload for Replay {
    fn run(&self, seed: u64, progress: &dyn Progress, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let spec = ReplaySpec {
            seed,
            ..self.spec.clone()
        };
        let mut outcome = super::run(&self.trace, &spec, progress, stop)?.outcome()?;
        let mut notes = self.trace_notes.clone();
        notes.append(&mut outcome.notes);
        outcome.notes = notes;
        Ok(outcome)
    }
}
