//! Outcomes as run records.

use std::collections::BTreeMap;
use std::path::Path;

use results::{
    HostInfo, ImpossibleLatency, RunRecord, SCHEMA, Sample, TargetInfo, TimedWindow, counter, nearest_f64,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::file::{FileOutcome, OperationOutcome};
use crate::metadata::{MetadataOutcome, StepOutcome};
use crate::processor::{ProcessorUse, WorkerUse};
use crate::spec::FinalSync;

/// What a record says beside the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct RunIdentity {
    /// The command line that started the run.
    pub command: Vec<String>,
    /// Version of the program.
    pub tool_version: String,
    /// Which configuration this is, in a comparison.
    pub label: String,
    /// Round of the comparison, counted from 0.
    pub round: u32,
    /// The machine (see [`crate::environment::host`]).
    pub host: HostInfo,
    /// The file system (see [`crate::environment::target`]).
    pub target: TargetInfo,
}

impl FileOutcome {
    /// The outcome as a record. The caller may add counters, such as those of a mount.
    ///
    /// # Errors
    /// When a latency is longer than the window.
    pub fn into_record(self, identity: RunIdentity) -> Result<RunRecord, ImpossibleLatency> {
        let samples = self.samples()?;
        let mut counters = usage_counters(self.processor, self.workers);
        counters.extend(self.window.counters.clone());
        counters.insert(
            counter::LONGEST_WORKER.to_owned(),
            nearest_f64(self.longest_worker_ns),
        );
        if let Some(cached) = self.cache.cached_bytes {
            counters.insert(counter::CACHED_BEFORE.to_owned(), nearest_f64(cached));
        }
        if self.spec.final_sync == FinalSync::Untimed {
            counters.insert("untimed_sync_ns".to_owned(), nearest_f64(self.sync_ns));
        }
        if let Some(verified) = self.verified {
            counters.insert("verified_bytes".to_owned(), nearest_f64(verified.bytes));
        }
        let mut workload = described("file", &self.spec, &self.spec.directory);
        workload["cache_state"] = json!(self.cache);
        workload["absent"] = json!(self.window.absent);
        Ok(finished(
            identity,
            self.started_unix_ns,
            workload,
            samples,
            counters,
            self.complete,
        ))
    }

    /// What each kind of operation did.
    pub(crate) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let pattern = self.spec.pattern;
        let kinds = [
            ("read", &self.read, pattern.reads()),
            ("write", &self.write, pattern.writes()),
            ("sync", &self.sync, self.sync.count > 0),
            ("final-sync", &self.final_sync, self.final_sync.count > 0),
        ];
        let of_the_run = kinds
            .into_iter()
            .filter(|(.., is_part_of_the_run)| *is_part_of_the_run);
        of_the_run
            .map(|(operation, done, _)| self.sample(operation, done))
            .collect()
    }

    pub(crate) fn sample(
        &self,
        operation: &str,
        done: &OperationOutcome,
    ) -> Result<Sample, ImpossibleLatency> {
        let untimed_sync_ns = self.sync_ns - self.timed_sync_ns();
        let window = TimedWindow {
            elapsed_ns: self.elapsed_ns(),
            sync_ns: self.timed_sync_ns(),
            close_ns: self.close_ns,
            outside_ns: self.ramp_ns.saturating_add(untimed_sync_ns),
        };
        done.sample(operation, window)
    }
}

impl OperationOutcome {
    /// What was done in a window.
    pub(crate) fn sample(&self, operation: &str, window: TimedWindow) -> Result<Sample, ImpossibleLatency> {
        Sample::new(operation, (self.count, self.bytes), window, self.latency.clone())
    }
}

impl MetadataOutcome {
    /// The outcome as a record. The caller may add counters, such as those of a mount.
    ///
    /// # Errors
    /// When a latency is longer than its window.
    pub fn into_record(self, identity: RunIdentity) -> Result<RunRecord, ImpossibleLatency> {
        let samples = self.samples()?;
        let counters = usage_counters(self.processor, self.worker);
        let mut workload = described("metadata", &self.spec, &self.spec.directory);
        workload["cache_method"] = json!(self.cache_method);
        Ok(finished(
            identity,
            self.started_unix_ns,
            workload,
            samples,
            counters,
            self.complete,
        ))
    }

    /// What each step did.
    pub(crate) fn samples(&self) -> Result<Vec<Sample>, ImpossibleLatency> {
        let steps = [
            ("create", &self.create),
            ("list", &self.list),
            ("stat", &self.stat),
            ("remove", &self.remove),
        ];
        let done = steps.into_iter().filter(|(_, step)| step.count > 0);
        done.map(|(name, step)| step_sample(name, step)).collect()
    }
}

fn step_sample(operation: &str, step: &StepOutcome) -> Result<Sample, ImpossibleLatency> {
    let window = TimedWindow {
        sync_ns: step.sync_ns,
        ..TimedWindow::of(step.elapsed_ns)
    };
    Sample::new(operation, (step.count, step.bytes), window, step.latency.clone())
}

/// The description with its kind. A directory name that is not UTF-8 is written with replacement characters:
/// the record is for people, and JSON has no other way.
pub(crate) fn described(kind: &str, spec: &impl Serialize, directory: &Path) -> Value {
    let mut workload = serde_json::to_value(spec).unwrap_or_else(|_| json!({}));
    workload["kind"] = json!(kind);
    workload["directory"] = json!(directory.to_string_lossy());
    workload
}

pub(crate) fn usage_counters(
    machine: Option<ProcessorUse>,
    workers: Option<WorkerUse>,
) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    let mut insert = |name: &str, value: f64| counters.insert(name.to_owned(), value);
    if let Some(machine) = machine {
        insert(counter::CPU_ACTIVE, machine.active_percent());
        insert("cpu_user_percent", machine.user_percent);
        insert("cpu_system_percent", machine.system_percent);
        insert("cpu_interrupt_percent", machine.interrupt_percent);
        insert(counter::CPU_IDLE, machine.idle_percent);
        insert(counter::CPU_IOWAIT, machine.iowait_percent);
        insert(counter::CPU_STEAL, machine.steal_percent);
        insert(
            counter::CONTEXT_SWITCHES_SYSTEM,
            nearest_f64(machine.context_switches_count),
        );
    }
    if let Some(workers) = workers {
        let (voluntary, involuntary) = (
            workers.context_switches_voluntary_count,
            workers.context_switches_involuntary_count,
        );
        insert(counter::CONTEXT_SWITCHES_VOLUNTARY, nearest_f64(voluntary));
        insert(counter::CONTEXT_SWITCHES_INVOLUNTARY, nearest_f64(involuntary));
        insert(counter::WORKER_CPU, nearest_f64(workers.cpu_ns));
        insert(counter::WORKER_CPU_USER, nearest_f64(workers.cpu_user_ns));
    }
    counters
}

pub(crate) fn finished(
    identity: RunIdentity,
    started_unix_ns: u64,
    workload: Value,
    samples: Vec<Sample>,
    counters: BTreeMap<String, f64>,
    complete: bool,
) -> RunRecord {
    RunRecord {
        schema: SCHEMA.to_owned(),
        command: identity.command,
        tool_version: identity.tool_version,
        started_unix_ns,
        host: identity.host,
        target: identity.target,
        label: identity.label,
        round: identity.round,
        workload,
        samples,
        counters,
        complete,
    }
}
